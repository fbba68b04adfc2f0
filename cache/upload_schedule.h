/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into which parts bytes go that are all sent. Pure.
 *
 * Where a part begins does not depend on how many bytes there will be, so that those of a
 * file that still grows are those of the whole one: after every UPLOAD_SCHEDULE_STEP parts
 * the next are twice as large, up to ORIGIN_PART_SIZE_MAX. A part is of the first size, or
 * at most a fiftieth of what is before it; and from 8 MiB on ten thousand are
 * 49 TB, more than the 48.8 TB that an OSS object may have (protocol.md §3.14). What is left
 * behind the last whole part goes in several, for many connections to share.
 */
#pragma once

#include <stdint.h>

#define UPLOAD_SCHEDULE_STEP 100
#define UPLOAD_SCHEDULE_TAIL 16 /* parts behind the last whole one, at most */

struct upload_schedule {
	uint64_t size;       /* bytes, all of them */
	uint64_t first_size; /* bytes of each part of the first step */
	uint32_t whole;      /* parts of full size */
	uint32_t count;      /* … and those behind them */
	uint64_t tail_size;  /* bytes of each of these but the last */
};

/* `first_size`, not 0, is made larger where ORIGIN_PART_COUNT_MAX parts would not be enough. */
void upload_schedule_init(struct upload_schedule *s, uint64_t size, uint64_t first_size);

/* Of the part of that number, from 1 to `count`. */
void upload_schedule_range(const struct upload_schedule *s, uint32_t part, uint64_t *off,
			   uint64_t *n);

/* The bytes of the whole parts in the first `size` bytes. */
uint64_t upload_schedule_whole(uint64_t first_size, uint64_t size);

/* The most bytes that fit into parts that begin with this size. */
uint64_t upload_schedule_reach(uint64_t first_size);
