/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in the cache directory and when it was last used: an LMDB environment shared
 * by all processes. Large objects are found without it (their name is their hash); here
 * they have a size and an age for eviction. Small objects are found only through it.
 *
 * Changes are gathered in memory and committed by index_flush(), a few times a second at
 * most: look-ups see them at once in this process, and others soon. What a crash takes
 * away is cached data that nobody finds any more, and is removed with its pack.
 *
 * Every value carries a checksum; a wrong one is as good as absent. Thread-safe; the
 * index's lock is a leaf.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/ident.h"

struct index;

/* Where a small object lies. */
struct index_small {
	uint64_t pack;      /* which pack */
	uint32_t off;       /* of the record in it */
	uint32_t ident_len; /* of the identity in the record */
	uint32_t len;       /* of the data */
	uint32_t crc;       /* CRC-32C of the data */
};

/* `path` is relative to dir_fd, a directory of the index's own. A damaged index is put
 * aside and begun anew when `alone`. Negative errno. */
int index_open(int dir_fd, const char *path, bool alone, struct index **out);
struct index *index_close(struct index *x); /* flushes */

/* 0 or INDEX_E_NONE. */
enum {
	INDEX_E_NONE = 1
};
int index_find_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		     struct index_small *small);
void index_add_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		     const struct index_small *small);
void index_drop_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE]);

/* A use, now. `bytes` is what it takes on disk as far as is known; 0: as before. */
void index_touch_large(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		       uint64_t bytes);
void index_touch_pack(struct index *x, uint64_t pack, uint64_t bytes);

/* A long listing: a file of its own (shelf.h). */
void index_touch_list(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		      uint64_t bytes);
void index_drop_list(struct index *x, const unsigned char hash[IDENT_HASH_SIZE]);

void index_drop_large(struct index *x, const unsigned char hash[IDENT_HASH_SIZE]);
/* With all small objects in it. */
void index_drop_pack(struct index *x, uint64_t pack);

/* The eviction candidates: called for each large object, pack and listing, in no order, until
 * it returns false. Must not call back into the index. */
struct index_item {
	bool is_pack, is_list;
	uint64_t pack;
	unsigned char hash[IDENT_HASH_SIZE]; /* of a large object or a listing */
	uint64_t bytes;
	uint64_t used_ms; /* clock_real_ns() in milliseconds */
};
typedef bool (*index_item_fn)(void *arg, const struct index_item *item);
int index_each(struct index *x, index_item_fn fn, void *arg);

/* Commits what has gathered. */
int index_flush(struct index *x);
