/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers add lines to `lines`; a thread of its own writes them. What was seen is a table of
 * 64-bit hashes that doubles, at most ORDER_LOG_KEYS_MAX of them; two keys with one hash would
 * cost a line.
 *
 * Failure modes: the disk does not take a line, or a bound is reached: recording ends, the
 * log says so, reads go on.
 */
#include "fs/order_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/order.h"

#define WRITE_MS 200
#define SEEN_FIRST 1024 /* slots: a power of two */

struct order_log {
	char *path, *temporary;
	int fd;
	bool shown; /* renamed to its path */
	uint64_t bytes;
	pthread_t thread;
	bool runs;

	struct lock lock; /* everything below */
	pthread_cond_t wake;
	struct buf lines;
	uint64_t *seen; /* open addressing; 0: free */
	uint32_t seen_count, seen_size;
	bool stop, failed;
};

/* ---- what was seen --------------------------------------------------------------------- */

static bool place(uint64_t *table, uint32_t size, uint64_t hash)
{
	uint32_t i = (uint32_t)(hash >> 20) & (size - 1);

	while (table[i]) {
		if (table[i] == hash)
			return false;
		i = (i + 1) & (size - 1);
	}
	table[i] = hash;
	return true;
}

static bool grow_locked(struct order_log *r)
{
	uint32_t size = r->seen_size ? r->seen_size * 2 : SEEN_FIRST;
	uint64_t *table = calloc(size, sizeof(*table));

	if (!table)
		return false;
	for (uint32_t i = 0; i < r->seen_size; i++)
		if (r->seen[i])
			place(table, size, r->seen[i]);
	free(r->seen);
	r->seen = table;
	r->seen_size = size;
	return true;
}

/* Whether it is new. */
static bool note_locked(struct order_log *r, uint64_t hash)
{
	if (r->seen_count >= ORDER_LOG_KEYS_MAX)
		return false;
	if (r->seen_count * 2 >= r->seen_size && !grow_locked(r))
		return false;
	if (!place(r->seen, r->seen_size, hash ? hash : 1))
		return false;
	if (++r->seen_count == ORDER_LOG_KEYS_MAX)
		log_warn("the recorded order is as long as it can be, the rest is left "
			 "out file=\"%s\"",
			 r->path);
	return true;
}

void order_log_read(struct order_log *r, const char *dir, const char *name)
{
	char key[PATH_KEY_MAX + 2];
	size_t n = strlen(dir), m = strlen(name);

	if (n + m > PATH_KEY_MAX)
		return;
	memcpy(key, dir, n);
	memcpy(key + n, name, m + 1);
	lock_scope(&r->lock);
	if (!r->failed && note_locked(r, crc64(0, key, n + m)))
		order_put(&r->lines, key);
}

/* ---- the file -------------------------------------------------------------------------- */

static int write_lines(struct order_log *r, const struct buf *lines)
{
	int e = 0;

	if (r->bytes + lines->len > ORDER_LOG_BYTES_MAX)
		return err_origin(-EFBIG);
	e = io_pwrite(r->fd, lines->data, lines->len, r->bytes);
	if (e < 0)
		return err_trace(e);
	r->bytes += lines->len;
	if (!r->shown && rename(r->temporary, r->path) < 0)
		return err_origin(-errno);
	r->shown = true;
	return 0;
}

static void flush_locked(struct order_log *r)
{
	struct buf lines = r->lines;
	int e = buf_error(&lines);

	r->lines = BUF_INIT;
	lock_drop(&r->lock);
	if (e == 0 && lines.len)
		e = write_lines(r, &lines);
	buf_fini(&lines);
	lock_take(&r->lock);
	if (e < 0) {
		log_warn("recording ends file=\"%s\" error=\"%s\"", r->path,
			 strerror(-e));
		r->failed = true;
	}
}

static void *run(void *arg)
{
	struct order_log *r = arg;

	prctl(PR_SET_NAME, "record");
	lock_take(&r->lock);
	while (!r->stop) {
		lock_wait(&r->lock, &r->wake, clock_mono_ms() + WRITE_MS);
		if (!r->failed)
			flush_locked(r);
	}
	lock_drop(&r->lock);
	return NULL;
}

static int create(struct order_log *r, struct why *why)
{
	int e;

	r->fd = open(r->temporary, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (r->fd < 0)
		return why_set(why, -errno, "--record %s: %s", r->path, strerror(errno));
	if (flock(r->fd, LOCK_EX | LOCK_NB) < 0)
		return why_set(why, -EBUSY, "--record %s: another mount records there",
			       r->path);
	if (ftruncate(r->fd, 0) < 0)
		return why_set(why, -errno, "--record %s: %s", r->path, strerror(errno));
	r->bytes = strlen(ORDER_HEAD);
	e = io_pwrite(r->fd, ORDER_HEAD, r->bytes, 0);
	return e < 0 ? why_set(why, e, "--record %s: %s", r->path, strerror(-e)) : 0;
}

static int start(struct order_log *r)
{
	sigset_t all, old;
	int e;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = -pthread_create(&r->thread, NULL, run, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->runs = e == 0;
	return e < 0 ? err_origin(e) : 0;
}

int order_log_open(const char *path, struct order_log **out, struct why *why)
{
	struct order_log *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return err_origin(-ENOMEM);
	r->fd = -1;
	lock_init(&r->lock);
	lock_cond_init(&r->wake);
	r->path = strdup(path);
	if (!r->path || asprintf(&r->temporary, "%s.new", path) < 0) {
		r->temporary = NULL;
		e = why_set(why, -ENOMEM, "--record %s: no memory", path);
	} else {
		e = create(r, why);
	}
	if (e == 0) {
		e = start(r);
		if (e < 0)
			why_set(why, e, "--record %s: %s", path, strerror(-e));
	}
	if (e < 0) {
		order_log_close(r);
		return err_trace(e);
	}
	*out = r;
	return 0;
}

struct order_log *order_log_close(struct order_log *r)
{
	if (!r)
		return NULL;
	if (r->runs) {
		lock_take(&r->lock);
		r->stop = true;
		pthread_cond_signal(&r->wake);
		lock_drop(&r->lock);
		pthread_join(r->thread, NULL);
		lock_take(&r->lock);
		if (!r->failed)
			flush_locked(r);
		lock_drop(&r->lock);
		if (!r->shown)
			unlink(r->temporary);
	}
	close_fdp(&r->fd);
	buf_fini(&r->lines);
	pthread_cond_destroy(&r->wake);
	lock_fini(&r->lock);
	free(r->seen);
	free(r->temporary);
	free(r->path);
	free(r);
	return NULL;
}
