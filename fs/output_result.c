/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the result of a request back into node and journal.
 *
 * A result and all that follows from it (the new object, whoever lost the key, the key
 * that is garbage now) is one transaction of the journal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_task.h"

#define BACKOFF_BASE_MS 100
#define BACKOFF_MAX_MS 10000
#define REFUSED_BASE_MS 1000
#define REFUSED_MAX_MS 60000

int sync_make_garbage(struct output *o, struct buf *b, const char *key)
{
	struct node *g = node_new(o, RECORD_GARBAGE, 0);
	struct origin_attr attr = {0};
	int r;

	if (!g)
		return err_origin(-ENOMEM);
	r = node_set_stored(o, g, key, &attr);
	if (r < 0) {
		node_free(o, g);
		return err_trace(r);
	}
	log_node(o, b, g);
	sync_queue(o, g);
	return 0;
}

static void note_delivered(struct output *o, const char *key, const struct stored *s)
{
	struct delivered *d;

	HASH_FIND_STR(o->receipt, key, d);
	if (!d) {
		size_t n = strlen(key) + 1;

		if (o->receipt_count >= OUTPUT_RECEIPT_MAX)
			return;
		d = calloc(1, sizeof(*d) + n);
		if (!d)
			return;
		memcpy(d->key, key, n);
		HASH_ADD_KEYPTR(hh, o->receipt, d->key, n - 1, d);
		o->receipt_count++;
	}
	d->size = s->size;
	d->crc64 = s->crc64;
	memcpy(d->etag, s->etag, sizeof(d->etag));
}

static void forget_delivered(struct output *o, const char *key)
{
	struct delivered *d;

	HASH_FIND_STR(o->receipt, key, d);
	if (!d)
		return;
	HASH_DELETE(hh, o->receipt, d);
	o->receipt_count--;
	free(d);
}

/* The node's object is at the task's key now. Whoever had that key loses it; the node's
 * former key becomes garbage. */
static int moved_to_key(struct output *o, struct task *t, struct buf *b)
{
	struct node *n = t->node, *former = node_claim(o, t->key);
	_cleanup_(freep) char *old = NULL;
	char etag[ORIGIN_ETAG_MAX];
	int r;

	memcpy(etag, n->stored.etag, sizeof(etag));
	if (n->stored.key && strcmp(n->stored.key, t->key) != 0) {
		old = strdup(n->stored.key);
		if (!old)
			return err_origin(-ENOMEM);
	}
	if (former && former != n)
		node_hold(former);
	r = node_set_stored(o, n, t->key, &t->job.attr);
	if (r == 0 && etag[0])
		content_rebase(n, etag);
	n->maybe_sent = false;
	if (r == 0 && old)
		r = sync_make_garbage(o, b, old);
	if (former && former != n) {
		log_node(o, b, former);
		sync_queue(o, former);
		node_release(o, former);
	}
	if (old)
		forget_delivered(o, old);
	return err_trace(r);
}

/* What of the node's files is in the store now: the next version need not send it. */
static void remember(struct output *o, struct task *t)
{
	struct node *n = t->node;
	struct content *c = t->content;

	/* Finished from what was recorded. */
	if (!c && n->version == t->version)
		c = n->acked;
	if (c)
		content_remember(o, n, c);
	if (!c || !n->live || n->live == c || !n->passthrough)
		return;
	/* The version was a copy; what the writers have done to the file since is unseen. */
	content_remember(o, n, n->live);
	if (content_patch(n->live) && !content_is_sparse(n->live))
		patch_doubt(content_patch(n->live));
}

static int content_stored(struct output *o, struct task *t, struct buf *b,
			  struct content **drop)
{
	struct node *n = t->node;
	int r = moved_to_key(o, t, b);

	if (r < 0)
		return err_trace(r);
	n->stored.version = t->version;
	remember(o, t);
	n->meta_dirty = n->meta_change != t->meta_change;
	if (n->resume)
		resume_free(n);
	/* A drain that began before the newer version was made has what it waits for. */
	if (n->version != t->version && n->acked && !n->meta_dirty && !n->displaced)
		n->pending_seq = n->acked_seq;
	if (n->version == t->version) {
		*drop = n->acked;
		n->unsettled = n->acked &&
			       !content_carried(n->acked); /* until this is durable */
		n->acked = NULL;
		n->publish = false;
		/* Small enough that keeping it never means dropping it at once: its file may
		 * not go before this transaction is durable. */
		if (n->parent && n->opens == 0 && !n->live &&
		    n->acked_size <= OUTPUT_RETAIN_BYTES / 4) {
			n->live = *drop;
			*drop = NULL;
			content_retain(o, n);
		}
	}
	o->files_stored++;
	o->bytes_stored += t->job.state.size;
	o->moved++;
	note_delivered(o, t->key, &n->stored);
	log_info("stored key=%s size=%llu", t->key,
		 (unsigned long long)t->job.state.size);
	return 0;
}

static int fetched(struct output *o, struct task *t, struct content **drop)
{
	struct node *n = t->node;

	(void)o;
	if (n->acked) /* a newer version was made meanwhile */
		return 0;
	*drop = NULL;
	n->acked = content_get(t->content);
	n->acked_size = t->job.attr.size;
	n->version++;
	content_count(t->content, t->job.attr.size);
	return 0;
}

static int copied(struct output *o, struct task *t, struct buf *b)
{
	struct node *n = t->node;
	struct stored before = n->stored;
	int r;

	t->job.attr.size = before.size;
	t->job.attr.crc64 = before.crc64;
	t->job.attr.has_crc64 = before.has_crc64;
	t->job.attr.mtime_ns = before.mtime_ns;
	r = moved_to_key(o, t, b);
	if (r < 0)
		return err_trace(r);
	n->meta_dirty = n->meta_change != t->meta_change;
	note_delivered(o, t->key, &n->stored);
	return 0;
}

/* What the store did, into the node and the journal. Lock held. */
static int apply(struct output *o, struct task *t, struct buf *b, struct content **drop)
{
	struct node *n = t->node;
	struct record end = {.type = RECORD_END, .ino = n->ino};
	bool had_resume = n->resume;
	int r = 0;

	switch (t->op) {
	case SYNC_CONTENT:
		r = content_stored(o, t, b, drop);
		break;
	case SYNC_FINISH:
		r = content_stored(o, t, b, drop);
		break;
	case SYNC_FILL:
		break;
	case SYNC_SMALL:
		r = moved_to_key(o, t, b);
		n->meta_dirty = n->meta_change != t->meta_change;
		break;
	case SYNC_COPY:
	case SYNC_META:
		r = copied(o, t, b);
		break;
	case SYNC_FETCH:
		r = fetched(o, t, drop);
		break;
	case SYNC_DELETE:
		forget_delivered(o, t->key);
		if (!n->stored.key || strcmp(n->stored.key, t->key) != 0)
			break;
		/* While a listing runs the key stays claimed (output_store.c). */
		n->gone = o->listings > 0;
		if (!n->gone)
			node_set_stored(o, n, NULL, NULL);
		break;
	default:
		resume_free(n);
		break;
	}
	if (had_resume && !n->resume)
		record_encode(b, &end);
	return err_trace(r);
}

/* The object a rename was to move is not there: someone else removed it. */
static void vanish(struct output *o, struct node *n, struct buf *b)
{
	struct node *dir = n->parent;

	log_warn("an object to be moved has vanished from the store key=%s",
		 n->stored.key);
	node_set_stored(o, n, NULL, NULL);
	n->meta_dirty = false;
	if (dir && n->opens == 0 && !n->acked) {
		node_unlink(o, n);
		log_node(o, b, dir);
	}
}

static void failed(struct output *o, struct task *t, struct buf *b)
{
	struct node *n = t->node;
	int r = t->job.result;
	bool moving = t->op == SYNC_COPY || t->op == SYNC_META;

	if (r == -ECANCELED)
		return;
	/* It was not completed, or it cannot be: let it be abandoned. */
	if (t->op == SYNC_FINISH && !origin_is_transient(r) && n->resume)
		n->resume->ending = false;
	if (moving && r == -ENOENT) {
		vanish(o, n, b);
		return;
	}
	o->failures++;
	n->why = t->job.why;
	if (!n->why.text[0])
		why_set(&n->why, r, "%s", strerror(-r));
	o->last_failure = n->why;
	n->attempts++;
	n->refused = !origin_is_transient(r);
	n->not_before_ms =
		clock_mono_ms() +
		(origin_is_transient(r)
			 ? clock_backoff_ms(n->attempts, BACKOFF_BASE_MS, BACKOFF_MAX_MS)
			 : clock_backoff_ms(n->attempts, REFUSED_BASE_MS,
					    REFUSED_MAX_MS));
	log_warn("%s failed, will try again key=%s attempt=%u error=%s",
		 sync_op_name(t->op), t->key, n->attempts, n->why.text);
}

/* Where the node goes after its task. Lock held. */
static void requeue(struct output *o, struct node *n, bool good)
{
	if (good) {
		n->attempts = 0;
		n->not_before_ms = 0;
		n->why.text[0] = '\0';
	}
	if (plan_is_dirty(n)) {
		sync_move(o, n, n->not_before_ms ? QUEUE_WAITING : QUEUE_READY);
		return;
	}
	n->pending_ns = 0;
	n->pending_seq = OUTPUT_CLEAN;
	sync_move(o, n, QUEUE_NONE);
}

void task_done(struct upload_job *job)
{
	struct task *t = container_of(job, struct task, job);
	struct output *o = t->output;
	struct node *n = t->node;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *drop = NULL;
	uint64_t seq = 0;
	bool good = job->result == 0;

	/* What was fetched becomes an acknowledged version: durable first. */
	if (good && t->op == SYNC_FETCH)
		job->result = content_sync(t->content);
	lock_take(&o->lock);
	list_remove(&t->flying);
	n->task = NULL;
	o->in_flight--;
	if (job->result == 0)
		job->result = apply(o, t, &b, &drop);
	good = job->result == 0;
	if (!good)
		failed(o, t, &b);
	log_node(o, &b, n);
	if (log_commit(o, &b, &seq) == 0)
		n->seq = seq;
	if (drop)
		content_put(drop, seq);
	content_update_frozen(n);
	requeue(o, n, good);
	if (n->gone && list_empty(&n->queued))
		list_push_back(&o->lingering, &n->queued);
	task_free(t, seq);
	o->unblocked = true;
	node_settle(o, n);
	pthread_cond_broadcast(&o->changed);
	lock_drop(&o->lock);
}
