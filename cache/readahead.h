/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices sequential reading and says what to fetch ahead of it. Pure.
 *
 * A few streams are followed at once, because one handle may serve several readers and the
 * kernel sends its own read-ahead out of order. A window opens on evidence (several reads
 * that continue each other, or a read at the very start), is a multiple of what the stream
 * has really read, and so at least doubles with every window consumed. A stream that is
 * given up with much of its window unread makes the next ones prove more.
 */
#pragma once

#include <stdint.h>

enum {
	READAHEAD_STREAMS = 4
};

struct readahead_stream {
	uint64_t start; /* of the run */
	uint64_t next;  /* end of the furthest read */
	uint64_t bytes; /* read in the run */
	uint64_t ahead; /* end of what was asked for ahead */
	uint64_t used;  /* when last, by a counter */
	uint32_t reads; /* in the run; 0: free */
};

struct readahead {
	struct readahead_stream streams[READAHEAD_STREAMS];
	uint64_t clock;
	uint32_t need; /* reads that count as evidence */
};

struct readahead_plan {
	uint64_t off, end; /* fetch this ahead; nothing when equal */
	uint64_t request; /* in requests that end at multiples of this (a power of two) */
};

void readahead_init(struct readahead *ra);

/* A read of n bytes at off of an object of `size` bytes; windows up to window_max. */
struct readahead_plan readahead_note(struct readahead *ra, uint64_t off, uint64_t n,
				     uint64_t size, uint64_t window_max);

/* Of a plan only what lies before `reached` could be asked for: the rest is for later. */
void readahead_retreat(struct readahead *ra, const struct readahead_plan *plan,
		       uint64_t reached);
