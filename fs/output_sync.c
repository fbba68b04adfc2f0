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
 * Threads: "sync" plans and starts, the uploader's workers call task_done().
 */
#include "fs/output_content.h"
#include "fs/output_task.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"

#define PARALLEL 8
#define WAITING_LOOK_MS 100 /* how often blocked nodes are looked at again */
#define LAZY_SYNC_MS 50   /* how long a record that no one waits for may stay in memory */
#define YIELD_MS 10       /* the last small file was closed so recently: more will be */
#define YIELD_AGE_MS 1000 /* how long one that waits for that reason may wait */
#define YIELD_WINDOW 2    /* … and how many are sent then */
#define DRAIN_LOOK 16     /* with more pending, who waits for it looks every so often */
#define BATCH_MAX 64      /* tasks started under one journal sync, without deletes */
#define GATHER_MS 500     /* how long a delete waits for others */

/* ---- queue -------------------------------------------------------------------------------- */

static void doom(struct output *o, struct node *n)
{
	if (o->doomed_count++ == 0)
		o->doomed_since_ms = clock_mono_ms();
	list_push_back(&o->doomed, &n->queued);
}

void sync_move(struct output *o, struct node *n, enum node_queue queue)
{
	if (queue == QUEUE_READY && plan_is_doomed(n))
		queue = QUEUE_DOOMED;
	if (n->queue == queue)
		return;
	list_remove(&n->queued);
	if (n->queue == QUEUE_DOOMED)
		o->doomed_count--;
	if (n->queue == QUEUE_NONE)
		o->pending_count++;
	if (queue == QUEUE_NONE)
		o->pending_count--;
	n->queue = queue;
	if (queue == QUEUE_READY)
		list_push_back(&o->ready, &n->queued);
	else if (queue == QUEUE_WAITING)
		list_push_back(&o->waiting, &n->queued);
	else if (queue == QUEUE_BLOCKED)
		list_push_back(&o->blocked, &n->queued);
	else if (queue == QUEUE_DOOMED)
		doom(o, n);
	else if (queue == QUEUE_NONE)
		walk_count(o, n, false);
}

void sync_unblock(struct output *o)
{
	lock_assert_held(&o->lock);
	while (!list_empty(&o->blocked))
		sync_move(o, list_first(&o->blocked, struct node, queued), QUEUE_READY);
	pthread_cond_signal(&o->work);
}

void sync_each(struct output *o, bool (*fn)(void *arg, struct node *n), void *arg)
{
	struct list *queues[] = {&o->ready, &o->waiting, &o->blocked, &o->doomed}, *it;

	lock_assert_held(&o->lock);
	list_for_each (it, &o->flying) {
		if (!fn(arg, container_of(it, struct task, flying)->node))
			return;
	}
	for (size_t i = 0; i < sizeof(queues) / sizeof(*queues); i++) {
		list_for_each (it, queues[i]) {
			struct node *n = container_of(it, struct node, queued);

			if (plan_is_dirty(n) && !fn(arg, n))
				return;
		}
	}
}

void sync_queue(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (n == o->root)
		return;
	ahead_review(o, n);
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
	if (o->in_flight < o->wake_below)
		pthread_cond_signal(&o->work);
}

void sync_kick(struct output *o)
{
	struct list *it;

	list_for_each (it, &o->waiting)
		container_of(it, struct node, queued)->not_before_ms = 0;
	o->unblocked = true;
	pthread_cond_signal(&o->work);
}

void sync_landed(struct output *o)
{
	lock_assert_held(&o->lock);
	if (o->in_flight < o->wake_below || !list_empty(&o->waiting) ||
	    o->doomed_count > 0)
		pthread_cond_signal(&o->work);
	pthread_cond_broadcast(&o->changed);
	if (o->pending_count < DRAIN_LOOK || o->moved % DRAIN_LOOK == 0)
		pthread_cond_broadcast(&o->drained);
}

void sync_cancel(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (n->resume)
		n->resume->detour = false;
	if (n->task && n->task->op != SYNC_DELETE && n->task->op != SYNC_COPY)
		uploader_cancel(o->uploader, &n->task->job);
}

unsigned int sync_untold(const struct node *n)
{
	bool grows = n->stored.key ? n->stored.appendable
				   : n->task && n->task->job.state.append;

	return OUTPUT_SET_SIZE | OUTPUT_SET_OPEN |
	       (grows && n->writers > 0 ? OUTPUT_SET_MTIME : 0);
}

uint64_t sync_task_uses(const struct node *n, const struct content *c)
{
	if (!n->task || n->task->content != c || n->task->op != SYNC_CONTENT)
		return 0;
	return n->task->job.state.size;
}

/* ---- the sync thread ------------------------------------------------------------------------ */

/* What the store has of the node is to vanish although nothing has replaced it: its own
 * bytes are here, durably. */
static int release_object(struct output *o, struct node *n)
{
	_cleanup_(freep) char *key = strdup(n->stored.key);
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r = key ? sync_make_garbage(o, &b, key) : err_origin(-ENOMEM);

	if (r < 0)
		return err_trace(r);
	receipt_forget(o, key);
	log_node(o, &b, n);
	return err_trace(log_commit(o, &b, &n->seq));
}

/* Plans one node of the ready queue: a task, or another queue. Lock held. */
static struct task *start_node(struct output *o, struct node *n)
{
	char key[PATH_KEY_MAX + 1];
	enum sync_op op = plan_node(o, n, key);
	struct task *t;

	if (op == SYNC_CONTENT && n->ahead) {
		ahead_take(o, n, key);
		op = plan_node(o, n, key);
	}
	if (op == SYNC_RELEASE)
		op = release_object(o, n) == 0 ? plan_node(o, n, key) : SYNC_LATER;
	if (op == SYNC_NONE && n->guest) {
		_cleanup_(buf_fini) struct buf b = BUF_INIT;

		node_update_displaced(o, n);
		log_node(o, &b, n);
		log_commit_own(o, &b, n);
	}
	if (op == SYNC_NONE) {
		n->pending_ns = 0;
		n->pending_seq = OUTPUT_CLEAN;
		sync_move(o, n, QUEUE_NONE);
		node_settle(o, n);
		return NULL;
	}
	if (op == SYNC_BLOCKED) {
		struct source *s = source_in_the_way(o, key);

		/* One that is where it should be has time. */
		if (!s->wanted && !n->guest) {
			pthread_cond_broadcast(&o->walk_cond);
			s->wanted = true;
		}
		sync_move(o, n, QUEUE_BLOCKED);
		return NULL;
	}
	if (op == SYNC_LATER) {
		if (plan_lacks_copy(n))
			pthread_cond_signal(&o->watch_cond);
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
	op = t->op; /* the task may find that something else has to be first */
	if ((op == SYNC_CONTENT || op == SYNC_SMALL || op == SYNC_COPY) &&
	    !detour_is_on(o, n))
		n->maybe_sent = true;
	if (op == SYNC_CONTENT || op == SYNC_SMALL || op == SYNC_META ||
	    op == SYNC_FINISH)
		n->stored.unsure |= n->stored.key && strcmp(n->stored.key, t->key) == 0;
	sync_move(o, n, QUEUE_FLYING);
	task_fly(t);
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

/* When the next request that deletes may leave: with as many keys as it takes, or when no
 * more are to be expected soon. */
static uint64_t deletes_due(struct output *o, uint64_t now)
{
	bool idle = list_empty(&o->ready) && o->in_flight == 0;

	if (o->doomed_count == 0)
		return UINT64_MAX;
	if (now < o->quiet_until_ms)
		return o->quiet_until_ms;
	if (o->doomed_count >= ORIGIN_KEY_COUNT_MAX)
		return o->deletes_flying < ORIGIN_KEY_COUNT_MAX ? now : UINT64_MAX;
	if (o->deletes_flying > 0)
		return UINT64_MAX;
	return o->drains > 0 && idle ? now : o->doomed_since_ms + GATHER_MS;
}

/* Tasks under one journal sync, linked by their jobs' `next`. */
struct batch {
	struct upload_job *jobs, **tail;
	uint64_t seq; /* what the journal has to hold before any of them leaves */
};

static void add_node(struct output *o, struct batch *b, struct list *queue)
{
	struct task *t = start_node(o, list_first(queue, struct node, queued));

	if (!t)
		return;
	if (b->seq < t->node->seq)
		b->seq = t->node->seq;
	t->job.next = NULL;
	*b->tail = &t->job;
	b->tail = &t->job.next;
}

static void plan_batch(struct output *o, uint32_t window, uint64_t now, struct batch *b)
{
	*b = (struct batch){.tail = &b->jobs, .seq = o->ahead};
	for (int i = 0; i < BATCH_MAX && o->in_flight < window && !list_empty(&o->ready);
	     i++)
		add_node(o, b, &o->ready);
	if (deletes_due(o, now) > now)
		return;
	for (int i = 0; i < ORIGIN_KEY_COUNT_MAX && !list_empty(&o->doomed); i++)
		add_node(o, b, &o->doomed);
	o->doomed_since_ms = now;
}

/* Without the lock. */
static void submit_batch(struct output *o, struct batch *b)
{
	int r = journal_sync(o->journal, b->seq);

	if (r == 0) {
		uploader_submit(o->uploader, b->jobs);
		return;
	}
	while (b->jobs) {
		struct upload_job *job = b->jobs;

		b->jobs = job->next;
		job->result = r;
		why_set(&job->why, r, "the journal cannot be written: %s", strerror(-r));
		task_done(job);
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
		uint64_t now = clock_mono_ms(), until;
		uint32_t window;
		struct batch batch;

		if (o->unblocked || now >= look)
			look = look_at_waiting(o, now);
		window = now < o->quiet_until_ms ? 0 : window_now(o);
		plan_batch(o, window, now, &batch);
		if (batch.jobs || now - tidied >= LAZY_SYNC_MS) {
			lock_drop(&o->lock);
			if (batch.jobs)
				submit_batch(o, &batch);
			if (now - tidied < LAZY_SYNC_MS) {
				lock_take(&o->lock);
				continue;
			}
			tidy(o);
			tidied = clock_mono_ms();
			lock_take(&o->lock);
			pthread_cond_broadcast(&o->changed);
			pthread_cond_broadcast(&o->drained);
			continue;
		}
		if (!list_empty(&o->ready) && o->in_flight < window)
			continue;
		until = look;
		if (deletes_due(o, now) < until)
			until = deletes_due(o, now);
		if (now < o->quiet_until_ms && o->quiet_until_ms < until)
			until = o->quiet_until_ms;
		else if (window < o->window && now + YIELD_MS < until)
			until = now + YIELD_MS;
		if (journal_appended(o->journal) > journal_durable(o->journal) ||
		    stage_has_doomed(o->stage))
			until = tidied + LAZY_SYNC_MS < until ? tidied + LAZY_SYNC_MS
							      : until;
		if (!list_empty(&o->waiting) && now + WAITING_LOOK_MS < until)
			until = now + WAITING_LOOK_MS;
		/* Not for each one that lands: the workers have a queue. */
		o->wake_below = window - window / 4;
		lock_wait(&o->lock, &o->work, until);
		if (!list_empty(&o->waiting) && clock_mono_ms() >= now + WAITING_LOOK_MS)
			o->unblocked = true;
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
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		return err_origin(r);
	r = watch_start(o);
	return r < 0 ? err_trace(r) : err_trace(walk_start(o));
}

void sync_stop(struct output *o)
{
	lock_take(&o->lock);
	o->stopping = true;
	pthread_cond_signal(&o->work);
	pthread_cond_broadcast(&o->changed);
	pthread_cond_broadcast(&o->drained);
	lock_drop(&o->lock);
	watch_stop(o);
	if (o->sync_started)
		pthread_join(o->sync_thread, NULL);
	walk_stop(o);
	o->uploader = uploader_free(o->uploader);
}
