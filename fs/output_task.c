/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a decision to a request, and from its result back into node and journal.
 *
 * A result and all that follows from it (the new object, whoever lost the key, the key
 * that is garbage now) is one transaction of the journal.
 */
#include "fs/output_task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"

#define PART_SIZE (8u << 20)
#define BACKOFF_BASE_MS 100
#define BACKOFF_MAX_MS 10000
#define REFUSED_BASE_MS 1000
#define REFUSED_MAX_MS 60000

static void task_free(struct task *t, uint64_t seq)
{
	if (t->content) {
		content_unpin(t->content);
		content_put(t->content, seq);
	}
	upload_state_fini(&t->job.state);
	free(t->data);
	free(t);
}

static uint64_t part_size_of(const struct output *o)
{
	uint64_t size = o->config.part_size ? o->config.part_size : PART_SIZE;

	if (!(o->config.origin->caps & ORIGIN_CAP_MULTI))
		return 0;
	return size < o->config.origin->part_size_min ? o->config.origin->part_size_min
						      : size;
}

/* The acknowledged version; an unfinished upload of it is taken up where it stands. */
static int fill_content(struct output *o, struct task *t)
{
	struct node *n = t->node;
	const struct resume *u = n->resume;
	int r = content_pin(n->acked);

	if (r < 0)
		return err_trace(r);
	t->content = content_get(n->acked);
	t->version = n->version;
	t->job.kind = UPLOAD_CONTENT;
	if (content_carried(n->acked))
		t->job.data = content_carried(n->acked);
	else
		t->job.content = t->content;
	r = upload_state_init(&t->job.state, n->acked_size,
			      u ? u->part_size : part_size_of(o));
	if (r < 0)
		return err_trace(r);
	/* Opened for writing and closed without a change: the store has it. */
	if (n->stored.key && !n->displaced && !n->meta_dirty &&
	    strcmp(n->stored.key, t->key) == 0) {
		t->job.is_known = true;
		t->job.known = (struct origin_attr){.size = n->stored.size,
						    .crc64 = n->stored.crc64,
						    .has_crc64 = n->stored.has_crc64,
						    .mtime_ns = n->stored.mtime_ns};
		memcpy(t->job.known.etag, n->stored.etag, sizeof(n->stored.etag));
	}
	if (!u || t->job.state.part_size != u->part_size || t->job.state.part_count == 0)
		return 0;
	upload_state_resume(&t->job.state, u->upload_id);
	for (size_t i = 0; i < u->part_count; i++)
		upload_state_resume_part(&t->job.state, &u->parts[i]);
	return 0;
}

static int fill_small(struct task *t)
{
	struct node *n = t->node;

	t->job.kind = UPLOAD_CONTENT;
	t->data = n->kind == RECORD_SYMLINK ? strdup(n->target ? n->target : "") : NULL;
	t->job.data = t->data;
	if (n->kind == RECORD_SYMLINK && !t->data)
		return err_origin(-ENOMEM);
	if (n->kind == RECORD_DIR)
		t->posix.meta.content_type = "application/x-directory";
	return err_trace(
		upload_state_init(&t->job.state, t->data ? strlen(t->data) : 0, 0));
}

static int fill(struct output *o, struct task *t)
{
	struct node *n = t->node;

	t->meta_change = n->meta_change;
	origin_posix_format(&t->posix, n->mode, n->uid, n->gid, n->mtime_ns);
	t->job.meta = &t->posix.meta;
	t->job.key = t->key;
	switch (t->op) {
	case SYNC_CONTENT:
		return err_trace(fill_content(o, t));
	case SYNC_SMALL:
		return err_trace(fill_small(t));
	case SYNC_COPY:
	case SYNC_META:
		t->job.kind = UPLOAD_COPY;
		memcpy(t->source, n->stored.key, strlen(n->stored.key) + 1);
		t->job.source = t->source;
		memcpy(t->etag, n->stored.etag, sizeof(t->etag));
		/* After a first refusal the object was replaced by others: a rename moves
		 * whatever is there. */
		t->job.if_match = t->etag[0] && n->attempts == 0 ? t->etag : NULL;
		return 0;
	case SYNC_FETCH:
		t->job.kind = UPLOAD_FETCH;
		memcpy(t->key, n->stored.key, strlen(n->stored.key) + 1);
		memcpy(t->etag, n->stored.etag, sizeof(t->etag));
		t->job.if_match = t->etag[0] && n->attempts == 0 ? t->etag : NULL;
		return err_trace(stage_create(o->stage, &t->content));
	case SYNC_DELETE:
		t->job.kind = UPLOAD_DELETE;
		memcpy(t->key, n->stored.key, strlen(n->stored.key) + 1);
		return 0;
	default:
		t->job.kind = UPLOAD_ABANDON;
		memcpy(t->key, n->resume->key, strlen(n->resume->key) + 1);
		upload_state_resume(&t->job.state, n->resume->upload_id);
		t->job.since_ns = n->resume->begun_ns;
		return 0;
	}
}

static int task_note(struct upload_job *job, enum upload_note note,
		     const struct origin_part *part);
struct task *task_new(struct output *o, struct node *n, enum sync_op op, const char *key)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->output = o;
	t->node = n;
	t->op = op;
	t->job.note = task_note;
	t->job.done = task_done;
	list_init(&t->flying);
	memcpy(t->key, key, strlen(key) + 1);
	if (fill(o, t) < 0) {
		task_free(t, 0);
		return NULL;
	}
	if (op == SYNC_FETCH)
		t->job.content = t->content;
	return t;
}

/* ---- what came of it ------------------------------------------------------------------------ */

static struct resume *resume_new(const struct task *t)
{
	struct resume *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->key = strdup(t->key);
	if (!u->key) {
		free(u);
		return NULL;
	}
	u->version = t->version;
	u->size = t->job.state.size;
	u->part_size = t->job.state.part_size;
	u->begun_ns = clock_real_ns();
	return u;
}

static int add_part(struct resume *u, const struct origin_part *part)
{
	struct origin_part *grown =
		realloc(u->parts, (u->part_count + 1) * sizeof(*grown));

	if (!grown)
		return err_origin(-ENOMEM);
	u->parts = grown;
	grown[u->part_count++] = *part;
	return 0;
}

/* The life of a multipart upload, as it happens; on a worker. */
static int task_note(struct upload_job *job, enum upload_note note,
		     const struct origin_part *part)
{
	struct task *t = container_of(job, struct task, job);
	struct output *o = t->output;
	struct node *n = t->node;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct record r = {.ino = n->ino};
	uint64_t seq;
	int e = 0;

	lock_take(&o->lock);
	if (note == UPLOAD_NOTE_BEGIN) {
		resume_free(n);
		n->resume = resume_new(t);
	}
	if (!n->resume) {
		lock_drop(&o->lock);
		return err_origin(-ENOMEM);
	}
	if (note == UPLOAD_NOTE_ID)
		memcpy(n->resume->upload_id, job->state.upload_id, ORIGIN_UPLOAD_ID_MAX);
	if (note == UPLOAD_NOTE_PART) {
		e = add_part(n->resume, part);
		o->moved++;
		r = (struct record){.type = RECORD_PART,
				    .ino = n->ino,
				    .part = part->number,
				    .size = part->size,
				    .crc64 = part->crc64,
				    .etag = part->etag};
	} else {
		r = (struct record){.type = RECORD_BEGIN,
				    .ino = n->ino,
				    .version = t->version,
				    .key = t->key,
				    .part_size = job->state.part_size,
				    .size = job->state.size,
				    .pending_ns = n->resume->begun_ns,
				    .upload_id = n->resume->upload_id};
	}
	if (e == 0) {
		record_encode(&b, &r);
		e = log_commit(o, &b, &seq);
	}
	lock_drop(&o->lock);
	/* An id that is not durable would leave an orphan; a part that is not is sent
	 * again. */
	if (e == 0 && note != UPLOAD_NOTE_PART)
		e = journal_sync(o->journal, seq);
	return err_trace(e);
}

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
	int r;

	if (n->stored.key && strcmp(n->stored.key, t->key) != 0) {
		old = strdup(n->stored.key);
		if (!old)
			return err_origin(-ENOMEM);
	}
	if (former && former != n)
		node_hold(former);
	r = node_set_stored(o, n, t->key, &t->job.attr);
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

static int content_stored(struct output *o, struct task *t, struct buf *b,
			  struct content **drop)
{
	struct node *n = t->node;
	int r = moved_to_key(o, t, b);

	if (r < 0)
		return err_trace(r);
	n->stored.version = t->version;
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
