/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that files are opened along an order (a listing, a recorded one), by one reader
 * or by several, and says how far to fetch ahead. Pure: it knows positions in the order.
 *
 * A run begins with any open and is proven by a few that lie close together: most of the
 * last positions, or of every n-th one (n is the greatest common divisor of the distances,
 * so readers that share every n-th file among them count as one). The window is a multiple
 * of the files opened in the run and so at least doubles when it has been read. A run that
 * becomes sparse proves nothing any more and begins anew.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PREFETCH_SEEN 512 /* positions behind the furthest open that are remembered */
#define PREFETCH_NEED_MIN 4
#define PREFETCH_NEED_MAX 64

struct prefetch {
	uint64_t start;                    /* where the run began */
	uint64_t head;                     /* the furthest open */
	uint64_t next;                     /* from here on nothing has been asked for */
	uint64_t stride;                   /* of the run; 0: one open so far */
	uint32_t opens;                    /* different files of the run */
	uint64_t seen[PREFETCH_SEEN / 64]; /* opened; by position modulo PREFETCH_SEEN */
};

/* The first open. */
void prefetch_init(struct prefetch *p, uint64_t position);

/* Another one. false: it was opened before, or lies too far back; it proves nothing. */
bool prefetch_note(struct prefetch *p, uint64_t position);

/* Whether the run is without holes and would not be one with this open: it is another
 * reader's then. */
bool prefetch_is_other(const struct prefetch *p, uint64_t position);

/* The next position to fetch ahead, or PREFETCH_NONE. `need`: opens that prove a run (more
 * after runs that came to nothing); window_max: files ahead of the readers at most. */
#define PREFETCH_NONE UINT64_MAX
uint64_t prefetch_want(const struct prefetch *p, uint32_t need, uint32_t window_max);

/* Position has been asked for. */
void prefetch_asked(struct prefetch *p, uint64_t position);
