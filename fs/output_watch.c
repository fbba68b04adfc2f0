/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks after files that are open for writing: publishes what grew and stays open, sees
 * large files grow and has them sent ahead (output_ahead.c), and starts their way to the
 * disk, so that close has less to wait for.
 *
 * The kernel may write behind our back, so all this is by looking: at a file that grows
 * every LOOK_MS, at others less and less often, and not at all while none is open.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

#define PUBLISH_TICK_MAX_MS 1000
#define LOOK_MS 250
#define LOOK_MAX_MS 4000
#define COPY_AGAIN_MS 1000
#define WRITING_OUT_MAX 8 /* files that one round starts to write to the disk */

/* Bytes of an open file that are to be on their way to the disk. */
struct writing_out {
	struct content *content; /* a reference, pinned */
	uint64_t off, n;
};

struct round {
	uint64_t next_ms; /* when to look again */
	struct writing_out out[WRITING_OUT_MAX];
	size_t count;
};

void watch_open(struct output *o, struct node *n, uint64_t now)
{
	lock_assert_held(&o->lock);
	list_push_back(&o->writing, &n->writing);
	n->published_ms = now;
	n->watch.since_ms = now;
	n->watch.look_ms = now + LOOK_MS;
	n->watch.wait_ms = LOOK_MS;
	n->watch.end = 0;
	n->watch.written_out = 0;
	/* One that comes and goes before the next look costs nothing. */
	if (o->watch_until_ms > n->watch.look_ms)
		pthread_cond_signal(&o->watch_cond);
}

void watch_close(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	list_remove(&n->writing);
	n->ahead_lost = 0;
}

static bool has_grown(const struct node *n)
{
	struct stat st;

	return fstat(content_fd(n->live), &st) == 0 && (uint64_t)st.st_size > n->size;
}

static bool is_due(const struct output *o, struct node *n, uint64_t now)
{
	uint64_t interval = o->config.publish_interval_ms, age = now - n->published_ms;

	if (!n->live || !n->parent)
		return false;
	/* An fsync has put another version in the place of a published one. */
	if (plan_lacks_copy(n) && !n->task && age >= COPY_AGAIN_MS) {
		n->published_ms = now;
		return true;
	}
	/* The last one is still on its way: to replace it would send its tail twice, and with
	 * a slow store none would ever arrive. */
	if (interval == 0 || age < interval || (n->publish && n->acked))
		return false;
	n->published_ms = now;
	/* Only what grew: a file that is being rewritten keeps its last whole version in the
	 * store until it is closed. */
	return has_grown(n);
}

/* The next open file that is due. Held. Lock held. */
static struct node *due_file(struct output *o, uint64_t now)
{
	struct list *it;

	list_for_each (it, &o->writing) {
		struct node *n = container_of(it, struct node, writing);

		if (!is_due(o, n, now))
			continue;
		node_hold(n);
		return n;
	}
	return NULL;
}

/* Without the lock. */
static void publish(struct output *o, struct node *n)
{
	int r = content_publish(o, n, true);

	if (r < 0)
		log_warn("an open file cannot be published error=%s", strerror(-r));
}

static void look_at(struct output *o, struct node *n, uint64_t now, struct round *round)
{
	struct watch *w = &n->watch;
	uint64_t end = ahead_look(o, n), from = w->written_out;

	if (end > w->end)
		w->wait_ms = LOOK_MS;
	else if (w->wait_ms < LOOK_MAX_MS)
		w->wait_ms *= 2;
	w->end = end;
	w->look_ms = now + w->wait_ms;
	if (end <= from || round->count == WRITING_OUT_MAX || content_pin(n->live) < 0)
		return;
	w->written_out = end;
	round->out[round->count++] =
		(struct writing_out){content_get(n->live), from, end - from};
}

/* Lock held. */
static void look_at_all(struct output *o, uint64_t now, struct round *round)
{
	struct list *it;

	round->count = 0;
	round->next_ms = UINT64_MAX;
	list_for_each (it, &o->writing) {
		struct node *n = container_of(it, struct node, writing);

		if (n->watch.look_ms <= now)
			look_at(o, n, now, round);
		if (n->watch.look_ms < round->next_ms)
			round->next_ms = n->watch.look_ms;
	}
	if (round->next_ms != UINT64_MAX && o->config.publish_interval_ms > 0) {
		uint64_t tick = o->config.publish_interval_ms / 4 + 1;

		if (tick > PUBLISH_TICK_MAX_MS)
			tick = PUBLISH_TICK_MAX_MS;
		if (now + tick < round->next_ms)
			round->next_ms = now + tick;
	}
}

/* Starts it and waits for nothing but room in the queue of the disk; a failure is found by
 * the sync that counts. Without the lock. */
static void write_out(struct round *round)
{
	for (size_t i = 0; i < round->count; i++) {
		struct writing_out *w = &round->out[i];

		(void)!sync_file_range(content_fd(w->content), (off_t)w->off, (off_t)w->n,
				       SYNC_FILE_RANGE_WRITE);
		content_unpin(w->content);
		content_put(w->content, 0);
	}
}

static void *watch_main(void *arg)
{
	struct output *o = arg;
	struct round round;

	pthread_setname_np(pthread_self(), "watch");
	lock_take(&o->lock);
	while (!o->stopping) {
		uint64_t now = clock_mono_ms();
		struct node *n = due_file(o, now);

		if (n) {
			lock_drop(&o->lock);
			publish(o, n);
			lock_take(&o->lock);
			node_release(o, n);
			continue;
		}
		look_at_all(o, now, &round);
		if (round.count > 0) {
			lock_drop(&o->lock);
			write_out(&round);
			lock_take(&o->lock);
		}
		o->watch_until_ms = round.next_ms;
		if (!o->stopping)
			lock_wait(&o->lock, &o->watch_cond, round.next_ms);
		o->watch_until_ms = 0;
	}
	lock_drop(&o->lock);
	return NULL;
}

int watch_start(struct output *o)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&o->watch_thread, NULL, watch_main, o);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	o->watch_started = r == 0;
	return r < 0 ? err_origin(r) : 0;
}

void watch_stop(struct output *o)
{
	lock_take(&o->lock);
	pthread_cond_broadcast(&o->watch_cond);
	lock_drop(&o->lock);
	if (o->watch_started)
		pthread_join(o->watch_thread, NULL);
	o->watch_started = false;
}
