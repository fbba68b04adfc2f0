/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_layer.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

/* One directory of the upper layer, with the owner and mode of the one it covers. */
static int make_dir(const struct runc_layer *l, const char *path)
{
	struct stat st;
	bool below = !fstatat(l->lower, path, &st, AT_SYMLINK_NOFOLLOW);

	/* A directory over a link would hide what the link leads to. */
	if (below && !S_ISDIR(st.st_mode))
		return err_origin(-ENOTDIR);
	if (mkdirat(l->upper, path, 0755))
		return errno == EEXIST ? 0 : err_origin(-errno);
	if (fchmodat(l->upper, path, below ? st.st_mode & 07777 : 0755, 0))
		return err_origin(-errno);
	if (below && fchownat(l->upper, path, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW))
		return err_origin(-errno);
	return 0;
}

/* Makes the first `n` bytes of path a directory, component by component. */
static int make_dirs(const struct runc_layer *l, const char *path, size_t n)
{
	char part[PATH_MAX];
	int r = 0;

	if (n >= sizeof(part))
		return err_origin(-ENAMETOOLONG);
	for (size_t i = 1; i <= n && !r; i++) {
		if (i < n && path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		r = make_dir(l, part);
	}
	return err_trace(r);
}

static int make_parents(const struct runc_layer *l, const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? err_trace(make_dirs(l, path, (size_t)(slash - path))) : 0;
}

int runc_layer_dir(const struct runc_layer *l, const char *path)
{
	return err_trace(make_dirs(l, path, strlen(path)));
}

static bool is_opaque(const struct runc_layer *l, const char *path)
{
	_cleanup_(close_fdp) int fd =
		openat(l->upper, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char value;

	return fd >= 0 && fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1;
}

/* Does the layer already cover the path or a directory above it? A whiteout inside an
 * opaque directory would be wrong: there the kernel shows it as a device. */
static bool is_covered(const struct runc_layer *l, const char *path)
{
	char part[PATH_MAX];
	struct stat st;

	for (size_t i = 1; i < sizeof(part) && path[i - 1]; i++) {
		if (path[i] && path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (fstatat(l->upper, part, &st, AT_SYMLINK_NOFOLLOW))
			return false;
		if (!S_ISDIR(st.st_mode) || is_opaque(l, part))
			return true;
	}
	return false;
}

int runc_layer_hide(const struct runc_layer *l, const char *path)
{
	struct stat st;
	int r;

	if (is_covered(l, path))
		return 0;
	if (fstatat(l->lower, path, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_origin(-errno);
	r = make_parents(l, path);
	if (r)
		return err_trace(r);
	if (mknodat(l->upper, path, S_IFCHR | 0600, makedev(0, 0)) && errno != EEXIST)
		return err_origin(-errno);
	return 0;
}

int runc_layer_empty(const struct runc_layer *l, const char *path, mode_t mode)
{
	_cleanup_(close_fdp) int fd = -1;

	if (mkdirat(l->upper, path, 0700) && errno != EEXIST)
		return err_origin(-errno);
	fd = openat(l->upper, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_origin(-errno);
	if (fchmod(fd, mode))
		return err_origin(-errno);
	if (fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0))
		return err_origin(-errno);
	return 0;
}

/* Room for a file of our own: whatever hides the image's one goes. */
static int make_room(const struct runc_layer *l, const char *path)
{
	int r = make_parents(l, path);

	if (r)
		return err_trace(r);
	if (unlinkat(l->upper, path, 0) && errno != ENOENT &&
	    unlinkat(l->upper, path, AT_REMOVEDIR))
		return err_origin(-errno);
	return 0;
}

int runc_layer_link(const struct runc_layer *l, const char *path, const char *to)
{
	int r = make_room(l, path);

	if (r)
		return err_trace(r);
	return symlinkat(to, l->upper, path) ? err_origin(-errno) : 0;
}

int runc_layer_file(const struct runc_layer *l, const char *path, const void *data,
		    size_t n, mode_t mode)
{
	_cleanup_(close_fdp) int fd = -1;
	int r = make_room(l, path);

	if (r)
		return err_trace(r);
	fd = openat(l->upper, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return err_origin(-errno);
	r = io_write(fd, data, n);
	return r ? err_trace(r) : fchmod(fd, mode) ? err_origin(-errno) : 0;
}

/* ---- the host's root ------------------------------------------------------------------ */

static bool is_listed(const char *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

static int hide_top_level(const struct runc_layer *l)
{
	static const char *const shown[] = {"usr", "opt",   "etc",   "bin",    "sbin",
					    "lib", "lib32", "lib64", "libx32", NULL};
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	int fd = openat(l->lower, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return err_origin(-errno);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_origin(-ENOMEM);
	}
	while (!r && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		struct stat st;

		if (!strcmp(name, ".") || !strcmp(name, "..") || is_listed(shown, name))
			continue;
		if (fstatat(l->lower, name, &st, AT_SYMLINK_NOFOLLOW))
			continue; /* went away meanwhile */
		r = S_ISDIR(st.st_mode) ? runc_layer_empty(l, name, 0755)
					: runc_layer_hide(l, name);
	}
	return err_trace(r);
}

/* What only its owner or a group may read is somebody's secret: keys, password hashes,
 * sudoers, a service's configuration with a password in it. */
static int hide_private_etc(const struct runc_layer *l)
{
	char root[64];
	char *paths[] = {root, NULL};
	size_t skip;
	FTSENT *e;
	FTS *walk;
	int r = 0;

	/* fts wants a path; this one leads to the lower layer whatever lies over /. */
	skip = (size_t)snprintf(root, sizeof(root), "/proc/thread-self/fd/%d/", l->lower);
	snprintf(root + skip, sizeof(root) - skip, "etc");
	walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	if (!walk)
		return err_origin(-errno);
	while (!r && (e = fts_read(walk))) {
		mode_t mode = e->fts_statp->st_mode;
		bool is_dir = e->fts_info == FTS_D || e->fts_info == FTS_DNR;

		if (e->fts_info == FTS_DP || e->fts_info == FTS_SL ||
		    e->fts_info == FTS_SLNONE || e->fts_info == FTS_NS)
			continue;
		if (mode & S_IROTH && (!is_dir || mode & S_IXOTH))
			continue;
		r = runc_layer_hide(l, e->fts_path + skip);
		if (is_dir)
			fts_set(walk, e, FTS_SKIP);
	}
	fts_close(walk);
	return err_trace(r);
}

int runc_layer_hide_host(const struct runc_layer *l)
{
	static const struct {
		const char *path;
		mode_t mode;
	} empty[] = {{"root", 0700},    {"home", 0755},     {"tmp", 01777},
		     {"run", 0755},     {"var", 0755},      {"mnt", 0755},
		     {"srv", 0755},     {"var/tmp", 01777}, {"var/log", 0755},
		     {"var/lib", 0755}, {"var/cache", 0755}};
	static const char *const named[] = {"etc/ssh",    "etc/ssl/private", "etc/sluice",
					    "etc/docker", "etc/kubernetes",  NULL};
	int r = hide_top_level(l);

	for (size_t i = 0; i < sizeof(empty) / sizeof(*empty) && !r; i++)
		r = runc_layer_empty(l, empty[i].path, empty[i].mode);
	r = r ? r : runc_layer_link(l, "var/run", "/run");
	r = r ? r : hide_private_etc(l);
	for (const char *const *p = named; *p && !r; p++)
		r = runc_layer_hide(l, *p);
	return err_trace(r);
}
