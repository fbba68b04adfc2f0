/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is appended waits in memory until someone wants it durable. That caller becomes the
 * leader: it takes all that waits, writes it as one frame, syncs, and wakes whoever
 * wanted a part of it. While it syncs the next batch gathers.
 *
 * States of the segment:
 *   good     frames are added to it
 *   stale    it must not be added to: a sync failed, or a snapshot that was to replace it
 *            did not become durable for certain. The next commit writes a new segment
 *            from the owner's state; the old file stays until that one is published.
 *
 * Failure modes: no space: the batch goes back to the front of the queue. A failed sync:
 * stale. Both are told to every caller that waits for them, and tried again by the next.
 *
 * Threads: any; `lock` is never held across disk input or output. The leader alone
 * touches the segment. A thread of the journal's own leads for those who do not wait
 * (journal_sync_later): while it syncs, the threads that take requests go on appending.
 */
#include "cache/journal.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "cache/replay.h"
#include "cache/segment.h"
#include "cache/tail.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

#define LOG_SIZE_MIN (16u << 20)
#define SNAPSHOT_FRAME_SIZE (1u << 20) /* a snapshot is cut into frames of about this */

struct journal {
	struct journal_config config;
	struct lock lock;    /* all below but segment, log_start */
	pthread_cond_t cond; /* durable moved, or the leader stepped down */
	struct buf pending;  /* records appended, not yet handed to a leader */
	uint64_t appended;   /* number of the last append */
	uint64_t taken;      /* all up to here are in a snapshot or in a batch */
	uint64_t durable;    /* all up to here survive a crash */
	bool leading;        /* someone writes */
	bool stale;          /* see above */
	struct list waiters; /* journal_sync_later(), in no order */
	pthread_cond_t work; /* waiters, or stopping */
	bool stopping;
	pthread_t thread;
	bool started;
	struct journal_stats stats;

	/* The leader's. */
	struct segment *segment;
	uint64_t generation; /* the highest one used */
	uint64_t log_start;  /* where the snapshot of `segment` ends */
};

int journal_open(const struct journal_config *config, struct journal **out,
		 struct journal_report *report, struct why *why)
{
	struct journal *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return err_origin(-ENOMEM);
	j->config = *config;
	if (j->config.log_size_min == 0)
		j->config.log_size_min = LOG_SIZE_MIN;
	lock_init(&j->lock);
	lock_cond_init(&j->cond);
	lock_cond_init(&j->work);
	list_init(&j->waiters);
	j->stale = true; /* until journal_start() */
	r = replay_journal(config, &j->generation, report, why);
	if (r == 0 && config->tail)
		r = tail_replay(config->tail, config->replay, config->arg);
	if (r < 0) {
		pthread_cond_destroy(&j->work);
		pthread_cond_destroy(&j->cond);
		lock_fini(&j->lock);
		free(j);
		return err_trace(r);
	}
	*out = j;
	return 0;
}

/* The snapshot in frames that end where a record ends. */
static int write_snapshot(struct segment *s, const struct buf *b)
{
	size_t start = 0, at = 0;
	int r;

	while (at < b->len) {
		uint32_t n;

		memcpy(&n, b->data + at, sizeof(n));
		at += le32toh(n);
		if (at - start < SNAPSHOT_FRAME_SIZE && at < b->len)
			continue;
		r = segment_write(s, b->data + start, at - start);
		if (r < 0)
			return err_trace(r);
		start = at;
	}
	return 0;
}

/* Replaces the segment by a new one that starts with the owner's state. The leader's. */
static int rotate(struct journal *j)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct record end = {.type = RECORD_SNAPSHOT};
	struct segment *s = NULL;
	char old[SEGMENT_NAME_MAX];
	int r;

	kill_point("segment.rotate");
	j->config.snapshot(j->config.arg, &b);
	record_encode(&b, &end);
	r = buf_error(&b);
	/* Names in the stage directory that the snapshot refers to. */
	if (r == 0 && j->config.before_commit)
		r = j->config.before_commit(j->config.arg);
	if (r == 0)
		r = segment_create(j->config.dirfd, ++j->generation, j->config.source,
				   &s);
	if (r == 0)
		r = write_snapshot(s, &b);
	if (r == 0)
		r = segment_publish(s);
	if (r < 0) {
		segment_close(s);
		return err_trace(r);
	}
	if (j->segment) {
		segment_name(old, segment_generation(j->segment), "wal");
		segment_close(j->segment);
		unlinkat(j->config.dirfd, old, 0);
	}
	j->segment = s;
	j->log_start = segment_size(s);
	return 0;
}

void journal_snapshot_taken(struct journal *j)
{
	lock_scope(&j->lock);
	buf_reset(&j->pending);
	j->taken = j->appended;
	/* Until the snapshot is published these records exist nowhere else. */
	j->stale = true;
}

int journal_append(struct journal *j, const struct buf *records, uint64_t *seq)
{
	lock_scope(&j->lock);
	if (records->failed || !buf_reserve(&j->pending, records->len)) {
		j->pending.failed = false; /* what is in it is whole */
		return err_origin(-ENOMEM);
	}
	if (j->config.tail && tail_append(j->config.tail, records, j->appended + 1) < 0)
		return err_origin(-ENOMEM);
	buf_append(&j->pending, records->data, records->len);
	j->stats.appends++;
	*seq = ++j->appended;
	return 0;
}

/* Writes one batch, or a new segment. Without the lock. */
static int commit(struct journal *j, const struct buf *batch, bool stale)
{
	int r;

	if (stale || segment_size(j->segment) - j->log_start + batch->len >
			     j->config.log_size_min + j->log_start)
		return err_trace(rotate(j));
	if (batch->len == 0)
		return 0;
	if (j->config.before_commit) {
		r = j->config.before_commit(j->config.arg);
		if (r < 0)
			return err_trace(r);
	}
	r = segment_write(j->segment, batch->data, batch->len);
	if (r < 0)
		return err_trace(r);
	r = segment_sync(j->segment);
	if (r < 0) {
		/* Never synced again: what was written since the last good sync may be gone
		 * from the page cache although a second call would say it is safe. */
		lock_scope(&j->lock);
		j->stale = true;
	}
	return err_trace(r);
}

/* Puts a batch that did not become durable before what has gathered since. */
static void put_back(struct journal *j, struct buf *batch)
{
	if (j->stale || batch->len == 0)
		return; /* the next snapshot has it */
	buf_append(batch, j->pending.data ? j->pending.data : "", j->pending.len);
	if (batch->failed) {
		j->stale = true; /* no memory for it: the snapshot will have it */
		return;
	}
	buf_fini(&j->pending);
	j->pending = *batch;
	*batch = BUF_INIT;
}

/* Calls those for whom it is over: their sequence is durable, or was tried in vain. Drops the
 * lock around the calls. */
static void tell_waiters(struct journal *j, uint64_t tried, int result)
{
	struct list ready = LIST_INIT(ready), *it, *next;
	uint64_t durable = j->durable;

	list_for_each_safe (it, next, &j->waiters) {
		struct journal_waiter *w = container_of(it, struct journal_waiter, link);

		if (w->seq > durable && (result == 0 || w->seq > tried))
			continue;
		list_remove(it);
		list_push_back(&ready, it);
	}
	if (list_empty(&ready))
		return;
	lock_drop(&j->lock);
	list_for_each_safe (it, next, &ready) {
		struct journal_waiter *w = container_of(it, struct journal_waiter, link);

		list_remove(it);
		w->done(w, w->seq <= durable ? 0 : result);
	}
	lock_take(&j->lock);
}

/* With the lock held, which is dropped while it works. */
static int lead_locked(struct journal *j)
{
	struct buf batch = j->pending;
	bool stale = j->stale;
	uint64_t upto;
	int r;

	j->pending = BUF_INIT;
	j->leading = true;
	j->taken = upto = j->appended;
	lock_drop(&j->lock);
	r = commit(j, &batch, stale);
	lock_take(&j->lock);
	j->leading = false;
	if (r == 0) {
		/* A snapshot took more than the batch. */
		if (j->taken > upto)
			upto = j->taken;
		j->durable = upto;
		j->stale = false;
		if (j->config.tail)
			tail_trim(j->config.tail, upto);
		j->stats.commits++;
		j->stats.bytes += batch.len;
		j->stats.segment_bytes = segment_size(j->segment);
		j->stats.snapshots = j->generation;
	} else {
		j->stats.failures++;
		put_back(j, &batch);
	}
	buf_fini(&batch);
	pthread_cond_broadcast(&j->cond);
	tell_waiters(j, upto, r);
	/* Whoever came meanwhile needs a leader too. */
	if (!list_empty(&j->waiters))
		pthread_cond_signal(&j->work);
	return r;
}

static void *lead_for_waiters(void *arg)
{
	struct journal *j = arg;

	pthread_setname_np(pthread_self(), "journal");
	lock_take(&j->lock);
	while (!j->stopping || !list_empty(&j->waiters)) {
		if (list_empty(&j->waiters))
			lock_wait(&j->lock, &j->work, UINT64_MAX);
		else if (j->leading)
			lock_wait(&j->lock, &j->cond, UINT64_MAX);
		else
			lead_locked(j); /* tells them how it went */
	}
	lock_drop(&j->lock);
	return NULL;
}

static int start_thread(struct journal *j)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&j->thread, NULL, lead_for_waiters, j);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	j->started = r == 0;
	return r < 0 ? err_origin(r) : 0;
}

static void stop_thread(struct journal *j)
{
	if (!j->started)
		return;
	lock_take(&j->lock);
	j->stopping = true;
	pthread_cond_signal(&j->work);
	lock_drop(&j->lock);
	pthread_join(j->thread, NULL);
}

bool journal_sync_later(struct journal *j, struct journal_waiter *w)
{
	lock_scope(&j->lock);
	check(w->seq <= j->appended && j->started);
	if (j->durable >= w->seq)
		return false;
	list_push_back(&j->waiters, &w->link);
	if (!j->leading)
		pthread_cond_signal(&j->work);
	return true;
}

int journal_start(struct journal *j)
{
	int r;

	lock_scope(&j->lock);
	check(!j->leading && !j->segment);
	r = lead_locked(j);
	if (r == 0 && j->config.tail)
		tail_clear(j->config.tail); /* the snapshot has it */
	if (r == 0)
		replay_sweep(j->config.dirfd, segment_generation(j->segment));
	if (r == 0)
		r = start_thread(j);
	return err_trace(r);
}

int journal_sync(struct journal *j, uint64_t seq)
{
	lock_scope(&j->lock);
	check(seq <= j->appended);
	while (j->durable < seq) {
		int r;

		if (j->leading) {
			lock_wait(&j->lock, &j->cond, UINT64_MAX);
			continue;
		}
		r = lead_locked(j);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

uint64_t journal_appended(struct journal *j)
{
	lock_scope(&j->lock);
	return j->appended;
}

uint64_t journal_durable(struct journal *j)
{
	lock_scope(&j->lock);
	return j->durable;
}

void journal_stats(struct journal *j, struct journal_stats *stats)
{
	lock_scope(&j->lock);
	*stats = j->stats;
}

struct journal *journal_close(struct journal *j)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct record closed = {.type = RECORD_CLOSED};
	uint64_t seq;
	int r = 0;

	if (!j)
		return NULL;
	stop_thread(j);
	if (j->segment) {
		record_encode(&b, &closed);
		r = journal_append(j, &b, &seq);
		if (r == 0)
			r = journal_sync(j, seq);
		if (r < 0)
			log_warn("journal not closed in order error=%s", strerror(-r));
	}
	segment_close(j->segment);
	buf_fini(&j->pending);
	pthread_cond_destroy(&j->work);
	pthread_cond_destroy(&j->cond);
	lock_fini(&j->lock);
	free(j);
	return NULL;
}
