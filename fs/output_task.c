/* SPDX-License-Identifier: Apache-2.0 */
/* From a decision to a request; what is written down while it runs. */
#include "fs/output_task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"

#define PART_SIZE (8u << 20)
#define APPEND_OBJECT_MAX                                                                \
	(5ull << 30) /* of one that is appended to (protocol.md §3.11) */
#define APPEND_PROVE_MAX                                                                 \
	(64u << 10) /* changed at the end of the object, perhaps only anew */
#define APPEND_TAIL_MAX                                                                  \
	(256ull << 20) /* in one request; more is sent in parallel parts */

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

uint64_t task_part_size(const struct output *o)
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
	struct upload_rules rules = {.part_size = task_part_size(o),
				     .part_min = o->config.origin->part_size_min,
				     .copy_size = OUTPUT_COPY_SIZE};
	struct upload_range *ranges;
	struct patch_object object;
	uint32_t count;
	int r;

	if (!p || !n->stored.key || n->uncopyable ||
	    (o->config.origin->caps & needed) != needed)
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

/* A file that stays open and of which the store has nothing yet, or one whose object was made
 * by appending and that grew since. */
static bool may_append(const struct output *o, const struct task *t)
{
	const struct node *n = t->node;
	const struct stored *s = &n->stored;

	if (!o->config.append_objects || n->unappendable ||
	    !(o->config.origin->caps & ORIGIN_CAP_APPEND) ||
	    (n->resume && !n->resume->append) || n->acked_size > APPEND_OBJECT_MAX)
		return false;
	if (!s->key)
		return n->lingers && n->writers > 0 && n->acked_size > 0 &&
		       t->job.state.part_count == 0 && !node_claim(t->output, t->key);
	return s->appendable && s->has_crc64 && strcmp(s->key, t->key) == 0 &&
	       n->acked_size > s->size && n->acked_size - s->size <= APPEND_TAIL_MAX;
}

/* Whether the object may be the beginning of the content: for certain up to *same. */
static bool starts_with_object(const struct output *o, const struct task *t,
			       uint64_t *same)
{
	const struct stored *s = &t->node->stored;
	struct patch *p = content_patch(t->content);
	struct patch_object object;

	*same = 0;
	if (!p || patch_is_doubtful(p))
		return true;
	patch_object(p, &object);
	if (strcmp(object.etag, s->etag) != 0)
		return !patch_is_sparse(p);
	if (!patch_same(p, 0, same))
		*same = 0;
	if (*same > s->size)
		*same = s->size;
	if (s->size - *same > APPEND_PROVE_MAX)
		return false;
	/* After a lost answer only a checksum tells whose bytes are behind those that are
	 * nowhere but in the object. */
	return !patch_is_sparse(p) || (o->config.origin->caps & ORIGIN_CAP_CRC64);
}

static bool plan_append(const struct output *o, struct task *t)
{
	const struct stored *s = &t->node->stored;
	struct patch_object object = {.has_crc64 = true};
	uint64_t same = 0;

	if (!may_append(o, t) || (s->key && !starts_with_object(o, t, &same)))
		return false;
	if (s->key) {
		memcpy(object.etag, s->etag, sizeof(object.etag));
		object.size = s->size;
		object.crc64 = s->crc64;
	} else {
		origin_posix_drop_time(
			&t->posix); /* its time is that of the last append */
	}
	upload_state_append(&t->job.state, &object, same);
	return true;
}

/* The acknowledged version; an unfinished upload of it is taken up where it stands. */
static int fill_content(struct output *o, struct task *t)
{
	struct node *n = t->node;
	const struct resume *u = n->resume && !n->resume->append ? n->resume : NULL;
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
			      u ? u->part_size : task_part_size(o));
	if (r == 0 && !plan_append(o, t))
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
	if (u->append) {
		upload_state_init_check(&t->job.state, u->size, u->crc64);
		return 0;
	}
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

/* What was not sent yet of a file that is still being written; its time is not known. */
static int fill_ahead(struct output *o, struct task *t)
{
	struct ahead *a = t->node->ahead;
	const struct resume *u = t->node->resume;
	int r = content_pin(a->content);

	if (r < 0)
		return err_trace(r);
	t->content = content_get(a->content);
	t->job.kind = UPLOAD_CONTENT;
	t->job.content = t->content;
	t->job.rank = a->rank;
	t->job.done = ahead_done;
	origin_posix_drop_time(&t->posix);
	r = upload_state_init(&t->job.state, a->size, task_part_size(o));
	if (r < 0)
		return err_trace(r);
	t->job.state.ahead = true;
	if (!u)
		return 0;
	upload_state_resume(&t->job.state, u->upload_id);
	for (size_t i = 0; i < u->part_count; i++) {
		struct upload_sent sent = u->parts[i];

		sent.proven = true; /* when a version has it, not before */
		upload_state_resume_part(&t->job.state, &sent);
	}
	return 0;
}

/* A single request that replaces the very object that its bytes come from: if its answer is
 * lost, it cannot be sent again. (Of several, the last one alone has to be: SYNC_FINISH.) */
static bool burns_bridges(const struct task *t)
{
	return t->node->stored.key && content_is_sparse(t->content) &&
	       t->job.state.part_count == 0 && !t->job.state.append;
}

/* Before that, the bytes come home. */
static int fill_instead(struct task *t)
{
	content_unpin(t->content);
	content_put(t->content, 0);
	t->content = NULL;
	upload_state_fini(&t->job.state);
	t->job.state = (struct upload_state){0};
	t->job.is_known = false;
	t->job.source = NULL;
	t->source[0] = '\0';
	t->op = SYNC_FILL;
	return err_trace(fill_sparse(t));
}

/* A file without a name may take half of what is free: the rest is for who writes. */
static int has_room(struct output *o, struct node *n)
{
	n->forsaken = !n->parent && !stage_has_room(o->stage, 2 * n->stored.size);
	if (n->forsaken)
		log_warn("no room for a file that was replaced while it is open key=%s",
			 n->stored.key);
	return n->forsaken ? err_origin(-ENOSPC) : 0;
}

static int fill(struct output *o, struct task *t)
{
	struct node *n = t->node;
	const struct node *file = t->op == SYNC_AHEAD ? n->ahead->file : n;
	int r;

	t->meta_change = n->meta_change;
	t->mode = file->mode;
	t->uid = file->uid;
	t->gid = file->gid;
	origin_posix_format(&t->posix, t->mode, t->uid, t->gid, file->mtime_ns);
	t->job.meta = &t->posix.meta;
	t->job.key = t->key;
	switch (t->op) {
	case SYNC_AHEAD:
		return err_trace(fill_ahead(o, t));
	case SYNC_CONTENT:
		r = fill_content(o, t);
		if (r == 0 && burns_bridges(t))
			r = fill_instead(t);
		return err_trace(r);
	case SYNC_FINISH:
		return err_trace(fill_finish(t));
	case SYNC_FILL:
		r = has_room(o, n);
		return r < 0 ? err_trace(r) : err_trace(fill_sparse(t));
	case SYNC_SMALL:
		return err_trace(fill_small(t));
	case SYNC_COPY:
	case SYNC_META:
		t->job.kind = UPLOAD_COPY;
		memcpy(t->source, n->stored.key, strlen(n->stored.key) + 1);
		t->job.source = t->source;
		memcpy(t->etag, n->stored.etag, sizeof(t->etag));
		/* Attributes that we have not read stay as they are. */
		if (n->unverified && !n->meta_dirty)
			t->job.meta = NULL;
		/* After a first refusal the object was replaced by others: a rename moves
		 * whatever is there. */
		t->job.if_match = t->etag[0] && n->attempts == 0 ? t->etag : NULL;
		return 0;
	case SYNC_FETCH:
		t->job.kind = UPLOAD_FETCH;
		memcpy(t->key, n->stored.key, strlen(n->stored.key) + 1);
		memcpy(t->etag, n->stored.etag, sizeof(t->etag));
		t->job.if_match =
			t->etag[0] && (n->attempts == 0 || !n->parent) ? t->etag : NULL;
		r = has_room(o, n);
		return r < 0 ? err_trace(r)
			     : err_trace(stage_create(o->stage, &t->content));
	case SYNC_DELETE:
		t->job.kind = UPLOAD_DELETE;
		/* Whatever it was refused for shall not keep others. */
		t->job.alone = n->refused;
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
	u->part_size = t->job.state.schedule.first_size;
	u->begun_ns = clock_real_ns();
	u->early = t->job.state.ahead;
	u->mode = t->mode;
	u->uid = t->uid;
	u->gid = t->gid;
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

/* Of parts sent ahead nothing is recorded: after a crash they are aborted. */
static int note_part_ahead(struct task *t, const struct origin_part *part)
{
	struct upload_sent sent = {.part = *part};
	uint64_t size;

	upload_part_range(&t->job.state, part->number, &sent.off, &size);
	t->output->bytes_ahead += size;
	return err_trace(add_part(t->node->resume, &sent));
}

static int note_part(struct task *t, const struct origin_part *part, struct buf *b)
{
	struct upload_sent sent = {.part = *part, .proven = true};
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

/* An append to the object that bytes are needed of. */
static int note_append(struct task *t, const struct origin_part *grown, struct buf *b)
{
	struct resume *u = resume_new(t);

	if (!u)
		return err_origin(-ENOMEM);
	u->append = u->ending = true;
	u->size = grown->size;
	u->crc64 = grown->crc64;
	resume_free(t->node);
	t->node->resume = u;
	log_resume(b, t->node);
	return 0;
}

static void note_begin(struct task *t, struct buf *b)
{
	struct record r = {.type = RECORD_BEGIN,
			   .ino = t->node->ino,
			   .version = t->version,
			   .key = t->key,
			   .part_size = t->job.state.schedule.first_size,
			   .size = t->job.state.size,
			   .pending_ns = t->node->resume->begun_ns,
			   .upload_id = t->node->resume->upload_id};

	record_encode(b, &r);
}

/* As task_note(), of a file that may have no record yet: the upload's own node has it. */
static int task_note_ahead(struct upload_job *job, enum upload_note note,
			   const struct origin_part *part)
{
	struct task *t = container_of(job, struct task, job);
	struct output *o = t->output;
	struct node *g = t->node;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	uint64_t seq = 0;
	int e = 0;

	lock_take(&o->lock);
	if (note == UPLOAD_NOTE_BEGIN) {
		resume_free(g);
		g->resume = resume_new(t);
	}
	if (!g->resume) {
		e = err_origin(-ENOMEM);
	} else if (note == UPLOAD_NOTE_PART) {
		e = note_part_ahead(t, part);
	} else {
		if (note == UPLOAD_NOTE_ID)
			memcpy(g->resume->upload_id, job->state.upload_id,
			       ORIGIN_UPLOAD_ID_MAX);
		log_node(o, &b, g);
		e = log_commit_own(o, &b, g);
		seq = g->seq;
	}
	lock_drop(&o->lock);
	if (e == 0 && seq)
		e = journal_sync(o->journal, seq);
	return err_trace(e);
}

/* None is begun for a name that the file has no more: it is planned anew. */
static int begin_upload(struct task *t)
{
	char key[PATH_KEY_MAX + 1];
	struct node *n = t->node;

	if (n->parent && node_key(n, key) == 0 && strcmp(key, t->key) != 0)
		return err_origin(-ECANCELED);
	n->resume = resume_new(t);
	return 0;
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
		e = begin_upload(t);
	}
	if (e == 0 && !n->resume && note != UPLOAD_NOTE_APPEND) {
		e = err_origin(-ENOMEM);
	}
	if (e < 0) {
		lock_drop(&o->lock);
		return err_trace(e);
	}
	if (note == UPLOAD_NOTE_ID)
		memcpy(n->resume->upload_id, job->state.upload_id, ORIGIN_UPLOAD_ID_MAX);
	if (note == UPLOAD_NOTE_APPEND) {
		e = note_append(t, part, &b);
	} else if (note == UPLOAD_NOTE_END) {
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
	t->job.note = op == SYNC_AHEAD ? task_note_ahead : task_note;
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

static uint32_t *count_of(struct task *t)
{
	struct output *o = t->output;

	return t->op == SYNC_DELETE ? &o->deletes_flying : &o->in_flight;
}

void task_fly(struct task *t)
{
	struct output *o = t->output;

	lock_assert_held(&o->lock);
	list_push_back(&o->flying, &t->flying);
	HASH_ADD_KEYPTR(by_key, o->busy_keys, t->key, strlen(t->key), t);
	if (t->source[0])
		HASH_ADD_KEYPTR(by_source, o->busy_sources, t->source, strlen(t->source),
				t);
	++*count_of(t);
}

void task_land(struct task *t)
{
	struct output *o = t->output;

	lock_assert_held(&o->lock);
	list_remove(&t->flying);
	HASH_DELETE(by_key, o->busy_keys, t);
	if (t->source[0])
		HASH_DELETE(by_source, o->busy_sources, t);
	--*count_of(t);
}

bool sync_key_busy(struct output *o, const char *key)
{
	struct task *t;

	HASH_FIND(by_key, o->busy_keys, key, strlen(key), t);
	if (!t)
		HASH_FIND(by_source, o->busy_sources, key, strlen(key), t);
	return t != NULL;
}
