/* SPDX-License-Identifier: Apache-2.0 */
/* Keys to descriptors: everything is opened below the root by openat2, so that neither a
 * key nor a link that somebody plants in the tree leads outside. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

int file_key_check(const char *key, struct why *why)
{
	int fault = path_key_check(key, strlen(key));

	if (fault != PATH_OK)
		return why_set(why, err_origin(-EINVAL), "%s cannot be a path: %s", key,
			       path_fault_name(fault));
	for (const char *c = key; c; c = strchr(c, '/')) {
		c += *c == '/';
		if (!strncmp(c, FILE_TMP_PREFIX, strlen(FILE_TMP_PREFIX)))
			return why_set(why, err_origin(-EINVAL),
				       "%s: names starting with " FILE_TMP_PREFIX
				       " are reserved",
				       key);
	}
	return 0;
}

int file_error(int e)
{
	switch (e) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case EXDEV:
		return -ENOENT;
	case EACCES:
	case EPERM:
		return -EACCES;
	case ENOSPC:
	case EDQUOT:
		return -ENOSPC;
	case ENAMETOOLONG:
		return -EINVAL;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case EAGAIN:
	case EINTR:
	case EBUSY:
		return -EAGAIN;
	case EROFS:
	case EFBIG:
	case ESTALE:
	case ETIMEDOUT:
	case EEXIST:
		return -e;
	default:
		return -EIO;
	}
}

int file_open_beneath(const struct file_origin *f, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	for (int i = 0; i < FILE_RACES_MAX; i++) {
		long fd = syscall(SYS_openat2, f->root_fd, *path ? path : ".", &how,
				  sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			break;
	}
	return err_origin(file_error(errno));
}

void file_place_close(struct file_place *place)
{
	if (place->dir_fd >= 0)
		close(place->dir_fd);
	place->dir_fd = -1;
}

/* The key's directory into dir ("" or "a/b"), its last component into the place. */
static void split(const char *key, char dir[PATH_KEY_MAX + 1], struct file_place *place)
{
	size_t n = strlen(key), start;

	place->is_dir = n && key[n - 1] == '/';
	if (place->is_dir)
		n--;
	for (start = n; start && key[start - 1] != '/'; start--)
		;
	memcpy(place->name, key + start, n - start);
	place->name[n - start] = '\0';
	memcpy(dir, key, start);
	dir[start ? start - 1 : 0] = '\0';
}

int file_place_find(const struct file_origin *f, const char *key, struct file_place *out)
{
	char dir[PATH_KEY_MAX + 1];
	int fd;

	split(key, dir, out);
	fd = file_open_beneath(f, dir, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return err_trace(fd);
	out->dir_fd = fd;
	return 0;
}

/* Opens the component below *dir_fd, making it when it is missing; *dir_fd moves on. */
static int descend(int *dir_fd, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(close_fdp) int fd = openat(*dir_fd, name, flags);
	bool made = false;

	if (fd < 0 && errno == ENOENT) {
		made = mkdirat(*dir_fd, name, 0777) == 0;
		if (!made && errno != EEXIST)
			return -errno;
		fd = openat(*dir_fd, name, flags);
	}
	if (fd < 0)
		return -errno;
	if (made) {
		file_set_implicit(fd, true);
		if (fsync(*dir_fd) < 0)
			return -errno;
	}
	close(*dir_fd);
	*dir_fd = steal_fd(&fd);
	return 0;
}

static int make_path(const struct file_origin *f, char *dir)
{
	_cleanup_(close_fdp) int fd = file_open_beneath(f, "", O_RDONLY | O_DIRECTORY);
	char *rest = dir, *name;
	int r = 0;

	if (fd < 0)
		return fd;
	while (r == 0 && (name = strsep(&rest, "/")))
		if (*name)
			r = descend(&fd, name);
	return r < 0 ? r : steal_fd(&fd);
}

int file_place_make(const struct file_origin *f, const char *key, struct file_place *out,
		    struct why *why)
{
	char dir[PATH_KEY_MAX + 1], scratch[PATH_KEY_MAX + 1];
	int fd = -ENOENT;

	split(key, dir, out);
	/* A concurrent delete may prune what has just been made. */
	for (int i = 0; fd == -ENOENT && i < FILE_RACES_MAX; i++) {
		memcpy(scratch, dir, sizeof(dir));
		fd = file_open_beneath(f, dir, O_RDONLY | O_DIRECTORY);
		if (fd == -ENOENT)
			fd = make_path(f, scratch);
	}
	if (fd == -ENOTDIR || fd == -ELOOP || fd == -EEXIST)
		return why_set(why, err_origin(-EINVAL),
			       "%s: a part of %s is a file or a link, not a directory",
			       key, dir);
	if (fd < 0)
		return err_origin(file_error(-fd));
	out->dir_fd = fd;
	return 0;
}

/* ---- implicit directories ------------------------------------------------------------- */

bool file_is_implicit(int dir_fd)
{
	return fgetxattr(dir_fd, FILE_MARK, NULL, 0) >= 0;
}

/* Without user attributes a directory counts as made on purpose and stays. */
void file_set_implicit(int dir_fd, bool implicit)
{
	if (implicit)
		fsetxattr(dir_fd, FILE_MARK, "", 0, 0);
	else
		fremovexattr(dir_fd, FILE_MARK);
}

void file_prune(const struct file_origin *f, const char *key)
{
	char path[PATH_KEY_MAX + 1];
	char *slash;

	memcpy(path, key, strlen(key) + 1);
	if (*path && path[strlen(path) - 1] == '/')
		path[strlen(path) - 1] = '\0';
	while ((slash = strrchr(path, '/'))) {
		struct file_place place = FILE_PLACE_INIT;
		int fd, r;

		*slash = '\0';
		fd = file_open_beneath(f, path, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return;
		r = file_is_implicit(fd) ? file_place_find(f, path, &place) : -ENOENT;
		close(fd);
		if (r == 0 && unlinkat(place.dir_fd, place.name, AT_REMOVEDIR) < 0)
			r = -errno;
		file_place_close(&place);
		if (r < 0)
			return;
	}
}
