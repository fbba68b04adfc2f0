/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing a tree in the byte order of its keys: every directory is read whole and sorted
 * with '/' after the names of directories; then a walk with a stack of its own meets the
 * keys in order, and needs no more than one directory a level in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_snapshot.h"
#include "fs/base/cleanup.h"

/* Keys of 1023 bytes hold 512 components at most. */
#define DEPTH_MAX 512

struct level {
	struct file_snapshot *names;
	int dir_fd;
	size_t next;
	size_t path_len; /* of walk->key up to here, with the '/' */
};

struct walk {
	struct file_origin *f;
	struct origin_req *req;
	struct level *levels; /* DEPTH_MAX */
	size_t depth;
	char key[PATH_KEY_MAX + 1];
	const char *after; /* never NULL */
	uint32_t count;
};

enum {
	WALK_END = 1
};

/* Goes into the directory that key[0..path_len) names. One that is gone has no keys. */
static int enter(struct walk *w, size_t path_len)
{
	struct level *level = &w->levels[w->depth];
	char path[PATH_KEY_MAX + 1];
	int r;

	if (w->depth == DEPTH_MAX)
		return 0;
	memcpy(path, w->key, path_len);
	path[path_len ? path_len - 1 : 0] = '\0';
	*level = (struct level){.path_len = path_len, .dir_fd = -1};
	r = file_snapshot_get(w->f, path, *w->after, &level->names);
	if (r == 0) {
		level->dir_fd = file_open_beneath(w->f, path, O_RDONLY | O_DIRECTORY);
		if (level->dir_fd < 0) {
			r = level->dir_fd;
			file_snapshot_put(w->f, level->names);
		}
	}
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_trace(r);
	/* Everything before `after` is passed over in one step. */
	if (!strncmp(w->after, w->key, path_len)) {
		char name[PATH_KEY_MAX + 1];
		const char *slash = strchr(w->after + path_len, '/');
		size_t n = slash ? (size_t)(slash + 1 - w->after) - path_len
				 : strlen(w->after + path_len);

		memcpy(name, w->after + path_len, n);
		name[n] = '\0';
		level->next = file_snapshot_lower_bound(level->names, name);
	}
	w->depth++;
	return 0;
}

static void leave(struct walk *w)
{
	struct level *level = &w->levels[--w->depth];

	close(level->dir_fd);
	file_snapshot_put(w->f, level->names);
}

/* Tells the caller of walk->key, or that there is more. */
static int emit(struct walk *w, const struct origin_attr *attr)
{
	struct origin_req *req = w->req;
	size_t n = strlen(w->key);
	int r;

	if (req->list.until && strcmp(w->key, req->list.until) >= 0)
		return WALK_END;
	if (req->list.count_max && w->count == req->list.count_max) {
		req->list.truncated = true;
		return WALK_END;
	}
	r = req->list.entry(req->list.entry_arg, w->key, n, attr);
	if (r < 0)
		return err_trace(r);
	memcpy(req->list.next, w->key, n + 1);
	w->count++;
	return 0;
}

/* The directory walk->key ("a/b/") itself, where it counts as a key. */
static int emit_dir(struct walk *w, struct level *level, const char *name, bool is_marker)
{
	_cleanup_(close_fdp) int fd = -1;
	char plain[PATH_NAME_MAX + 1];
	struct origin_attr attr;
	struct stat st;

	if (strcmp(w->key, w->after) <= 0)
		return 0;
	snprintf(plain, sizeof(plain), "%.*s", (int)strlen(name) - 1, name);
	if (is_marker)
		fd = openat(level->dir_fd, plain,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && file_is_implicit(fd))
		return 0;
	if (fstatat(level->dir_fd, plain, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode))
		return 0;
	file_attr_fill(level->dir_fd, plain, &st, &attr);
	return emit(w, &attr);
}

static int emit_file(struct walk *w, struct level *level, const char *name)
{
	struct origin_attr attr;
	struct stat st;

	if (strcmp(w->key, w->after) <= 0)
		return 0;
	/* Gone, or something else since the directory was read. */
	if (fstatat(level->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !file_is_shown(&st) || S_ISDIR(st.st_mode))
		return 0;
	file_attr_fill(level->dir_fd, name, &st, &attr);
	return emit(w, &attr);
}

/* One name of the innermost directory; may go a level deeper. */
static int step(struct walk *w)
{
	struct level *level = &w->levels[w->depth - 1];
	const char *name = file_snapshot_name(level->names, level->next++);
	size_t n = strlen(name), key_len = level->path_len + n;
	bool is_dir = name[n - 1] == '/';
	int r;

	if (key_len > PATH_KEY_MAX)
		return 0;
	memcpy(w->key + level->path_len, name, n + 1);
	if (strncmp(w->key, w->req->key, strlen(w->req->key)) != 0)
		return strcmp(w->key, w->req->key) > 0 ? WALK_END : 0;
	r = file_interrupted(w->req);
	if (r < 0)
		return r;
	if (!is_dir)
		return emit_file(w, level, name);
	r = emit_dir(w, level, name, w->req->list.recursive);
	if (r != 0 || !w->req->list.recursive)
		return r;
	/* Below a directory that lies wholly before `after` there is nothing to see. */
	if (strcmp(w->key, w->after) <= 0 && strncmp(w->after, w->key, key_len) != 0)
		return 0;
	return enter(w, key_len);
}

/* The prefix "a/b" lies in "a/"; its own marker, for "a/", is met on the way in. */
static int start(struct walk *w)
{
	const char *slash = strrchr(w->req->key, '/');
	size_t path_len = slash ? (size_t)(slash + 1 - w->req->key) : 0;
	struct origin_attr attr;
	int r = 0;

	memcpy(w->key, w->req->key, path_len);
	w->key[path_len] = '\0';
	if (path_len && !slash[1] && strcmp(w->key, w->after) > 0) {
		r = file_lookup(w->f, w->key, NULL, &attr);
		if (r == 0)
			r = emit(w, &attr);
		if (r == -ENOENT)
			r = 0;
	}
	return r != 0 ? r : enter(w, path_len);
}

int file_list(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(freep) struct level *levels = calloc(DEPTH_MAX, sizeof(*levels));
	struct walk w = {.f = f,
			 .req = req,
			 .levels = levels,
			 .after = req->list.after ? req->list.after : ""};
	char prefix[PATH_KEY_MAX + 2];
	int r;

	if (!levels)
		return err_origin(-ENOMEM);
	req->list.truncated = false;
	/* The part up to the last '/' must be a path; with something after it, it is one. */
	snprintf(
		prefix, sizeof(prefix), "%.*sx",
		(int)(strrchr(req->key, '/') ? strrchr(req->key, '/') + 1 - req->key : 0),
		req->key);
	if (file_key_check(prefix, NULL) < 0)
		return 0;
	r = start(&w);
	while (r == 0 && w.depth) {
		if (w.levels[w.depth - 1].next == w.levels[w.depth - 1].names->count)
			leave(&w);
		else
			r = step(&w);
	}
	while (w.depth)
		leave(&w);
	if (!req->list.truncated)
		file_snapshots_drop(f, req->key);
	return r == WALK_END ? 0 : err_trace(r);
}
