/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered index: buckets, objects, uploads and the redo log, in LMDB below .ossd/.
 *
 * One writer at a time: whoever begins a writing transaction holds the store's lock
 * (ossd_store.c). Readers see a snapshot and never wait. What a transaction hands out is
 * copied, unless it says "view": valid until the transaction ends.
 *
 * Object keys may be longer than LMDB's 511 bytes; how those are kept in order is told in
 * ossd_index.c.
 */
#pragma once

#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/ossd_key.h"
#include "tools/ossd_object.h"

struct ossd_index;
struct why;

int ossd_index_open(struct ossd_index **out, int root_fd, const char *path, bool sync,
		    struct why *why);
struct ossd_index *ossd_index_close(struct ossd_index *ix); /* takes NULL, returns NULL */

struct ossd_txn {
	struct ossd_index *ix;
	MDB_txn *mdb; /* NULL once it ended */
};
int ossd_txn_begin(struct ossd_index *ix, bool write, struct ossd_txn *txn);
int ossd_txn_commit(struct ossd_txn *txn);
void ossd_txn_end(struct ossd_txn *txn); /* aborts unless committed; for _cleanup_ */

/* ---- buckets --------------------------------------------------------------------------- */

enum ossd_acl {
	OSSD_ACL_DEFAULT, /* objects only: as the bucket */
	OSSD_ACL_PRIVATE,
	OSSD_ACL_READ,
	OSSD_ACL_READ_WRITE,
	OSSD_ACL_N
};
const char *ossd_acl_name(enum ossd_acl acl);
int ossd_acl_parse(const char *name, enum ossd_acl *out); /* -EINVAL */

struct ossd_bucket {
	char name[OSSD_BUCKET_SIZE];
	uint32_t id; /* never used again */
	enum ossd_acl acl;
	enum ossd_class storage_class;
	int64_t created_ms;
};

/* 0 or OSSD_E_NO_SUCH_BUCKET. */
int ossd_index_bucket(struct ossd_txn *txn, const char *name, struct ossd_bucket *out);
/* id 0: takes a new one and sets it. */
int ossd_index_bucket_put(struct ossd_txn *txn, struct ossd_bucket *bucket);
int ossd_index_bucket_del(struct ossd_txn *txn, const char *name);
/* The first bucket with a name greater than `after`. 0 or OSSD_E_NO_SUCH_BUCKET. */
int ossd_index_bucket_next(struct ossd_txn *txn, const char *after,
			   struct ossd_bucket *out);

/* ---- objects --------------------------------------------------------------------------- */

/* 0 or OSSD_E_NO_SUCH_KEY. The caller's to fini. */
int ossd_index_get(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n,
		   struct ossd_object *out);
int ossd_index_put(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n,
		   const struct ossd_object *object);
/* 0 also when there is none. */
int ossd_index_del(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n);

/* Walks a bucket in byte order of the keys. */
struct ossd_cursor {
	MDB_cursor *mdb;
	uint32_t bucket;
	MDB_val at_key, at_value; /* where LMDB stands */
	size_t group_at;          /* offset of this entry in a group of long keys */
	bool in_group;
	const char *key; /* view */
	size_t key_len;
	const void *value; /* view; for ossd_object_decode() */
	size_t value_len;
	char long_key[OSSD_KEY_MAX];
};
int ossd_cursor_open(struct ossd_txn *txn, uint32_t bucket, struct ossd_cursor *c);
void ossd_cursor_close(struct ossd_cursor *c); /* before the transaction ends */
/* To the first key >= `key`, which need not be a valid one. 0 or OSSD_E_NO_SUCH_KEY. */
int ossd_cursor_seek(struct ossd_cursor *c, const char *key, size_t n);
int ossd_cursor_next(struct ossd_cursor *c); /* 0 or OSSD_E_NO_SUCH_KEY */

/* ---- multipart uploads ----------------------------------------------------------------- */

#define OSSD_UPLOAD_ID_LEN 32

struct ossd_upload {
	char id[OSSD_UPLOAD_ID_LEN + 1];
	char bucket[OSSD_BUCKET_SIZE];
	char key[OSSD_KEY_MAX + 1];
	struct ossd_object object; /* what it will be; modified_ms: when initiated */
};

struct ossd_part {
	uint32_t number;
	uint32_t reserved;
	uint64_t size, crc;
	uint64_t serial; /* names its file */
	int64_t modified_ms;
	unsigned char md5[16];
};

/* 0 or OSSD_E_NO_SUCH_UPLOAD. The object is the caller's to fini. */
int ossd_index_upload(struct ossd_txn *txn, const char *id, struct ossd_upload *out);
int ossd_index_upload_put(struct ossd_txn *txn, const struct ossd_upload *upload);
/* With its parts. 0 or OSSD_E_NO_SUCH_UPLOAD. */
int ossd_index_upload_del(struct ossd_txn *txn, const char *id);
/* The first upload with an id greater than `after`. */
int ossd_index_upload_next(struct ossd_txn *txn, const char *after,
			   struct ossd_upload *out);

int ossd_index_part_put(struct ossd_txn *txn, const char *id,
			const struct ossd_part *part);
/* The first part with a number greater than `after`. 0 or OSSD_E_INVALID_PART. */
int ossd_index_part_next(struct ossd_txn *txn, const char *id, uint32_t after,
			 struct ossd_part *out);

/* ---- redo log -------------------------------------------------------------------------- */

/* A change of a file that follows a committed transaction; done again at the next start if
 * the process died between the two. */
enum ossd_redo_op {
	OSSD_REDO_RENAME, /* temporary file -> the key's place */
	OSSD_REDO_UNLINK, /* the key's file, unless the key is there again */
};

struct ossd_redo {
	uint64_t seq;
	enum ossd_redo_op op;
	bool odd;
	char temp[32]; /* name of the temporary file; RENAME only */
	char bucket[OSSD_BUCKET_SIZE];
	char key[OSSD_KEY_MAX + 1];
};
int ossd_index_redo_put(struct ossd_txn *txn, const struct ossd_redo *redo);
int ossd_index_redo_del(struct ossd_txn *txn, uint64_t seq);
/* The first with a number greater than `after` (0: the first of all). 0 or
 * OSSD_E_NO_SUCH_KEY. */
int ossd_index_redo_next(struct ossd_txn *txn, uint64_t after, struct ossd_redo *out);

/* ---- shared by the two halves ---------------------------------------------------------- */

enum ossd_db {
	OSSD_DB_BUCKETS,
	OSSD_DB_OBJECTS,
	OSSD_DB_UPLOADS,
	OSSD_DB_PARTS,
	OSSD_DB_REDO,
	OSSD_DB_N
};
/* Bytes that LMDB only reads, as its type without const. */
MDB_val ossd_index_view(const void *p, size_t n);
MDB_dbi ossd_index_dbi(const struct ossd_txn *txn, enum ossd_db db);
/* LMDB's result as ours: 0 or a negative errno. */
int ossd_index_error(int r);
