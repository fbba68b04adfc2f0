/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of the keeper:
 *
 *   creating   runc create runs          -> keeping (CREATED sent), or ends (FAILED sent)
 *   keeping    the container lives       -> ends (EXITED sent) when it has exited
 *   killing    the runner is gone        -> ends when the container is dead and removed
 *
 * It is forked from a process with threads, so it does nothing but system calls and
 * proc_spawn(). It is out of reach of the terminal (a session of its own) and keeps no
 * descriptor but the socket and, while creating, the two namespaces and the log.
 */
#include "runner/runc_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "runner/proc.h"
#include "runner/runc.h"

#define POLL_MAX_MS 3600000 /* of one poll(); its argument is an int */

enum {
	FD_SOCK = 3,
	FD_LOG,
	FD_MOUNT_NS,
	FD_NET_NS,
	FD_KEEP_N
};

static void tell(int event, int value)
{
	const struct runc_keeper_message m = {.event = event, .value = value};

	/* Nobody listens any more: then poll() says so, too. */
	if (send(FD_SOCK, &m, sizeof(m), MSG_NOSIGNAL) < 0)
		return;
}

/* Descriptors to their fixed numbers, the rest closed: a socket of another keeper kept open
 * here would hide the runner's death from that one. */
static int take_descriptors(const struct runc_keeper_options *o, int sock)
{
	const int wanted[] = {sock, o->log_fd, o->mount_ns, o->net_ns};
	int high[4], null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int i = 0; i < 4; i++) {
		high[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, FD_KEEP_N + 4);
		if (high[i] < 0)
			return -errno;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return -errno;
	for (int i = 0; i < 4; i++)
		if (dup3(high[i], FD_SOCK + i, O_CLOEXEC) < 0)
			return -errno;
	proc_close_from(FD_KEEP_N);
	return 0;
}

static pid_t read_pid(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 ? (pid_t)strtol(text, NULL, 10) : -1;
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 255;
	return proc_status(status);
}

/* Returns the container's process, or after a failure that was told 0. */
static pid_t create(const struct runc_keeper_options *o)
{
	const struct proc_options run = {.argv = o->create,
					 .env = runc_env,
					 .in = -1,
					 .out = FD_LOG,
					 .err = FD_LOG};
	int r = 0, status;
	pid_t pid = 0;

	/* CLONE_FS: a sanitizer may have given this process a thread of its own. */
	if (unshare(CLONE_FS) || setns(FD_MOUNT_NS, CLONE_NEWNS) ||
	    setns(FD_NET_NS, CLONE_NEWNET))
		r = -errno;
	r = r ? r : proc_spawn(&run, &pid);
	close(FD_LOG); /* the end of the container must be the end of its log */
	close(FD_MOUNT_NS);
	close(FD_NET_NS);
	status = r ? r : wait_for(pid);
	if (status) {
		tell(RUNC_KEEPER_FAILED, status);
		return 0;
	}
	pid = read_pid(o->pid_file);
	if (pid <= 1) {
		tell(RUNC_KEEPER_FAILED, -ESRCH);
		return 0;
	}
	tell(RUNC_KEEPER_CREATED, pid);
	return pid;
}

/* Kills, then lets runc remove its state and the control group. */
static void finish_for_the_dead(const struct runc_keeper_options *o, pid_t container)
{
	const struct proc_options run = {
		.argv = o->remove, .env = runc_env, .in = -1, .out = -1, .err = -1};
	pid_t pid;

	if (container > 0) {
		kill(container, SIGKILL);
		wait_for(container);
	}
	if (!proc_spawn(&run, &pid))
		wait_for(pid);
}

static void keep(const struct runc_keeper_options *o, pid_t container)
{
	int pidfd = (int)syscall(SYS_pidfd_open, container, 0);
	struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN},
			      {.fd = FD_SOCK, .events = POLLIN}};

	for (;;) {
		/* Without a pidfd (no descriptors left in the system): look now and then. */
		if (poll(p, 2, pidfd < 0 ? 100 : -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents || pidfd < 0) {
			int status;

			if (waitpid(container, &status, WNOHANG) == container) {
				tell(RUNC_KEEPER_EXITED, proc_status(status));
				return;
			}
		}
		if (p[1].revents)
			break;
	}
	finish_for_the_dead(o, container);
	/* Shut down, not dead: the runner still listens. */
	tell(RUNC_KEEPER_EXITED, 128 + SIGKILL);
}

static void run_keeper(const struct runc_keeper_options *o, int sock)
{
	sigset_t none;
	pid_t container;
	int r;

	setsid();
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_NAME, "sluice-keeper");
	/* Where runc create ends, the container becomes our child. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	r = take_descriptors(o, sock);
	if (r)
		_exit(1);
	container = create(o);
	if (container)
		keep(o, container);
	_exit(0);
}

int runc_keeper_start(const struct runc_keeper_options *o, pid_t *out, int *sock)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_origin(-errno);
	pid = fork();
	if (pid == 0)
		run_keeper(o, pair[1]);
	close(pair[1]);
	if (pid < 0) {
		int r = -errno;

		close(pair[0]);
		return err_origin(r);
	}
	*out = pid;
	*sock = pair[0];
	return 0;
}

/* ---- the runner's side ----------------------------------------------------------------- */

void runc_keeper_poll(int sock, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	uint64_t now = clock_mono_ms(), left = deadline_ms > now ? deadline_ms - now : 0;

	poll(&p, 1, left > POLL_MAX_MS ? POLL_MAX_MS : (int)left);
}

int runc_keeper_receive(int sock, uint64_t timeout_ms, struct runc_keeper_message *m)
{
	uint64_t until =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;

	for (;;) {
		ssize_t n = recv(sock, m, sizeof(*m), MSG_DONTWAIT);

		if (n == (ssize_t)sizeof(*m))
			return 0;
		if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
			*m = (struct runc_keeper_message){0};
			return 0;
		}
		if (clock_mono_ms() >= until)
			return RUNC_KEEPER_E_TIMEOUT;
		runc_keeper_poll(sock, until);
	}
}
