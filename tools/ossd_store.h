/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage engine: buckets and objects as files with an index beside them.
 *
 * Every call is atomic and durable under kill -9: it is done wholly or not at all, and
 * what was answered stays. With `sync` that holds for a power failure too. Functions
 * return 0, a negative errno or an enum ossd_code (ossd_code.h). All may block on the disk
 * and be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/ossd_file.h"
#include "tools/ossd_index.h"
#include "tools/ossd_object.h"

struct ossd_store;
struct why;

struct ossd_store_config {
	const char *root;
	bool sync;         /* every change reaches the disk before it is answered */
	uint64_t part_min; /* bytes of every part but the last */
};

/* Takes the root for this process alone, finishes what a crash interrupted, indexes files
 * that were put there by hand. */
int ossd_store_open(struct ossd_store **out, const struct ossd_store_config *config,
		    struct why *why);
struct ossd_store *ossd_store_close(struct ossd_store *store); /* takes NULL */

/* For reading only: transactions that write are the store's. */
struct ossd_index *ossd_store_index(struct ossd_store *store);

/* Names one object. Borrows. */
struct ossd_ref {
	const char *bucket;
	const char *key;
	size_t key_len;
};

/* ---- buckets --------------------------------------------------------------------------- */

int ossd_store_bucket(struct ossd_store *store, const char *name,
		      struct ossd_bucket *out);
/* `bucket`: name, acl, storage_class. OSSD_E_BUCKET_EXISTS when it is there already;
 * `bucket` is then what is there. */
int ossd_store_bucket_create(struct ossd_store *store, struct ossd_bucket *bucket);
int ossd_store_bucket_set_acl(struct ossd_store *store, const char *name,
			      enum ossd_acl acl);
int ossd_store_bucket_delete(struct ossd_store *store, const char *name);

/* ---- objects --------------------------------------------------------------------------- */

int ossd_store_spool(struct ossd_store *store, struct ossd_spool *spool);

/* What the index knows. The object is the caller's to fini. */
int ossd_store_head(struct ossd_store *store, const struct ossd_ref *ref,
		    struct ossd_object *out);

/* The same and a descriptor of exactly this content. A file that was changed by hand is
 * indexed first. */
int ossd_store_open_object(struct ossd_store *store, const struct ossd_ref *ref,
			   struct ossd_object *out, int *fd);

struct ossd_put {
	struct ossd_ref ref;
	struct ossd_spool *spool; /* finished; its file moves */
	struct ossd_object
		*object;       /* in: type, storage_class, attrs, and etag unless it is
				     * to be the MD5. Out: the rest */
	bool content_known;    /* object's crc and md5 are set; else the spool's count */
	bool forbid_overwrite; /* OSSD_E_FILE_EXISTS */
	const char *upload_id; /* this upload ends with it; NULL: none */
};
int ossd_store_put(struct ossd_store *store, const struct ossd_put *put);

/* 0 also when there is none. */
int ossd_store_delete(struct ossd_store *store, const struct ossd_ref *ref);

/* Changes what the index knows, not the content. `change` returns 0 or the reason to leave
 * it. */
typedef int (*ossd_change_fn)(struct ossd_object *object, void *arg);
int ossd_store_change(struct ossd_store *store, const struct ossd_ref *ref,
		      ossd_change_fn change, void *arg);

/* `object` in: what a new object gets; out: the object as it is then. *position in: where
 * the client believes the end is; out, also with OSSD_E_POSITION: where it is. */
int ossd_store_append(struct ossd_store *store, const struct ossd_ref *ref,
		      struct ossd_spool *spool, struct ossd_object *object,
		      uint64_t *position);

/* ---- multipart uploads ----------------------------------------------------------------- */

/* `upload` in: bucket, key, object (class, attrs); out: id. */
int ossd_store_upload_create(struct ossd_store *store, struct ossd_upload *upload);
/* OSSD_E_NO_SUCH_UPLOAD also when the id belongs to another key. */
int ossd_store_upload(struct ossd_store *store, const struct ossd_ref *ref,
		      const char *id, struct ossd_upload *out);
/* `part` in: number; out: the rest. */
int ossd_store_part_put(struct ossd_store *store, const struct ossd_ref *ref,
			const char *id, struct ossd_spool *spool, struct ossd_part *part);

struct ossd_part_ref;
struct ossd_complete {
	struct ossd_ref ref;
	const char *id;
	const struct ossd_part_ref *parts; /* NULL: all there are */
	size_t count;
	bool forbid_overwrite;
	const char *acl; /* of the object; NULL: the bucket's */
	bool s3_etag;    /* MD5 of the parts' binary MD5s, not of their text */
};
/* `out` is the caller's to fini. */
int ossd_store_upload_complete(struct ossd_store *store,
			       const struct ossd_complete *complete,
			       struct ossd_object *out);
int ossd_store_upload_abort(struct ossd_store *store, const struct ossd_ref *ref,
			    const char *id);
