/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/sums.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache/block.h"
#include "cache/datafile.h"
#include "fs/base/check.h"
#include "fs/base/crc.h"

enum {
	ROOM_MIN = 4
};

static uint32_t pages_of(uint32_t bytes)
{
	return (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

static uint32_t piece_len(const struct sums_piece *p, uint32_t block_len)
{
	uint32_t end = p->end * PAGE_BYTES;

	return (end < block_len ? end : block_len) - p->first * PAGE_BYTES;
}

/* What is known of [first, end): how many of its pages, and whether the same of them. */
static enum sums_result compare(const struct sums *s, uint32_t block_len, uint32_t first,
				uint32_t end, const unsigned char *data)
{
	uint32_t known = 0;

	for (uint32_t i = 0; s && i < s->count; i++) {
		const struct sums_piece *p = &s->pieces[i];

		if (p->end <= first || p->first >= end)
			continue;
		if (p->first < first || p->end > end)
			return SUMS_MIXED;
		if (crc64(0, data + (size_t)(p->first - first) * PAGE_BYTES,
			  piece_len(p, block_len)) != p->crc64)
			return SUMS_DIFFER;
		known += p->end - p->first;
	}
	return known == end - first ? SUMS_SAME : SUMS_NEW;
}

static struct sums *grow(struct block *b)
{
	struct sums *s = b->sums;
	uint32_t room = s ? s->room * 2 : ROOM_MIN;

	if (s && s->count < s->room)
		return s;
	s = realloc(s, sizeof(*s) + room * sizeof(s->pieces[0]));
	if (!s)
		return NULL;
	if (!b->sums)
		s->count = 0;
	s->room = room;
	b->sums = s;
	return s;
}

/* In the place of all that lies inside it. */
static void put(struct sums *s, const struct sums_piece *fresh)
{
	uint32_t at = 0, to;

	while (at < s->count && s->pieces[at].end <= fresh->first)
		at++;
	for (to = at; to < s->count && s->pieces[to].first < fresh->end;)
		to++;
	memmove(&s->pieces[at + 1], &s->pieces[to],
		(s->count - to) * sizeof(s->pieces[0]));
	s->pieces[at] = *fresh;
	s->count += 1 + at - to;
}

/* Joins what touches. */
static void join(struct sums *s, uint32_t block_len)
{
	uint32_t kept = 0;

	for (uint32_t i = 1; i < s->count; i++) {
		struct sums_piece *last = &s->pieces[kept], *p = &s->pieces[i];

		if (last->end != p->first) {
			s->pieces[++kept] = *p;
			continue;
		}
		last->crc64 =
			crc64_combine(last->crc64, p->crc64, piece_len(p, block_len));
		last->end = p->end;
	}
	s->count = kept + 1;
}

enum sums_result sums_add(struct block *b, uint32_t block_len, uint32_t first,
			  const void *data, uint32_t n, uint64_t crc, uint64_t pieces_max,
			  uint64_t *pieces)
{
	struct sums_piece fresh = {first, first + pages_of(n), crc};
	bool all = first == 0 && n == block_len;
	enum sums_result r;
	uint32_t before;
	struct sums *s;

	check(first * PAGE_BYTES + n <= block_len);
	if (b->has_crc64 && !all)
		return SUMS_MIXED;
	if (b->has_crc64)
		return b->crc64 == crc ? SUMS_SAME : SUMS_DIFFER;
	r = compare(b->sums, block_len, first, fresh.end, data);
	if (r != SUMS_NEW)
		return r;
	before = b->sums ? b->sums->count : 0;
	if (!all && *pieces >= pieces_max)
		return SUMS_FULL;
	s = grow(b);
	if (!s)
		return SUMS_FULL;
	put(s, &fresh);
	join(s, block_len);
	*pieces += s->count;
	*pieces -= before;
	if (s->count > 1 || s->pieces[0].first || s->pieces[0].end < pages_of(block_len))
		return SUMS_NEW;
	crc = s->pieces[0].crc64;
	*pieces -= sums_drop(b);
	b->crc64 = crc;
	b->has_crc64 = true;
	return SUMS_COMPLETE;
}

uint32_t sums_drop(struct block *b)
{
	uint32_t count = b->sums ? b->sums->count : 0;

	free(b->sums);
	b->sums = NULL;
	b->has_crc64 = false;
	return count;
}
