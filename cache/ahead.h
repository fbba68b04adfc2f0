/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches whole objects that no reader waits for, on a thread of its own: the files that
 * follow those being read (follow.h), and what jobs ask for.
 *
 * Readers come first: their requests pass these in the store's queue, a quarter of the
 * memory is theirs, and while one of them waits for the store the jobs keep to a quarter of
 * their requests. Then the files along a listing, then the jobs in the order they came.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/base/list.h"

struct ahead;
struct ahead_item;
struct cache;
struct meta;
struct object;
struct origin;

struct ahead_config {
	struct cache *cache; /* these three borrowed */
	struct origin *origin;
	struct meta *meta;
	uint32_t requests_max; /* under way at most; 0: 28 */
};

int ahead_new(const struct ahead_config *config, struct ahead **out);

/* All items are done. Takes NULL, returns NULL. */
struct ahead *ahead_free(struct ahead *a);

/* A file (dir "" or ending in '/') is read for the first time since it was opened. */
void ahead_opened(struct ahead *a, const char *dir, const char *name);

/* Whether to tell of it: not while everything comes from the cache. `slow`: the read had to
 * wait. */
bool ahead_cares(struct ahead *a, bool slow);

/* One object for the cache. The caller's memory until `done`, which is called once on
 * ahead's thread and must not block. */
enum ahead_condition {
	AHEAD_E_CACHED = 1, /* it was there */
	AHEAD_E_LOST,       /* it was fetched, and the cache did not keep it */
};
typedef void (*ahead_done_fn)(struct ahead_item *item, int result);
struct ahead_item {
	struct object *object;   /* a reference of the caller's */
	const atomic_bool *stop; /* asks for no more: done with -ECANCELED */
	ahead_done_fn done;      /* 0, enum ahead_condition or a negative errno */

	/* Internal. */
	struct list link;
	uint64_t at, end;
	uint32_t under_way;
	uint32_t looks;
	uint64_t look_ms, since_ms;
	int error;
	bool guess; /* ours: along a listing */
};
void ahead_submit(struct ahead *a, struct ahead_item *item);

/* `stop` of some item was set. */
void ahead_wake(struct ahead *a);

struct ahead_stats {
	uint64_t files, hits;    /* fetched along listings; and of these read later */
	uint64_t unread, wasted; /* bytes of these: to be read; given up */
	uint64_t under_way;      /* requests */
};
void ahead_stats(struct ahead *a, struct ahead_stats *stats);
