/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/code.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/code_dir.h"
#include "runner/code_git.h"
#include "runner/code_tree.h"

static int check_url(const char *url, struct why *why)
{
	const char *host = strstr(url, "://"), *rest;

	if (!strncasecmp(url, "ssh://", 6) || !strncasecmp(url, "git+ssh://", 10) ||
	    (!host && strchr(url, '@') && strchr(url, ':')))
		return why_set(why, err_origin(-EINVAL),
			       "git over ssh is not supported (%s): use the repository's "
			       "https:// address with a user and password or token",
			       url);
	if (!host || (strncasecmp(url, "http://", 7) && strncasecmp(url, "https://", 8)))
		return why_set(why, err_origin(-EINVAL),
			       "git address %s: must begin with https:// or http://; a "
			       "local directory is given as code.dir",
			       url);
	host += 3;
	rest = host + strcspn(host, "/?#");
	if (memchr(host, '@', (size_t)(rest - host)))
		return why_set(
			why, err_origin(-EINVAL),
			"the git address holds a user or password; take it out and "
			"give code.user and code.password by reference");
	if (rest == host || strpbrk(url, " \t\r\n") || strlen(url) > 2000)
		return why_set(why, err_origin(-EINVAL), "git address %.100s: not a URL",
			       url);
	return 0;
}

static int check_commit(const char *commit, struct why *why)
{
	size_t n = strspn(commit, "0123456789abcdefABCDEF");

	if (n < 7 || n >= CODE_COMMIT_SIZE || commit[n])
		return why_set(why, err_origin(-EINVAL),
			       "commit \"%.70s\": 7 to 64 hexadecimal digits", commit);
	return 0;
}

/* The rules of git-check-ref-format(1) that matter to us: it becomes part of a refspec. */
static int check_branch(const char *branch, struct why *why)
{
	size_t n = strlen(branch);

	if (!n || n > 200 || branch[0] == '-' || branch[0] == '/' ||
	    branch[n - 1] == '/' || strpbrk(branch, " \t\r\n~^:?*[\\") ||
	    strstr(branch, "..") || strstr(branch, "//") || strstr(branch, "@{"))
		return why_set(why, err_origin(-EINVAL),
			       "\"%.100s\" is not the name of a branch or tag", branch);
	return 0;
}

int code_check(const struct code_source *s, struct why *why)
{
	int r = 0;

	if (!s->dir == !s->git_url)
		return why_set(why, err_origin(-EINVAL),
			       "code comes either from a directory or from git");
	if (s->dir)
		return s->dir[0] == '/'
			       ? 0
			       : why_set(why, err_origin(-EINVAL),
					 "code directory %s: not absolute", s->dir);
	r = check_url(s->git_url, why);
	if (!r && s->commit)
		r = check_commit(s->commit, why);
	if (!r && s->branch)
		r = check_branch(s->branch, why);
	if (!r && s->user && !s->password)
		r = why_set(why, err_origin(-EINVAL),
			    "a git user without a password or token");
	return err_trace(r);
}

/* The target: made if it is not there; not a link; empty. */
static int open_target(const char *dir, struct why *why)
{
	_cleanup_(closedirp) DIR *list = NULL;
	struct dirent *entry;
	int fd, r;

	if (mkdir(dir, 0755) && errno != EEXIST)
		return why_set(why, err_origin(-errno), "cannot make %s: %s", dir,
			       strerror(errno));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return why_set(why, err_origin(-errno), "cannot open %s: %s", dir,
			       strerror(errno));
	r = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = r < 0 ? NULL : fdopendir(r);
	while (list && (entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
			close(fd);
			return why_set(why, err_origin(-ENOTEMPTY), "%s is not empty",
				       dir);
		}
	return fd;
}

static void empty_target(int fd)
{
	_cleanup_(closedirp) DIR *list = NULL;
	struct dirent *entry;
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	list = copy < 0 ? NULL : fdopendir(copy);
	while (list && (entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    io_remove_tree(fd, entry->d_name))
			return; /* the failure that brought us here is told */
}

int code_fetch(const struct code_source *s, const char *target_dir,
	       char commit_out[CODE_COMMIT_SIZE], struct why *why)
{
	_cleanup_(close_fdp) int fd = -1;
	char commit[CODE_COMMIT_SIZE] = "";
	struct code_tree tree;
	int r = code_check(s, why);

	if (r)
		return err_trace(r);
	fd = open_target(target_dir, why);
	if (fd < 0)
		return err_trace(fd);
	code_tree_init(&tree, fd, s->size_max ? s->size_max : CODE_SIZE_MAX, why);
	r = s->dir ? code_dir_copy(s->dir, &tree)
		   : code_git_checkout(s, target_dir, &tree, commit);
	code_tree_fini(&tree);
	if (r) {
		empty_target(fd);
		return err_trace(r);
	}
	memcpy(commit_out, commit, sizeof(commit));
	return 0;
}
