/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is, in the words of an origin. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache/origin_posix.h"
#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID AT_REMOVEDIR /* linux/fcntl.h, since 6.6 */
#endif

/* File systems give a freed inode number to the next file at once; the handle holds its
 * generation, too. 0: the file system has no handles. */
static uint32_t generation(int dir_fd, const char *name)
{
	_Alignas(struct file_handle) char
		space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	struct file_handle *handle = (struct file_handle *)space;
	int mount_id;

	for (int flags = AT_EMPTY_PATH;; flags |= AT_HANDLE_FID) {
		handle->handle_bytes = MAX_HANDLE_SZ;
		if (name_to_handle_at(dir_fd, name, handle, &mount_id, flags) == 0)
			return crc32c(0, handle->f_handle, handle->handle_bytes);
		if (errno != EOPNOTSUPP || (flags & AT_HANDLE_FID))
			return 0;
	}
}

bool file_is_shown(const struct stat *st)
{
	return S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode);
}

void file_attr_fill(int dir_fd, const char *name, const struct stat *st,
		    struct origin_attr *attr)
{
	int64_t mtime_ns = clock_from_timespec(st->st_mtim);

	*attr = (struct origin_attr){
		.size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
		.mtime_ns = mtime_ns,
		.is_dir = S_ISDIR(st->st_mode),
		.is_symlink = S_ISLNK(st->st_mode),
		.has_posix = true,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
	};
	snprintf(attr->etag, sizeof(attr->etag), "%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%x",
		 (uint64_t)st->st_ino, attr->size, (uint64_t)mtime_ns,
		 generation(dir_fd, name));
}

int file_lookup(const struct file_origin *f, const char *key, struct stat *st,
		struct origin_attr *attr)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	struct stat own;
	int r = file_place_find(f, key, &place);

	if (r < 0)
		return err_trace(r);
	if (!st)
		st = &own;
	if (fstatat(place.dir_fd, place.name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_origin(file_error(errno));
	if (!file_is_shown(st) || S_ISDIR(st->st_mode) != place.is_dir)
		return err_origin(-ENOENT);
	if (place.is_dir) {
		_cleanup_(close_fdp) int fd =
			openat(place.dir_fd, place.name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0 && file_is_implicit(fd))
			return err_origin(-ENOENT);
	}
	file_attr_fill(place.dir_fd, place.name, st, attr);
	return 0;
}

int file_match(struct origin_req *req, const char *key, const struct origin_attr *attr)
{
	if (req->if_match && strcmp(req->if_match, attr->etag) != 0)
		return why_set(&req->why, err_origin(-ESTALE), "%s has changed", key);
	return 0;
}

int file_stat(struct file_origin *f, struct origin_req *req)
{
	int r = file_lookup(f, req->key, NULL, &req->attr);

	if (r < 0)
		return err_trace(r);
	return file_match(req, req->key, &req->attr);
}

/* ---- metadata ------------------------------------------------------------------------- */

void file_posix_parse(const struct origin_meta *meta, struct file_posix *out)
{
	*out = (struct file_posix){.attr = {.uid = (uid_t)-1, .gid = (gid_t)-1}};
	for (size_t i = 0; meta && i < meta->count; i++) {
		const char *name = meta->pairs[i][0];

		if (!origin_posix_parse(&out->attr, name, meta->pairs[i][1]))
			continue;
		out->has_mode |= out->attr.has_posix;
		out->has_owner |= !strcmp(name, "uid") || !strcmp(name, "gid");
		out->has_mtime |= !strcmp(name, "mtime");
	}
}

void file_posix_from_stat(const struct stat *st, struct file_posix *out)
{
	*out = (struct file_posix){
		.has_mode = true, .has_owner = true, .has_mtime = true};
	out->attr.mode = st->st_mode;
	out->attr.uid = st->st_uid;
	out->attr.gid = st->st_gid;
	out->attr.mtime_ns = clock_from_timespec(st->st_mtim);
}

int file_posix_apply(const struct file_origin *f, const struct file_posix *posix, int fd,
		     int dir_fd, const char *name)
{
	const int flags = fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
	const int at = fd >= 0 ? fd : dir_fd;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
				    clock_to_timespec(posix->attr.mtime_ns)};
	int r = 0;

	/* The owner first: chown takes set-id bits away. */
	if (posix->has_owner && f->may_chown)
		r = fchownat(at, fd >= 0 ? "" : name, posix->attr.uid, posix->attr.gid,
			     flags);
	if (r == 0 && posix->has_mode && fd >= 0)
		/* A job's set-id bits have no place on a shared store. */
		r = fchmod(fd, posix->attr.mode & 01777);
	if (r == 0 && posix->has_mtime)
		r = fd >= 0 ? futimens(fd, times) : utimensat(at, name, times, flags);
	return r < 0 ? err_origin(file_error(errno)) : 0;
}
