/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: logs_term_add() appends to `queue`; the thread swaps it for an empty one and
 * writes without the lock.
 * The terminal is slow: the queue fills up, adding waits.
 * It stands still (Ctrl-S, a stopped pager) for LOGS_STALL_MS: `dropping`, until half of
 * the queue is free again; then one line says how many are missing.
 * It is gone (EPIPE): nothing is shown from then on.
 * Threads: `lock` covers what changes.
 */
#include "runner/logs_term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "runner/logs.h"

#define WRITE_MAX 4096 /* at once: what a pipe takes whole */
#define NAME_SHOWN_MAX 80

struct logs_term {
	int fd;         /* borrowed, unless `own_fd` */
	bool own_fd;    /* reopened, so that it does not block */
	bool is_socket; /* then a flag at each call does that */
	bool colour;
	int wake; /* event descriptor: ends a wait for the terminal */
	pthread_t thread;
	struct lock lock;
	pthread_cond_t changed; /* anything below */
	struct buf queue;
	struct buf out; /* the thread's own */
	bool writing;   /* the thread has bytes that are not out yet */
	bool gone;      /* nobody reads any more */
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
		size_t m;

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

/*
 * To set O_NONBLOCK on the terminal would set it for everybody who has it open, the shell
 * included. A new open file of the same pipe or terminal has flags of its own. A plain
 * file never blocks (and another open file would not have its offset).
 */
static void prepare_fd(struct logs_term *t, int fd)
{
	char path[40];
	struct stat st;
	int own = -1;

	t->fd = fd;
	if (fd < 0 || fstat(fd, &st))
		return;
	t->is_socket = S_ISSOCK(st.st_mode);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
		own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (own < 0) /* another user's terminal: poll() has to do */
		return;
	t->fd = own;
	t->own_fd = true;
}

/* Bytes written, 0 when nothing could be, or a negative errno. */
static ssize_t write_some(struct logs_term *t, const char *p, size_t n)
{
	struct pollfd wait[2] = {{.fd = t->fd, .events = POLLOUT},
				 {.fd = t->wake, .events = POLLIN}};
	ssize_t r;

	if (poll(wait, 2, -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (wait[1].revents)
		return -ECANCELED;
	n = n < WRITE_MAX ? n : WRITE_MAX;
	r = t->is_socket ? send(t->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL)
			 : write(t->fd, p, n);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return r < 0 ? -errno : r;
}

/* Returns false when nobody reads any more. */
static bool write_all(struct logs_term *t, const char *p, size_t n)
{
	while (n) {
		ssize_t r = write_some(t, p, n);

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

	lock_take(&t->lock);
	while (!t->stop) {
		struct buf empty = t->out;
		bool good;

		if (!t->queue.len) {
			lock_wait(&t->lock, &t->changed, UINT64_MAX);
			continue;
		}
		t->out = t->queue;
		t->queue = empty;
		t->writing = true;
		t->moved_ms = clock_mono_ms(); /* patience begins now */
		pthread_cond_broadcast(&t->changed);
		lock_drop(&t->lock);
		good = t->gone || write_all(t, t->out.data, t->out.len);
		buf_reset(&t->out);
		lock_take(&t->lock);
		t->gone |= !good;
		t->writing = false;
		t->moved_ms = clock_mono_ms();
		pthread_cond_broadcast(&t->changed);
	}
	lock_drop(&t->lock);
	return NULL;
}

static void destroy(struct logs_term *t)
{
	if (t->own_fd)
		close(t->fd);
	close_fdp(&t->wake);
	pthread_cond_destroy(&t->changed);
	lock_fini(&t->lock);
	buf_fini(&t->queue);
	buf_fini(&t->out);
	free(t);
}

int logs_term_new(struct logs_term **out, int fd)
{
	struct logs_term *t = xcalloc(1, sizeof(*t));
	sigset_t all, old;
	int r;

	prepare_fd(t, fd);
	t->wake = eventfd(0, EFD_CLOEXEC);
	t->gone = fd < 0;
	t->colour = fd >= 0 && isatty(fd) && !getenv("NO_COLOR");
	t->moved_ms = clock_mono_ms();
	lock_init(&t->lock);
	lock_cond_init(&t->changed);
	/* SIGPIPE, too: a closed terminal is an error of write() here. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = t->wake < 0 ? errno : pthread_create(&t->thread, NULL, run, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		destroy(t);
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

static void widen_locked(struct logs_term *t, const char *name)
{
	size_t n = strnlen(name, NAME_SHOWN_MAX);

	if (n > t->width)
		t->width = n;
}

void logs_term_expect(struct logs_term *t, const char *name)
{
	lock_scope(&t->lock);

	widen_locked(t, name);
}

static void put_name_locked(struct logs_term *t, const char *name)
{
	unsigned int sum = 0;
	size_t n = strnlen(name, NAME_SHOWN_MAX);

	widen_locked(t, name);
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
	const uint64_t one = 1;

	if (!t)
		return NULL;
	logs_term_stop(t);
	if (write(t->wake, &one, sizeof(one)) != sizeof(one))
		log_warn("log output cannot be ended error=%s", strerror(errno));
	pthread_join(t->thread, NULL);
	destroy(t);
	return NULL;
}
