/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a staged file has in common with an object of the store.
 *
 * Bytes [0, len) of the file are the object's, but for those that were changed since; all
 * behind is the file's own. A sparse file has holes where it was never given the object's
 * bytes: these must come from the object, and a version of the file can only be published
 * with its help. A file that is not sparse has all its bytes and may forget the object
 * at any time.
 *
 * One that is doubtful was in the hands of writers that nobody watched (FUSE passthrough):
 * what it says of changes counts only if the bytes prove it (patch_prove).
 *
 * Thread-safe; its lock has only that of a patch_table below it, and is held across local
 * writes to a sparse file so that no reader takes a hole for what is about to be there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"
#include "cache/ranges.h"

#define PATCH_RANGES_MAX 4096 /* kept apart, and written to the journal */

struct patch;
struct patch_table;

struct patch_sync {
	uint64_t number;
	struct ranges own;
};

/* The object, as it was when the file was made from it or became it. */
struct patch_object {
	char etag[ORIGIN_ETAG_MAX];
	uint64_t size, crc64;
	bool has_crc64;
};

/* A sparse file of the object's size without any byte of its own, or (not sparse) one that
 * holds just the object's bytes. */
int patch_new(const struct patch_object *object, bool sparse, struct patch **out);
/* As above, of a file whose first `len` bytes are the object's but for `own`, which is
 * copied. -EINVAL: these cannot be (they came from disk). */
int patch_restore(const struct patch_object *object, uint64_t len,
		  const struct ranges *own, struct patch **out);
/* For a copy of the file's first `size` bytes. */
int patch_clone(struct patch *p, uint64_t size, struct patch **out);
struct patch *patch_free(struct patch *p); /* takes NULL, returns NULL */

/* From now on the table has what the next process must know of a sparse file, which is that
 * of `content`; until the file is whole, or patch_unkeep(). -ENOMEM: no room. */
int patch_keep(struct patch *p, struct patch_table *t, uint64_t content);
void patch_unkeep(struct patch *p);
/* What the table has of a file from the last process; *out NULL: that had all its bytes.
 * Its ranges count as changed, all of them. -ENODATA: it had no room for them. */
int patch_take_over(struct patch_table *t, uint64_t content, struct patch **out);
/* Once behind that: the object is known to be this one, if it can be. */
void patch_settle(struct patch *p, const char *etag);

void patch_object(struct patch *p, struct patch_object *out);
bool patch_is_sparse(struct patch *p);
bool patch_is_doubtful(struct patch *p);
uint64_t patch_len(struct patch *p);
/* Ranges that the file holds itself and that are durable, for the journal: of others a power
 * cut may leave zeros where the object had bytes. */
int patch_own(struct patch *p, struct ranges *out);
/* Around a sync of the file: what it held at the beginning is durable at the end. -ENOMEM. */
int patch_sync_begin(struct patch *p, struct patch_sync *sync);
void patch_sync_end(struct patch *p, struct patch_sync *sync, bool done);
/* What was taken over from a process that died is durable as far as the journal says so. */
int patch_trust(struct patch *p, const struct patch *journal);
/* Whether there are more of them than the journal should carry. */
bool patch_is_scattered(struct patch *p);

/* pwrite(2) of all n bytes, and they are the file's own. */
int patch_write(struct patch *p, int fd, const void *data, size_t n, uint64_t off);
/* fallocate(2) that makes zeros, with FALLOC_FL_PUNCH_HOLE or _ZERO_RANGE in `mode`; they are
 * the file's own. */
int patch_zero(struct patch *p, int fd, int mode, uint64_t off, uint64_t len);
/* The bytes were changed by a write during which a version of the file was made. */
int patch_mark_late(struct patch *p, uint64_t off, uint64_t end);
/* Any of the bytes that the file holds itself may have come so: who would know is gone. */
int patch_mark_all_late(struct patch *p);
/* The file was cut to `size`, or grew to it. */
void patch_cut(struct patch *p, uint64_t size);

/* Whether the byte at `off` is in the file; *end: where that stops being so. */
bool patch_has(struct patch *p, uint64_t off, uint64_t *end);
/* Whether the byte at `off` is the object's still; *end as above. */
bool patch_same(struct patch *p, uint64_t off, uint64_t *end);

/* Writes the object's bytes where the file has holes; what is its own stays. They count as
 * the file's only after patch_whole(). */
int patch_fill(struct patch *p, int fd, const void *data, size_t n, uint64_t off);
/* Every hole was filled, and that is durable. */
void patch_whole(struct patch *p);

/* The object is `now`, with the same bytes, if it was `etag`. Returns whether it was. */
bool patch_rebase(struct patch *p, const char *etag, const struct patch_object *now);
/* The file's first object.size bytes are the object now. */
void patch_stored(struct patch *p, const struct patch_object *object);
void patch_doubt(struct patch *p);  /* not sparse */
void patch_prove(struct patch *p);  /* the CRC-64 of the first object.size bytes agrees */
void patch_forget(struct patch *p); /* not sparse: all bytes are the file's own */

/* Fetches what [off, end) of the file lacks from the object at `key` into `fd`, with
 * patch_fill(). `call` sends a request and returns its result. -ESTALE: another object is
 * there. Blocks. */
int patch_fetch(struct patch *p, int fd, const char *key, uint64_t off, uint64_t end,
		int (*call)(void *arg, struct origin_req *req), void *arg);
