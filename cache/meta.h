/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and listings of a source, with their age. One listing answers for all names of
 * its directory, and for those that are not there; names asked for one by one cost a
 * request or two each, until a few in one directory have shown that listing it is cheaper.
 * Nothing older than the time to live is ever used.
 *
 * Directories are keys that end in '/', the root is "". Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"
#include "fs/base/path.h"

struct listing;
struct meta;
struct wait;

struct meta_config {
	struct origin *origin; /* borrowed */
	struct cache *cache;   /* borrowed; its disk keeps listings; NULL: memory only */
	uint64_t ttl_ms;       /* META_FOREVER: the source never changes */
	bool posix;            /* files need the store's own mode and owner: STAT each */
	uint64_t memory_max;   /* of listings kept; 0: 16 MiB */
};
#define META_FOREVER UINT64_MAX

int meta_new(const struct meta_config *config, struct meta **out);
struct meta *meta_free(struct meta *m); /* cancels and waits for what is under way */

struct meta_entry {
	struct origin_attr attr;
	uint64_t until_ms; /* true until then; META_FOREVER */
};

/* META_E_NONE: no such name (entry->until_ms says for how long). META_E_WAIT with nowait.
 * Negative: the store's error, -EINTR, -ETIMEDOUT. */
enum meta_condition {
	META_E_NONE = 1,
	META_E_WAIT
};
int meta_lookup(struct meta *m, const char *dir, const char *name, bool nowait,
		const struct wait *w, struct meta_entry *entry);

/* With `posix`: asks for files that a listing of `dir` named, all at once, and remembers
 * the answers for meta_lookup(), which asks again for what failed. Blocks. */
#define META_ASK_MAX 64
void meta_ask_files(struct meta *m, const char *dir,
		    const char (*names)[PATH_NAME_MAX + 1], size_t count,
		    const struct wait *w);

/* The listing of a directory that is fresh now, begun if there is none: a reference. */
int meta_list(struct meta *m, const char *dir, struct listing **out);

/* The same if there is one already, else META_E_WAIT: nothing is asked of the store. */
int meta_listing(struct meta *m, const char *dir, struct listing **out);

/* How long what a listing says may be used. */
uint64_t meta_listing_until(struct meta *m, struct listing *l);

/* A file was found to be another than we said: forget what is known of it. */
void meta_invalidate(struct meta *m, const char *dir, const char *name);

struct meta_stats {
	uint64_t hidden_keys, shadowed_keys; /* in the listings so far */
	uint64_t listings, lookups;          /* asked of the store */
	uint64_t pages;                      /* requests of the listings */
	uint64_t memory;
};
void meta_stats(struct meta *m, struct meta_stats *stats);
