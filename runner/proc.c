/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork() in a process with threads: between fork and exec only calls that are safe in a
 * signal handler. What the child could not do comes back as an errno over a pipe that a
 * successful exec closes.
 */
#include "runner/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

static bool find_in(const char *dirs, const char *program, char *out)
{
	while (*dirs) {
		size_t n = strcspn(dirs, ":");

		/* A relative entry would run what lies in the current directory. */
		if (n && *dirs == '/' &&
		    snprintf(out, PATH_MAX, "%.*s/%s", (int)n, dirs, program) <
			    PATH_MAX &&
		    !access(out, X_OK))
			return true;
		dirs += n;
		dirs += *dirs == ':';
	}
	return false;
}

int proc_find(const char *program, char *out)
{
	const char *path = getenv("PATH");

	if (find_in(path ? path : "", program, out))
		return 0;
	if (find_in("/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin",
		    program, out))
		return 0;
	return err_origin(-ENOENT);
}

void proc_close_from(int first)
{
	if (!syscall(SYS_close_range, (unsigned int)first, ~0u, 0u))
		return;
	/* Before Linux 5.9. */
	for (int fd = first; fd < 65536; fd++)
		close(fd);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Places the descriptors; the report pipe becomes number 3. */
static int place_descriptors(const struct proc_options *o, int report)
{
	const int wanted[] = {o->in, o->out, o->err};
	int high[3], null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	/* Above 3 first: a wanted one may itself be 0, 1 or 2. */
	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(wanted[i] >= 0 ? wanted[i] : null, F_DUPFD_CLOEXEC, 4);
		if (high[i] < 0)
			return -errno;
	}
	report = fcntl(report, F_DUPFD_CLOEXEC, 4);
	if (report < 0 || dup3(report, 3, O_CLOEXEC) < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (dup2(high[i], i) < 0)
			return -errno;
	proc_close_from(4);
	return 0;
}

void proc_become(const struct proc_options *o, int report)
{
	int r;

	if (o->new_session)
		setsid();
	reset_signals();
	r = place_descriptors(o, report);
	if (!r) {
		report = 3;
		execve(o->argv[0], (char *const *)(uintptr_t)o->argv,
		       o->env ? (char *const *)(uintptr_t)o->env : environ);
		r = -errno;
	}
	if (write(report, &r, sizeof(r)) < 0)
		_exit(126);
	_exit(127);
}

int proc_spawn(const struct proc_options *o, pid_t *out)
{
	int report[2], r = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC))
		return err_origin(-errno);
	pid = fork();
	if (pid == 0)
		proc_become(o, report[1]);
	if (pid < 0)
		r = -errno;
	close(report[1]);
	do
		n = pid > 0 ? read(report[0], &r, sizeof(r)) : 0;
	while (n < 0 && errno == EINTR);
	close(report[0]);
	if (pid > 0 && r)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (r)
		return err_origin(r);
	*out = pid;
	return 0;
}

int proc_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
					: WEXITSTATUS(wait_status);
}

static int reap(pid_t pid, int *status)
{
	int s;

	while (waitpid(pid, &s, 0) < 0)
		if (errno != EINTR)
			return err_origin(-errno);
	*status = proc_status(s);
	return 0;
}

/* Milliseconds for poll(), never more than a day at once. */
static int poll_ms(uint64_t deadline)
{
	uint64_t now = clock_mono_ms(), left;

	left = deadline > now ? deadline - now : 0;
	return left > 86400000 ? 86400000 : (int)left;
}

static uint64_t deadline_of(uint64_t timeout_ms)
{
	return timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
}

int proc_wait(pid_t pid, uint64_t timeout_ms, int *status)
{
	uint64_t deadline = deadline_of(timeout_ms);
	_cleanup_(close_fdp) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return err_origin(-errno);
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int n = poll(&p, 1, poll_ms(deadline));

		if (n > 0)
			return reap(pid, status);
		if (n < 0 && errno != EINTR)
			return err_origin(-errno);
		if (clock_mono_ms() >= deadline)
			return PROC_E_TIMEOUT;
	}
}

void proc_end(pid_t pid, uint64_t grace_ms)
{
	int status;

	kill(pid, SIGTERM);
	if (proc_wait(pid, grace_ms, &status) == 0)
		return;
	kill(pid, SIGKILL);
	if (proc_wait(pid, UINT64_MAX, &status))
		return; /* someone else has reaped it */
}

/* What is there now, up to the limit; the rest is read and dropped, so that the child
 * never waits. True at the end of the pipe. */
static bool take_output(int fd, struct buf *output, size_t *room)
{
	char block[4096];

	for (;;) {
		ssize_t n = read(fd, block, sizeof(block));
		size_t keep;

		if (n < 0)
			return errno != EAGAIN && errno != EINTR;
		if (n == 0)
			return true;
		keep = (size_t)n < *room ? (size_t)n : *room;
		if (output)
			buf_append(output, block, keep);
		*room -= keep;
	}
}

/* Reads until the child has ended: a grandchild may hold the pipe for ever. */
static int collect(pid_t pid, int fd, struct buf *output, uint64_t deadline, int *status)
{
	_cleanup_(close_fdp) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN},
			      {.fd = fd, .events = POLLIN}};
	size_t room = PROC_OUTPUT_MAX;

	if (pidfd < 0)
		return err_origin(-errno);
	for (;;) {
		if (poll(p, 2, poll_ms(deadline)) < 0 && errno != EINTR)
			return err_origin(-errno);
		if (p[1].fd >= 0 && take_output(fd, output, &room))
			p[1].fd = -1;
		if (p[0].revents) {
			take_output(fd, output, &room);
			return err_trace(reap(pid, status));
		}
		if (clock_mono_ms() >= deadline)
			return PROC_E_TIMEOUT;
	}
}

int proc_run(const struct proc_options *options, struct buf *output, uint64_t timeout_ms,
	     int *status)
{
	struct proc_options o = *options;
	uint64_t deadline = deadline_of(timeout_ms);
	int fds[2], r;
	pid_t pid = -1;

	if (pipe2(fds, O_CLOEXEC))
		return err_origin(-errno);
	o.out = o.err = fds[1];
	r = proc_spawn(&o, &pid);
	close(fds[1]);
	if (!r) {
		fcntl(fds[0], F_SETFL, O_NONBLOCK);
		r = collect(pid, fds[0], output, deadline, status);
		if (r) {
			proc_end(pid, 0);
			r = r == PROC_E_TIMEOUT ? err_origin(-ETIMEDOUT) : r;
		}
	}
	close(fds[0]);
	return err_trace(r);
}
