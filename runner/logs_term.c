/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: logs_term_add() appends to `queue`; the thread swaps it for an empty one and
 * writes without the lock.
 * The terminal is slow: the queue fills up, adding waits.
 * It stands still (Ctrl-S, a stopped pager) for LOGS_STALL_MS: `dropping`, until half of
 * the queue is free again; then one line says how many are missing.
 * It is gone (EPIPE): nothing is shown from then on.
 * Threads: `lock` covers every field but `fd` and `thread`.
 */
#include "runner/logs_term.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "runner/logs.h"

#define WRITE_MAX 4096 /* at once: what a pipe takes whole */
#define NAME_SHOWN_MAX 80

struct logs_term {
	int fd;
	bool colour;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t changed; /* anything below */
	struct buf queue;
	bool writing; /* the thread has bytes that are not out yet */
	bool gone;    /* nobody reads any more */
	bool stop;
	bool dropping;
	uint64_t dropped;  /* lines since it began */
	uint64_t moved_ms; /* when the terminal last took something */
	size_t width;      /* of the longest name so far */
};

size_t logs_term_clean(char *out, const char *text, size_t n)
{
	size_t at = 0, i = 0;

	while (i < n) {
		size_t m = i;

		/* A colour: ESC [ digits and semicolons m. */
		if (text[i] == '\x1b' && i + 1 < n && text[i + 1] == '[') {
			for (m = i + 2;
			     m < n && strchr("0123456789;:", text[m]) && text[m];)
				m++;
			if (m < n && text[m] == 'm') {
				i = m + 1;
				continue;
			}
		}
		if (text[i] == '\t') {
			out[at++] = text[i++];
			continue;
		}
		if (text[i] == '\0') {
			memcpy(out + at, "\\x00", 4);
			at += 4;
			i++;
			continue;
		}
		/* The longest piece without any of these; it ends with the NUL that
		 * log_escape() wants. */
		for (m = i + 1; m < n && text[m] && text[m] != '\t' && text[m] != '\x1b';)
			m++;
		{
			char *piece = xstrndup(text + i, m - i);

			log_escape(out + at, 4 * (m - i) + 1, piece);
			at += strlen(out + at);
			free(piece);
		}
		i = m;
	}
	out[at] = '\0';
	return at;
}

/* Cancellable only inside write(): there it may stand for ever. */
static ssize_t write_some(int fd, const char *p, size_t n)
{
	ssize_t r;
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	r = write(fd, p, n < WRITE_MAX ? n : WRITE_MAX);
	if (r < 0 && errno == EAGAIN) {
		struct pollfd wait = {.fd = fd, .events = POLLOUT};

		poll(&wait, 1, 1000);
		r = 0;
	} else if (r < 0 && errno == EINTR) {
		r = 0;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return r;
}

/* Returns false when nobody reads any more. */
static bool write_all(struct logs_term *t, const char *p, size_t n)
{
	while (n) {
		ssize_t r = write_some(t->fd, p, n);

		if (r < 0)
			return false;
		if (!r)
			continue;
		p += r;
		n -= (size_t)r;
		lock_take(&t->lock);
		t->moved_ms = clock_mono_ms();
		lock_drop(&t->lock);
	}
	return true;
}

static void *run(void *arg)
{
	struct logs_term *t = arg;
	struct buf out = BUF_INIT;
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	lock_take(&t->lock);
	while (!t->stop) {
		struct buf empty = out;
		bool good;

		if (!t->queue.len) {
			lock_wait(&t->lock, &t->changed, UINT64_MAX);
			continue;
		}
		out = t->queue;
		t->queue = empty;
		t->writing = true;
		t->moved_ms = clock_mono_ms(); /* patience begins now */
		pthread_cond_broadcast(&t->changed);
		lock_drop(&t->lock);
		good = t->gone || write_all(t, out.data, out.len);
		buf_reset(&out);
		lock_take(&t->lock);
		t->gone |= !good;
		t->writing = false;
		t->moved_ms = clock_mono_ms();
		pthread_cond_broadcast(&t->changed);
	}
	lock_drop(&t->lock);
	buf_fini(&out);
	return NULL;
}

int logs_term_new(struct logs_term **out, int fd)
{
	struct logs_term *t = xcalloc(1, sizeof(*t));
	sigset_t all, old;
	int r;

	t->fd = fd;
	t->gone = fd < 0;
	t->colour = fd >= 0 && isatty(fd) && !getenv("NO_COLOR");
	t->moved_ms = clock_mono_ms();
	lock_init(&t->lock);
	lock_cond_init(&t->changed);
	/* SIGPIPE, too: a closed terminal is an error of write() here. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t->thread, NULL, run, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		free(t);
		return err_origin(-r);
	}
	*out = t;
	return 0;
}

/* Waits for room. False: the terminal stands still, the line is not to be kept. */
static bool have_room_locked(struct logs_term *t, size_t n)
{
	if (t->dropping && t->queue.len <= LOGS_TERM_QUEUE_MAX / 2) {
		t->dropping = false;
		buf_printf(&t->queue,
			   "[%llu lines are not shown here; the log files have them]\n",
			   (unsigned long long)t->dropped);
		t->dropped = 0;
	}
	while (!t->dropping && !t->stop && t->queue.len + n > LOGS_TERM_QUEUE_MAX) {
		uint64_t patience = t->moved_ms + LOGS_STALL_MS;

		if (lock_wait(&t->lock, &t->changed, patience) == LOCK_E_TIMEOUT &&
		    clock_mono_ms() >= t->moved_ms + LOGS_STALL_MS)
			t->dropping = true;
	}
	return !t->dropping;
}

static void put_name_locked(struct logs_term *t, const char *name)
{
	unsigned int sum = 0;
	size_t n = strnlen(name, NAME_SHOWN_MAX);

	if (n > t->width)
		t->width = n;
	for (const char *c = name; *c; c++)
		sum = sum * 31 + (unsigned char)*c;
	if (t->colour)
		buf_printf(&t->queue, "\x1b[3%um", 1 + sum % 6);
	buf_printf(&t->queue, "%-*.*s |", (int)t->width, (int)n, name);
	buf_puts(&t->queue, t->colour ? "\x1b[0m " : " ");
}

void logs_term_add(struct logs_term *t, const char *name, const char *text, size_t n)
{
	char *clean = xcalloc(4 * n + 1, 1);
	size_t used = logs_term_clean(clean, text, n);

	lock_take(&t->lock);
	if (!t->gone && !t->stop) {
		if (have_room_locked(t, used + NAME_SHOWN_MAX + 16)) {
			put_name_locked(t, name);
			buf_append(&t->queue, clean, used);
			buf_putc(&t->queue, '\n');
			pthread_cond_broadcast(&t->changed);
		} else {
			t->dropped++;
		}
	}
	lock_drop(&t->lock);
	free(clean);
}

bool logs_term_drain(struct logs_term *t, uint64_t deadline_ms)
{
	bool done;

	lock_take(&t->lock);
	while (!t->gone && (t->queue.len || t->writing))
		if (lock_wait(&t->lock, &t->changed, deadline_ms) == LOCK_E_TIMEOUT &&
		    clock_mono_ms() >= deadline_ms)
			break;
	done = t->gone || (!t->queue.len && !t->writing);
	lock_drop(&t->lock);
	return done;
}

void logs_term_stop(struct logs_term *t)
{
	lock_scope(&t->lock);

	t->stop = true;
	pthread_cond_broadcast(&t->changed);
}

struct logs_term *logs_term_free(struct logs_term *t)
{
	if (!t)
		return NULL;
	logs_term_stop(t);
	pthread_cancel(t->thread);
	pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->changed);
	lock_fini(&t->lock);
	buf_fini(&t->queue);
	free(t);
	return NULL;
}
