/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: open (in the poll set) -> ended (its pipe is closed; what is left of a line was
 * shown). The thread sleeps in epoll; logs_add() puts a source there at any time, an event
 * descriptor ends it.
 *
 * Threads: `lock` covers the list of sources and the count of open ones; the rest of a
 * source belongs to the pump's thread. No lock is held while it writes.
 */
#include "runner/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "runner/logs_term.h"

#define READ_MAX 65536
#define PIPE_BYTES (256 * 1024) /* asked for; the kernel may give less */

struct source {
	struct source *next; /* lock */
	char *name;
	int fd;            /* the pipe's reading end, -1 when it has ended */
	int file;          /* borrowed, or -1 */
	uint64_t lost;     /* bytes the file did not take */
	size_t line_len;   /* of the line that has no end yet */
	bool after_return; /* the last line ended with a carriage return */
	char line[LOGS_LINE_MAX];
};

struct logs {
	pthread_t thread;
	int epoll, stop; /* stop: event descriptor */
	struct logs_term *term;
	struct lock lock;
	pthread_cond_t changed;
	struct source *sources; /* lock */
	int count, open_count;  /* lock */
	char block[READ_MAX];   /* the pump's thread */
};

/* A line is full: up to where? Not through a character of several bytes. */
static size_t cut_of(const struct source *s)
{
	size_t n = s->line_len;

	for (int back = 0; back < 4 && n > 1; back++, n--) {
		unsigned char c = (unsigned char)s->line[n - 1];

		if (c < 0x80)
			return n;
		if (c >= 0xc0)
			return n - 1;
	}
	return s->line_len;
}

static void show(struct logs *l, struct source *s, size_t n)
{
	logs_term_add(l->term, s->name, s->line, n);
	memmove(s->line, s->line + n, s->line_len - n);
	s->line_len -= n;
}

static void feed_line(struct logs *l, struct source *s, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool is_end = p[i] == '\n' || p[i] == '\r';
		/* "\r\n" is one end; a progress bar's lone "\r" ends what it wrote. */
		bool is_silent = !s->line_len && (p[i] == '\r' || s->after_return);

		if (is_end && !is_silent)
			show(l, s, s->line_len);
		s->after_return = p[i] == '\r';
		if (is_end)
			continue;
		if (s->line_len == sizeof(s->line))
			show(l, s, cut_of(s));
		s->line[s->line_len++] = p[i];
	}
}

static void save(struct logs *l, struct source *s, const char *p, size_t n)
{
	int r = s->file < 0 ? 0 : io_write(s->file, p, n);

	if (!r)
		return;
	if (!s->lost) {
		log_warn("log file cannot be written source=%s error=%s", s->name,
			 strerror(-r));
		logs_say(l, s->name, "[its log file cannot be written: %s]",
			 strerror(-r));
	}
	s->lost += n;
}

static void end_source(struct logs *l, struct source *s)
{
	if (s->line_len)
		show(l, s, s->line_len);
	if (s->lost)
		logs_say(l, s->name, "[%llu bytes are missing in its log file]",
			 (unsigned long long)s->lost);
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	close(s->fd);
	lock_take(&l->lock);
	s->fd = -1;
	l->open_count--;
	pthread_cond_broadcast(&l->changed);
	lock_drop(&l->lock);
}

/* One block and back to the poll set: a talkative source does not silence the others. */
static void pump(struct logs *l, struct source *s)
{
	ssize_t n = read(s->fd, l->block, sizeof(l->block));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_source(l, s);
		return;
	}
	save(l, s, l->block, (size_t)n);
	feed_line(l, s, l->block, (size_t)n);
}

static void *run(void *arg)
{
	struct logs *l = arg;
	struct epoll_event events[64];

	for (;;) {
		int n = epoll_wait(l->epoll, events, 64, -1);

		for (int i = 0; i < n; i++) {
			if (!events[i].data.ptr)
				return NULL;
			pump(l, events[i].data.ptr);
		}
	}
}

static int start_thread(struct logs *l)
{
	struct epoll_event stop = {.events = EPOLLIN, .data.ptr = NULL};
	sigset_t all, old;
	int r;

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->stop = eventfd(0, EFD_CLOEXEC);
	if (l->epoll < 0 || l->stop < 0 ||
	    epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->stop, &stop))
		return err_origin(-errno);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&l->thread, NULL, run, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r ? err_origin(-r) : 0;
}

static void destroy(struct logs *l)
{
	logs_term_free(l->term);
	while (l->sources) {
		struct source *s = l->sources;

		l->sources = s->next;
		close_fdp(&s->fd);
		free(s->name);
		free(s);
	}
	close_fdp(&l->epoll);
	close_fdp(&l->stop);
	pthread_cond_destroy(&l->changed);
	lock_fini(&l->lock);
	free(l);
}

int logs_new(struct logs **out, int terminal_fd)
{
	struct logs *l = xcalloc(1, sizeof(*l));
	int r;

	l->epoll = l->stop = -1;
	lock_init(&l->lock);
	lock_cond_init(&l->changed);
	r = logs_term_new(&l->term, terminal_fd);
	r = r ? r : start_thread(l);
	if (r) {
		destroy(l);
		return err_trace(r);
	}
	*out = l;
	return 0;
}

static bool adopt(struct logs *l, struct source *s)
{
	lock_scope(&l->lock);

	if (l->count >= LOGS_SOURCE_MAX)
		return false;
	s->next = l->sources;
	l->sources = s;
	l->count++;
	l->open_count++;
	return true;
}

int logs_add(struct logs *l, const char *name, int file_fd, int *write_fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct source *s;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return err_origin(-errno);
	/* Only our end: O_NONBLOCK on theirs would surprise the program. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES);
	s = xcalloc(1, sizeof(*s));
	s->name = xstrdup(name);
	s->fd = fds[0];
	s->file = file_fd;
	if (!adopt(l, s)) {
		close(fds[0]);
		close(fds[1]);
		free(s->name);
		free(s);
		return err_origin(-E2BIG);
	}
	event.data.ptr = s;
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &event)) {
		int r = -errno;

		close(fds[1]);
		end_source(l, s);
		return err_origin(r);
	}
	logs_term_expect(l->term, name);
	*write_fd = fds[1];
	return 0;
}

void logs_say(struct logs *l, const char *name, const char *format, ...)
{
	char text[1024];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		return;
	logs_term_add(l->term, name, text,
		      (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

int logs_drain(struct logs *l, uint64_t timeout_ms)
{
	uint64_t deadline =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
	bool ended;

	lock_take(&l->lock);
	while (l->open_count)
		if (lock_wait(&l->lock, &l->changed, deadline) == LOCK_E_TIMEOUT &&
		    clock_mono_ms() >= deadline)
			break;
	ended = !l->open_count;
	lock_drop(&l->lock);
	return logs_term_drain(l->term, deadline) && ended ? 0 : LOGS_E_TIMEOUT;
}

struct logs *logs_free(struct logs *l)
{
	uint64_t one = 1;

	if (!l)
		return NULL;
	/* The pump may wait for the terminal: first that ends. */
	logs_term_stop(l->term);
	if (write(l->stop, &one, sizeof(one)) == sizeof(one))
		pthread_join(l->thread, NULL);
	destroy(l);
	return NULL;
}
