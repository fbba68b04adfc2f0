/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One listing of one directory: entries in the order in which the store gave them, found by
 * name, readable while it is still being fetched. Never changed once complete; counted, so
 * that a reader keeps the one it began with.
 *
 * Keys that cannot be names are not among the entries, but counted. Where the store has an
 * object "a" and others below "a/", the directory is shown.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"

struct listing;
struct wait;

/* One entry as it is handed out. `name` lives as long as the listing. */
struct listing_entry {
	const char *name;
	struct origin_attr attr; /* is_dir says what it is */
};

/* Borrows nothing. One reference. `dir` is "" or ends in '/'. born_ms: when the answer
 * begins to age (clock_mono_ms). */
int listing_new(const char *dir, uint64_t born_ms, struct listing **out);
struct listing *listing_get(struct listing *l);
void listing_put(struct listing *l); /* NULL is allowed */

/* The fetcher's side: entries as they come (an origin_entry_fn: arg is the listing), the
 * end of a page, the end of all (0 or the errno). */
int listing_add(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr);
void listing_page_done(struct listing *l);
void listing_done(struct listing *l, int error);

enum listing_condition {
	LISTING_E_END = 1, /* complete, and no such entry */
	LISTING_E_WAIT,    /* not (yet) there */
};

/* By position from 0. Blocks until it is there unless `nowait`. */
int listing_at(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
	       struct listing_entry *entry);

/* From `position` on, in the order of the keys, until fn returns another value than 0,
 * which is returned. Blocks for the first entry only (not at all with `nowait`), and then
 * hands out what is there: LISTING_E_WAIT when more will come, LISTING_E_END at the end;
 * the listing's error, -EINTR, -ETIMEDOUT. `next` is the position to go on from; the entry
 * lives as long as the call. fn must not call into the listing. However long the listing
 * is, this needs memory for a piece of it only. */
typedef int (*listing_fn)(void *arg, const struct listing_entry *entry, uint64_t next);
int listing_each(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
		 listing_fn fn, void *arg);

/* The position behind the entry of this name, for listing_each(). LISTING_E_WAIT. */
int listing_after(struct listing *l, const char *name, uint64_t *position);

/* By name, as far as it goes now; never blocks. */
int listing_find(struct listing *l, const char *name, struct listing_entry *entry);

/* Waits until the first page is there (or all). */
int listing_wait_page(struct listing *l, const struct wait *w);

struct listing_facts {
	uint64_t born_ms;
	uint64_t count, bytes;     /* entries; memory */
	uint64_t hidden, shadowed; /* keys that cannot be shown */
	bool complete;
	int error;
};
struct listing_facts listing_facts(struct listing *l);
