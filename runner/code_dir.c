/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/code_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/code_tree.h"

/* Bytes that are there when it is read, not those that stat() saw: it may grow. */
static int copy_bytes(struct code_tree *t, const char *path, int in, int out)
{
	char block[65536];

	for (;;) {
		ssize_t n = read(in, block, sizeof(block));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return why_set(t->why, err_origin(-errno), "cannot read %s: %s",
				       path, strerror(errno));
		if (n == 0)
			return 0;
		r = code_tree_reserve(t, path, (uint64_t)n);
		if (r)
			return err_trace(r);
		r = io_write(out, block, (size_t)n);
		if (r)
			return why_set(t->why, r, "cannot write %s: %s", path,
				       strerror(-r));
	}
}

static int copy_file(struct code_tree *t, const FTSENT *e, const char *path)
{
	_cleanup_(close_fdp) int in =
		open(e->fts_accpath, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(close_fdp) int out = -1;
	struct stat st;

	if (in < 0 || fstat(in, &st))
		return why_set(t->why, err_origin(-errno), "cannot read %s: %s",
			       e->fts_path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return why_set(t->why, err_origin(-EINVAL), "%s was replaced meanwhile",
			       e->fts_path);
	out = code_tree_add_file(t, path, st.st_mode & S_IXUSR);
	return out < 0 ? err_trace(out) : err_trace(copy_bytes(t, path, in, out));
}

static int copy_link(struct code_tree *t, const FTSENT *e, const char *path)
{
	char to[PATH_MAX];
	ssize_t n = readlink(e->fts_accpath, to, sizeof(to) - 1);

	if (n < 0)
		return why_set(t->why, err_origin(-errno), "cannot read %s: %s",
			       e->fts_path, strerror(errno));
	to[n] = '\0';
	return err_trace(code_tree_add_link(t, path, to));
}

static int copy_entry(struct code_tree *t, FTS *walk, FTSENT *e, size_t skip,
		      const struct stat *target)
{
	const char *path = e->fts_path + skip;

	if (e->fts_level == 0 && e->fts_info == FTS_D)
		return 0;
	switch (e->fts_info) {
	case FTS_D:
		/* The job's own directory may lie inside. */
		if (!strcasecmp(e->fts_name, ".git") ||
		    (e->fts_statp->st_dev == target->st_dev &&
		     e->fts_statp->st_ino == target->st_ino)) {
			fts_set(walk, e, FTS_SKIP);
			return 0;
		}
		return err_trace(code_tree_add_dir(t, path));
	case FTS_DP:
		return 0;
	case FTS_F:
		/* A worktree's or submodule's .git is a file. */
		return strcasecmp(e->fts_name, ".git") ? err_trace(copy_file(t, e, path))
						       : 0;
	case FTS_SL:
	case FTS_SLNONE:
		return err_trace(copy_link(t, e, path));
	case FTS_DEFAULT:
		return why_set(t->why, err_origin(-EINVAL),
			       "%s is neither a file nor a directory", e->fts_path);
	default:
		return why_set(t->why, err_origin(-e->fts_errno), "cannot read %s: %s",
			       e->fts_path, strerror(e->fts_errno));
	}
}

int code_dir_copy(const char *dir, struct code_tree *t)
{
	char root[PATH_MAX];
	char *paths[] = {root, NULL};
	struct stat st, target;
	size_t skip;
	FTSENT *e;
	FTS *walk;
	int r = 0;

	/* The directory itself may be a link: it is the user's word. */
	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return why_set(t->why, err_origin(-ENOTDIR),
			       "code directory %s: not a directory", dir);
	if (!realpath(dir, root) || fstat(t->root, &target))
		return err_origin(-errno);
	skip = strlen(root) + 1;
	walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!walk)
		return err_origin(-errno);
	while (!r && (e = fts_read(walk)))
		r = copy_entry(t, walk, e, skip, &target);
	fts_close(walk);
	return err_trace(r);
}
