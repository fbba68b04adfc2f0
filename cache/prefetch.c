/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/prefetch.h"

#include <string.h>

#define WINDOW_FACTOR 2 /* files ahead for each one opened in the run */
#define DENSE_POINTS 64 /* positions that are looked at */
#define FEW_POINTS 16
#define STRIDE_MAX 64   /* sparser readers are not followed */
#define STRIDED_EXTRA 2 /* opens: a common divisor is sooner an accident */

static bool was_seen(const struct prefetch *p, uint64_t position)
{
	return p->seen[position / 64 % (PREFETCH_SEEN / 64)] >> position % 64 & 1;
}

static void set_seen(struct prefetch *p, uint64_t position, bool on)
{
	uint64_t *word = &p->seen[position / 64 % (PREFETCH_SEEN / 64)];
	uint64_t bit = 1ull << position % 64;

	*word = on ? *word | bit : *word & ~bit;
}

static uint64_t divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

void prefetch_init(struct prefetch *p, uint64_t position)
{
	memset(p, 0, sizeof(*p));
	p->start = p->head = position;
	p->next = position + 1;
	p->opens = 1;
	set_seen(p, position, true);
}

/* How many of the last points of the run's grid were opened. */
static uint64_t count_seen(const struct prefetch *p, uint64_t *points)
{
	uint64_t back = p->head - p->start, count = 0;

	*points = 0;
	if (p->stride == 0 || p->stride > STRIDE_MAX)
		return 0;
	if (back > (DENSE_POINTS - 1) * p->stride)
		back = (DENSE_POINTS - 1) * p->stride;
	if (back > PREFETCH_SEEN - 1)
		back = PREFETCH_SEEN - 1;
	*points = back / p->stride + 1;
	for (uint64_t i = 0; i < *points; i++)
		count += was_seen(p, p->head - i * p->stride);
	return count;
}

/* Whether it was most of them; half while they are few, because several readers do not keep
 * step. */
static bool dense(const struct prefetch *p)
{
	uint64_t points, count = count_seen(p, &points);

	if (points == 0)
		return false;
	return points > FEW_POINTS ? count * 3 >= points * 2 : count * 2 >= points;
}

static void advance(struct prefetch *p, uint64_t position)
{
	uint64_t skip = position - p->head;

	if (skip >= PREFETCH_SEEN)
		memset(p->seen, 0, sizeof(p->seen));
	else
		for (uint64_t i = 1; i <= skip; i++)
			set_seen(p, p->head + i, false);
	p->head = position;
}

bool prefetch_note(struct prefetch *p, uint64_t position)
{
	uint64_t distance;

	if (position > p->head)
		advance(p, position);
	else if (p->head - position >= PREFETCH_SEEN || was_seen(p, position))
		return false;
	set_seen(p, position, true);
	distance = position > p->start ? position - p->start : p->start - position;
	p->stride = divisor(distance, p->stride);
	p->opens++;
	/* A grid is known by its start, which must be one of its points. */
	if (position < p->start)
		p->start = position;
	if (p->opens >= PREFETCH_NEED_MIN && !dense(p)) {
		p->start = p->head;
		p->next = p->head + 1;
		p->stride = 0;
		p->opens = 1;
	}
	return true;
}

bool prefetch_is_other(const struct prefetch *p, uint64_t position)
{
	struct prefetch trial = *p;
	uint64_t points, count;

	if (position <= p->head)
		return false;
	count = count_seen(p, &points);
	if (points < FEW_POINTS || count * 16 < points * 15)
		return false;
	prefetch_note(&trial, position);
	return trial.opens <= p->opens;
}

/* The first point from p->next on that was not opened. Holes a little behind the head are
 * wanted too: some reader is about to come to them. */
static uint64_t first_open(const struct prefetch *p)
{
	uint64_t next = p->next, behind;

	if (next + DENSE_POINTS * p->stride < p->head)
		next = p->head - DENSE_POINTS * p->stride;
	if (next < p->start)
		next = p->start;
	behind = (next - p->start) % p->stride;
	if (behind)
		next += p->stride - behind;
	while (next <= p->head && (p->head - next >= PREFETCH_SEEN || was_seen(p, next)))
		next += p->stride;
	return next;
}

uint64_t prefetch_want(const struct prefetch *p, uint32_t need, uint32_t window_max)
{
	uint64_t window = (uint64_t)p->opens * WINDOW_FACTOR, next;

	if (p->opens < need + (p->stride > 1 ? STRIDED_EXTRA : 0) || !dense(p))
		return PREFETCH_NONE;
	if (window > window_max)
		window = window_max;
	next = first_open(p);
	return next <= p->head + window * p->stride ? next : PREFETCH_NONE;
}

void prefetch_asked(struct prefetch *p, uint64_t position)
{
	p->next = position + 1;
}
