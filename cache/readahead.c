/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/readahead.h"

#include <string.h>

#define NEED_MIN 2
#define NEED_MAX 16
#define NEAR_MIN (256u << 10)     /* the kernel's own read-ahead arrives within this */
#define NEAR_MAX (2u << 20)       /* small seeks inside a long run */
#define WINDOW_FIRST (512u << 10) /* for a read at the start of an object */
#define WINDOW_MIN (256u << 10)
#define WINDOW_START (4u << 20)   /* until somebody has waited */
#define WINDOW_FACTOR 4           /* window for each byte of the run, at most; */
#define WINDOW_FACTOR_TRUSTED 16  /* for one from the start, TRUST_BYTES long */
#define WINDOW_LIMIT (1ull << 40) /* whatever the caller's limit is */
#define GROW_SILENT 4
#define GROW_FAR 16 /* for a silence of FAR_US: many windows fit into it */
#define FAR_US 2000
#define GROW_FLOWING 2
#define RATE_GAIN 8 /* a growth that did not bring an eighth more brought nothing */
#define REQUEST_MIN (1ull << 20)
#define REQUEST_MAX (4ull << 20)
#define WINDOW_REQUESTS 16     /* requests that share a window */
#define WASTE_MIN (256u << 10) /* unread prefetch that makes us wary */
#define TRUST_BYTES (4u << 20) /* a run this long restores trust */

void readahead_init(struct readahead *ra)
{
	memset(ra, 0, sizeof(*ra));
	ra->need = NEED_MIN;
}

/* How far from where a stream stands a read may begin and still belong to it. */
static uint64_t near(const struct readahead_stream *s)
{
	if (s->bytes < NEAR_MIN)
		return NEAR_MIN;
	return s->bytes > NEAR_MAX ? NEAR_MAX : s->bytes;
}

static struct readahead_stream *find(struct readahead *ra, uint64_t off)
{
	for (int i = 0; i < READAHEAD_STREAMS; i++) {
		struct readahead_stream *s = &ra->streams[i];

		if (s->reads && off + near(s) >= s->next && off <= s->next + near(s))
			return s;
	}
	return NULL;
}

/* The stream longest unused makes way; if it leaves much unread, trust suffers. */
static struct readahead_stream *replace(struct readahead *ra, uint64_t off, uint64_t size)
{
	struct readahead_stream *s = &ra->streams[0];

	for (int i = 1; i < READAHEAD_STREAMS; i++)
		if (ra->streams[i].used < s->used)
			s = &ra->streams[i];
	if (s->reads && s->ahead > s->next + WASTE_MIN && s->next < size) {
		ra->need *= 2;
		if (ra->need > NEED_MAX)
			ra->need = NEED_MAX;
	}
	*s = (struct readahead_stream){
		.start = off, .next = off, .ahead = off, .window = WINDOW_START};
	return s;
}

static bool proven(const struct readahead *ra, const struct readahead_stream *s)
{
	/* Sparse reading (a stride) is not a sequence. */
	if (s->bytes * 2 < s->next - s->start)
		return false;
	return s->reads >= ra->need || (s->start == 0 && ra->need == NEED_MIN);
}

static uint64_t window_of(const struct readahead_stream *s, uint64_t first,
			  uint64_t window_max)
{
	uint64_t floor = s->start == 0 ? WINDOW_FIRST : WINDOW_MIN;
	bool trusted = s->start == 0 && s->bytes >= TRUST_BYTES;
	uint64_t window = s->bytes * (trusted ? WINDOW_FACTOR_TRUSTED : WINDOW_FACTOR);

	if (window > s->window)
		window = s->window;
	if (s->start == 0 && s->reads == 1 && floor < first)
		floor = first;
	if (window < floor)
		window = floor;
	return window > window_max ? window_max : window;
}

/* Few and large ones, so that a round trip is shared by many bytes, yet enough of them to
 * use several connections. */
static uint64_t request_of(uint64_t window)
{
	uint64_t request = REQUEST_MIN;

	while (request * 2 * WINDOW_REQUESTS <= window && request < REQUEST_MAX)
		request *= 2;
	while (request > window)
		request /= 2;
	return request;
}

struct readahead_plan readahead_note(struct readahead *ra, uint64_t off, uint64_t n,
				     uint64_t size, uint64_t window_max)
{
	struct readahead_plan plan = {0};
	struct readahead_stream *s = find(ra, off);
	uint64_t end = off + n, window;

	if (!s)
		s = replace(ra, off, size);
	s->used = ++ra->clock;
	s->reads++;
	/* Only what is new: reading the same bytes again proves nothing. */
	if (end > s->next)
		s->bytes += end - (off > s->next ? off : s->next);
	else if (s->reads > 1)
		s->reads--;
	if (end > s->next)
		s->next = end;
	if (s->bytes >= TRUST_BYTES)
		ra->need = NEED_MIN;
	if (!proven(ra, s))
		return plan;
	window = window_of(s, ra->first, window_max);
	plan.request = request_of(window);
	if (s->ahead < s->next)
		s->ahead = s->next;
	/* In whole requests, as soon as there is room for one: what is on its way stays as
	 * much as the window. */
	end = s->next + window;
	end = end < size ? end - end % plan.request : size;
	if (end > s->ahead) {
		plan.off = s->ahead;
		plan.end = end;
		s->ahead = end;
	}
	return plan;
}

void readahead_waited(struct readahead *ra, uint64_t off, bool silent, uint64_t waited_us,
		      uint64_t now_us)
{
	struct readahead_stream *s = find(ra, off);
	uint64_t rate, spent;

	if (!s || s->next < s->grow_after || !proven(ra, s))
		return;
	spent = now_us > s->mark_us ? now_us - s->mark_us : 1;
	rate = s->mark_us ? (s->bytes - s->mark_bytes) * 1000000 / spent : 0;
	if (silent)
		s->window *= waited_us < FAR_US ? GROW_SILENT : GROW_FAR;
	else if (rate > s->rate + s->rate / RATE_GAIN)
		s->window *= GROW_FLOWING;
	if (s->window > WINDOW_LIMIT)
		s->window = WINDOW_LIMIT;
	s->rate = rate;
	s->mark_us = now_us;
	s->mark_bytes = s->bytes;
	s->grow_after = s->ahead;
}

void readahead_retreat(struct readahead *ra, const struct readahead_plan *plan,
		       uint64_t reached)
{
	for (int i = 0; i < READAHEAD_STREAMS; i++) {
		struct readahead_stream *s = &ra->streams[i];

		if (s->reads && s->ahead == plan->end)
			s->ahead = reached > s->next ? reached : s->next;
	}
}

uint64_t readahead_read_on(const struct readahead *ra)
{
	for (int i = 0; i < READAHEAD_STREAMS; i++) {
		const struct readahead_stream *s = &ra->streams[i];

		if (s->reads && s->start == 0)
			return s->bytes * 2 < s->next ? 0 : s->bytes;
	}
	return 0;
}
