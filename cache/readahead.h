/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices sequential reading and says what to fetch ahead of it. Pure.
 *
 * A few streams are followed at once, because one handle may serve several readers and the
 * kernel sends its own read-ahead out of order. A window opens on evidence (several reads
 * that continue each other, or a read at the very start) and is never more than a multiple
 * of what the stream has really read: four times, sixteen times for one that began at the
 * start of the object and has gone on for 4 MiB. The first read of all may ask for as much
 * as the caller says that others like it have read on (`first`). Within that the window is
 * as large as it has proved useful:
 *
 *   a reader waited, its request     latency is longer than the window     four times as large,
 *   had not been answered yet        (and for long: by far)                (sixteen times)
 *   a reader waited, bytes were      the last growth brought more speed    twice as large
 *   arriving                         it brought none                       as it is
 *   nobody waited                    it is large enough                    as it is
 *
 * at most once for each window consumed. A stream that is given up with much of its window
 * unread makes the next ones prove more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	READAHEAD_STREAMS = 4
};

struct readahead_stream {
	uint64_t start;      /* of the run */
	uint64_t next;       /* end of the furthest read */
	uint64_t bytes;      /* read in the run */
	uint64_t ahead;      /* end of what was asked for ahead */
	uint64_t used;       /* when last, by a counter */
	uint32_t reads;      /* in the run; 0: free */
	uint64_t window;     /* wanted ahead; what was read limits it further */
	uint64_t grow_after; /* to be read up to before the window may grow again */
	uint64_t rate; /* bytes per second while the window was as it is, or smaller */
	uint64_t mark_us, mark_bytes; /* since when the next rate is measured */
};

struct readahead {
	struct readahead_stream streams[READAHEAD_STREAMS];
	uint64_t clock;
	uint64_t first; /* bytes to ask for behind a read at the start, if many */
	uint32_t need;  /* reads that count as evidence */
};

struct readahead_plan {
	uint64_t off, end; /* fetch this ahead; nothing when equal */
	uint64_t request; /* in requests that end at multiples of this (a power of two) */
};

void readahead_init(struct readahead *ra);

/* A read of n bytes at off of an object of `size` bytes; windows up to window_max. */
struct readahead_plan readahead_note(struct readahead *ra, uint64_t off, uint64_t n,
				     uint64_t size, uint64_t window_max);

/* The read at off, which was noted, had to wait for the store, for waited_us in all;
 * `silent`: for a request of which not a byte had come. Times of any steady clock. */
void readahead_waited(struct readahead *ra, uint64_t off, bool silent, uint64_t waited_us,
		      uint64_t now_us);

/* Bytes read without a gap by a reader that began at the start and is still at it. */
uint64_t readahead_read_on(const struct readahead *ra);

/* Of a plan only what lies before `reached` could be asked for: the rest is for later. */
void readahead_retreat(struct readahead *ra, const struct readahead_plan *plan,
		       uint64_t reached);
