/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cached object: one version of one key, and what of it lies in memory and on disk.
 *
 * object_get(), object_put(), object_read() and object_backing_fd() are for callers; the
 * struct is open to the modules of the read path only (fetch, read, store, whole, evict).
 * Objects that nobody holds stay known for a while, so that what has been checked need not
 * be checked again.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "cache/block.h"
#include "cache/ident.h"
#include "cache/index.h"
#include "cache/proof.h"
#include "cache/readahead.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

struct cache;
struct datafile;
struct fill;
struct object;
struct wait;

#define OBJECT_LEAF_BLOCKS 64
#define OBJECT_FAILURES_MAX 3 /* whole-object CRC mismatches in a row, then -EIO */

/* The version is attr's ETag and size. Returns a reference. -ENOMEM, -ENAMETOOLONG. */
int object_get(struct cache *c, struct origin *o, const char *key,
	       const struct origin_attr *attr, struct object **out);
void object_put(struct object *o);

/* The store has this version under the name now. Another one that was known goes from the
 * disk too when nobody holds it any more. For opens: what is fetched ahead may come from a
 * listing that is older than what readers have seen. */
void object_current(struct object *o);

enum object_flags {
	OBJECT_NOWAIT = 1 << 0, /* neither the store nor the disk is waited for */
};
enum object_condition {
	OBJECT_E_WAIT = 1
};

/* When a large object of a store with CRC-64 is shown. */
enum object_verify {
	OBJECT_VERIFY_END, /* as it comes, but not all of it before it is known to be right */
	OBJECT_VERIFY_WHOLE, /* not a byte before all of it is known to be right */
};

/* Bytes of the object that readers have seen may be wrong: what others keep of them must
 * go. Called with locks held: it must not call back, nor wait. */
typedef void (*object_wrong_fn)(void *arg);

/* One for each open file; the caller's, and filled by object_reader_init(). */
struct object_reader {
	struct object *object; /* borrowed */
	enum object_verify verify;
	object_wrong_fn wrong; /* or NULL */
	void *wrong_arg;
	struct list link;    /* in object->readers; under object->lock */
	uint32_t generation; /* of the object's proof; under object->lock */
	atomic_bool noted;   /* ra has seen a read */
	struct lock lock;    /* ra */
	struct readahead ra;
};
void object_reader_init(struct object_reader *reader, struct object *o,
			enum object_verify verify, object_wrong_fn wrong,
			void *wrong_arg);
void object_reader_fini(struct object_reader *reader);

/* Up to n bytes at off into p; *got less than n only at the end of the object. A reader
 * NULL reads nothing ahead.
 * -ESTALE: another version is in the store, or none; -EIO: what came does not pass its
 * checksum, or this reader has seen such bytes before; -EFBIG: OBJECT_VERIFY_WHOLE, and it
 * cannot be kept whole; -EINTR; -ETIMEDOUT; what the origin says. With OBJECT_NOWAIT also
 * OBJECT_E_WAIT, and p may hold anything then. */
int object_read(struct object *o, struct object_reader *reader, uint64_t off, void *p,
		size_t n, unsigned int flags, const struct wait *w, size_t *got);

/* A read-only descriptor of the whole object on disk, every page checked; the caller closes
 * it. -ENODATA when it is not (yet) so. What has to be checked first, because it was stored
 * by another process or a moment ago, is waited for up to a second or so, and with
 * OBJECT_NOWAIT is OBJECT_E_WAIT. */
int object_backing_fd(struct object *o, unsigned int flags, int *fd);

/* Whether it is kept in a pack, among others: it has no descriptor then. */
bool object_is_small(const struct object *o);

/* Fetches all of it in the background, as far as the budget allows now. Returns the bytes
 * asked for. */
uint64_t object_prefetch(struct object *o);

/* The pieces that fetching ahead is made of (ahead.c does it with a plan). */

/* Whether all of it is on disk, as far as can be told without reading it; counts as a use
 * of it then. */
bool object_cached(struct object *o);

/* Asks in the background for the first absent piece of [at, end), one request. *reached:
 * before it nothing is left to ask for (it may be `at` when there is much to look through:
 * call again). *coming: the last of what is on its way, a reference, or NULL.
 * OBJECT_E_WAIT: no memory now. -ESTALE, -EIO, -ENOMEM. */
int object_ask(struct object *o, uint64_t at, uint64_t end, uint64_t *reached,
	       struct fill **coming);

/* What became of an object all of which was asked for. */
enum object_end {
	OBJECT_KEPT,     /* it is on disk */
	OBJECT_SETTLING, /* on its way there */
	OBJECT_LOST,     /* not kept, or not all of it */
	OBJECT_END_N
};
enum object_end object_settled(struct object *o);

/* Ends what an origin has under way and forgets its idle objects: before it is freed. */
void object_forget_origin(struct cache *c, struct origin *origin);

/* ---- for the modules of the read path ---- */

struct object {
	struct cache *cache;
	struct origin *origin; /* borrowed */
	struct ident *ident;
	bool small; /* in a pack, not in a file of its own */
	uint64_t size;
	uint64_t pages;
	uint64_t block_count;

	/* under cache->lock */
	UT_hash_handle hh;
	struct object_key {
		struct origin *origin;
		unsigned char hash[IDENT_HASH_SIZE];
	} key;
	UT_hash_handle hh_name; /* in cache->current, among others of this name */
	struct object_name {
		struct origin *origin;
		uint64_t crc64; /* of the key: a hash, no proof */
	} name;
	bool replaced; /* another version is current */
	unsigned int refs;
	struct list idle; /* while refs is 0 */
	struct list open; /* while it has a file */

	struct lock lock;      /* everything below */
	struct block **leaves; /* OBJECT_LEAF_BLOCKS blocks each; NULL: untouched */
	struct datafile *file; /* NULL: not open */
	uint64_t nonce;        /* of the file that the blocks speak of; 0: none */
	uint64_t looked_ms;    /* when we last looked for the file and found none */
	uint64_t touched_ms;   /* when the index last heard of a use */
	uint64_t checked;      /* pages checked */
	uint64_t crc64;        /* of the whole object, when has_crc64 */
	bool has_crc64;
	bool whole;         /* all pages checked, and the proof's verdict right */
	struct proof proof; /* whether what has come is right; large objects */
	struct list readers;
	bool whole_queued;     /* being found out */
	bool stale;            /* another version is in the store */
	unsigned int failures; /* wrong verdicts in a row */
	int error;             /* of the last fill that failed */
	bool located, proven;  /* small: `where` is known; its checksum was seen right */
	struct index_small where;
};

void object_ref(struct object *o);

/* Bytes of the block: all but the last have BLOCK_BYTES. */
static inline uint32_t object_block_len(const struct object *o, uint64_t block)
{
	uint64_t rest = o->size - (block << BLOCK_SHIFT);

	return rest < BLOCK_BYTES ? (uint32_t)rest : BLOCK_BYTES;
}

/* The block, made when it is not there; NULL: no memory. Lock held. */
struct block *object_block_locked(struct object *o, uint64_t block);

/* The open file with a reference of the caller's, opened or (create) made now. Lock not
 * held. Conditions of datafile_open(). */
int object_file(struct object *o, bool create, struct datafile **out);

/* Forgets everything about the disk: the file was removed. Lock held. */
void object_detach_locked(struct object *o);

/* Reads the map of the block again, if there is a file. Lock not held. */
int object_load(struct object *o, uint64_t block);

/* All idle objects beyond the limits, or all. */
void object_trim(struct cache *c, bool all);

/* Once a second: lets go of files that another process has removed. */
void object_tidy(struct cache *c);
