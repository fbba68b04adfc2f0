/* SPDX-License-Identifier: Apache-2.0 */
/* Reading one version of a file: what was read is handed on only after another look says
 * that the file is still the one that was opened. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

static bool unchanged(int fd, const struct stat *before)
{
	struct stat now;

	return fstat(fd, &now) == 0 && now.st_size == before->st_size &&
	       now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static int hand_on(struct file_origin *f, struct origin_req *req, uint64_t off,
		   const char *data, size_t n)
{
	int r = req->sink(req->sink_arg, off, data, n);

	if (r < 0)
		return err_trace(r);
	req->received += n;
	lock_scope(&f->lock);
	f->stats.bytes_in += n;
	return 0;
}

static int read_file(struct file_origin *f, struct origin_req *req, int fd,
		     const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, off = req->off, end = size;
	_cleanup_(freep) char *buffer = NULL;

	if (off >= size)
		return 0;
	if (req->len < size - off)
		end = off + req->len;
	buffer = malloc(end - off < FILE_COPY_MAX ? end - off : FILE_COPY_MAX);
	if (!buffer)
		return err_origin(-ENOMEM);
	while (off < end) {
		size_t want = end - off < FILE_COPY_MAX ? end - off : FILE_COPY_MAX;
		ssize_t got = io_pread(fd, buffer, want, off);
		int r = file_interrupted(req);

		if (got < 0)
			return err_trace(file_error((int)-got));
		if ((size_t)got < want || !unchanged(fd, st))
			return why_set(&req->why, err_origin(-ESTALE),
				       "%s changed while it was read", req->key);
		if (r == 0)
			r = hand_on(f, req, off, buffer, want);
		if (r < 0)
			return r;
		off += want;
	}
	return 0;
}

static int read_link(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	char target[PATH_MAX];
	ssize_t n;
	int r = file_place_find(f, req->key, &place);

	if (r < 0)
		return err_trace(r);
	n = readlinkat(place.dir_fd, place.name, target, sizeof(target));
	if (n < 0)
		return err_origin(file_error(errno));
	if ((uint64_t)n <= req->off)
		return 0;
	n -= (ssize_t)req->off;
	if (req->len < (uint64_t)n)
		n = (ssize_t)req->len;
	return hand_on(f, req, req->off, target + req->off, (size_t)n);
}

int file_get(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(close_fdp) int fd = -1;
	struct stat st;
	int r = file_lookup(f, req->key, &st, &req->attr);

	if (r == 0)
		r = file_match(req, req->key, &req->attr);
	if (r < 0)
		return err_trace(r);
	if (req->attr.is_dir)
		return 0;
	if (req->attr.is_symlink)
		return err_trace(read_link(f, req));
	/* What a look-up called a regular file may be a FIFO by now: do not wait in open. */
	fd = file_open_beneath(f, req->key, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return err_trace(fd);
	if (fstat(fd, &st) < 0)
		return err_origin(file_error(errno));
	if (!S_ISREG(st.st_mode))
		return err_origin(-ENOENT);
	file_attr_fill(fd, "", &st, &req->attr);
	r = file_match(req, req->key, &req->attr);
	return r < 0 ? r : err_trace(read_file(f, req, fd, &st));
}
