/* SPDX-License-Identifier: Apache-2.0 */
/* Moving bytes into files, and files into their places. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

static int write_piece(int fd, const void *data, size_t n, uint64_t off, uint64_t *crc)
{
	int r = io_pwrite(fd, data, n, off);

	*crc = crc64(*crc, data, n);
	return r < 0 ? err_trace(file_error(-r)) : 0;
}

int file_write_body(struct origin_req *req, int fd, uint64_t off, uint64_t *crc)
{
	const struct origin_body *body = &req->body;
	_cleanup_(freep) char *buffer = NULL;
	int r = 0;

	if (!body->data && body->len) {
		buffer = malloc(FILE_COPY_MAX);
		if (!buffer)
			return err_origin(-ENOMEM);
	}
	for (uint64_t done = 0; done < body->len && r == 0;) {
		size_t n = body->len - done < FILE_COPY_MAX ? body->len - done
							    : FILE_COPY_MAX;
		const char *from = body->data ? (const char *)body->data + done : buffer;

		if (!body->data) {
			ssize_t got = io_pread(body->fd, buffer, n, body->fd_off + done);

			if (got < 0)
				return err_trace(file_error((int)-got));
			if ((size_t)got < n)
				return why_set(&req->why, err_origin(-EIO),
					       "%s: the file to send ended early",
					       req->key);
		}
		r = write_piece(fd, from, n, off + done, crc);
		done += n;
		if (r == 0)
			r = file_interrupted(req);
	}
	return r;
}

/* Reads and writes, for files that the kernel does not move between. */
static int copy_slowly(const struct origin_req *req, int from_fd, uint64_t from_off,
		       int to_fd, uint64_t to_off, uint64_t n)
{
	_cleanup_(freep) char *buffer = malloc(FILE_COPY_MAX);
	int r = 0;

	if (!buffer)
		return err_origin(-ENOMEM);
	for (uint64_t done = 0; done < n && r == 0;) {
		size_t want = n - done < FILE_COPY_MAX ? n - done : FILE_COPY_MAX;
		ssize_t got = io_pread(from_fd, buffer, want, from_off + done);

		if (got < 0)
			return err_trace(file_error((int)-got));
		if ((size_t)got < want)
			return err_origin(-EBADMSG);
		r = io_pwrite(to_fd, buffer, want, to_off + done);
		if (r < 0)
			return err_trace(file_error(-r));
		done += want;
		r = file_interrupted(req);
	}
	return r;
}

int file_copy_bytes(const struct origin_req *req, int from_fd, uint64_t from_off,
		    int to_fd, uint64_t to_off, uint64_t n)
{
	while (n) {
		off_t from = (off_t)from_off, to = (off_t)to_off;
		size_t want = n < (64u << 20) ? n : 64u << 20;
		ssize_t moved = copy_file_range(from_fd, &from, to_fd, &to, want, 0);
		int r;

		if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
				  errno == EOPNOTSUPP || errno == EPERM))
			return err_trace(
				copy_slowly(req, from_fd, from_off, to_fd, to_off, n));
		if (moved < 0 && errno != EINTR)
			return err_origin(file_error(errno));
		if (moved == 0)
			return err_origin(-EBADMSG);
		if (moved > 0) {
			from_off += (uint64_t)moved;
			to_off += (uint64_t)moved;
			n -= (uint64_t)moved;
		}
		r = file_interrupted(req);
		if (r < 0)
			return r;
	}
	return 0;
}

int file_checksum(const struct origin_req *req, int fd, uint64_t off, uint64_t n,
		  uint64_t *crc)
{
	_cleanup_(freep) char *buffer = malloc(FILE_COPY_MAX);

	if (!buffer)
		return err_origin(-ENOMEM);
	for (uint64_t done = 0; done < n;) {
		size_t want = n - done < FILE_COPY_MAX ? n - done : FILE_COPY_MAX;
		ssize_t got = io_pread(fd, buffer, want, off + done);
		int r = file_interrupted(req);

		if (got < 0 || r < 0)
			return err_trace(got < 0 ? file_error((int)-got) : r);
		if ((size_t)got < want)
			return err_origin(-EBADMSG);
		*crc = crc64(*crc, buffer, want);
		done += want;
	}
	return 0;
}

/* ---- drafts --------------------------------------------------------------------------- */

static void draft_init(struct file_place *place, struct file_draft *out)
{
	*out = (struct file_draft){.place = place, .fd = -1};
	snprintf(out->name, sizeof(out->name), FILE_TMP_PREFIX "%016" PRIx64,
		 clock_random());
}

int file_draft_new(struct file_place *place, struct file_draft *out)
{
	draft_init(place, out);
	out->fd = openat(place->dir_fd, out->name,
			 O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (out->fd >= 0)
		return 0;
	out->name[0] = '\0';
	return err_origin(file_error(errno));
}

int file_draft_link(struct file_place *place, const char *target, struct file_draft *out)
{
	draft_init(place, out);
	if (symlinkat(target, place->dir_fd, out->name) == 0)
		return 0;
	out->name[0] = '\0';
	return err_origin(file_error(errno));
}

/* Without RENAME_NOREPLACE (NFS) a second name does the same, and then loses the first. */
static int rename_new(struct file_draft *draft)
{
	int dir = draft->place->dir_fd;

	if (renameat2(dir, draft->name, dir, draft->place->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(dir, draft->name, dir, draft->place->name, 0) < 0)
		return -errno;
	unlinkat(dir, draft->name, 0);
	return 0;
}

int file_draft_publish(struct file_draft *draft, bool only_new, const char *key,
		       struct why *why)
{
	struct file_place *place = draft->place;
	int r = 0;

	if (draft->fd >= 0 && fsync(draft->fd) < 0)
		return err_origin(file_error(errno));
	if (only_new)
		r = rename_new(draft);
	else if (renameat(place->dir_fd, draft->name, place->dir_fd, place->name) < 0)
		r = -errno;
	if (r == -EISDIR || r == -ENOTDIR)
		return why_set(why, err_origin(-EINVAL),
			       "%s is a directory here and cannot also be an object",
			       key);
	if (r == -EEXIST)
		return why_set(why, err_origin(-EEXIST), "%s is there", key);
	if (r < 0)
		return err_origin(file_error(-r));
	draft->name[0] = '\0';
	r = io_fsync_dir(place->dir_fd);
	return r < 0 ? err_trace(file_error(-r)) : 0;
}

void file_draft_close(struct file_draft *draft)
{
	if (draft->fd >= 0)
		close(draft->fd);
	draft->fd = -1;
	if (draft->place && draft->name[0])
		unlinkat(draft->place->dir_fd, draft->name, 0);
	draft->name[0] = '\0';
}
