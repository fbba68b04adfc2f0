/* SPDX-License-Identifier: Apache-2.0 */
/* From a decision to a request; what is written down while it runs. */
#include "fs/output_task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

#define PART_SIZE (8u << 20)

void task_free(struct task *t, uint64_t seq)
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

/* Opened for writing and closed without a change: the store has it. */
static void note_known(struct task *t)
{
	const struct node *n = t->node;

	if (!n->stored.key || n->displaced || n->meta_dirty ||
	    strcmp(n->stored.key, t->key) != 0)
		return;
	t->job.is_known = true;
	t->job.known = (struct origin_attr){.size = n->stored.size,
					    .crc64 = n->stored.crc64,
					    .has_crc64 = n->stored.has_crc64,
					    .mtime_ns = n->stored.mtime_ns};
	memcpy(t->job.known.etag, n->stored.etag, sizeof(n->stored.etag));
}

/* What the version has in common with the node's object is copied, not sent. */
static int plan_parts(struct output *o, struct task *t)
{
	const unsigned int needed = ORIGIN_CAP_MULTI | ORIGIN_CAP_MULTI_COPY;
	struct node *n = t->node;
	struct patch *p = content_patch(t->content);
	struct upload_rules rules = {.part_size = part_size_of(o),
				     .part_min = o->config.origin->part_size_min,
				     .copy_size = OUTPUT_COPY_SIZE};
	struct upload_range *ranges;
	struct patch_object object;
	uint32_t count;
	int r;

	if (!p || !n->stored.key || (o->config.origin->caps & needed) != needed)
		return 0;
	patch_object(p, &object);
	/* Replaced by others: with all bytes here our version wins. */
	if (!patch_is_sparse(p) && strcmp(object.etag, n->stored.etag) != 0)
		return 0;
	memcpy(t->source, n->stored.key, strlen(n->stored.key) + 1);
	t->job.source = t->source;
	r = upload_plan(p, n->acked_size, &rules, &ranges, &count);
	if (r < 0 || count == 0)
		return err_trace(r);
	return err_trace(upload_state_plan(&t->job.state, ranges, count, &object,
					   patch_is_doubtful(p)));
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
	if (r == 0)
		r = plan_parts(o, t);
	if (r < 0)
		return err_trace(r);
	note_known(t);
	if (!u || t->job.state.part_count == 0)
		return 0;
	upload_state_resume(&t->job.state, u->upload_id);
	for (size_t i = 0; i < u->part_count; i++)
		upload_state_resume_part(&t->job.state, &u->parts[i]);
	return 0;
}

/* Nothing but the end of an upload whose version was superseded. */
static int fill_finish(struct task *t)
{
	struct resume *u = t->node->resume;
	int r;

	t->job.kind = UPLOAD_CONTENT;
	t->version = u->version;
	memcpy(t->key, u->key, strlen(u->key) + 1);
	r = upload_state_init_end(&t->job.state, u->size, u->upload_id, u->parts,
				  u->part_count);
	/* Parts are missing: it cannot have been completed. */
	if (r == -EINVAL)
		u->ending = false;
	return err_trace(r);
}

/* The first of the node's contents that lacks bytes of its object. */
static int fill_sparse(struct task *t)
{
	struct node *n = t->node;
	struct content *c = n->acked && content_is_sparse(n->acked) ? n->acked : n->live;
	int r = content_pin(c);

	if (r < 0)
		return err_trace(r);
	t->content = content_get(c);
	t->job.kind = UPLOAD_FILL;
	t->job.content = c;
	memcpy(t->key, n->stored.key, strlen(n->stored.key) + 1);
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
	case SYNC_FINISH:
		return err_trace(fill_finish(t));
	case SYNC_FILL:
		return err_trace(fill_sparse(t));
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

static int add_part(struct resume *u, const struct upload_sent *sent)
{
	struct upload_sent *grown;

	for (size_t i = 0; i < u->part_count; i++) {
		if (u->parts[i].part.number == sent->part.number) {
			u->parts[i] = *sent;
			return 0;
		}
	}
	grown = realloc(u->parts, (u->part_count + 1) * sizeof(*grown));
	if (!grown)
		return err_origin(-ENOMEM);
	u->parts = grown;
	grown[u->part_count++] = *sent;
	return 0;
}

static int note_part(struct task *t, const struct origin_part *part, struct buf *b)
{
	struct upload_sent sent = {.part = *part, .proven = !t->job.state.ahead};
	struct record r = {.type = RECORD_PART,
			   .ino = t->node->ino,
			   .part = part->number,
			   .size = part->size,
			   .crc64 = part->crc64,
			   .etag = part->etag};
	uint64_t size;

	upload_part_range(&t->job.state, part->number, &sent.off, &size);
	r.off = sent.off;
	record_encode(b, &r);
	return err_trace(add_part(t->node->resume, &sent));
}

static void note_begin(struct task *t, struct buf *b)
{
	struct record r = {.type = RECORD_BEGIN,
			   .ino = t->node->ino,
			   .version = t->version,
			   .key = t->key,
			   .part_size = t->job.state.part_size,
			   .size = t->job.state.size,
			   .pending_ns = t->node->resume->begun_ns,
			   .upload_id = t->node->resume->upload_id};

	record_encode(b, &r);
}

/* The life of a multipart upload, as it happens; on a worker. */
static int task_note(struct upload_job *job, enum upload_note note,
		     const struct origin_part *part)
{
	struct task *t = container_of(job, struct task, job);
	struct record ending = {.type = RECORD_ENDING, .ino = t->node->ino};
	struct output *o = t->output;
	struct node *n = t->node;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
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
	if (note == UPLOAD_NOTE_END) {
		n->resume->ending = true;
		record_encode(&b, &ending);
	} else if (note == UPLOAD_NOTE_PART) {
		e = note_part(t, part, &b);
		o->moved++;
	} else {
		note_begin(t, &b);
	}
	if (e == 0)
		e = log_commit(o, &b, &seq);
	lock_drop(&o->lock);
	/* An id that is not durable would leave an orphan; a part that is not is sent
	 * again, unless its source may go with the END. */
	if (e == 0 && note != UPLOAD_NOTE_PART)
		e = journal_sync(o->journal, seq);
	return err_trace(e);
}

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
