/* SPDX-License-Identifier: Apache-2.0 */
/* Copying and removing objects. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

/* Only the metadata changes: in place. */
static int copy_onto_itself(struct file_origin *f, struct origin_req *req,
			    const struct file_posix *posix, const struct stat *st)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(close_fdp) int fd = -1;
	int r = file_place_find(f, req->key, &place);

	if (r == 0 && !S_ISLNK(st->st_mode)) {
		fd = openat(place.dir_fd, place.name,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		r = fd < 0 ? err_origin(file_error(errno)) : 0;
	}
	if (r == 0)
		r = file_posix_apply(f, posix, fd, place.dir_fd, place.name);
	if (r == 0 && fd >= 0 && fsync(fd) < 0)
		r = err_origin(file_error(errno));
	return r < 0 ? err_trace(r) : err_trace(file_fill_result(&place, fd, &req->attr));
}

static int copy_file(struct file_origin *f, struct origin_req *req,
		     struct file_draft *draft, struct file_place *place,
		     const struct file_posix *posix)
{
	_cleanup_(close_fdp) int from = file_open_beneath(f, req->source, O_RDONLY);
	struct origin_attr attr;
	struct stat before, after;
	int r;

	if (from < 0)
		return from;
	if (fstat(from, &before) < 0)
		return err_origin(file_error(errno));
	file_attr_fill(from, "", &before, &attr);
	r = file_match(req, req->source, &attr);
	if (r == 0)
		r = file_draft_new(place, draft);
	if (r == 0)
		r = file_copy_bytes(req, from, 0, draft->fd, 0, (uint64_t)before.st_size);
	if (r == -EBADMSG ||
	    (r == 0 && (fstat(from, &after) < 0 || after.st_size != before.st_size ||
			memcmp(&after.st_mtim, &before.st_mtim, sizeof(after.st_mtim)))))
		return why_set(&req->why, err_origin(-ESTALE),
			       "%s changed while it was copied", req->source);
	return r < 0 ? r : file_posix_apply(f, posix, draft->fd, -1, NULL);
}

static int copy_link(struct file_origin *f, struct origin_req *req,
		     struct file_draft *draft, struct file_place *place,
		     const struct file_posix *posix)
{
	_cleanup_(file_place_close) struct file_place from = FILE_PLACE_INIT;
	char target[PATH_MAX];
	ssize_t n;
	int r = file_place_find(f, req->source, &from);

	if (r < 0)
		return r;
	n = readlinkat(from.dir_fd, from.name, target, sizeof(target) - 1);
	if (n < 0)
		return err_origin(file_error(errno));
	target[n] = '\0';
	r = file_draft_link(place, target, draft);
	return r < 0 ? r : file_posix_apply(f, posix, -1, place->dir_fd, draft->name);
}

int file_copy(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(file_draft_close) struct file_draft draft = {.fd = -1};
	struct origin_attr attr;
	struct file_posix posix;
	struct stat st;
	int r = file_key_check(req->source, &req->why);

	if (r == 0)
		r = file_lookup(f, req->source, &st, &attr);
	if (r == 0)
		r = file_match(req, req->source, &attr);
	if (r < 0)
		return err_trace(r);
	if (req->meta)
		file_posix_parse(req->meta, &posix);
	else
		file_posix_from_stat(&st, &posix);
	if (!strcmp(req->key, req->source))
		return err_trace(copy_onto_itself(f, req, &posix, &st));
	r = file_place_make(f, req->key, &place, &req->why);
	if (r < 0)
		return err_trace(r);
	if (place.is_dir != attr.is_dir)
		r = why_set(&req->why, err_origin(-EINVAL),
			    "a directory can only be copied to a directory");
	else if (place.is_dir)
		return err_trace(file_put_dir(f, req, &place, &posix));
	else if (attr.is_symlink)
		r = copy_link(f, req, &draft, &place, &posix);
	else
		r = copy_file(f, req, &draft, &place, &posix);
	if (r == 0)
		r = file_draft_publish(&draft, req->if_none_match, req->key, &req->why);
	if (r < 0) {
		file_draft_close(&draft);
		file_prune(f, req->key);
		return err_trace(r);
	}
	return err_trace(file_fill_result(&place, draft.fd, &req->attr));
}

/* ---- delete --------------------------------------------------------------------------- */

/* The directory's marker goes; the directory itself only when nothing else needs it. */
static int delete_dir(struct file_place *place)
{
	_cleanup_(close_fdp) int fd = -1;

	if (unlinkat(place->dir_fd, place->name, AT_REMOVEDIR) == 0 || errno == ENOENT ||
	    errno == ENOTDIR)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return err_origin(file_error(errno));
	fd = openat(place->dir_fd, place->name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		file_set_implicit(fd, true);
	return 0;
}

static int delete_file(struct file_place *place)
{
	struct stat st;

	if (unlinkat(place->dir_fd, place->name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR || errno == EPERM) {
		int e = errno;

		if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISDIR(st.st_mode))
			return 0; /* no such key: the directory is "name/" */
		return err_origin(file_error(e));
	}
	return err_origin(file_error(errno));
}

static int delete_one(struct file_origin *f, struct origin_req *req, const char *key)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	int r = file_key_check(key, &req->why);

	if (r == 0)
		r = file_place_find(f, key, &place);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = place.is_dir ? delete_dir(&place) : delete_file(&place);
	if (r == 0)
		r = io_fsync_dir(place.dir_fd);
	if (r == 0)
		file_prune(f, key);
	return err_trace(r);
}

int file_delete(struct file_origin *f, struct origin_req *req)
{
	return delete_one(f, req, req->key);
}

int file_delete_many(struct file_origin *f, struct origin_req *req)
{
	int first = 0;

	/* One that cannot be deleted does not keep the others. */
	for (size_t i = 0; i < req->key_count; i++) {
		int r = file_interrupted(req);

		if (r < 0)
			return err_trace(r);
		r = delete_one(f, req, req->keys[i]);
		if (r == 0 && req->keys_gone)
			req->keys_gone[i] = true;
		if (first == 0)
			first = r;
	}
	return err_trace(first);
}
