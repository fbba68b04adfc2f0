/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reconciler: takes nodes from the queue, asks plan_node() what they need, hands it to
 * the uploader, and writes down what came of it.
 *
 * Happy path of a new file: ready → SYNC_CONTENT → task in flight → stored, record
 * dropped from the journal, staged file removed once that is durable.
 *
 * Write-ahead rule: before any request leaves, the journal is durable up to the record
 * that asked for it. What came of a request is recorded before anything that depends on it
 * (the delete after the copy) is planned, and the rule makes that record durable in turn.
 *
 * Failure modes: a request fails: the node waits, longer each time, for ever. The process
 * dies: every request may be repeated. Stop: requests in flight are cancelled, what is
 * pending stays in the journal.
 *
 * Threads: "sync" plans and starts, the uploader's workers call task_done(), "publish"
 * looks after files that stay open.
 */
#include "fs/output_task.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"

#define PARALLEL 8
#define WAITING_LOOK_MS 100 /* how often blocked nodes are looked at again */
#define LAZY_SYNC_MS 50   /* how long a record that no one waits for may stay in memory */
#define YIELD_MS 10       /* the last small file was closed so recently: more will be */
#define YIELD_AGE_MS 1000 /* how long one that waits for that reason may wait */
#define YIELD_WINDOW 2    /* … and how many are sent then */
#define BATCH_MAX 64      /* tasks started under one journal sync */
#define PUBLISH_TICK_MAX_MS 1000

/* ---- queue -------------------------------------------------------------------------------- */

void sync_move(struct output *o, struct node *n, enum node_queue queue)
{
	if (n->queue == queue)
		return;
	list_remove(&n->queued);
	if (n->queue == QUEUE_NONE)
		o->pending_count++;
	if (queue == QUEUE_NONE)
		o->pending_count--;
	n->queue = queue;
	if (queue == QUEUE_READY)
		list_push_back(&o->ready, &n->queued);
	else if (queue == QUEUE_WAITING)
		list_push_back(&o->waiting, &n->queued);
}

void sync_queue(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (n == o->root)
		return;
	/* Garbage that lingers and is wanted no more stays where it is. */
	if (!plan_is_dirty(n) && n->queue == QUEUE_NONE)
		return;
	if (n->pending_ns == 0)
		n->pending_ns = clock_real_ns();
	if (n->pending_seq == OUTPUT_CLEAN)
		n->pending_seq = n->seq;
	if (n->task)
		return; /* task_done() looks again */
	/* Nothing is sent before it is closed. */
	if (n->writers > 0 && !n->publish && !n->resume && n->queue == QUEUE_NONE) {
		sync_move(o, n, QUEUE_WAITING);
		return;
	}
	n->not_before_ms = 0;
	sync_move(o, n, QUEUE_READY);
	if (!o->yielding)
		pthread_cond_broadcast(&o->changed);
}

void sync_kick(struct output *o)
{
	struct list *it;

	list_for_each (it, &o->waiting)
		container_of(it, struct node, queued)->not_before_ms = 0;
	o->unblocked = true;
	pthread_cond_broadcast(&o->changed);
}

void sync_cancel(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (n->task && n->task->op != SYNC_DELETE && n->task->op != SYNC_COPY)
		uploader_cancel(o->uploader, &n->task->job);
}

uint64_t sync_task_uses(const struct node *n, const struct content *c)
{
	if (!n->task || n->task->content != c || n->task->op != SYNC_CONTENT)
		return 0;
	return n->task->job.state.size;
}

struct node *sync_task_node(struct list *flying)
{
	return container_of(flying, struct task, flying)->node;
}

bool sync_key_busy(struct output *o, const char *key)
{
	struct list *it;

	list_for_each (it, &o->flying) {
		const struct task *t = container_of(it, struct task, flying);

		if (strcmp(t->key, key) == 0 || strcmp(t->source, key) == 0)
			return true;
	}
	return false;
}

/* ---- the sync thread ------------------------------------------------------------------------ */

/* Plans one node of the ready queue: a task, or another queue. Lock held. */
static struct task *start_node(struct output *o, struct node *n)
{
	char key[PATH_KEY_MAX + 1];
	enum sync_op op = plan_node(o, n, key);
	struct task *t;

	if (op == SYNC_NONE) {
		n->pending_ns = 0;
		n->pending_seq = OUTPUT_CLEAN;
		sync_move(o, n, QUEUE_NONE);
		node_settle(o, n);
		return NULL;
	}
	if (op == SYNC_LATER) {
		sync_move(o, n, QUEUE_WAITING);
		return NULL;
	}
	t = task_new(o, n, op, key);
	if (!t) {
		n->not_before_ms = clock_mono_ms() + WAITING_LOOK_MS;
		sync_move(o, n, QUEUE_WAITING);
		return NULL;
	}
	n->task = t;
	if (op == SYNC_CONTENT || op == SYNC_SMALL || op == SYNC_COPY)
		n->maybe_sent = true;
	sync_move(o, n, QUEUE_FLYING);
	list_push_back(&o->flying, &t->flying);
	o->in_flight++;
	content_update_frozen(n);
	return t;
}

/* Moves what may be tried again to the ready queue. Returns when to look next. */
static uint64_t look_at_waiting(struct output *o, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct list *it, *following;

	list_for_each_safe (it, following, &o->waiting) {
		struct node *n = container_of(it, struct node, queued);

		if (n->not_before_ms > now) {
			if (n->not_before_ms < next)
				next = n->not_before_ms;
		} else if (o->unblocked || n->not_before_ms) {
			n->not_before_ms = 0;
			sync_move(o, n, QUEUE_READY);
		}
	}
	o->unblocked = false;
	return next;
}

/* Whoever writes many small files has the machine first: sending each while the next one is
 * written costs both. Not for long, not while someone waits for the store, and not when
 * memory fills. */
static uint32_t window_now(struct output *o)
{
	const struct node *oldest;
	int64_t age_ms;

	if (o->drains > 0 || o->config.durability == OUTPUT_REMOTE ||
	    clock_mono_ms() >= o->acked_ms + YIELD_MS || stage_is_laden(o->stage) ||
	    list_empty(&o->ready))
		return o->window;
	oldest = list_first(&o->ready, struct node, queued);
	age_ms = (clock_real_ns() - oldest->pending_ns) / 1000000;
	return age_ms >= 0 && age_ms < YIELD_AGE_MS ? 0 : YIELD_WINDOW;
}

/* *seq: what the journal has to hold before any of them leaves. */
static struct task *plan_batch(struct output *o, uint32_t window, uint64_t *seq)
{
	struct task *batch = NULL, **tail = &batch;

	*seq = o->ahead;
	for (int i = 0; i < BATCH_MAX && o->in_flight < window && !list_empty(&o->ready);
	     i++) {
		struct task *t =
			start_node(o, list_first(&o->ready, struct node, queued));

		if (!t)
			continue;
		if (*seq < t->node->seq)
			*seq = t->node->seq;
		*tail = t;
		tail = &t->next;
	}
	return batch;
}

/* Without the lock. */
static void submit_batch(struct output *o, struct task *batch, uint64_t seq)
{
	int r = journal_sync(o->journal, seq);

	while (batch) {
		struct task *t = batch;

		batch = t->next;
		if (r == 0) {
			uploader_submit(o->uploader, &t->job);
			continue;
		}
		t->job.result = r;
		why_set(&t->job.why, r, "the journal cannot be written: %s",
			strerror(-r));
		task_done(&t->job);
	}
}

/* Makes lazy records durable and removes the staged files that they let go. */
static void tidy(struct output *o)
{
	int r = journal_sync(o->journal, journal_appended(o->journal));

	if (r < 0)
		log_warn("journal cannot be written error=%s", strerror(-r));
	stage_reap(o->stage, journal_durable(o->journal));
}

static void *sync_main(void *arg)
{
	struct output *o = arg;
	uint64_t tidied = 0, look = UINT64_MAX;

	pthread_setname_np(pthread_self(), "sync");
	lock_take(&o->lock);
	while (!o->stopping) {
		uint64_t now = clock_mono_ms(), until, seq;
		uint32_t window;
		struct task *batch;

		if (o->unblocked || now >= look)
			look = look_at_waiting(o, now);
		window = window_now(o);
		batch = plan_batch(o, window, &seq);
		if (batch || now - tidied >= LAZY_SYNC_MS) {
			lock_drop(&o->lock);
			if (batch)
				submit_batch(o, batch, seq);
			if (now - tidied < LAZY_SYNC_MS) {
				lock_take(&o->lock);
				continue;
			}
			tidy(o);
			tidied = clock_mono_ms();
			lock_take(&o->lock);
			pthread_cond_broadcast(&o->changed);
			continue;
		}
		if (!list_empty(&o->ready) && o->in_flight < window)
			continue;
		until = look;
		if (window < o->window && now + YIELD_MS < until)
			until = now + YIELD_MS;
		if (journal_appended(o->journal) > journal_durable(o->journal) ||
		    stage_has_doomed(o->stage))
			until = tidied + LAZY_SYNC_MS < until ? tidied + LAZY_SYNC_MS
							      : until;
		if (!list_empty(&o->waiting) && now + WAITING_LOOK_MS < until)
			until = now + WAITING_LOOK_MS;
		o->yielding = window == 0;
		lock_wait(&o->lock, &o->changed, until);
		o->yielding = false;
		if (!list_empty(&o->waiting) && clock_mono_ms() >= now + WAITING_LOOK_MS)
			o->unblocked = true;
	}
	lock_drop(&o->lock);
	return NULL;
}

/* ---- files that stay open ---------------------------------------------------------------------- */

/* The next open file that is due. Held. Lock held. */
static struct node *due_file(struct output *o, uint64_t now, uint64_t interval)
{
	struct list *it;

	list_for_each (it, &o->writing) {
		struct node *n = container_of(it, struct node, writing);
		struct stat st;

		if (now - n->published_ms < interval || !n->live || !n->parent)
			continue;
		/* The last one is still on its way: to replace it would send its tail
		 * twice, and with a slow store none would ever arrive. */
		if (n->publish && n->acked)
			continue;
		n->published_ms = now;
		/* Only what grew: a file that is being rewritten keeps its last whole
		 * version in the store until it is closed. */
		if (fstat(content_fd(n->live), &st) < 0 ||
		    (uint64_t)st.st_size <= n->size)
			continue;
		node_hold(n);
		return n;
	}
	return NULL;
}

static void *publish_main(void *arg)
{
	struct output *o = arg;
	uint64_t interval = o->config.publish_interval_ms;
	uint64_t tick = interval / 4 < PUBLISH_TICK_MAX_MS ? interval / 4 + 1
							   : PUBLISH_TICK_MAX_MS;

	pthread_setname_np(pthread_self(), "publish");
	lock_take(&o->lock);
	while (!o->stopping) {
		struct node *n = due_file(o, clock_mono_ms(), interval);
		int r;

		if (!n) {
			lock_wait(&o->lock, &o->publish_cond, clock_mono_ms() + tick);
			continue;
		}
		lock_drop(&o->lock);
		r = content_publish(o, n);
		if (r < 0)
			log_warn("an open file cannot be published error=%s",
				 strerror(-r));
		lock_take(&o->lock);
		node_release(o, n);
	}
	lock_drop(&o->lock);
	return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------------ */

int sync_start(struct output *o)
{
	struct uploader_config config = {.origin = o->config.origin,
					 .parallel = o->config.upload_parallel};
	sigset_t all, old;
	int r;

	if (config.parallel == 0)
		config.parallel = PARALLEL;
	o->window = config.parallel * 2;
	r = uploader_new(&config, &o->uploader);
	if (r < 0)
		return err_trace(r);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&o->sync_thread, NULL, sync_main, o);
	o->sync_started = r == 0;
	if (r == 0 && o->config.publish_interval_ms > 0) {
		r = -pthread_create(&o->publish_thread, NULL, publish_main, o);
		o->publish_started = r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r < 0 ? err_origin(r) : 0;
}

void sync_stop(struct output *o)
{
	lock_take(&o->lock);
	o->stopping = true;
	pthread_cond_broadcast(&o->changed);
	pthread_cond_broadcast(&o->publish_cond);
	lock_drop(&o->lock);
	if (o->publish_started)
		pthread_join(o->publish_thread, NULL);
	if (o->sync_started)
		pthread_join(o->sync_thread, NULL);
	o->uploader = uploader_free(o->uploader);
}
