/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a root before it is served.
 *
 * Recovery: file operations whose transaction was committed but which a crash cut off are
 * done now; temporary files and parts that nothing refers to are removed.
 *
 * Scan: the files are what a person may have changed. Records whose file is gone or other
 * are brought up to date, files without a record are indexed. A root without an index is
 * rebuilt in the same way; only attributes (content types, metadata, ACLs) are lost then.
 *
 * Threads: only one, nothing is served yet.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_mime.h"
#include "tools/ossd_store_private.h"

#define BATCH 1000 /* new files in one index transaction */

/* ---- recovery -------------------------------------------------------------------------- */

/* Whether the operation is still to be done: the key is gone (UNLINK), or the temporary file
 * is still there (RENAME). */
static bool pending(struct ossd_store *store, const struct ossd_redo *redo)
{
	struct ossd_ref ref = {redo->bucket, redo->key, strlen(redo->key)};
	struct ossd_object o = {0};
	int r;

	if (redo->op == OSSD_REDO_RENAME)
		return faccessat(store->tmp_fd, redo->temp, F_OK, AT_SYMLINK_NOFOLLOW) ==
		       0;
	r = ossd_store_head(store, &ref, &o);
	ossd_object_fini(&o);
	return r == OSSD_E_NO_SUCH_KEY;
}

static int redo_all(struct ossd_store *store)
{
	struct ossd_redo redo = {.seq = 0};
	int r;

	for (;;) {
		_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};

		r = ossd_txn_begin(store->index, false, &txn);
		if (r == 0)
			r = ossd_index_redo_next(&txn, redo.seq, &redo);
		ossd_txn_end(&txn);
		if (r)
			return r == OSSD_E_NO_SUCH_KEY ? 0 : err_trace(r);
		if (pending(store, &redo)) {
			log_info("finishing what a crash cut off key=%s/%s", redo.bucket,
				 redo.key);
			r = ossd_store_apply(store, &redo);
			if (r < 0)
				return err_trace(r);
		}
		r = ossd_store_begin(store, &txn);
		if (r == 0)
			r = ossd_index_redo_del(&txn, redo.seq);
		if (r == 0)
			r = ossd_store_commit(store, &txn);
		if (r < 0)
			return err_trace(r);
		store->redo_seq = redo.seq;
	}
}

/* Whether an entry of a folder stays. */
typedef bool (*keep_fn)(struct ossd_txn *txn, const char *folder, const char *name);

static int sweep(struct ossd_store *store, int dir_fd, const char *path, keep_fn keep)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	_cleanup_(closedirp) DIR *dir = NULL;
	int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	int r;

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		close_fdp(&fd);
		return err_origin(-errno);
	}
	r = ossd_txn_begin(store->index, false, &txn);
	while (r == 0 && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!keep(&txn, path, entry->d_name))
			r = io_remove_tree(dirfd(dir), entry->d_name);
	}
	return err_trace(r);
}

static bool keep_none(struct ossd_txn *txn, const char *folder, const char *name)
{
	(void)txn;
	(void)folder;
	(void)name;
	return false;
}

static bool keep_upload(struct ossd_txn *txn, const char *folder, const char *name)
{
	struct ossd_upload upload = {.id = ""};
	int r = ossd_index_upload(txn, name, &upload);

	(void)folder;
	ossd_object_fini(&upload.object);
	return r != OSSD_E_NO_SUCH_UPLOAD;
}

static bool keep_part(struct ossd_txn *txn, const char *folder, const char *name)
{
	struct ossd_part part;
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (number == 0 || *end != '.')
		return false;
	return ossd_index_part_next(txn, folder, (uint32_t)number - 1, &part) == 0 &&
	       part.number == number && strtoull(end + 1, NULL, 16) == part.serial;
}

static int sweep_uploads(struct ossd_store *store)
{
	struct ossd_upload upload = {.id = ""};
	int r = sweep(store, store->uploads_fd, ".", keep_upload);

	while (r == 0) {
		_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};

		r = ossd_txn_begin(store->index, false, &txn);
		if (r == 0)
			r = ossd_index_upload_next(&txn, upload.id, &upload);
		ossd_txn_end(&txn);
		if (r)
			break;
		ossd_object_fini(&upload.object);
		if (mkdirat(store->uploads_fd, upload.id, 0700) == 0)
			log_warn("parts are missing upload=%s", upload.id);
		r = sweep(store, store->uploads_fd, upload.id, keep_part);
	}
	return r == OSSD_E_NO_SUCH_UPLOAD ? 0 : err_trace(r);
}

int ossd_store_recover(struct ossd_store *store)
{
	int r;

	lock_scope(&store->lock);
	r = redo_all(store);
	if (r == 0)
		r = sweep(store, store->tmp_fd, ".", keep_none);
	return r < 0 ? err_trace(r) : err_trace(sweep_uploads(store));
}

/* ---- records against files ------------------------------------------------------------- */

/* Whether the record's file is there and the same. Cuts what an interrupted append left. */
static bool file_is_current(struct ossd_store *store, const char *path,
			    const struct ossd_object *o)
{
	struct stat st;
	int64_t time_ns;

	if (fstatat(store->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode) || st.st_ino != o->ino)
		return false;
	if (o->type == OSSD_APPENDABLE && (uint64_t)st.st_size > o->size) {
		_cleanup_(close_fdp) int fd =
			ossd_file_open(store->root_fd, path, O_RDWR);

		log_info("cutting an interrupted append file=%s", path);
		return fd >= 0 && ftruncate(fd, (off_t)o->size) == 0;
	}
	time_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return (uint64_t)st.st_size == o->size &&
	       (o->type == OSSD_APPENDABLE || time_ns == o->file_time_ns);
}

/* Appends the keys, each with a NUL, whose files are not what the index says. */
static int find_stale(struct ossd_store *store, const struct ossd_bucket *bucket,
		      struct buf *stale)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	_cleanup_(ossd_cursor_close) struct ossd_cursor c = {0};
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	int r = ossd_txn_begin(store->index, false, &txn);

	if (r == 0)
		r = ossd_cursor_open(&txn, bucket->id, &c);
	if (r < 0)
		return err_trace(r);
	for (r = ossd_cursor_seek(&c, "", 0); r == 0; r = ossd_cursor_next(&c)) {
		struct ossd_object o = {0};

		r = ossd_object_decode(&o, c.value, c.value_len);
		if (r < 0)
			return err_trace(r);
		buf_reset(&path);
		ossd_key_path(&path, bucket->name, c.key, c.key_len, o.odd);
		if (!file_is_current(store, path.data, &o)) {
			buf_append(stale, c.key, c.key_len);
			buf_putc(stale, '\0');
		}
		ossd_object_fini(&o);
	}
	return r == OSSD_E_NO_SUCH_KEY ? err_trace(buf_error(stale)) : err_trace(r);
}

static int refresh(struct ossd_store *store, const struct ossd_bucket *bucket)
{
	_cleanup_(buf_fini) struct buf stale = BUF_INIT;
	int r = find_stale(store, bucket, &stale);

	for (size_t at = 0; r == 0 && at < stale.len; at += strlen(stale.data + at) + 1) {
		struct ossd_ref ref = {bucket->name, stale.data + at,
				       strlen(stale.data + at)};

		r = ossd_store_reindex(store, &ref);
		if (r == OSSD_E_NO_SUCH_KEY)
			r = 0;
	}
	return err_fold(r);
}

/* ---- files against records ------------------------------------------------------------- */

struct walk {
	struct ossd_store *store;
	const struct ossd_bucket *bucket;
	const char *base; /* "BUCKET" or ".ossd/odd/BUCKET" */
	bool odd;
	struct buf folders; /* still to be read: paths below base, each with a NUL */
	struct ossd_txn txn;
	unsigned int in_txn;
	uint64_t found;
};

/* The key of the file at `relative`; false when no key has this file. */
static bool key_of(const struct walk *w, const char *relative, struct buf *key)
{
	if (w->odd)
		return ossd_key_from_odd(key, relative) == 0;
	buf_puts(key, relative);
	return ossd_key_valid(key->data, key->len) && ossd_key_plain(key->data, key->len);
}

static int commit_batch(struct walk *w)
{
	int r;

	if (++w->in_txn < BATCH)
		return 0;
	w->in_txn = 0;
	r = ossd_store_commit(w->store, &w->txn);
	return r < 0 ? err_trace(r) : err_trace(ossd_store_begin(w->store, &w->txn));
}

static int index_file(struct walk *w, const char *path, const char *key, size_t n)
{
	_cleanup_(close_fdp) int fd = -1;
	struct ossd_object o = {.type = OSSD_NORMAL, .odd = w->odd};
	int r = ossd_index_get(&w->txn, w->bucket->id, key, n, &o);

	if (r <= 0) {
		if (r == 0 && o.odd != w->odd)
			log_warn("ignored, its key has another file file=%s", path);
		ossd_object_fini(&o);
		return err_trace(r);
	}
	fd = ossd_file_open(w->store->root_fd, path, O_RDONLY | O_NONBLOCK);
	if (fd < 0) {
		log_warn("cannot be read, ignored: %s file=%s", strerror(-fd), path);
		return 0;
	}
	r = ossd_file_describe(fd, &o);
	if (r < 0)
		return err_trace(r);
	o.storage_class = w->bucket->storage_class;
	o.modified_ms = o.file_time_ns / 1000000;
	ossd_object_set_attr(&o, "content-type", ossd_mime_type(key, n));
	r = ossd_index_put(&w->txn, w->bucket->id, key, n, &o);
	ossd_object_fini(&o);
	w->found++;
	return r < 0 ? err_trace(r) : commit_batch(w);
}

static unsigned char type_of(int dir_fd, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type;
	if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
}

static int visit(struct walk *w, const char *folder, int dir_fd,
		 const struct dirent *entry)
{
	_cleanup_(buf_fini) struct buf relative = BUF_INIT, key = BUF_INIT,
				       path = BUF_INIT;
	unsigned char type;

	if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
		return 0;
	type = type_of(dir_fd, entry);
	buf_printf(&relative, "%s%s%s", folder, *folder ? "/" : "", entry->d_name);
	if (type == DT_DIR) {
		buf_append(&w->folders, relative.data, relative.len + 1);
		return 0;
	}
	buf_printf(&path, "%s/%s", w->base, relative.data);
	if (type != DT_REG || !key_of(w, relative.data, &key)) {
		log_warn("ignored, cannot be an object file=%s", path.data);
		return 0;
	}
	return err_trace(index_file(w, path.data, key.data, key.len));
}

static int read_folder(struct walk *w, const char *folder)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	int r = 0, fd;

	buf_printf(&path, "%s%s%s", w->base, *folder ? "/" : "", folder);
	fd = ossd_file_open(w->store->root_fd, path.data, O_RDONLY | O_DIRECTORY);
	if (fd == -ENOENT)
		return 0;
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		close_fdp(&fd);
		log_warn("cannot be read, ignored folder=%s", path.data);
		return 0;
	}
	while (r == 0 && (entry = readdir(dir)))
		r = visit(w, folder, dirfd(dir), entry);
	return err_trace(r);
}

/* Takes the last folder off the stack; NULL when it is empty. The caller frees it. */
static char *pop_folder(struct buf *folders)
{
	const char *nul;
	size_t start;
	char *folder;

	if (folders->len == 0)
		return NULL;
	nul = memrchr(folders->data, '\0', folders->len - 1);
	start = nul ? (size_t)(nul + 1 - folders->data) : 0;
	folder = xstrdup(folders->data + start);
	folders->len = start;
	return folder;
}

static int walk(struct ossd_store *store, const struct ossd_bucket *bucket, bool odd,
		uint64_t *found)
{
	char base[sizeof(OSSD_PRIVATE "/odd/") + OSSD_BUCKET_SIZE];
	struct walk w = {.store = store, .bucket = bucket, .base = base, .odd = odd};
	char *folder;
	int r;

	snprintf(base, sizeof(base), "%s%s", odd ? OSSD_PRIVATE "/odd/" : "",
		 bucket->name);
	buf_append(&w.folders, "", 1);
	r = ossd_store_begin(store, &w.txn);
	while (r == 0 && (folder = pop_folder(&w.folders))) {
		r = read_folder(&w, folder);
		free(folder);
	}
	if (r == 0)
		r = ossd_store_commit(store, &w.txn);
	ossd_txn_end(&w.txn);
	buf_fini(&w.folders);
	*found += w.found;
	return err_trace(r);
}

/* ---- buckets --------------------------------------------------------------------------- */

/* Folders in the root that are no bucket yet, if their names can be one. */
static int adopt_buckets(struct ossd_store *store)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	int fd = openat(store->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	int r = 0;

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		close_fdp(&fd);
		return err_origin(-errno);
	}
	while (r >= 0 && (entry = readdir(dir))) {
		struct ossd_bucket bucket = {.acl = OSSD_ACL_PRIVATE};

		if (entry->d_name[0] == '.' || type_of(dirfd(dir), entry) != DT_DIR)
			continue;
		if (!ossd_bucket_name_valid(entry->d_name)) {
			log_warn("ignored, no bucket can be called so folder=%s",
				 entry->d_name);
			continue;
		}
		snprintf(bucket.name, sizeof(bucket.name), "%.63s", entry->d_name);
		r = ossd_store_bucket_create(store, &bucket);
	}
	return r < 0 ? err_trace(r) : 0;
}

static int scan_bucket(struct ossd_store *store, const struct ossd_bucket *bucket)
{
	uint64_t start = clock_mono_ms(), found = 0;
	int r;

	if (mkdirat(store->root_fd, bucket->name, 0700) < 0 && errno != EEXIST)
		return err_origin(-errno);
	r = refresh(store, bucket);
	if (r < 0)
		return err_trace(r);
	lock_scope(&store->lock);
	r = walk(store, bucket, false, &found);
	if (r == 0)
		r = walk(store, bucket, true, &found);
	if (found)
		log_info("indexed bucket=%s files=%" PRIu64 " ms=%" PRIu64, bucket->name,
			 found, clock_mono_ms() - start);
	return err_trace(r);
}

int ossd_store_scan(struct ossd_store *store)
{
	struct ossd_bucket bucket = {.name = ""};
	int r = adopt_buckets(store);

	while (r == 0) {
		_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};

		r = ossd_txn_begin(store->index, false, &txn);
		if (r == 0)
			r = ossd_index_bucket_next(&txn, bucket.name, &bucket);
		ossd_txn_end(&txn);
		if (r == 0)
			r = scan_bucket(store, &bucket);
	}
	return r == OSSD_E_NO_SUCH_BUCKET ? 0 : err_trace(r);
}
