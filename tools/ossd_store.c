/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects as files, the index as the truth about which of them exist.
 *
 * Happy path of a PUT: the body is received into .ossd/tmp (spool); under the lock one
 * index transaction records the object and a redo note "this temporary file belongs there";
 * after its commit the file is renamed into place. A reader that comes between the two
 * finds a file that does not match the record, and waits for the lock.
 *
 * Failure modes: died before the commit: the temporary file is swept at the next start,
 * nothing happened. Died after it: the redo note renames the file then. The rename fails
 * while running: the old record is put back and the client gets an error.
 *
 * A DELETE is the same with "this file is to go". An append writes behind the end that the
 * index knows, then moves the end; what a crash leaves behind the end is cut at start.
 *
 * Files changed by hand while the server runs are noticed when they are read, by inode,
 * size and time, and indexed again.
 *
 * Lock order: append_locks[i], lock. On close: all requests have ended before.
 */
#include "tools/ossd_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_store_private.h"

/* ---- opening --------------------------------------------------------------------------- */

static int open_dir(int root_fd, const char *path, int *out)
{
	int fd;

	if (mkdirat(root_fd, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*out = fd;
	return 0;
}

static int open_folders(struct ossd_store *store, const char *root, struct why *why)
{
	int unused = -1;
	int r;

	store->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->root_fd < 0)
		return why_set(why, err_origin(-errno), "root %s: %s", root,
			       strerror(errno));
	r = open_dir(store->root_fd, OSSD_PRIVATE, &unused);
	close_fdp(&unused);
	if (r == 0)
		r = open_dir(store->root_fd, OSSD_PRIVATE "/tmp", &store->tmp_fd);
	if (r == 0)
		r = open_dir(store->root_fd, OSSD_PRIVATE "/uploads", &store->uploads_fd);
	if (r < 0)
		return why_set(why, err_origin(r), "root %s: cannot write there: %s",
			       root, strerror(-r));
	store->lock_fd = openat(store->root_fd, OSSD_PRIVATE "/lock",
				O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (store->lock_fd < 0 || flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return why_set(why, err_origin(-errno), "root %s: %s", root,
			       errno == EWOULDBLOCK ? "another ossd serves it"
						    : strerror(errno));
	return 0;
}

int ossd_store_open(struct ossd_store **out, const struct ossd_store_config *config,
		    struct why *why)
{
	struct ossd_store *store = xcalloc(1, sizeof(*store));
	int r;

	store->root_fd = store->tmp_fd = store->uploads_fd = store->lock_fd = -1;
	store->sync = config->sync;
	store->part_min = config->part_min;
	lock_init(&store->lock);
	for (int i = 0; i < APPEND_LOCKS; i++)
		lock_init(&store->append_locks[i]);
	r = open_folders(store, config->root, why);
	if (r == 0)
		r = ossd_index_open(&store->index, store->root_fd, OSSD_PRIVATE "/index",
				    store->sync, why);
	if (r == 0) {
		r = ossd_store_recover(store);
		if (r == 0)
			r = ossd_store_scan(store);
		if (r < 0)
			why_set(why, r, "root %s: indexing failed: %s", config->root,
				strerror(-r));
	}
	if (r < 0) {
		ossd_store_close(store);
		return err_trace(r);
	}
	*out = store;
	return 0;
}

struct ossd_store *ossd_store_close(struct ossd_store *store)
{
	if (!store)
		return NULL;
	ossd_index_close(store->index);
	close_fdp(&store->lock_fd);
	close_fdp(&store->uploads_fd);
	close_fdp(&store->tmp_fd);
	close_fdp(&store->root_fd);
	for (int i = 0; i < APPEND_LOCKS; i++)
		lock_fini(&store->append_locks[i]);
	lock_fini(&store->lock);
	free(store);
	return NULL;
}

struct ossd_index *ossd_store_index(struct ossd_store *store)
{
	return store->index;
}

/* ---- redo ------------------------------------------------------------------------------ */

int ossd_store_begin(struct ossd_store *store, struct ossd_txn *txn)
{
	int r = ossd_txn_begin(store->index, true, txn);

	lock_assert_held(&store->lock);
	for (size_t i = 0; i < store->redo_done_count && r == 0; i++)
		r = ossd_index_redo_del(txn, store->redo_done[i]);
	return err_trace(r);
}

int ossd_store_redo(struct ossd_store *store, struct ossd_txn *txn,
		    const struct ossd_ref *ref, enum ossd_redo_op op, bool odd,
		    const char *temp, uint64_t *seq)
{
	struct ossd_redo redo = {.seq = ++store->redo_seq, .op = op, .odd = odd};

	snprintf(redo.temp, sizeof(redo.temp), "%s", temp);
	snprintf(redo.bucket, sizeof(redo.bucket), "%s", ref->bucket);
	snprintf(redo.key, sizeof(redo.key), "%.*s", (int)ref->key_len, ref->key);
	*seq = redo.seq;
	return err_trace(ossd_index_redo_put(txn, &redo));
}

void ossd_store_redo_done(struct ossd_store *store, uint64_t seq)
{
	/* A full table only means that a record stays until the next start, where it finds
	 * nothing to do. */
	if (store->redo_done_count < REDO_DONE_MAX)
		store->redo_done[store->redo_done_count++] = seq;
}

int ossd_store_commit(struct ossd_store *store, struct ossd_txn *txn)
{
	int r = ossd_txn_commit(txn);

	if (r == 0)
		store->redo_done_count = 0;
	return err_trace(r);
}

int ossd_store_sync_dir(struct ossd_store *store, int dir_fd, const char *path)
{
	_cleanup_(close_fdp) int fd = -1;

	if (!store->sync)
		return 0;
	fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_origin(-errno) : err_trace(io_fsync_dir(fd));
}

int ossd_store_apply(struct ossd_store *store, const struct ossd_redo *redo)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	_cleanup_(close_fdp) int fd = -1;
	const char *leaf;
	int r;

	ossd_key_path(&path, redo->bucket, redo->key, strlen(redo->key), redo->odd);
	if (redo->op == OSSD_REDO_UNLINK)
		return err_trace(
			ossd_file_remove(store->root_fd, path.data, redo->odd ? 3 : 1));
	r = ossd_file_parent(store->root_fd, path.data, true, &fd, &leaf);
	if (r)
		return err_fold(r);
	if (renameat(store->tmp_fd, redo->temp, fd, leaf) < 0)
		return err_origin(-errno);
	return err_trace(ossd_store_sync_dir(store, fd, "."));
}

/* ---- buckets --------------------------------------------------------------------------- */

int ossd_store_bucket(struct ossd_store *store, const char *name, struct ossd_bucket *out)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	int r = ossd_txn_begin(store->index, false, &txn);

	return r < 0 ? err_trace(r) : ossd_index_bucket(&txn, name, out);
}

int ossd_store_bucket_create(struct ossd_store *store, struct ossd_bucket *bucket)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_bucket old;
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r < 0)
		return err_trace(r);
	r = ossd_index_bucket(&txn, bucket->name, &old);
	if (r == 0) {
		*bucket = old;
		return OSSD_E_BUCKET_EXISTS;
	}
	if (r < 0)
		return err_trace(r);
	if (mkdirat(store->root_fd, bucket->name, 0700) < 0 && errno != EEXIST)
		return err_origin(-errno);
	bucket->id = 0;
	bucket->created_ms = clock_real_ns() / 1000000;
	r = ossd_index_bucket_put(&txn, bucket);
	if (r == 0)
		r = ossd_store_sync_dir(store, store->root_fd, ".");
	return r < 0 ? err_trace(r) : ossd_store_commit(store, &txn);
}

int ossd_store_bucket_set_acl(struct ossd_store *store, const char *name,
			      enum ossd_acl acl)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_bucket bucket;
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = ossd_index_bucket(&txn, name, &bucket);
	if (r)
		return r;
	bucket.acl = acl;
	r = ossd_index_bucket_put(&txn, &bucket);
	return r < 0 ? err_trace(r) : ossd_store_commit(store, &txn);
}

/* Whether nothing is in the bucket, no object and no unfinished upload. */
static int check_empty(struct ossd_txn *txn, const struct ossd_bucket *bucket)
{
	struct ossd_upload upload = {.id = ""};
	struct ossd_cursor c;
	int r = ossd_cursor_open(txn, bucket->id, &c);

	if (r < 0)
		return err_trace(r);
	r = ossd_cursor_seek(&c, "", 0);
	ossd_cursor_close(&c);
	if (r != OSSD_E_NO_SUCH_KEY)
		return r < 0 ? r : OSSD_E_BUCKET_NOT_EMPTY;
	while ((r = ossd_index_upload_next(txn, upload.id, &upload)) == 0) {
		ossd_object_fini(&upload.object);
		if (!strcmp(upload.bucket, bucket->name))
			return OSSD_E_BUCKET_NOT_EMPTY;
	}
	return r == OSSD_E_NO_SUCH_UPLOAD ? 0 : err_trace(r);
}

int ossd_store_bucket_delete(struct ossd_store *store, const char *name)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	char odd[sizeof(OSSD_PRIVATE "/odd/") + OSSD_BUCKET_SIZE];
	struct ossd_bucket bucket;
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = ossd_index_bucket(&txn, name, &bucket);
	if (r == 0)
		r = check_empty(&txn, &bucket);
	if (r == 0)
		r = ossd_index_bucket_del(&txn, name);
	if (r)
		return r;
	/* Files that came by hand are not ours to remove. Died between this and the commit:
	 * the folder comes back at the next start. */
	if (unlinkat(store->root_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return errno == ENOTEMPTY ? OSSD_E_BUCKET_NOT_EMPTY : err_origin(-errno);
	snprintf(odd, sizeof(odd), OSSD_PRIVATE "/odd/%s", name);
	r = io_remove_tree(store->root_fd, odd);
	return r < 0 ? err_trace(r) : ossd_store_commit(store, &txn);
}

/* ---- reading --------------------------------------------------------------------------- */

/* Bucket and object in one snapshot. */
static int look_up(struct ossd_txn *txn, const struct ossd_ref *ref,
		   struct ossd_bucket *bucket, struct ossd_object *out)
{
	int r = ossd_index_bucket(txn, ref->bucket, bucket);

	return r ? r : ossd_index_get(txn, bucket->id, ref->key, ref->key_len, out);
}

int ossd_store_head(struct ossd_store *store, const struct ossd_ref *ref,
		    struct ossd_object *out)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_bucket bucket;
	int r = ossd_txn_begin(store->index, false, &txn);

	return r < 0 ? err_trace(r) : look_up(&txn, ref, &bucket, out);
}

/* One try. *stale: what is on disk is not what the index says. */
static int try_open(struct ossd_store *store, const struct ossd_ref *ref,
		    struct ossd_object *out, int *fd, bool *stale)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	struct ossd_object o = {0};
	int r = ossd_store_head(store, ref, &o);
	int opened;

	*stale = false;
	if (r)
		return r;
	ossd_key_path(&path, ref->bucket, ref->key, ref->key_len, o.odd);
	opened = ossd_file_open(store->root_fd, path.data, O_RDONLY);
	if (opened >= 0 && ossd_file_matches(opened, &o)) {
		*fd = opened;
		*out = o;
		return 0;
	}
	*stale = opened >= 0 || opened == -ENOENT || opened == -ENOTDIR ||
		 opened == -ELOOP || opened == -EISDIR;
	close_fdp(&opened);
	ossd_object_fini(&o);
	return *stale ? 0 : err_trace(opened);
}

int ossd_store_open_object(struct ossd_store *store, const struct ossd_ref *ref,
			   struct ossd_object *out, int *fd)
{
	bool stale;
	int r = try_open(store, ref, out, fd, &stale);

	if (r || !stale)
		return r;
	/* Most likely a PUT between its commit and its rename: that ends with the lock. */
	lock_take(&store->lock);
	r = try_open(store, ref, out, fd, &stale);
	lock_drop(&store->lock);
	for (int tries = 0; r == 0 && stale; tries++) {
		if (tries == 3) /* a file that someone writes to without end */
			return err_origin(-EBUSY);
		r = ossd_store_reindex(store, ref);
		if (r == 0)
			r = try_open(store, ref, out, fd, &stale);
	}
	return r;
}

/* ---- writing --------------------------------------------------------------------------- */

int ossd_store_spool(struct ossd_store *store, struct ossd_spool *spool)
{
	return err_trace(ossd_spool_open(spool, store->tmp_fd, store->sync));
}

/* Decides where the file lies and makes the folders. A key stays where it is. */
static int choose_place(struct ossd_store *store, const struct ossd_ref *ref,
			const struct ossd_object *old, bool *odd)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	_cleanup_(close_fdp) int fd = -1;
	const char *leaf;
	int r;

	*odd = (old && old->odd) || !ossd_key_plain(ref->key, ref->key_len);
	ossd_key_path(&path, ref->bucket, ref->key, ref->key_len, *odd);
	r = ossd_file_parent(store->root_fd, path.data, true, &fd, &leaf);
	if (r != OSSD_FILE_TAKEN || *odd)
		return err_fold(r);
	*odd = true;
	return 0;
}

static void complete_object(struct ossd_object *o, const struct ossd_put *put)
{
	o->size = put->spool->size;
	o->modified_ms = clock_real_ns() / 1000000;
	if (!put->content_known) {
		o->crc = put->spool->crc;
		o->has_md5 = o->type == OSSD_NORMAL;
		memcpy(o->md5, put->spool->md5, sizeof(o->md5));
		if (!o->etag[0])
			ossd_object_etag_from_md5(o);
	}
}

/* Puts back what the index said before a rename that failed. */
static void take_back(struct ossd_store *store, const struct ossd_put *put,
		      uint32_t bucket, const struct ossd_object *old)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	const struct ossd_ref *ref = &put->ref;
	int r = ossd_store_begin(store, &txn);

	if (r == 0 && old)
		r = ossd_index_put(&txn, bucket, ref->key, ref->key_len, old);
	else if (r == 0)
		r = ossd_index_del(&txn, bucket, ref->key, ref->key_len);
	if (r == 0)
		ossd_store_commit(store, &txn);
}

static int put_locked(struct ossd_store *store, const struct ossd_put *put,
		      struct ossd_txn *txn, const struct ossd_bucket *bucket,
		      const struct ossd_object *old)
{
	const struct ossd_ref *ref = &put->ref;
	struct ossd_redo redo = {.op = OSSD_REDO_RENAME};
	int r = choose_place(store, ref, old, &put->object->odd);

	if (r == 0)
		r = ossd_file_stamp(put->spool->fd, put->object);
	if (r == 0)
		r = ossd_index_put(txn, bucket->id, ref->key, ref->key_len, put->object);
	if (r == 0 && put->upload_id)
		r = ossd_index_upload_del(txn, put->upload_id);
	if (r == 0)
		r = ossd_store_redo(store, txn, ref, OSSD_REDO_RENAME, put->object->odd,
				    put->spool->name, &redo.seq);
	if (r == 0)
		r = ossd_store_commit(store, txn);
	if (r)
		return r;
	redo.odd = put->object->odd;
	snprintf(redo.temp, sizeof(redo.temp), "%s", put->spool->name);
	snprintf(redo.bucket, sizeof(redo.bucket), "%s", ref->bucket);
	snprintf(redo.key, sizeof(redo.key), "%.*s", (int)ref->key_len, ref->key);
	r = ossd_store_apply(store, &redo);
	if (r < 0)
		take_back(store, put, bucket->id, old);
	else
		put->spool->moved = true;
	ossd_store_redo_done(store, redo.seq);
	return err_trace(r);
}

int ossd_store_put(struct ossd_store *store, const struct ossd_put *put)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_object old = {0};
	struct ossd_bucket bucket;
	bool exists;
	int r;

	complete_object(put->object, put);
	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r < 0)
		return err_trace(r);
	r = look_up(&txn, &put->ref, &bucket, &old);
	exists = r == 0;
	if (r && r != OSSD_E_NO_SUCH_KEY)
		return r;
	if (exists && put->forbid_overwrite)
		r = OSSD_E_FILE_EXISTS;
	else
		r = put_locked(store, put, &txn, &bucket, exists ? &old : NULL);
	ossd_object_fini(&old);
	return r;
}

int ossd_store_delete(struct ossd_store *store, const struct ossd_ref *ref)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_redo redo = {.op = OSSD_REDO_UNLINK};
	struct ossd_object old = {0};
	struct ossd_bucket bucket;
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r < 0)
		return err_trace(r);
	r = look_up(&txn, ref, &bucket, &old);
	if (r)
		return r == OSSD_E_NO_SUCH_KEY ? 0 : r;
	redo.odd = old.odd;
	ossd_object_fini(&old);
	r = ossd_index_del(&txn, bucket.id, ref->key, ref->key_len);
	if (r == 0)
		r = ossd_store_redo(store, &txn, ref, redo.op, redo.odd, "", &redo.seq);
	if (r == 0)
		r = ossd_store_commit(store, &txn);
	if (r < 0)
		return err_trace(r);
	snprintf(redo.bucket, sizeof(redo.bucket), "%s", ref->bucket);
	snprintf(redo.key, sizeof(redo.key), "%.*s", (int)ref->key_len, ref->key);
	r = ossd_store_apply(store, &redo);
	ossd_store_redo_done(store, redo.seq);
	return err_trace(r);
}

int ossd_store_change(struct ossd_store *store, const struct ossd_ref *ref,
		      ossd_change_fn change, void *arg)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_object o = {0};
	struct ossd_bucket bucket;
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = look_up(&txn, ref, &bucket, &o);
	if (r)
		return r;
	r = change(&o, arg);
	if (r == 0)
		r = ossd_index_put(&txn, bucket.id, ref->key, ref->key_len, &o);
	ossd_object_fini(&o);
	return r ? r : ossd_store_commit(store, &txn);
}

/* ---- files changed by hand ------------------------------------------------------------- */

struct seen {
	struct ossd_object now; /* as the file is */
	uint64_t old_ino;
	int64_t old_time_ns;
};

static int take_over(struct ossd_object *o, void *arg)
{
	struct seen *seen = arg;

	if (o->ino != seen->old_ino || o->file_time_ns != seen->old_time_ns)
		return 0; /* a PUT came in between: its record is the better one */
	o->ino = seen->now.ino;
	o->file_time_ns = seen->now.file_time_ns;
	if (o->size == seen->now.size && o->crc == seen->now.crc)
		return 0; /* the same content: a copy, a restored backup */
	o->type = OSSD_NORMAL;
	o->size = seen->now.size;
	o->crc = seen->now.crc;
	o->has_md5 = true;
	memcpy(o->md5, seen->now.md5, sizeof(o->md5));
	memcpy(o->etag, seen->now.etag, sizeof(o->etag));
	o->modified_ms = seen->now.file_time_ns / 1000000;
	return 0;
}

int ossd_store_reindex(struct ossd_store *store, const struct ossd_ref *ref)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	_cleanup_(close_fdp) int fd = -1;
	struct ossd_object old = {0};
	struct seen seen = {.now = {0}};
	struct stat st;
	int r = ossd_store_head(store, ref, &old);

	if (r)
		return r;
	seen.old_ino = old.ino;
	seen.old_time_ns = old.file_time_ns;
	ossd_key_path(&path, ref->bucket, ref->key, ref->key_len, old.odd);
	ossd_object_fini(&old);
	fd = ossd_file_open(store->root_fd, path.data, O_RDONLY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_trace(ossd_store_delete(store, ref));
	r = ossd_file_describe(fd, &seen.now);
	return r < 0 ? err_trace(r) : ossd_store_change(store, ref, take_over, &seen);
}
