/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define LOG_SIZE_MAX (64 << 20) /* a larger log is set aside */

static char log_path[PATH_MAX]; /* of daemon_detach() */

struct word {
	int code;
	struct why why;
};

static int wait_for_word(int fd, pid_t child, struct why *why)
{
	struct word word;
	size_t n = 0;
	int status;

	while (n < sizeof(word)) {
		ssize_t got = read(fd, (char *)&word + n, sizeof(word) - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	if (n == sizeof(word)) {
		*why = word.why;
		return word.code;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	why_set(why, -EIO, "the mount process ended before it could answer (%s %d)",
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return EXIT_INTERNAL;
}

int daemon_fork(int *report, int *code, struct why *why)
{
	_cleanup_(close_fdp) int from = -1;
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return why_set(why, -errno, "pipe: %s", strerror(errno));
	from = fds[0];
	fflush(NULL);
	child = fork();
	if (child < 0) {
		close(fds[1]);
		return why_set(why, -errno, "fork: %s", strerror(errno));
	}
	if (child == 0) {
		*report = fds[1];
		return 0;
	}
	close(fds[1]);
	*code = wait_for_word(from, child, why);
	return DAEMON_E_PARENT;
}

void daemon_report(int report, int code, const struct why *why)
{
	struct word word = {.code = code};

	if (report < 0)
		return;
	if (why)
		word.why = *why;
	if (io_write(report, &word, sizeof(word)) < 0)
		log_warn("who started this mount is gone");
	close(report);
}

/* Whether the file is still the one of this name. */
static bool is_at(const struct stat *st, const char *path)
{
	struct stat now;

	return stat(path, &now) == 0 && now.st_dev == st->st_dev &&
	       now.st_ino == st->st_ino;
}

static bool is_large(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size > LOG_SIZE_MAX;
}

/* Several processes may write to it: under the file's own lock only the first one renames
 * it, and never what another has begun meanwhile. */
static void set_aside(int fd, const struct stat *st, const char *path)
{
	char old[PATH_MAX];

	if (snprintf(old, sizeof(old), "%s.1", path) >= (int)sizeof(old) ||
	    flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (is_at(st, path))
		(void)!rename(path, old); /* else it grows */
	flock(fd, LOCK_UN);
}

static int open_log(const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(close_fdp) int fd = open(path, flags, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !is_large(&st))
		return steal_fd(&fd);
	set_aside(fd, &st, path);
	return open(path, flags, 0600);
}

/* Before a line: the log may be large, or another process has set it aside. */
static void tend_log(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
	    (is_large(&st) || !is_at(&st, log_path)))
		daemon_reopen_log(log_path);
}

/* Descriptors 0 to 2 stay open for ever: libraries write there. */
static int take_standard(int log_fd)
{
	_cleanup_(close_fdp) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
	    dup2(log_fd, STDERR_FILENO) < 0)
		return err_origin(-errno);
	return 0;
}

int daemon_detach(const char *path, struct why *why)
{
	_cleanup_(close_fdp) int fd = open_log(path);
	int r;

	if (fd < 0)
		return why_set(why, -errno, "log %s: %s", path, strerror(errno));
	r = take_standard(fd);
	if (r < 0)
		return why_set(why, r, "standard descriptors: %s", strerror(-r));
	snprintf(log_path, sizeof(log_path), "%s", path);
	log_set_tend(tend_log);
	setsid();
	if (chdir("/") < 0)
		return why_set(why, -errno, "/: %s", strerror(errno));
	return 0;
}

void daemon_reopen_log(const char *path)
{
	_cleanup_(close_fdp) int fd = open_log(path);

	if (fd < 0 || take_standard(fd) < 0)
		log_warn("log not opened again error=%d", errno);
}

void daemon_harden(void)
{
	const struct rlimit none = {0, 0};
	struct rlimit files;

	if (prctl(PR_SET_DUMPABLE, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
		log_warn("core files not switched off error=%d", errno);
	/* Two for each large file in use, and one for each connection. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	umask(077);
}
