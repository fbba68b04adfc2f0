/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes to records and back. The journal knows a node while its desired and stored states
 * differ, and every directory above such a node.
 *
 * Replay keeps the last record of each node; log_finish() ties the tree together, adopts
 * the staged files, and queues what is to be done. A node whose parent's record is lost
 * goes to /lost+found: its bytes are never dropped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_impl.h"

#define LOST_AND_FOUND "lost+found"

void log_resume(struct buf *b, const struct node *n)
{
	const struct resume *u = n->resume;
	struct record append = {.type = RECORD_APPEND,
				.ino = n->ino,
				.version = u->version,
				.size = u->size,
				.crc64 = u->crc64,
				.key = u->key};
	struct record begin = {.type = RECORD_BEGIN,
			       .ino = n->ino,
			       .version = u->version,
			       .part_size = u->part_size,
			       .size = u->size,
			       .pending_ns = u->begun_ns,
			       .key = u->key,
			       .upload_id = u->upload_id};

	if (u->append) {
		record_encode(b, &append);
		return;
	}
	record_encode(b, &begin);
	for (size_t i = 0; i < u->part_count; i++) {
		struct record part = {.type = RECORD_PART,
				      .ino = n->ino,
				      .part = u->parts[i].part.number,
				      .size = u->parts[i].part.size,
				      .crc64 = u->parts[i].part.crc64,
				      .etag = u->parts[i].part.etag,
				      .off = u->parts[i].off};

		record_encode(b, &part);
	}
	if (u->ending) {
		struct record ending = {.type = RECORD_ENDING, .ino = n->ino};

		record_encode(b, &ending);
	}
}

/* What the acknowledged content has of its own. */
static void encode_ranges(struct buf *b, const struct node *n)
{
	struct patch *p = content_patch(n->acked);
	struct patch_object object;
	struct ranges own;
	struct record r = {.type = RECORD_RANGES,
			   .ino = n->ino,
			   .content = content_id(n->acked),
			   .own = &own};

	if (patch_own(p, &own) < 0) {
		b->failed = true;
		return;
	}
	patch_object(p, &object);
	r.flags = object.has_crc64 ? RECORD_RANGES_CRC : 0;
	r.size = object.size;
	r.crc64 = object.crc64;
	r.etag = object.etag;
	r.len = patch_len(p);
	record_encode(b, &r);
	ranges_fini(&own);
}

void log_data(struct buf *b, const struct node *n)
{
	struct record r = {.type = RECORD_DATA,
			   .ino = n->ino,
			   .version = n->version,
			   .content_size = n->acked_size,
			   .data = content_carried(n->acked)};

	record_encode(b, &r);
}

static void encode_node(struct buf *b, const struct node *n)
{
	bool sparse = n->acked && content_is_sparse(n->acked);
	struct record r = {.type = RECORD_NODE,
			   .ino = n->ino,
			   .kind = n->kind,
			   .parent = n->parent ? n->parent->ino : 0,
			   .name = n->name,
			   .mode = n->mode,
			   .uid = n->uid,
			   .gid = n->gid,
			   .mtime_ns = n->mtime_ns,
			   .ctime_ns = n->ctime_ns,
			   .version = n->version,
			   .stored_version = n->stored.version,
			   .pending_ns = n->pending_ns,
			   .target = n->target,
			   .stored_key = n->stored.key,
			   .stored_etag = n->stored.etag,
			   .stored_size = n->stored.size,
			   .stored_crc64 = n->stored.crc64,
			   .stored_mtime_ns = n->stored.mtime_ns};

	r.flags = (n->parent ? RECORD_LINKED : 0) |
		  (n->meta_dirty ? RECORD_META_DIRTY : 0) |
		  (n->marker ? RECORD_MARKER : 0) |
		  (n->stored.key ? RECORD_HAS_STORED : 0) |
		  (n->stored.has_crc64 ? RECORD_STORED_CRC : 0) |
		  (n->stored.appendable ? RECORD_APPENDABLE : 0) |
		  (sparse ? RECORD_SPARSE : 0);
	if (n->acked && content_carried(n->acked)) {
		r.flags |= RECORD_CARRIED;
	} else if (n->acked) {
		content_record(n->acked);
		r.flags |= RECORD_HAS_CONTENT;
		r.content = content_id(n->acked);
	}
	r.content_size = n->acked ? n->acked_size : 0;
	if (n->lost.flags && !n->acked) {
		r.flags |= n->lost.flags;
		r.content = n->lost.content;
		r.content_size = n->lost.size;
	}
	record_encode(b, &r);
	for (const struct source *s = n->sources; s; s = s->next) {
		struct record source = {
			.type = RECORD_SOURCE, .ino = n->ino, .key = s->prefix};

		record_encode(b, &source);
	}
	if (sparse)
		encode_ranges(b, n);
	if (n->resume)
		log_resume(b, n);
}

static void set_journaled(struct node *n, bool journaled)
{
	if (n->journaled == journaled)
		return;
	n->journaled = journaled;
	if (n->parent) {
		if (journaled)
			n->parent->journaled_children++;
		else
			n->parent->journaled_children--;
	}
}

static bool needs_journal(const struct output *o, const struct node *n)
{
	return n != o->root &&
	       (plan_is_dirty(n) || n->lost.flags || n->journaled_children > 0);
}

/* The node's record, or its end, and what that means for the directories above. */
void log_node(struct output *o, struct buf *b, struct node *n)
{
	lock_assert_held(&o->lock);
	if (needs_journal(o, n)) {
		struct node *missing = n->parent;

		set_journaled(n, true);
		encode_node(b, n);
		for (; missing && missing != o->root && !missing->journaled;
		     missing = missing->parent) {
			set_journaled(missing, true);
			encode_node(b, missing);
		}
		return;
	}
	for (; n && n != o->root && n->journaled && !needs_journal(o, n); n = n->parent) {
		struct record drop = {.type = RECORD_DROP, .ino = n->ino};

		record_encode(b, &drop);
		set_journaled(n, false);
	}
}

static int append(struct output *o, struct buf *b, uint64_t *seq)
{
	int r;

	lock_assert_held(&o->lock);
	/* An empty one still says that its request is done. */
	if (b->len == 0 && !b->failed && !o->config.handover) {
		*seq = journal_appended(o->journal);
		return 0;
	}
	r = journal_append(o->journal, b, seq);
	if (r < 0)
		log_error("no memory for a journal record");
	return err_trace(r);
}

int log_commit(struct output *o, struct buf *b, uint64_t *seq)
{
	int r = append(o, b, seq);

	if (r == 0)
		o->ahead = *seq;
	return err_trace(r);
}

int log_commit_own(struct output *o, struct buf *b, struct node *n)
{
	uint64_t seq;
	int r = append(o, b, &seq);

	if (r == 0)
		n->seq = seq;
	return err_trace(r);
}

void log_snapshot(void *output, struct buf *b)
{
	struct output *o = output;
	struct node *n, *next;

	lock_scope(&o->lock);
	HASH_ITER (by_ino, o->nodes, n, next) {
		if (!n->journaled)
			continue;
		encode_node(b, n);
		if (n->acked && content_carried(n->acked))
			log_data(b, n);
	}
	journal_snapshot_taken(o->journal);
}

/* ---- replay ---------------------------------------------------------------------------- */

static int replay_strings(struct node *n, const struct record *r)
{
	free(n->name);
	free(n->target);
	n->name = strdup(r->name);
	n->target = r->target[0] ? strdup(r->target) : NULL;
	return n->name && (n->target || !r->target[0]) ? 0 : err_origin(-ENOMEM);
}

/* `acked`, `parent` and the rest of the ties are log_finish()'s. Until then the content's
 * id and the parent's number wait in fields that nothing uses yet. */
static int replay_node(struct output *o, const struct record *r)
{
	struct node *n = node_find(o, r->ino);
	struct origin_attr attr = {.size = r->stored_size,
				   .crc64 = r->stored_crc64,
				   .is_appendable = r->flags & RECORD_APPENDABLE,
				   .mtime_ns = r->stored_mtime_ns};
	int e;

	if (!n)
		n = node_new(o, r->kind, r->ino);
	if (!n)
		return err_origin(-ENOMEM);
	n->kind = r->kind;
	n->mode = r->mode;
	n->uid = r->uid;
	n->gid = r->gid;
	n->mtime_ns = r->mtime_ns;
	n->ctime_ns = r->ctime_ns;
	n->stored.version = r->stored_version;
	n->pending_ns = r->pending_ns;
	/* Bytes that were read for this very version stay. */
	if (!(r->flags & RECORD_CARRIED) || r->version != n->version)
		n->acked = content_put(n->acked, 0);
	n->carried = r->flags & RECORD_CARRIED;
	n->version = r->version;
	n->meta_dirty = r->flags & RECORD_META_DIRTY;
	n->marker = r->flags & RECORD_MARKER;
	n->acked_size = r->content_size;
	n->pending_seq = r->flags & RECORD_HAS_CONTENT ? r->content : 0;
	n->lookups = r->flags & RECORD_LINKED ? r->parent : 0;
	n->journaled = true;
	source_drop_all(o, n);
	resume_free(n); /* its records follow again */
	n->recovered = patch_free(n->recovered);
	n->sparse_lost = r->flags & RECORD_SPARSE;
	e = replay_strings(n, r);
	if (e < 0)
		return err_trace(e);
	attr.has_crc64 = r->flags & RECORD_STORED_CRC;
	snprintf(attr.etag, sizeof(attr.etag), "%s", r->stored_etag);
	return err_trace(node_set_stored(
		o, n, r->flags & RECORD_HAS_STORED ? r->stored_key : NULL, &attr));
}

/* The version's bytes; its NODE came right before. */
static int replay_data(struct output *o, struct node *n, const struct record *r)
{
	char *bytes;
	int e;

	if (!n->carried || n->version != r->version || n->acked_size != r->content_size)
		return 0; /* of an older version */
	bytes = malloc(r->content_size + 1);
	if (!bytes)
		return err_origin(-ENOMEM);
	memcpy(bytes, r->data, r->content_size);
	n->acked = content_put(n->acked, 0);
	e = stage_carry(o->stage, bytes, r->content_size, true, &n->acked);
	if (e < 0)
		free(bytes);
	return err_trace(e);
}

static int replay_begin(struct node *n, const struct record *r)
{
	struct resume *u = calloc(1, sizeof(*u));

	if (!u)
		return err_origin(-ENOMEM);
	resume_free(n);
	n->resume = u;
	u->key = strdup(r->key);
	if (!u->key)
		return err_origin(-ENOMEM);
	snprintf(u->upload_id, sizeof(u->upload_id), "%s", r->upload_id);
	u->version = r->version;
	u->part_size = r->part_size;
	u->size = r->size;
	u->begun_ns = r->pending_ns;
	u->append = u->ending = r->type == RECORD_APPEND;
	u->crc64 = r->crc64;
	u->early = n->meta_dirty; /* all that is known */
	return 0;
}

/* The place of a part: a new one, or that of the same number (the journal and its tail both
 * have it, or it was sent again). */
static struct upload_sent *part_place(struct resume *u, uint32_t number)
{
	struct upload_sent *grown;

	for (size_t i = u->part_count; i-- > 0;) {
		if (u->parts[i].part.number == number)
			return &u->parts[i];
	}
	grown = realloc(u->parts, (u->part_count + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	u->parts = grown;
	return &grown[u->part_count++];
}

static int replay_part(struct node *n, const struct record *r)
{
	struct resume *u = n->resume;
	struct upload_sent *sent;

	if (!u || u->part_count >= ORIGIN_PART_COUNT_MAX)
		return 0;
	sent = part_place(u, r->part);
	if (!sent)
		return err_origin(-ENOMEM);
	*sent = (struct upload_sent){
		.part = {.number = r->part, .size = r->size, .crc64 = r->crc64},
		.off = r->off};
	/* Written before parts could differ in size. */
	if (r->off == UINT64_MAX)
		sent->off = (r->part - 1) * u->part_size;
	snprintf(sent->part.etag, ORIGIN_ETAG_MAX, "%s", r->etag);
	return 0;
}

static int replay_ranges(struct node *n, const struct record *r)
{
	struct patch_object object = {.size = r->size,
				      .crc64 = r->crc64,
				      .has_crc64 = r->flags & RECORD_RANGES_CRC};
	struct ranges own = {0};
	int e = 0;

	snprintf(object.etag, sizeof(object.etag), "%s", r->etag);
	for (uint32_t i = 0; i < r->range_count && e == 0; i++) {
		struct range range = record_range(r, i);

		e = ranges_add(&own, range.off, range.end);
	}
	n->recovered = patch_free(n->recovered);
	/* `pending_seq` is the content's id for now. */
	if (e == 0 && n->pending_seq == r->content)
		e = patch_restore(&object, r->len, &own, &n->recovered);
	ranges_fini(&own);
	return e == -EINVAL ? 0 : err_trace(e);
}

int log_replay(void *output, const struct record *r)
{
	struct output *o = output;
	struct node *n;

	lock_scope(&o->lock);
	if (r->type == RECORD_NODE)
		return err_trace(replay_node(o, r));
	n = node_find(o, r->ino);
	if (!n || n == o->root)
		return 0;
	switch (r->type) {
	case RECORD_DROP:
		n->lookups = 0;
		node_free(o, n);
		return 0;
	case RECORD_DATA:
		return err_trace(replay_data(o, n, r));
	case RECORD_BEGIN:
	case RECORD_APPEND:
		return err_trace(replay_begin(n, r));
	case RECORD_PART:
		return err_trace(replay_part(n, r));
	case RECORD_RANGES:
		return err_trace(replay_ranges(n, r));
	case RECORD_SOURCE:
		return err_trace(source_add(o, n, r->key));
	case RECORD_ENDING:
		if (n->resume)
			n->resume->ending = true;
		return 0;
	default:
		resume_free(n);
		return 0;
	}
}

static struct node *lost_and_found(struct output *o)
{
	struct node *dir = node_child(o->root, LOST_AND_FOUND);

	if (dir)
		return dir->kind == RECORD_DIR ? dir : o->root;
	dir = node_new(o, RECORD_DIR, 0);
	if (!dir)
		return o->root;
	dir->mode = S_IFDIR | 0700;
	dir->uid = o->config.uid;
	dir->gid = o->config.gid;
	dir->marker = true;
	dir->pending_ns = clock_real_ns();
	node_link(o, o->root, dir, LOST_AND_FOUND);
	return dir;
}

/* Whether following the parents from `n` comes to the root; a damaged journal may lack
 * one, or close a circle. */
static bool reaches_root(struct output *o, struct node *n)
{
	for (int depth = 0; n && depth <= PATH_KEY_MAX; depth++) {
		if (n == o->root)
			return true;
		n = node_find(o, n->lookups);
	}
	return false;
}

static int tie_to_parent(struct output *o, struct node *n, uint64_t parent_ino)
{
	struct node *parent = node_find(o, parent_ino);
	char name[PATH_NAME_MAX + 32];
	int r;

	if (parent && parent->kind == RECORD_DIR && parent != n &&
	    !node_child(parent, n->name))
		return err_trace(node_link(o, parent, n, n->name));
	snprintf(name, sizeof(name), "%.200s.%llu", n->name, (unsigned long long)n->ino);
	log_error("a file lost its directory, see /" LOST_AND_FOUND " name=%s", name);
	r = node_link(o, lost_and_found(o), n, name);
	return err_trace(r);
}

/* Ours to have kept, and gone: said as loudly as can be, at every start until the file is
 * written again or removed. The rest is kept. */
static void lose_content(struct output *o, struct node *n, uint64_t id, int error)
{
	struct why why;

	o->lost_contents++;
	n->lost = (struct lost){.flags = id ? RECORD_HAS_CONTENT : RECORD_CARRIED,
				.content = id,
				.size = n->acked_size};
	if (n->sparse_lost)
		n->lost.flags |= RECORD_SPARSE;
	n->acked_size = 0;
	n->version = n->stored.version;
	n->size = n->stored.size;
	if (id)
		why_set(&why, error, "the staged file %016llx is missing or cut short",
			(unsigned long long)id);
	else
		why_set(&why, error, "the journal has its bytes no more");
	node_set_why(n, why.text);
	log_error("acknowledged content is damaged name=%s staged=%016llx error=%s",
		  n->name, (unsigned long long)id, strerror(-error));
}

void log_found(struct output *o, struct node *n)
{
	if (!n->lost.flags)
		return;
	n->lost = (struct lost){0};
	o->lost_contents--;
	node_set_why(n, NULL);
}

/* id 0: the journal carries the bytes. */
static int adopt_content(struct output *o, struct node *n, uint64_t id)
{
	/* What an open file says of itself is newer, also that it has no holes any more. */
	bool open = id && stage_has_taken_over(o->stage, id);
	/* Without the list of what it holds, its holes would pass for zeros. */
	bool lacks = n->sparse_lost && !n->recovered && !open;
	int r = lacks      ? -EBADMSG
		: id       ? stage_adopt(o->stage, id, n->acked_size, &n->acked)
		: n->acked ? 0
			   : -ENODATA;

	if (r == 0) {
		struct patch *taken = open ? content_patch(n->acked) : NULL;

		n->size = n->acked_size;
		if (taken && n->recovered)
			return err_trace(patch_trust(taken, n->recovered));
		if (id && n->recovered && !open) {
			r = content_set_patch(n->acked, n->recovered);
			if (r == 0)
				n->recovered = NULL;
		}
		return err_trace(r);
	}
	if (r == -ENOMEM || r == -EMFILE || r == -EACCES)
		return err_trace(r);
	lose_content(o, n, id, r);
	return 0;
}

int log_finish(struct output *o)
{
	struct node *n, *next;
	int r = 0;

	lock_scope(&o->lock);
	/* Ties need every `lookups` (the parent's number) until the last is made. */
	HASH_ITER (by_ino, o->nodes, n, next) {
		uint64_t parent = n->lookups;

		if (n == o->root || parent == 0)
			continue;
		r = tie_to_parent(o, n, reaches_root(o, n) ? parent : 0);
		if (r < 0)
			return err_trace(r);
	}
	HASH_ITER (by_ino, o->nodes, n, next) {
		uint64_t content = n->pending_seq;

		n->lookups = 0;
		n->pending_seq = OUTPUT_CLEAN;
		n->size = n->stored.size;
		if (n != o->root && (content || n->carried))
			r = adopt_content(o, n, content);
		if (r < 0)
			return err_trace(r);
		/* node_link() counted those tied after their record was read; count anew. */
		n->journaled_children = 0;
	}
	HASH_ITER (by_ino, o->nodes, n, next) {
		if (n->journaled && n->parent)
			n->parent->journaled_children++;
		if (n == o->root)
			continue;
		node_update_displaced(o, n);
		detour_restore(o, n);
	}
	HASH_ITER (by_ino, o->nodes, n, next) {
		if (n != o->root && plan_is_dirty(n)) {
			n->journaled = n->journaled || n->parent;
			n->maybe_sent = n->parent != NULL;
			n->stored.unsure = n->stored.key != NULL;
			sync_queue(o, n);
		}
	}
	return 0;
}
