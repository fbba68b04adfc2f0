/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts. The bytes lie in a draft beside the object's place,
 * FILE_TMP_PREFIX "up-" ID; a record in FILE_UPLOADS/ID says for which key and with which
 * metadata (README.md has the format). Both outlive the process: a part that was
 * acknowledged is synced, and its ETag says where it lies and what its bytes sum up to, so
 * that the end needs no other memory.
 *
 * Order: record, draft, parts, rename, record removed. After a crash a record without a
 * draft is an upload that never began or has ended; the listing clears it away.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

#define RECORD_MAX 16384
#define DEAD_RECORD_S 3600 /* a begin takes no hour between record and draft */

static int no_upload(struct origin_req *req)
{
	return why_set(&req->why, err_origin(-ENOENT), "no upload %s of %s",
		       req->upload_id, req->key);
}

/* The id names files: nothing but what we gave out may pass. */
static bool id_ok(const char *id)
{
	return strlen(id) == FILE_ID_LEN && strspn(id, "0123456789abcdef") == FILE_ID_LEN;
}

static void draft_name(const char *id, char out[64])
{
	snprintf(out, 64, FILE_TMP_PREFIX "up-%s", id);
}

/* ---- records -------------------------------------------------------------------------- */

static int open_records(const struct file_origin *f)
{
	int fd = file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(f->root_fd, FILE_UPLOADS, 0700) < 0 && errno != EEXIST)
		return err_origin(file_error(errno));
	return file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);
}

static int write_record(const struct file_origin *f, const struct origin_req *req,
			const char *id)
{
	_cleanup_(close_fdp) int dir = open_records(f);
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r = dir;

	buf_append(&b, req->key, strlen(req->key) + 1);
	for (size_t i = 0; req->meta && i < req->meta->count; i++)
		for (int side = 0; side < 2; side++)
			buf_append(&b, req->meta->pairs[i][side],
				   strlen(req->meta->pairs[i][side]) + 1);
	if (r >= 0)
		r = buf_error(&b);
	if (r == 0 && b.len > RECORD_MAX)
		r = err_origin(-EFBIG);
	if (r == 0)
		r = io_replace_file(dir, id, b.data, b.len, 0600);
	return r < 0 ? err_trace(file_error(-r)) : 0;
}

/* The key of an upload; its metadata behind it, in the same form. */
static int read_record(const struct file_origin *f, const char *id, struct buf *b)
{
	_cleanup_(close_fdp) int dir =
		file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);
	int r = dir < 0 ? dir : io_read_file(dir, id, RECORD_MAX, b);

	if (r < 0)
		return err_trace(file_error(-r));
	return b->len && b->data[b->len - 1] == '\0' ? 0 : err_origin(-EIO);
}

static void remove_record(const struct file_origin *f, const char *id)
{
	_cleanup_(close_fdp) int dir =
		file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);

	if (dir < 0)
		return;
	unlinkat(dir, id, 0);
	unlinkat(f->root_fd, FILE_UPLOADS, AT_REMOVEDIR); /* when it was the last */
}

static void record_posix(const struct buf *b, struct file_posix *out)
{
	const char *c = b->data + strlen(b->data) + 1, *end = b->data + b->len;
	const char *pairs[16][2];
	struct origin_meta meta = {.pairs = (const char *const(*)[2])pairs};

	while (c < end && meta.count < 16) {
		const char *value = c + strlen(c) + 1;

		if (value >= end)
			break;
		pairs[meta.count][0] = c;
		pairs[meta.count++][1] = value;
		c = value + strlen(value) + 1;
	}
	file_posix_parse(&meta, out);
}

/* ---- drafts --------------------------------------------------------------------------- */

static int open_draft(const struct file_origin *f, struct origin_req *req,
		      struct file_place *place, struct file_draft *draft)
{
	int r = file_place_find(f, req->key, place);

	*draft = (struct file_draft){.place = place, .fd = -1};
	if (r == -ENOENT || !id_ok(req->upload_id))
		return no_upload(req);
	if (r < 0)
		return err_trace(r);
	draft_name(req->upload_id, draft->name);
	draft->fd = openat(place->dir_fd, draft->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (draft->fd < 0 && errno == ENOENT)
		return no_upload(req);
	return draft->fd < 0 ? err_origin(file_error(errno)) : 0;
}

/* Closed only: it stays until the upload ends. */
static void draft_leave(struct file_draft *draft)
{
	draft->name[0] = '\0';
	file_draft_close(draft);
}

int file_multi_begin(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	char id[FILE_ID_LEN + 1], name[64];
	int fd, r;

	snprintf(id, sizeof(id), "%016" PRIx64, clock_random());
	draft_name(id, name);
	r = file_place_make(f, req->key, &place, &req->why);
	if (r == 0 && place.is_dir)
		r = why_set(&req->why, err_origin(-EINVAL),
			    "%s: a directory is not uploaded in parts", req->key);
	if (r == 0)
		r = write_record(f, req, id);
	if (r < 0)
		return err_trace(r);
	fd = openat(place.dir_fd, name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		r = err_origin(file_error(errno));
	else
		close(fd);
	if (r == 0)
		r = io_fsync_dir(place.dir_fd);
	if (r < 0) {
		remove_record(f, id);
		file_prune(f, req->key);
		return err_trace(r);
	}
	memcpy(req->upload_id_result, id, sizeof(id));
	return 0;
}

/* ---- parts ---------------------------------------------------------------------------- */

static void part_etag(char out[ORIGIN_ETAG_MAX], uint64_t off, uint64_t size,
		      uint64_t crc)
{
	snprintf(out, ORIGIN_ETAG_MAX, "%" PRIx64 "-%" PRIx64 "-%016" PRIx64, off, size,
		 crc);
}

static int part_done(struct origin_req *req, const struct file_draft *draft, uint64_t off,
		     uint64_t size, uint64_t crc)
{
	if (fdatasync(draft->fd) < 0)
		return err_origin(file_error(errno));
	req->part_result =
		(struct origin_part){.number = req->part, .size = size, .crc64 = crc};
	part_etag(req->part_result.etag, off, size, crc);
	return 0;
}

int file_multi_part(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = file_write_body(req, draft.fd, req->off, &crc);
	if (r == 0)
		r = part_done(req, &draft, req->off, req->body.len, crc);
	if (r < 0)
		return err_trace(r);
	lock_scope(&f->lock);
	f->stats.bytes_out += req->body.len;
	return 0;
}

int file_multi_copy(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	_cleanup_(close_fdp) int from = -1;
	struct origin_attr attr, after;
	struct stat st;
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = file_key_check(req->source, &req->why);
	if (r < 0)
		return err_trace(r);
	from = file_open_beneath(f, req->source, O_RDONLY | O_NONBLOCK);
	if (from < 0)
		return err_trace(from);
	if (fstat(from, &st) < 0)
		return err_origin(file_error(errno));
	if (!S_ISREG(st.st_mode))
		return err_origin(-ENOENT);
	file_attr_fill(from, "", &st, &attr);
	r = file_match(req, req->source, &attr);
	if (r == 0 && (req->off > attr.size || req->len > attr.size - req->off))
		r = why_set(&req->why, err_origin(-EINVAL), "the range is outside of %s",
			    req->source);
	if (r == 0)
		r = file_copy_bytes(req, from, req->off, draft.fd, req->target_off,
				    req->len);
	if (r == 0)
		r = file_checksum(req, draft.fd, req->target_off, req->len, &crc);
	if (r == 0 && fstat(from, &st) == 0) {
		file_attr_fill(from, "", &st, &after);
		if (strcmp(after.etag, attr.etag) != 0)
			r = why_set(&req->why, err_origin(-ESTALE),
				    "%s changed while it was copied", req->source);
	}
	return r < 0 ? err_trace(r)
		     : err_trace(part_done(req, &draft, req->target_off, req->len, crc));
}

/* ---- end ------------------------------------------------------------------------------ */

/* The ETags say where each part lies: the sum of them is the object. */
static int check_parts(struct origin_req *req, uint64_t *crc)
{
	uint64_t off = 0;

	for (size_t i = 0; i < req->part_count; i++) {
		const struct origin_part *part = &req->parts[i];
		char want[ORIGIN_ETAG_MAX];

		part_etag(want, off, part->size, part->crc64);
		if (strcmp(want, part->etag) != 0)
			return why_set(&req->why, err_origin(-EINVAL),
				       "part %u is not the one that was sent",
				       part->number);
		*crc = crc64_combine(*crc, part->crc64, part->size);
		off += part->size;
	}
	if (req->has_expect_crc64 && req->expect_crc64 != *crc)
		return why_set(&req->why, err_origin(-EBADMSG),
			       "%s: the parts add up to another checksum", req->key);
	return 0;
}

static int finish(struct file_origin *f, struct origin_req *req, struct file_draft *draft,
		  const struct buf *record)
{
	struct file_posix posix;
	struct stat st;
	int r;

	if (fstat(draft->fd, &st) < 0)
		return err_origin(file_error(errno));
	if ((uint64_t)st.st_size < req->size)
		return why_set(&req->why, err_origin(-EINVAL), "%s: bytes are missing",
			       req->key);
	/* A part that was sent again may have been longer at first. */
	if (ftruncate(draft->fd, (off_t)req->size) < 0)
		return err_origin(file_error(errno));
	record_posix(record, &posix);
	r = file_posix_apply(f, &posix, draft->fd, -1, NULL);
	return r < 0 ? r
		     : file_draft_publish(draft, req->if_none_match, req->key, &req->why);
}

int file_multi_end(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	_cleanup_(buf_fini) struct buf record = BUF_INIT;
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = read_record(f, req->upload_id, &record);
	if (r == -ENOENT || (r == 0 && strcmp(record.data, req->key) != 0))
		return no_upload(req);
	if (r == 0)
		r = check_parts(req, &crc);
	if (r == 0)
		r = finish(f, req, &draft, &record);
	if (r == 0)
		r = file_fill_result(&place, draft.fd, &req->attr);
	if (r < 0)
		return err_trace(r);
	remove_record(f, req->upload_id);
	req->attr.crc64 = crc;
	req->attr.has_crc64 = true;
	return 0;
}

int file_multi_abort(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	struct file_draft draft;
	int r = open_draft(f, req, &place, &draft);

	if (r == -ENOENT && id_ok(req->upload_id))
		remove_record(f, req->upload_id);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_trace(r);
	file_draft_close(&draft);
	remove_record(f, req->upload_id);
	file_prune(f, req->key);
	return 0;
}

/* ---- listing -------------------------------------------------------------------------- */

struct upload {
	char *key;
	char id[FILE_ID_LEN + 1];
	int64_t start_ns;
};

struct uploads {
	struct upload *items;
	size_t count, room;
};

static void uploads_fini(struct uploads *u)
{
	for (size_t i = 0; i < u->count; i++)
		free(u->items[i].key);
	free(u->items);
}

static int by_key_then_id(const void *a, const void *b)
{
	const struct upload *x = a, *y = b;
	int r = strcmp(x->key, y->key);

	return r ? r : strcmp(x->id, y->id);
}

static bool has_draft(const struct file_origin *f, const char *key, const char *id)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	char name[64];
	struct stat st;

	draft_name(id, name);
	return file_place_find(f, key, &place) == 0 &&
	       fstatat(place.dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int add_upload(struct file_origin *f, struct origin_req *req, struct uploads *u,
		      const char *id, const struct stat *st)
{
	_cleanup_(buf_fini) struct buf record = BUF_INIT;
	struct upload *upload;

	if (read_record(f, id, &record) < 0)
		return 0;
	if (!has_draft(f, record.data, id)) {
		if (!f->read_only &&
		    clock_real_ns() / INT64_C(1000000000) - st->st_mtim.tv_sec >
			    DEAD_RECORD_S)
			remove_record(f, id);
		return 0;
	}
	if (strncmp(record.data, req->key, strlen(req->key)) != 0)
		return 0;
	if (u->count == u->room) {
		size_t room = u->room ? u->room * 2 : 16;
		struct upload *grown = reallocarray(u->items, room, sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		u->items = grown;
		u->room = room;
	}
	upload = &u->items[u->count];
	upload->key = buf_steal(&record);
	memcpy(upload->id, id, sizeof(upload->id));
	upload->start_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec;
	u->count++;
	return 0;
}

static int read_uploads(struct file_origin *f, struct origin_req *req, struct uploads *u)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	int fd = file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY), r = 0;
	struct dirent *entry;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_trace(fd);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_origin(-ENOMEM);
	}
	while (r == 0 && (entry = readdir(dir))) {
		struct stat st;

		if (!id_ok(entry->d_name) ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		r = add_upload(f, req, u, entry->d_name, &st);
	}
	return r;
}

/* One page holds them all; `after` is not needed. */
int file_multi_list(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(uploads_fini) struct uploads u = {0};
	int r = read_uploads(f, req, &u);

	req->list.truncated = false;
	if (r == 0 && u.count)
		qsort(u.items, u.count, sizeof(*u.items), by_key_then_id);
	for (size_t i = 0; i < u.count && r == 0; i++) {
		struct origin_attr attr = {.mtime_ns = u.items[i].start_ns};

		snprintf(attr.etag, sizeof(attr.etag), "%s", u.items[i].id);
		r = req->list.entry(req->list.entry_arg, u.items[i].key,
				    strlen(u.items[i].key), &attr);
	}
	return err_trace(r);
}
