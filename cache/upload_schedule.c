/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/upload_schedule.h"

#include "cache/origin.h"

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Parts of equal size, one step after another. */
struct step {
	uint64_t off, part_size;
	uint32_t before, count; /* parts */
};

static struct step first_step(uint64_t first_size)
{
	return (struct step){.part_size = least(first_size, ORIGIN_PART_SIZE_MAX),
			     .count = UPLOAD_SCHEDULE_STEP};
}

static void next_step(struct step *s)
{
	s->off += s->count * s->part_size;
	s->before += s->count;
	s->part_size = least(s->part_size * 2, ORIGIN_PART_SIZE_MAX);
	s->count = UPLOAD_SCHEDULE_STEP;
	if (s->part_size == ORIGIN_PART_SIZE_MAX)
		s->count = ORIGIN_PART_COUNT_MAX;
	s->count = (uint32_t)least(s->count, ORIGIN_PART_COUNT_MAX - s->before);
}

/* Where the part of that number, from 1 to one more than there can be, begins. */
static uint64_t begin_of(uint64_t first_size, uint32_t part)
{
	struct step s = first_step(first_size);

	while (part - 1 > s.before + s.count)
		next_step(&s);
	return s.off + (part - 1 - s.before) * s.part_size;
}

static uint32_t whole_in(uint64_t first_size, uint64_t size)
{
	struct step s = first_step(first_size);

	while (s.before + s.count < ORIGIN_PART_COUNT_MAX &&
	       size >= s.off + s.count * s.part_size)
		next_step(&s);
	return s.before + (uint32_t)least((size - s.off) / s.part_size, s.count);
}

uint64_t upload_schedule_whole(uint64_t first_size, uint64_t size)
{
	return begin_of(first_size, whole_in(first_size, size) + 1);
}

uint64_t upload_schedule_reach(uint64_t first_size)
{
	return begin_of(first_size, ORIGIN_PART_COUNT_MAX + 1);
}

void upload_schedule_init(struct upload_schedule *s, uint64_t size, uint64_t first_size)
{
	uint64_t rest;
	uint32_t tail = 0;

	while (first_size < ORIGIN_PART_SIZE_MAX &&
	       upload_schedule_reach(first_size) < size)
		first_size *= 2;
	*s = (struct upload_schedule){
		.size = size,
		.first_size = first_size,
		.whole = whole_in(first_size, size),
	};
	rest = size - begin_of(first_size, s->whole + 1);
	if (rest > 0) {
		uint64_t most =
			least(UPLOAD_SCHEDULE_TAIL, ORIGIN_PART_COUNT_MAX - s->whole);

		tail = (uint32_t)least(rest / first_size, most);
		/* More than a store can hold: it will say so. */
		if (tail == 0)
			tail = 1;
		s->tail_size = (rest + tail - 1) / tail;
		tail = (uint32_t)((rest + s->tail_size - 1) / s->tail_size);
	}
	s->count = s->whole + tail;
}

void upload_schedule_range(const struct upload_schedule *s, uint32_t part, uint64_t *off,
			   uint64_t *n)
{
	if (part <= s->whole) {
		*off = begin_of(s->first_size, part);
		*n = begin_of(s->first_size, part + 1) - *off;
		return;
	}
	*off = begin_of(s->first_size, s->whole + 1) +
	       (part - s->whole - 1) * s->tail_size;
	*n = least(s->size - *off, s->tail_size);
}
