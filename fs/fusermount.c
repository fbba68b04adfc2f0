/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fusermount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define PROGRAM "fusermount3"
#define SAID_MAX 200 /* of what it writes to standard error */

/* With `socket` (-1: none) open, `errors` as its standard error, and no signal blocked. */
static int spawn(const char *const argv[], int socket, int errors, pid_t *out)
{
	const char *search = getenv("PATH");
	char path[PATH_MAX], number[32];
	char *const environment[] = {path, socket >= 0 ? number : NULL, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	snprintf(path, sizeof(path), "PATH=%s", search ? search : "/usr/bin:/bin");
	snprintf(number, sizeof(number), "_FUSE_COMMFD=%d", socket);
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
	if (socket >= 0) /* onto itself: it is not closed then */
		posix_spawn_file_actions_adddup2(&files, socket, socket);
	r = posix_spawnp(out, PROGRAM, &files, &attr, (char *const *)(uintptr_t)argv,
			 environment);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return r ? err_origin(-r) : 0;
}

/* To its end; `said` is the first line. */
static void read_said(int fd, char said[SAID_MAX])
{
	size_t n = 0;

	for (;;) {
		size_t room = SAID_MAX - 1 - n;
		char chunk[256];
		ssize_t got = read(fd, chunk, sizeof(chunk));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if ((size_t)got < room)
			room = (size_t)got;
		memcpy(said + n, chunk, room);
		n += room;
	}
	said[n] = '\0';
	said[strcspn(said, "\n")] = '\0';
}

/* Runs it to its end. What it says when it fails is in `said`: -EPERM; other errors are
 * those of running it. */
static int run(const char *const argv[], int socket, char said[SAID_MAX])
{
	_cleanup_(close_fdp) int from = -1;
	int fds[2], status, r;
	pid_t child;

	*said = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_origin(-errno);
	from = fds[0];
	r = spawn(argv, socket, fds[1], &child);
	close(fds[1]);
	if (r < 0)
		return err_trace(r);
	read_said(from, said);
	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR)
			return err_origin(-errno);
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : err_origin(-EPERM);
}

int fusermount_mount(const char *dir, const char *options, const int pair[2],
		     struct why *why)
{
	const char *const argv[] = {PROGRAM, "-o", options, "--", dir, NULL};
	char said[SAID_MAX];
	int r = run(argv, pair[1], said);

	if (r == -ENOENT)
		return why_set(why, r, "%s: no " PROGRAM " to mount it; install fuse3",
			       dir);
	if (r < 0)
		return why_set(why, r, "%s: cannot mount: %s", dir,
			       *said ? said : strerror(-r));
	return 0;
}

static int receive_connection(int socket, int flags, int *out)
{
	union {
		struct cmsghdr align;
		char data[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part,
			   .msg_iovlen = 1,
			   .msg_control = control.data,
			   .msg_controllen = sizeof(control.data)};
	const struct cmsghdr *h;

	if (recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags) < 0)
		return errno == EAGAIN ? FUSERMOUNT_E_NONE : err_origin(-errno);
	h = CMSG_FIRSTHDR(&m);
	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
		return err_origin(-EPROTO);
	memcpy(out, CMSG_DATA(h), sizeof(*out));
	return 0;
}

int fusermount_take(const int pair[2], int *fd)
{
	return receive_connection(pair[0], 0, fd);
}

int fusermount_see(const int pair[2], int *fd)
{
	return receive_connection(pair[0], MSG_PEEK, fd);
}

int fusermount_unmount(const char *dir, bool lazily)
{
	const char *const argv[] = {PROGRAM, lazily ? "-uz" : "-u", "--", dir, NULL};
	char said[SAID_MAX];
	int r = run(argv, -1, said);

	if (r == -EPERM && strstr(said, strerror(EBUSY)))
		return FUSERMOUNT_E_BUSY;
	if (r < 0)
		log_debug(LOG_FUSE, PROGRAM " error=%d said=\"%s\"", -r, said);
	return err_trace(r);
}
