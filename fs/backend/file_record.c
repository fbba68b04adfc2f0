/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/file_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"

#define RECORD_MAX 16384
#define DEAD_RECORD_S 3600 /* a begin takes no hour between record and draft */

bool file_upload_id_ok(const char *id)
{
	return strlen(id) == FILE_ID_LEN && strspn(id, "0123456789abcdef") == FILE_ID_LEN;
}

void file_upload_draft_name(const char *id, char out[64])
{
	snprintf(out, 64, FILE_TMP_PREFIX "up-%s", id);
}

static int open_records(const struct file_origin *f)
{
	int fd = file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(f->root_fd, FILE_UPLOADS, 0700) < 0 && errno != EEXIST)
		return err_origin(file_error(errno));
	return file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);
}

/* The end of another upload may take the empty folder away before ours is in it. */
static int replace_record(const struct file_origin *f, const char *id,
			  const struct buf *b)
{
	int r = -ENOENT;

	for (int i = 0; r == -ENOENT && i < FILE_RACES_MAX; i++) {
		_cleanup_(close_fdp) int dir = open_records(f);

		r = dir < 0 ? dir : io_replace_file(dir, id, b->data, b->len, 0600);
	}
	return r < 0 ? err_trace(file_error(-r)) : 0;
}

int file_record_write(const struct file_origin *f, const struct origin_req *req,
		      const char *id)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	buf_append(&b, req->key, strlen(req->key) + 1);
	for (size_t i = 0; req->meta && i < req->meta->count; i++)
		for (int side = 0; side < 2; side++)
			buf_append(&b, req->meta->pairs[i][side],
				   strlen(req->meta->pairs[i][side]) + 1);
	if (buf_error(&b) < 0)
		return err_trace(buf_error(&b));
	return b.len > RECORD_MAX ? err_origin(-EFBIG) : replace_record(f, id, &b);
}

int file_record_read(const struct file_origin *f, const char *id, struct buf *b)
{
	_cleanup_(close_fdp) int dir =
		file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);
	int r = dir < 0 ? dir : io_read_file(dir, id, RECORD_MAX, b);

	if (r < 0)
		return err_trace(file_error(-r));
	return b->len && b->data[b->len - 1] == '\0' ? 0 : err_origin(-EIO);
}

void file_record_remove(const struct file_origin *f, const char *id)
{
	_cleanup_(close_fdp) int dir =
		file_open_beneath(f, FILE_UPLOADS, O_RDONLY | O_DIRECTORY);

	if (dir < 0)
		return;
	unlinkat(dir, id, 0);
	unlinkat(f->root_fd, FILE_UPLOADS, AT_REMOVEDIR); /* when it was the last */
}

void file_record_posix(const struct buf *b, struct file_posix *out)
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

	file_upload_draft_name(id, name);
	return file_place_find(f, key, &place) == 0 &&
	       fstatat(place.dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int add_upload(struct file_origin *f, struct origin_req *req, struct uploads *u,
		      const char *id, const struct stat *st)
{
	_cleanup_(buf_fini) struct buf record = BUF_INIT;
	struct upload *upload;

	if (file_record_read(f, id, &record) < 0)
		return 0;
	if (!has_draft(f, record.data, id)) {
		if (!f->read_only &&
		    clock_real_ns() / INT64_C(1000000000) - st->st_mtim.tv_sec >
			    DEAD_RECORD_S)
			file_record_remove(f, id);
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

		if (!file_upload_id_ok(entry->d_name) ||
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
