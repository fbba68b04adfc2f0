/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/signals.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"

static void signal_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

int signals_open(struct signals *s)
{
	sigset_t set;

	signal_set(&set);
	*s = (struct signals){.fd = -1};
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_origin(-errno);
	s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->fd < 0 ? err_origin(-errno) : 0;
}

void signals_close(struct signals *s)
{
	sigset_t set;

	if (s->fd < 0)
		return;
	close(s->fd);
	s->fd = -1;
	signal_set(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void signals_poll(struct signals *s)
{
	struct signalfd_siginfo info;

	while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (s->count++ == 0)
			s->first = (int)info.ssi_signo;
}

static int timeout_until(uint64_t deadline_ms)
{
	uint64_t now = clock_mono_ms();

	if (deadline_ms == UINT64_MAX)
		return -1;
	if (deadline_ms <= now)
		return 0;
	return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

int signals_wait(struct signals *s, int fd, uint64_t deadline_ms)
{
	for (;;) {
		struct pollfd polls[] = {{.fd = s->fd, .events = POLLIN},
					 {.fd = fd, .events = POLLIN}};
		unsigned int before = s->count;
		int n = poll(polls, fd < 0 ? 1 : 2, timeout_until(deadline_ms));

		if (n < 0 && errno != EINTR)
			return err_origin(-errno);
		signals_poll(s);
		if (s->count > before)
			return SIGNALS_E_STOP;
		if (n > 0 && fd >= 0 && polls[1].revents)
			return 0;
		if (n == 0)
			return SIGNALS_E_TIMEOUT;
	}
}
