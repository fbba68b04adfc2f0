/* SPDX-License-Identifier: Apache-2.0 */
/* Making objects, and adding to them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

static void count_out(struct file_origin *f, uint64_t n)
{
	lock_scope(&f->lock);
	f->stats.bytes_out += n;
}

int file_fill_result(struct file_place *place, int fd, struct origin_attr *attr)
{
	struct stat st;
	int r = fd >= 0 ? fstat(fd, &st)
			: fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW);

	if (r < 0)
		return err_origin(file_error(errno));
	file_attr_fill(fd >= 0 ? fd : place->dir_fd, fd >= 0 ? "" : place->name, &st,
		       attr);
	return 0;
}

/* ---- directories ---------------------------------------------------------------------- */

int file_put_dir(struct file_origin *f, struct origin_req *req, struct file_place *place,
		 const struct file_posix *posix)
{
	_cleanup_(close_fdp) int fd = -1;
	bool made = mkdirat(place->dir_fd, place->name, 0777) == 0;
	int r;

	if (!made && errno != EEXIST)
		return err_origin(file_error(errno));
	fd = openat(place->dir_fd, place->name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return why_set(&req->why, err_origin(-EINVAL),
			       "%s is a file here and cannot also be a directory",
			       req->key);
	if (req->if_none_match && !made && !file_is_implicit(fd))
		return why_set(&req->why, err_origin(-EEXIST), "%s is there", req->key);
	file_set_implicit(fd, false);
	r = file_posix_apply(f, posix, fd, -1, NULL);
	if (r == 0 && fsync(fd) < 0)
		r = err_origin(file_error(errno));
	if (r == 0 && made)
		r = io_fsync_dir(place->dir_fd);
	return r < 0 ? r : file_fill_result(place, fd, &req->attr);
}

/* ---- files and links ------------------------------------------------------------------ */

static int read_target(struct origin_req *req, char target[PATH_MAX])
{
	if (!req->body.len || req->body.len >= PATH_MAX)
		return why_set(&req->why, err_origin(-EINVAL),
			       "%s: the target of a link has 1 to %d bytes", req->key,
			       PATH_MAX - 1);
	if (req->body.data)
		memcpy(target, req->body.data, req->body.len);
	else if (io_pread(req->body.fd, target, req->body.len, req->body.fd_off) !=
		 (ssize_t)req->body.len)
		return err_origin(-EIO);
	target[req->body.len] = '\0';
	if (strlen(target) != req->body.len)
		return why_set(&req->why, err_origin(-EINVAL),
			       "%s: NUL in a link's target", req->key);
	return 0;
}

static int check_crc(struct origin_req *req, uint64_t crc)
{
	if (!req->has_expect_crc64 || req->expect_crc64 == crc)
		return 0;
	return why_set(&req->why, err_origin(-EBADMSG),
		       "%s: checksum %" PRIu64 " instead of %" PRIu64, req->key, crc,
		       req->expect_crc64);
}

static int put_link(struct file_origin *f, struct origin_req *req,
		    struct file_draft *draft, struct file_place *place,
		    const struct file_posix *posix)
{
	char target[PATH_MAX];
	int r = read_target(req, target);

	if (r == 0)
		r = check_crc(req, crc64(0, target, req->body.len));
	if (r == 0)
		r = file_draft_link(place, target, draft);
	return r < 0 ? r : file_posix_apply(f, posix, -1, place->dir_fd, draft->name);
}

static int put_file(struct file_origin *f, struct origin_req *req,
		    struct file_draft *draft, struct file_place *place,
		    const struct file_posix *posix, uint64_t *crc)
{
	int r = file_draft_new(place, draft);

	if (r == 0)
		r = file_write_body(req, draft->fd, 0, crc);
	if (r == 0)
		r = check_crc(req, *crc);
	return r < 0 ? r : file_posix_apply(f, posix, draft->fd, -1, NULL);
}

int file_put(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(file_draft_close) struct file_draft draft = {.fd = -1};
	struct file_posix posix;
	uint64_t crc = 0;
	int r;

	file_posix_parse(req->meta, &posix);
	r = file_place_make(f, req->key, &place, &req->why);
	if (r < 0)
		return err_trace(r);
	if (place.is_dir)
		return err_trace(file_put_dir(f, req, &place, &posix));
	if (posix.attr.is_symlink)
		r = put_link(f, req, &draft, &place, &posix);
	else
		r = put_file(f, req, &draft, &place, &posix, &crc);
	if (r == 0)
		r = file_draft_publish(&draft, req->if_none_match, req->key, &req->why);
	if (r < 0) {
		file_draft_close(&draft);
		file_prune(f, req->key);
		return err_trace(r);
	}
	r = file_fill_result(&place, draft.fd, &req->attr);
	req->attr.has_crc64 = draft.fd >= 0;
	req->attr.crc64 = crc;
	count_out(f, req->body.len);
	return err_trace(r);
}

/* ---- append --------------------------------------------------------------------------- */

static int open_for_append(struct file_origin *f, struct origin_req *req,
			   struct file_place *place, struct stat *st)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	struct file_posix posix;
	bool made = false;
	int fd = openat(place->dir_fd, place->name, flags), r;

	if (fd < 0 && errno == ENOENT && req->off == 0) {
		fd = openat(place->dir_fd, place->name, flags | O_CREAT | O_EXCL, 0666);
		made = fd >= 0;
	}
	if (fd < 0 && errno == ENOENT && req->off) {
		req->off = 0;
		return why_set(&req->why, err_origin(-ESTALE), "%s is not there",
			       req->key);
	}
	if (fd < 0 && (errno == ELOOP || errno == EISDIR))
		return why_set(&req->why, err_origin(-ENOTSUP), "%s is not a file",
			       req->key);
	if (fd < 0)
		return err_origin(file_error(errno));
	file_posix_parse(made ? req->meta : NULL, &posix);
	r = file_posix_apply(f, &posix, fd, -1, NULL);
	if (r == 0 && made)
		r = io_fsync_dir(place->dir_fd);
	if (r == 0 && fstat(fd, st) < 0)
		r = err_origin(file_error(errno));
	if (r == 0 && !S_ISREG(st->st_mode))
		r = err_origin(-ENOTSUP);
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

int file_append(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(close_fdp) int fd = -1;
	struct stat st;
	uint64_t crc = 0;
	int r = req->off ? file_place_find(f, req->key, &place)
			 : file_place_make(f, req->key, &place, &req->why);

	if (r == -ENOENT) {
		req->off = 0;
		return why_set(&req->why, err_origin(-ESTALE), "%s is not there",
			       req->key);
	}
	if (r < 0)
		return err_trace(r);
	fd = open_for_append(f, req, &place, &st);
	if (fd < 0)
		return err_trace(fd);
	if ((uint64_t)st.st_size != req->off) {
		req->off = (uint64_t)st.st_size;
		return why_set(&req->why, err_origin(-ESTALE), "%s has %" PRIu64 " bytes",
			       req->key, req->off);
	}
	r = file_write_body(req, fd, req->off, &crc);
	if (r == 0 && fsync(fd) < 0)
		r = err_origin(file_error(errno));
	if (r < 0) {
		/* All or nothing, as far as the disk still does what it is told. */
		if (ftruncate(fd, (off_t)req->off) < 0)
			return why_set(&req->why, err_origin(-EIO),
				       "%s: a part of the tail was left behind",
				       req->key);
		return err_trace(r);
	}
	req->off += req->body.len;
	count_out(f, req->body.len);
	return err_trace(file_fill_result(&place, fd, &req->attr));
}
