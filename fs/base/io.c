/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"

ssize_t io_pread(int fd, void *p, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pread(fd, (char *)p + done, n - done, (off_t)(off + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_origin(-errno);
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

int io_pwrite(int fd, const void *p, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r =
			pwrite(fd, (const char *)p + done, n - done, (off_t)(off + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_origin(-errno);
		if (r == 0)
			return err_origin(-ENOSPC);
		done += (size_t)r;
	}
	return 0;
}

int io_write(int fd, const void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = write(fd, (const char *)p + done, n - done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_origin(-errno);
		done += (size_t)r;
	}
	return 0;
}

int io_read_file(int dirfd, const char *path, size_t size_max, struct buf *b)
{
	_cleanup_(close_fdp) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_origin(-errno);
	for (;;) {
		char *to = buf_reserve(b, 4096);
		ssize_t r;

		if (!to)
			return err_origin(-ENOMEM);
		r = read(fd, to, 4096);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_origin(-errno);
		b->len += (size_t)r;
		b->data[b->len] = '\0';
		if (b->len > size_max)
			return err_origin(-EFBIG);
		if (r == 0)
			return 0;
	}
}

int io_fsync_dir(int dirfd)
{
	return fsync(dirfd) < 0 ? err_origin(-errno) : 0;
}

int io_replace_file(int dirfd, const char *name, const void *p, size_t n, mode_t mode)
{
	char temporary[NAME_MAX + 1];
	_cleanup_(close_fdp) int fd = -1;
	int r;

	r = snprintf(temporary, sizeof(temporary), ".%.200s.%d.new", name, getpid());
	if (r < 0 || (size_t)r >= sizeof(temporary))
		return err_origin(-ENAMETOOLONG);
	fd = openat(dirfd, temporary,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return err_origin(-errno);
	r = io_write(fd, p, n);
	if (r == 0 && fdatasync(fd) < 0)
		r = err_origin(-errno);
	if (r == 0 && renameat(dirfd, temporary, dirfd, name) < 0)
		r = err_origin(-errno);
	if (r == 0)
		return err_trace(io_fsync_dir(dirfd));
	unlinkat(dirfd, temporary, 0);
	return r;
}

int io_mkdir_p(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t n = strlen(path);

	if (n == 0 || n >= sizeof(part))
		return err_origin(-ENAMETOOLONG);
	memcpy(part, path, n + 1);
	for (char *c = part + 1; *c; c++) {
		if (*c != '/')
			continue;
		*c = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return err_origin(-errno);
		*c = '/';
	}
	if (mkdir(part, mode) < 0 && errno != EEXIST)
		return err_origin(-errno);
	return 0;
}

int io_open_private_dir(const char *path, struct why *why)
{
	_cleanup_(close_fdp) int fd = -1;
	struct stat st;
	int r;

	r = io_mkdir_p(path, 0700);
	if (r < 0)
		return why_set(why, r, "%s: %s", path, strerror(-r));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		return why_set(why, err_origin(r), "%s: %s", path, strerror(-r));
	}
	if (fstat(fd, &st) < 0)
		return err_origin(-errno);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return why_set(why, err_origin(-EPERM),
			       "%s: must belong to uid %u and not be writable by others; "
			       "chown/chmod 700 it or name another directory",
			       path, geteuid());
	return steal_fd(&fd);
}

/* ---- removing a tree ------------------------------------------------------------------- */

enum {
	REMOVE_E_NOT_EMPTY = 1
};

/* Asks the kernel only: behind a mount point may be a server that does not answer. */
static bool is_mount_point(int dir_fd, const char *name)
{
	struct statx st;

	return !statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &st) &&
	       st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* 0 also when it is gone already; REMOVE_E_NOT_EMPTY. */
static int remove_entry(int dir_fd, const char *name)
{
	if (!unlinkat(dir_fd, name, 0) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_origin(-errno);
	if (is_mount_point(dir_fd, name))
		return err_origin(-EBUSY);
	if (!unlinkat(dir_fd, name, AT_REMOVEDIR) || errno == ENOENT)
		return 0;
	return errno == ENOTEMPTY || errno == EEXIST ? REMOVE_E_NOT_EMPTY
						     : err_origin(-errno);
}

/* Moves a directory up into `top`, under a name that nothing there has. */
static int hoist(int dir_fd, const char *name, int top_fd, unsigned int *number)
{
	char to[32];

	do {
		snprintf(to, sizeof(to), ".removed-%u", (*number)++);
		if (!renameat(dir_fd, name, top_fd, to))
			return 0;
	} while (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR);
	return err_origin(-errno);
}

/* Removes what is in `name`; directories that are not empty go up into `top` (when they are
 * not there already: then `name` is "."). *left counts them. */
static int clear_dir(int top_fd, const char *name, unsigned int *number,
		     unsigned int *left)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	int r = 0,
	    fd = openat(top_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		r = errno == ENOENT ? 0 : err_origin(-errno);
		close_fdp(&fd);
		return r;
	}
	while (r >= 0 && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		r = remove_entry(fd, entry->d_name);
		if (r != REMOVE_E_NOT_EMPTY)
			continue;
		++*left;
		r = strcmp(name, ".") ? hoist(fd, entry->d_name, top_fd, number)
				      : clear_dir(top_fd, entry->d_name, number, left);
	}
	return err_trace(r);
}

/*
 * No recursion: who made the tree decides how deep it is. A directory inside a directory is
 * moved up to the top and emptied there, so that the tree is never deeper than
 * two when it is looked at, and needs two descriptors. (clear_dir calls itself once, from
 * the top level.)
 */
int io_remove_tree(int parent_fd, const char *path)
{
	_cleanup_(close_fdp) int top = -1;
	unsigned int number = 0, left;
	int r = remove_entry(parent_fd, path);

	if (r != REMOVE_E_NOT_EMPTY)
		return err_trace(r);
	top = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0)
		return err_origin(-errno);
	do {
		left = 0;
		r = clear_dir(top, ".", &number, &left);
	} while (r >= 0 && left);
	if (r < 0)
		return err_trace(r);
	return err_fold(remove_entry(parent_fd, path));
}
