/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/code_git.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runner/code_tree.h"
#include "runner/proc.h"

#define STALL_MS 60000 /* without a sign of life */

/* Messages up to the last one. */
static int listen_to_child(int fd, const char *url, struct code_git_message *m,
			   struct why *why)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (;;) {
		int n = poll(&p, 1, STALL_MS);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			return why_set(why, err_origin(-ETIMEDOUT),
				       "git: %s has sent nothing for %d s", url,
				       STALL_MS / 1000);
		n = (int)read(fd, m, sizeof(*m));
		if (n < 0 && errno == EINTR)
			continue;
		if (n != (int)sizeof(*m))
			return why_set(why, err_origin(-EIO),
				       "git: fetching %s ended abruptly (out of memory?)",
				       url);
		if (m->kind == CODE_GIT_DONE)
			return 0;
	}
}

static int fetch_in_child(const struct code_source *s, const char *objects,
			  struct code_tree *tree, struct code_git_message *m)
{
	int fds[2], r, status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return err_origin(-errno);
	pid = fork();
	if (pid == 0)
		code_git_child(s, objects, tree, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		r = -errno;
		close(fds[0]);
		return err_origin(r);
	}
	r = listen_to_child(fds[0], s->git_url, m, tree->why);
	close(fds[0]);
	kill(pid, SIGKILL);
	if (proc_wait(pid, UINT64_MAX, &status))
		return err_trace(r); /* collected by someone else */
	return err_trace(r);
}

int code_git_checkout(const struct code_source *s, const char *target_dir,
		      struct code_tree *tree, char commit[CODE_COMMIT_SIZE])
{
	struct code_git_message m = {.kind = CODE_GIT_ALIVE};
	char objects[PATH_MAX];
	int r;

	if (snprintf(objects, sizeof(objects), "%s.git-XXXXXX", target_dir) >=
	    (int)sizeof(objects))
		return err_origin(-ENAMETOOLONG);
	if (!mkdtemp(objects))
		return why_set(tree->why, err_origin(-errno), "cannot make %s: %s",
			       objects, strerror(errno));
	r = fetch_in_child(s, objects, tree, &m);
	if (io_remove_tree(AT_FDCWD, objects) && !r)
		r = why_set(tree->why, err_origin(-EIO), "cannot remove %s", objects);
	if (r)
		return err_trace(r);
	if (m.result) {
		*tree->why = m.why;
		return err_origin(m.result);
	}
	memcpy(commit, m.commit, sizeof(m.commit));
	return 0;
}
