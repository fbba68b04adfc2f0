/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starting -> daemon serves -> it ended, the mount is gone -> exit with its code
 *                           -> it died -> another one, at once; later ones wait a little
 *                           -> it died too often, or the kernel cannot send again what it
 *                              had not answered -> the mount is taken away by force
 *
 * Whether a mount is still wanted is not asked: its connection says so (POLLERR once it is
 * unmounted or aborted), and the daemon, which notes when it goes of its own accord.
 *
 * Signals: SIGTERM, SIGINT and SIGHUP are passed on. SIGUSR1 from the daemon: it serves,
 * so the terminal is let go. SIGKILL: the daemon goes on alone, and when it dies then the
 * mount dies with it.
 */
#include "fs/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/config.h"
#include "fs/control.h"
#include "fs/daemon.h"
#include "fs/fusermount.h"
#include "fs/handover.h"
#include "fs/mounts.h"
#include "fs/serve.h"

#define DEATHS_MAX 5 /* within DEATHS_TIME_MS: then there is no use in another try */
#define DEATHS_KEPT 256
#define DEATHS_TIME_MS 60000
#define WAIT_MS 50      /* before the third try; doubled with each … */
#define WAIT_MAX_MS 400 /* … up to this */

struct holder {
	const struct config *config;
	struct handover *handover;
	pid_t daemon;
	uint64_t deaths_ms[DEATHS_KEPT]; /* the last ones */
	unsigned int deaths, deaths_max;
	sigset_t signals;
};

/* Root's is here from the start; that of others as soon as the daemon has mounted. */
static void take_connection(struct handover *h)
{
	if (h->fd < 0 && fusermount_take(h->pair, &h->fd) != 0)
		log_debug(LOG_FUSE, "holder has no connection yet");
}

static int make_connection(struct handover *h, struct why *why)
{
	if (geteuid() != 0)
		return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, h->pair) < 0
			       ? why_set(why, -errno, "socketpair: %s", strerror(errno))
			       : 0;
	h->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	return h->fd < 0 ? why_set(why, -errno, "/dev/fuse: %s", strerror(errno)) : 0;
}

static void on_signal(struct holder *s, int sig)
{
	struct why why = {""};

	switch (sig) {
	case SIGCHLD:
		break;
	case SIGUSR1:
		take_connection(s->handover);
		if (!s->config->foreground &&
		    daemon_detach(s->config->log_path, &why) < 0)
			log_warn("holder keeps its terminal: %s", why.text);
		log_set_level(LOG_INFO);
		break;
	case SIGHUP:
		if (!s->config->foreground)
			daemon_reopen_log(s->config->log_path);
		kill(s->daemon, sig);
		break;
	default:
		kill(s->daemon, sig);
	}
}

/* Until the daemon has ended. Returns its wait status. */
static int watch(struct holder *s)
{
	for (;;) {
		int status, sig;

		if (waitpid(s->daemon, &status, WNOHANG) == s->daemon) {
			take_connection(s->handover);
			return status;
		}
		if (sigwait(&s->signals, &sig) == 0)
			on_signal(s, sig);
	}
}

static bool is_connected(const struct holder *s)
{
	struct pollfd p = {.fd = s->handover->fd};

	return p.fd >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & POLLERR);
}

/* The dead daemon's, while nobody else can have mounted there. */
static void remove_socket(const struct holder *s)
{
	char run_dir[PATH_MAX], name[MOUNTS_SOCKET_NAME_MAX];
	_cleanup_(close_fdp) int dirfd = -1;

	if (mounts_run_dir(run_dir, sizeof(run_dir), NULL) < 0)
		return;
	mounts_socket_name(s->config->dir, name);
	dirfd = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd >= 0)
		unlinkat(dirfd, name, 0);
}

/* Nobody will answer any more: who waits gets an error now. */
static void take_away(struct holder *s)
{
	_cleanup_(close_fdp) int fd = -1;
	struct mounts_entry entry;
	bool mounted = is_connected(s) && mounts_find(s->config->dir, &entry) == 0 &&
		       !strcmp(entry.type, MOUNTS_TYPE);

	if (mounted) {
		remove_socket(s);
		fd = mounts_abort_open(&entry);
		if (fd >= 0)
			mounts_abort(fd);
	}
	close_fdp(&s->handover->fd); /* the last one: this alone ends the connection */
	if (mounted && mounts_remove(s->config->dir, true) < 0)
		log_warn("dead mount left dir=\"%s\"", s->config->dir);
}

/* Deaths of the last minute, this one included. */
static unsigned int recent(const struct holder *s)
{
	uint64_t now = clock_mono_ms();
	unsigned int n = 0;

	for (unsigned int i = 0; i < DEATHS_KEPT && i < s->deaths; i++)
		n += now - s->deaths_ms[i] < DEATHS_TIME_MS;
	return n;
}

/* Why there is to be no other daemon, or NULL. */
static const char *hopeless(struct holder *s)
{
	const struct handover *h = s->handover;

	if (h->generation == 1 && atomic_load(&h->phase) == HANDOVER_STARTING)
		return "it never served";
	if (atomic_load(&h->rings))
		return "requests came over io_uring, which the kernel does not send "
		       "again";
	if (!atomic_load(&h->resends))
		return "this kernel does not send requests again (before 6.9)";
	return recent(s) >= s->deaths_max ? "it died too often" : NULL;
}

static void describe(int status, char *out, size_t size)
{
	snprintf(out, size, "%s=%d", WIFSIGNALED(status) ? "signal" : "status",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Whether to start another one. Else *code is how this process ends. */
static bool judge(struct holder *s, int status, int *code)
{
	struct handover *h = s->handover;
	bool first = h->generation == 1 && atomic_load(&h->phase) == HANDOVER_STARTING;
	const char *why;
	char how[32];

	if (WIFEXITED(status) && (first || atomic_load(&h->phase) == HANDOVER_ENDING)) {
		*code = WEXITSTATUS(status);
		return false;
	}
	describe(status, how, sizeof(how));
	*code = s->config->role == CONFIG_OUTPUT ? EXIT_PENDING : EXIT_UNAVAILABLE;
	if (!is_connected(s)) {
		log_warn("daemon died after its mount was gone pid=%d %s", s->daemon,
			 how);
		return false;
	}
	s->deaths_ms[s->deaths++ % DEATHS_KEPT] = clock_mono_ms();
	why = hopeless(s);
	if (!why) {
		log_warn("daemon died, another one takes over pid=%d %s", s->daemon, how);
		return true;
	}
	log_error("daemon died, the mount is taken away pid=%d %s reason=\"%s\"%s",
		  s->daemon, how, why,
		  s->config->role == CONFIG_OUTPUT
			  ? " what is staged is safe: mount again or \"sluice recover\""
			  : "");
	return false;
}

/* In the child: 0. */
static int start(struct holder *s, int *report)
{
	struct handover *h = s->handover;
	/* Of the default's five. */
	unsigned int n = recent(s) * DEATHS_MAX / s->deaths_max;

	if (n > 1)
		clock_sleep_ms(n < 5 ? WAIT_MS << (n - 2) : WAIT_MAX_MS);
	h->generation++;
	if (h->generation > 1)
		h->restarted_ns = clock_real_ns();
	atomic_store(&h->phase, HANDOVER_STARTING);
	fflush(NULL);
	s->daemon = fork();
	if (s->daemon == 0) {
		/* What a terminal sends to its foreground is ours to pass on. */
		if (s->config->foreground)
			setpgid(0, 0);
		pthread_sigmask(SIG_UNBLOCK, &s->signals, NULL);
		return 0;
	}
	if (*report >= 0)
		close(*report);
	*report = -1;
	return s->daemon < 0 ? err_origin(-errno) : 1;
}

/* SLUICE_RESTART_MAX, for who wants more or less patience. */
static unsigned int deaths_max(void)
{
	const char *text = getenv("SLUICE_RESTART_MAX");
	long n = text ? strtol(text, NULL, 10) : 0;

	return n > 0 && n <= DEATHS_KEPT ? (unsigned int)n : DEATHS_MAX;
}

int holder_run(const struct config *config, int report)
{
	struct holder s = {.config = config, .deaths_max = deaths_max()};
	struct why why = {""};
	int code = EXIT_INTERNAL, r;
	sigset_t before;

	daemon_harden();
	sigemptyset(&s.signals);
	sigaddset(&s.signals, SIGCHLD);
	sigaddset(&s.signals, SIGTERM);
	sigaddset(&s.signals, SIGINT);
	sigaddset(&s.signals, SIGHUP);
	sigaddset(&s.signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s.signals, &before);
	r = handover_new(&s.handover, &why);
	/* Address space is limited, or memory is not promised beyond what there is. */
	if (r == -ENOMEM && config->restart != CONFIG_ON) {
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		return serve_run(config, report, NULL);
	}
	if (r == 0) {
		/* For what is written, to go on matters more than the fewer wake-ups. */
		s.handover->wanted =
			config->restart == CONFIG_ON ||
			(config->role == CONFIG_OUTPUT && config->io_uring != CONFIG_ON);
		r = make_connection(s.handover, &why);
		s.handover->control_fd = control_socket();
	}
	if (r < 0) {
		daemon_report(report, EXIT_INTERNAL, &why);
		if (report < 0)
			fprintf(stderr, "sluice: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	do {
		r = start(&s, &report);
		if (r == 0) {
			code = serve_run(config, report, s.handover);
			fflush(NULL);
			_exit(code);
		}
		if (r < 0) {
			log_error("no new daemon error=%d", -r);
			code = EXIT_INTERNAL;
			break;
		}
	} while (judge(&s, watch(&s), &code));
	take_away(&s);
	return code;
}
