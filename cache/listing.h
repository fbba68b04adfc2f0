/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One listing of one directory: entries in the byte order of their keys, found by position
 * and by name, readable while it is still being fetched. Never changed once complete;
 * counted, so that a reader keeps the one it began with.
 *
 * Keys that cannot be names are not among the entries, but counted. Where the store has an
 * object "a" and others below "a/", the directory is shown, once.
 *
 * It can be fetched in several ranges of keys at once. What a reader sees is always the
 * part that has no gap from the start; positions in it never change. Long listings lie in
 * a file of the cache directory as they come, and take memory for their blocks' first
 * names only; where there is no such directory they lie in memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"
#include "fs/base/path.h"

struct cache;
struct listing;
struct listing_range;
struct wait;

/* One entry as it is handed out. */
struct listing_entry {
	struct origin_attr attr; /* is_dir says what it is */
	char name[PATH_NAME_MAX + 1];
};

/* One reference. `dir` is "" or ends in '/'. born_ms: when the answer begins to age
 * (clock_mono_ms). `cache` (borrowed; NULL: none) has the disk for what is long. */
int listing_new(const char *dir, uint64_t born_ms, struct cache *cache,
		struct listing **out);
struct listing *listing_get(struct listing *l);
void listing_put(struct listing *l); /* NULL is allowed */

/* ---- the fetcher's side ---- */

/* The whole as one range; called once. Ranges belong to the listing. */
struct listing_range *listing_first_range(struct listing *l);
/* What is greater than `key` (with the directory, and not yet added) becomes a range of its
 * own. NULL: no memory. */
struct listing_range *listing_split(struct listing_range *range, const char *key);
/* An origin_entry_fn; `range` is a struct listing_range. -EBADMSG for a key that is not
 * greater than the last one of the range (an equal one is passed over), -ENOMEM. */
int listing_add(void *range, const char *key, size_t key_len,
		const struct origin_attr *attr);
/* The end of a page: wakes readers, may write to the disk. */
void listing_page_done(struct listing_range *range);
/* The end of the range, which must not be used any more. */
void listing_range_done(struct listing_range *range);
/* When every range is done: counts names that are shadowed from one range to another. */
void listing_count_twins(struct listing *l);
/* The end of all: 0 when every range is done, or the errno. */
void listing_done(struct listing *l, int error);

/* ---- readers ---- */

enum listing_condition {
	LISTING_E_END = 1, /* complete, and no such entry */
	LISTING_E_WAIT,    /* not (yet) there */
};

/* From `position` on, in the order of the keys, until fn returns another value than 0,
 * which is returned. Blocks for the first entry only (not at all with `nowait`), and then
 * hands out what is there: LISTING_E_WAIT when more will come, LISTING_E_END at the end;
 * the listing's error, -EINTR, -ETIMEDOUT. `next` is the position to go on from; the entry
 * lives as long as the call. However long the listing is, this needs memory for a block of
 * it only. */
typedef int (*listing_fn)(void *arg, const struct listing_entry *entry, uint64_t next);
int listing_each(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
		 listing_fn fn, void *arg);

/* The position behind the entry of this name, for listing_each(). LISTING_E_WAIT. */
int listing_after(struct listing *l, const char *name, uint64_t *position);

/* The one at or behind a position from 0. Blocks until it is there unless `nowait`. */
int listing_at(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
	       struct listing_entry *entry);

/* By name, as far as it goes now; waits for nothing but the disk, and with `nowait` not for
 * that. */
int listing_find(struct listing *l, const char *name, bool nowait,
		 struct listing_entry *entry);

/* Waits until the first page is there (or all). */
int listing_wait_page(struct listing *l, const struct wait *w);

struct listing_facts {
	uint64_t born_ms;
	uint64_t count;            /* entries */
	uint64_t bytes;            /* memory, and a share for an open file */
	uint64_t hidden, shadowed; /* keys that cannot be shown */
	bool complete;
	int error;
};
struct listing_facts listing_facts(struct listing *l);

/* ---- on disk ---- */

/* Keeps a complete listing of a directory of `source` for later processes, where there is a
 * disk. Called once, by the fetcher. */
void listing_save(struct listing *l, const char *source);
/* Fills an empty listing from what was kept, checked: it is complete then. LISTING_E_END:
 * nothing, or older than ttl_ms (UINT64_MAX: any age). */
int listing_load(struct listing *l, const char *source, uint64_t ttl_ms);
