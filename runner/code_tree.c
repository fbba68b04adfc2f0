/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/code_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/path.h"
#include "fs/base/units.h"
#include "fs/base/xalloc.h"
#include "runner/code.h"

void code_tree_init(struct code_tree *t, int root, uint64_t size_max, struct why *why)
{
	*t = (struct code_tree){.root = root,
				.bytes_left = size_max,
				.bytes_max = size_max,
				.entries_left = CODE_FILE_MAX,
				.why = why};
}

void code_tree_fini(struct code_tree *t)
{
	for (size_t i = 0; i < t->link_count; i++)
		free(t->links[i]);
	free(t->links);
	t->links = NULL;
	t->link_count = 0;
}

int code_tree_reserve(struct code_tree *t, const char *path, uint64_t bytes)
{
	char size[32];

	if (bytes > t->bytes_left)
		return why_set(
			t->why, err_origin(-EFBIG),
			"the code is larger than %s (at %s); data belongs into the "
			"input source",
			units_format_size(size, sizeof(size), t->bytes_max), path);
	t->bytes_left -= bytes;
	return 0;
}

bool code_tree_name_ok(const char *name)
{
	/* As file systems that ignore case or shorten names would read it: the tree
	 * may be copied there one day, and no tool here should take it for a repository. */
	return path_name_check(name, strlen(name)) == PATH_OK &&
	       strcasecmp(name, ".git") && strcasecmp(name, "git~1") &&
	       !strpbrk(name, "\n");
}

static int open_beneath(int root, const char *path, uint64_t flags, uint64_t resolve)
{
	const struct open_how how = {.flags = flags | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
						resolve};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* The directory that holds `path`; *name is its last component. */
static int open_parent(struct code_tree *t, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX] = ".";
	int fd;

	*name = slash ? slash + 1 : path;
	if (t->entries_left == 0)
		return why_set(t->why, err_origin(-E2BIG),
			       "the code has more than %d files; data belongs into the "
			       "input source",
			       CODE_FILE_MAX);
	t->entries_left--;
	if (!code_tree_name_ok(*name))
		return why_set(t->why, err_origin(-EINVAL),
			       "the code has a file called %s", path);
	if (slash && (size_t)(slash - path) >= sizeof(parent))
		return why_set(t->why, err_origin(-ENAMETOOLONG), "path too long: %s",
			       path);
	if (slash) {
		memcpy(parent, path, (size_t)(slash - path));
		parent[slash - path] = '\0';
	}
	fd = open_beneath(t->root, parent, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		return why_set(t->why, err_origin(fd), "cannot write %s: %s", path,
			       strerror(-fd));
	return fd;
}

int code_tree_add_dir(struct code_tree *t, const char *path)
{
	const char *name;
	_cleanup_(close_fdp) int parent = open_parent(t, path, &name);

	if (parent < 0)
		return err_trace(parent);
	if (mkdirat(parent, name, 0755))
		return why_set(t->why, err_origin(-errno), "cannot make directory %s: %s",
			       path, strerror(errno));
	return 0;
}

int code_tree_add_file(struct code_tree *t, const char *path, bool executable)
{
	const char *name;
	_cleanup_(close_fdp) int parent = open_parent(t, path, &name);
	int fd;

	if (parent < 0)
		return err_trace(parent);
	fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0 || fchmod(fd, executable ? 0755 : 0644)) {
		int r = -errno;

		if (fd >= 0)
			close(fd);
		return why_set(t->why, err_origin(r), "cannot write %s: %s", path,
			       strerror(-r));
	}
	return fd;
}

int code_tree_add_link(struct code_tree *t, const char *path, const char *to)
{
	const char *name;
	_cleanup_(close_fdp) int parent = open_parent(t, path, &name);

	if (parent < 0)
		return err_trace(parent);
	if (symlinkat(to, parent, name))
		return why_set(t->why, err_origin(-errno), "cannot make link %s: %s",
			       path, strerror(errno));
	if (t->link_count == t->link_size) {
		t->link_size = t->link_size ? 2 * t->link_size : 64;
		t->links = xrealloc(t->links, t->link_size, sizeof(*t->links));
	}
	t->links[t->link_count++] = xstrdup(path);
	return 0;
}

/* Would the link, followed textually from its directory, step above the root? */
static bool climbs_out(const char *path, const char *to)
{
	int depth = 0;

	for (const char *c = path; *c; c++)
		depth += *c == '/';
	if (*to == '/')
		return true;
	while (*to) {
		size_t n = strcspn(to, "/");

		if (n == 2 && !strncmp(to, "..", 2))
			depth--;
		else if (n && !(n == 1 && *to == '.'))
			depth++;
		if (depth < 0)
			return true;
		to += n;
		to += *to == '/';
	}
	return false;
}

int code_tree_check_links(struct code_tree *t)
{
	for (size_t i = 0; i < t->link_count; i++) {
		char to[PATH_MAX];
		ssize_t n = readlinkat(t->root, t->links[i], to, sizeof(to) - 1);
		_cleanup_(close_fdp) int fd = -1;

		if (n < 0)
			return err_origin(-errno);
		to[n] = '\0';
		/* The text for links to what is not there; the kernel for links that
		 * go through other links. */
		fd = open_beneath(t->root, t->links[i], O_PATH, 0);
		if (climbs_out(t->links[i], to) || fd == -EXDEV)
			return why_set(t->why, err_origin(-EPERM),
				       "the link %s leads out of the code, to %s: not "
				       "taken for safety",
				       t->links[i], to);
	}
	return 0;
}
