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

#include "cache/ledger.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/output_content.h"
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
	if (r == 0 && old && n->counted)
		walk_count(o, node_claim(o, old), true);
	if (former && former != n) {
		log_node(o, b, former);
		sync_queue(o, former);
		node_release(o, former);
	}
	if (old)
		receipt_forget(o, old);
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
	/* An append brings attributes only where it makes the object. */
	bool meta_dirty = t->job.state.append && n->stored.key && n->meta_dirty;
	int r = moved_to_key(o, t, b);

	if (r < 0)
		return err_trace(r);
	n->stored.version = t->version;
	n->unappendable = n->uncopyable = false;
	remember(o, t);
	n->meta_dirty = meta_dirty || n->meta_change != t->meta_change ||
			ahead_lacks_attributes(o, n);
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
	atomic_fetch_add(&o->totals->files, 1);
	atomic_fetch_add(&o->totals->bytes, t->job.state.size);
	o->moved++;
	receipt_note(o, t->key, &n->stored);
	log_info("stored key=%s size=%llu", t->key,
		 (unsigned long long)t->job.state.size);
	return 0;
}

/* Who has it open reads this from now on, also where another process takes over. */
static void save(struct node *n, struct task *t)
{
	if (n->opens == 0 || n->live)
		return;
	n->saved = content_get(t->content);
	content_count(t->content, t->job.attr.size);
	kept_live(n, n->saved);
}

static int fetched(struct output *o, struct task *t, struct content **drop)
{
	struct node *n = t->node;

	if (!n->parent) {
		save(n, t);
		return 0;
	}
	if (n->acked) /* a newer version was made meanwhile */
		return 0;
	/* It may be sparse, and what it lacks is about to be overwritten. */
	content_drop_retained(o, n);
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
	if (t->op == SYNC_COPY)
		atomic_fetch_add(&o->totals->moved, 1);
	receipt_note(o, t->key, &n->stored);
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
		receipt_forget(o, t->key); /* of a file that was there */
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
		receipt_forget(o, t->key);
		if (n->resume && n->resume->append)
			resume_free(n);
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

/* The object cannot be appended to, or cannot be copied because it was appended to or is too
 * large for that: there is another way at once. */
static bool goes_otherwise(struct task *t)
{
	struct node *n = t->node;
	int r = t->job.result;

	if (origin_is_transient(r) || r == -EACCES || r == -EKEYEXPIRED)
		return false;
	if (t->job.state.append) {
		if (t->op == SYNC_FINISH)
			resume_free(n); /* it was not carried out */
		else
			n->unappendable = true;
	} else if ((n->stored.appendable || r == -EFBIG) && r != -ENOENT &&
		   r != -ESTALE && !n->uncopyable &&
		   (t->op == SYNC_COPY || t->op == SYNC_META || t->job.state.ranges)) {
		n->uncopyable = true;
	} else {
		return false;
	}
	log_info("%s does not work, goes another way key=%s error=%s",
		 sync_op_name(t->op), t->key,
		 t->job.why.text[0] ? t->job.why.text : strerror(-r));
	n->not_before_ms = 0;
	return true;
}

/* What a file without a name had in the store cannot be brought home: who has it open will be
 * told, and nobody waits for that. */
static bool forsake(struct task *t)
{
	struct node *n = t->node;
	int r = t->job.result;

	if (n->parent || (t->op != SYNC_FETCH && t->op != SYNC_FILL) ||
	    (origin_is_transient(r) && r != -EBADMSG))
		return false;
	n->forsaken = true;
	log_warn("a file that was replaced while it is open is lost to who reads it "
		 "key=%s "
		 "error=%s",
		 t->key, t->job.why.text[0] ? t->job.why.text : strerror(-r));
	return true;
}

static void failed(struct output *o, struct task *t, struct buf *b)
{
	struct node *n = t->node;
	int r = t->job.result;
	bool moving = t->op == SYNC_COPY || t->op == SYNC_META;

	if (r == -ECANCELED || goes_otherwise(t) || forsake(t))
		return;
	/* It was not completed, or it cannot be: let it be abandoned. */
	if (t->op == SYNC_FINISH && !origin_is_transient(r) && n->resume)
		n->resume->ending = false;
	if (moving && r == -ENOENT) {
		vanish(o, n, b);
		return;
	}
	atomic_fetch_add(&o->totals->failures, 1);
	o->last_failure = t->job.why;
	if (!o->last_failure.text[0])
		why_set(&o->last_failure, r, "%s", strerror(-r));
	node_set_why(n, o->last_failure.text);
	n->attempts++;
	n->refused = !origin_is_transient(r);
	n->not_before_ms =
		clock_mono_ms() +
		(origin_is_transient(r)
			 ? clock_backoff_ms(n->attempts, BACKOFF_BASE_MS, BACKOFF_MAX_MS)
			 : clock_backoff_ms(n->attempts, REFUSED_BASE_MS,
					    REFUSED_MAX_MS));
	log_warn("%s failed, will try again key=%s attempt=%u error=%s",
		 sync_op_name(t->op), t->key, n->attempts, o->last_failure.text);
}

/* Where the node goes after its task. Lock held. */
static void requeue(struct output *o, struct node *n, bool good)
{
	if (good) {
		n->attempts = 0;
		n->not_before_ms = 0;
		node_set_why(n, NULL);
	}
	if (plan_is_dirty(n)) {
		sync_move(o, n, n->not_before_ms ? QUEUE_WAITING : QUEUE_READY);
		return;
	}
	n->pending_ns = 0;
	n->pending_seq = OUTPUT_CLEAN;
	sync_move(o, n, QUEUE_NONE);
}

/* Whether what comes of it concerns requests of its node alone: a file of its own bytes at
 * the key that it has or nobody has. Nothing that others wait for has moved, and all that
 * is decided of it later has records behind this one. */
static bool is_own(struct output *o, const struct task *t)
{
	const struct node *n = t->node, *former = node_claim(o, t->key);

	return t->op == SYNC_CONTENT && t->job.result == 0 && t->job.data && !n->resume &&
	       !t->job.state.append && (!former || former == n) &&
	       (!n->stored.key || strcmp(n->stored.key, t->key) == 0);
}

/* Aborted when it was cancelled, or the store knows it no more: the next attempt begins
 * another one, unless it may be complete. */
static void forget_lost_upload(struct task *t, struct buf *b)
{
	struct record end = {.type = RECORD_END, .ino = t->node->ino};
	struct resume *u = t->node->resume;

	if (t->op != SYNC_CONTENT || t->job.result == 0 || !u || u->append ||
	    !u->upload_id[0] || t->job.state.upload_id[0])
		return;
	if (u->ending && plan_needs_object(t->node))
		return;
	resume_free(t->node);
	record_encode(b, &end);
}

void task_done(struct upload_job *job)
{
	struct task *t = container_of(job, struct task, job);
	struct output *o = t->output;
	struct node *n = t->node;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *drop = NULL;
	uint64_t seq = 0;
	bool good = job->result == 0, own;

	/* What was fetched becomes an acknowledged version: durable first. */
	if (good && t->op == SYNC_FETCH)
		job->result = content_sync(t->content);
	lock_take(&o->lock);
	task_land(t);
	n->task = NULL;
	own = is_own(o, t);
	forget_lost_upload(t, &b);
	if (job->result == 0)
		job->result = apply(o, t, &b, &drop);
	good = job->result == 0;
	if (!good)
		failed(o, t, &b);
	log_node(o, &b, n);
	if (own)
		seq = log_commit_own(o, &b, n) == 0 ? n->seq : 0;
	else if (log_commit(o, &b, &seq) == 0)
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
	node_note_over(o);
	sync_landed(o);
	lock_drop(&o->lock);
	ledger_write(o->ledger);
}
