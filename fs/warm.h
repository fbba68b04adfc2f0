/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of `sluice warm`: files and trees fetched into the cache ahead of their use. A job is
 * a file of keys (order.h); each names a file or a tree. Jobs run one after the other, go on
 * without whoever started them, and skip what the cache holds, so that one that was ended is
 * done again cheaply.
 *
 * A job never pushes out what it fetched itself: what does not fit into the cache beside it
 * is counted and left. A recorded order that does not fit goes on as files of it are read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/err.h"

struct ahead;
struct buf;
struct cache;
struct meta;
struct origin;
struct warm;

struct warm_config {
	struct ahead *ahead; /* these four borrowed */
	struct cache *cache;
	struct meta *meta;
	struct origin *origin;
	uint64_t deadline_ms; /* of one look-up */
};

int warm_new(const struct warm_config *config, struct warm **out);
struct warm *warm_free(struct warm *w); /* ends the jobs; takes NULL, returns NULL */

/* Takes fd. `dir`: what absolute lines begin with. -EBUSY: too many jobs wait; -ENODEV: the
 * cache has no disk; a sentence. */
int warm_start(struct warm *w, int fd, const char *dir, uint64_t *id, struct why *why);

/* Waits until the job is over, or has to wait for the readers of its order, or until_ms. */
enum warm_condition {
	WARM_E_RUNS = 1, /* not over yet */
	WARM_E_NONE,     /* no such job (any more) */
};
int warm_wait(struct warm *w, uint64_t id, uint64_t until_ms);

/* It is over, and everything it names is in the cache. */
bool warm_complete(struct warm *w, uint64_t id);

/* One job (0: all that are not over). WARM_E_NONE. */
int warm_cancel(struct warm *w, uint64_t id);

/* Appends the job as an object; WARM_E_NONE. */
int warm_job_json(struct warm *w, uint64_t id, struct buf *b);
/* Appends the array of jobs, the latest last. */
void warm_json(struct warm *w, struct buf *b);

/* A file is read (dir "" or ending in '/'). Nothing is done with it unless warm_cares(). */
bool warm_cares(struct warm *w);
void warm_read(struct warm *w, const char *dir, const char *name);
