/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next daemon of this mount must know of the tree and has from nowhere else
 * (handover_node.h): the nodes that the kernel knows by number, where their names are, and
 * the staged files behind open ones.
 *
 * kept_*() keep that true while the tree changes; all with the lock held, all nothing
 * without a hand-over. handover_restore_*() make a tree of it that fits the kernel:
 *
 *   contents   before the journal: of open files, whole, also what no record covers
 *   (the journal and its tail)
 *   nodes      those that the journal does not know; counts of all
 *   files      open ones, before the uploader starts: it must know who writes
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cache/tail.h"
#include "fs/base/check.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/output_impl.h"

/* Instead of the number of a staged file: what was written to it is lost. */
#define LIVE_LOST UINT64_MAX

static void describe(const struct node *n, struct handover_attr *a)
{
	*a = (struct handover_attr){.kind = (uint32_t)n->kind,
				    .mode = n->mode,
				    .uid = n->uid,
				    .gid = n->gid,
				    .mtime_ns = n->mtime_ns,
				    .ctime_ns = n->ctime_ns,
				    .size = n->size,
				    .has_stored = n->stored.key,
				    .has_crc = n->stored.has_crc64,
				    .appendable = n->stored.appendable,
				    .unverified = n->unverified,
				    .marker = n->marker,
				    .stored_size = n->stored.size,
				    .stored_crc64 = n->stored.crc64,
				    .stored_mtime_ns = n->stored.mtime_ns};
	if (strlen(n->stored.etag) < sizeof(a->etag))
		strcpy(a->etag, n->stored.etag);
}

void kept_attr(struct node *n)
{
	struct handover_attr a;

	if (!n->kept)
		return;
	describe(n, &a);
	handover_node_set_attr(n->kept, &a);
}

void kept_place(struct output *o, struct node *n)
{
	if (n->kept)
		handover_node_set_place(o->config.handover, n->kept,
					n->parent ? n->parent->ino : 0,
					n->parent ? n->name : NULL);
}

void kept_move(struct output *o, struct node *n)
{
	if (n->kept)
		handover_node_move(o->config.handover, n->kept,
				   n->parent ? n->parent->ino : 0,
				   n->parent ? n->name : NULL);
}

void kept_live(struct node *n, struct content *live)
{
	uint64_t id = live ? content_id(live) : n->error ? LIVE_LOST : 0;

	if (n->kept)
		atomic_store(&n->kept->live, n->opens > 0 ? id : 0);
}

void kept_lookups(struct output *o, struct node *n)
{
	struct handover *h = o->config.handover;
	struct handover_attr a;

	lock_assert_held(&o->lock);
	if (!h || n == o->root)
		return;
	if (n->lookups == 0) {
		kept_forget(o, n);
		return;
	}
	if (!n->kept) {
		describe(n, &a);
		n->kept = handover_node_new(h, n->ino, &a);
		if (!n->kept)
			return; /* the kernel will be told that it is stale */
		kept_place(o, n);
		kept_live(n, n->live);
	}
	atomic_store(&n->kept->lookups, n->lookups);
}

void kept_forget(struct output *o, struct node *n)
{
	if (n->kept)
		handover_node_free(o->config.handover, n->kept);
	n->kept = NULL;
}

void kept_next_ino(struct output *o)
{
	if (o->config.handover)
		atomic_store(&o->config.handover->next_ino, o->next_ino);
}

/* ---- the next daemon ------------------------------------------------------------------- */

static bool takes_over(const struct output *o)
{
	return o->config.handover && o->config.handover->generation > 1;
}

/* Whether some open file is of this node. */
static bool is_open(const struct handover *h, uint64_t ino)
{
	for (uint32_t i = 0; i < atomic_load(&h->files.limit); i++) {
		const struct handover_file *f = &h->files.items[i];

		if (f->ino == ino && !f->is_dir &&
		    handover_file_state(f) != HANDOVER_FREE)
			return true;
	}
	return false;
}

int handover_restore_contents(struct output *o)
{
	struct handover *h = o->config.handover;

	if (h && handover_nodes_begin(h) < 0)
		return err_origin(-ENOMEM);
	if (!takes_over(o))
		return 0;
	/* What replay makes anew gets no number that the kernel has. */
	if (o->next_ino < atomic_load(&h->next_ino))
		o->next_ino = atomic_load(&h->next_ino);
	o->restored_count = atomic_load(&h->nodes.limit);
	o->restored = calloc(o->restored_count + 1, sizeof(*o->restored));
	if (!o->restored)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < o->restored_count; i++) {
		struct handover_node *k = &h->nodes.items[i];
		uint64_t ino = atomic_load(&k->ino), id = atomic_load(&k->live);
		int r;

		if (!ino || !id || id == LIVE_LOST || !is_open(h, ino))
			continue;
		r = stage_take_over(o->stage, id, &o->restored[i]);
		if (r == 0)
			continue;
		atomic_store(&k->live, LIVE_LOST);
		log_error("an open file lost what was written and not acknowledged "
			  "inode=%llu error=%s",
			  (unsigned long long)ino, strerror(-r));
	}
	patch_table_sweep(o->patches);
	return 0;
}

static struct node *make_node(struct output *o, const struct handover_attr *a,
			      uint64_t ino)
{
	struct node *n = node_new(o, (enum record_kind)a->kind, ino);

	if (!n)
		return NULL;
	n->mode = a->mode;
	n->uid = a->uid;
	n->gid = a->gid;
	n->mtime_ns = a->mtime_ns;
	n->ctime_ns = a->ctime_ns;
	n->size = a->size;
	n->unverified = a->unverified;
	return n;
}

/* The node that the kernel knows as this. NULL: it knows one that is no more. */
static struct node *find_node(struct output *o, struct handover_node *k, bool live)
{
	const struct handover_attr *a = handover_node_attr(k);
	uint64_t ino = atomic_load(&k->ino);
	struct node *n = node_find(o, ino);
	const char *name;

	if (n)
		return n;
	/* What was not made after all, or a new file that nobody has open: its creation was
	 * not told, or not acknowledged. */
	if (!live && ((a->kind == RECORD_FILE && !a->has_stored) ||
		      handover_node_place(o->config.handover, k, &name) == 0))
		return NULL;
	return make_node(o, a, ino);
}

static void link_node(struct output *o, struct handover_node *k, struct node *n)
{
	const char *name = NULL;
	uint64_t parent = handover_node_place(o->config.handover, k, &name);
	struct node *dir = parent ? node_find(o, parent) : NULL;

	/* What the journal knows, it knows better. */
	if (n->journaled || n->parent || !dir || dir->kind != RECORD_DIR ||
	    node_child(dir, name))
		return;
	if (node_link(o, dir, n, name) < 0)
		log_warn("a name could not be taken over inode=%llu",
			 (unsigned long long)n->ino);
}

/* The store has it at its path, as is true of all that the journal does not know. */
static int claim_object(struct output *o, const struct handover_attr *a, struct node *n)
{
	struct origin_attr attr = {.size = a->stored_size,
				   .crc64 = a->stored_crc64,
				   .is_appendable = a->appendable,
				   .has_crc64 = a->has_crc,
				   .mtime_ns = a->stored_mtime_ns};
	char key[PATH_KEY_MAX + 1];

	if (n->journaled || !a->has_stored || !n->parent || n->stored.key ||
	    node_key(n, key) < 0 || node_claim(o, key))
		return 0;
	memcpy(attr.etag, a->etag, sizeof(a->etag));
	n->marker = a->marker;
	return err_trace(node_set_stored(o, n, key, &attr));
}

/* A number that stands for nothing any more. */
static void drop_node(struct output *o, struct handover_node *k, struct node *n)
{
	if (n) {
		kept_forget(o, n);
		n->lookups = 0;
		node_free(o, n);
	} else {
		handover_node_free(o->config.handover, k);
	}
}

/* What open files of the node read and write; `live` may be NULL. Parts of a version may be
 * in the store that were sent before the last write; of which bytes is not known any more. */
static int restore_live(struct output *o, struct node *n, struct content *live)
{
	struct patch *p = live ? content_patch(live) : NULL;
	int r = 0;

	n->live = live;
	n->raced = live && !p;
	if (p)
		patch_settle(p, n->stored.etag);
	if (p && live == n->acked)
		r = patch_mark_all_late(p);
	if (!live && atomic_load(&n->kept->live) == LIVE_LOST &&
	    is_open(o->config.handover, n->ino))
		n->error = -EIO;
	return err_trace(r);
}

int handover_restore_nodes(struct output *o)
{
	struct handover *h = o->config.handover;
	uint32_t count = o->restored_count;
	struct node **nodes;
	int r = 0;

	if (!takes_over(o))
		return 0;
	nodes = calloc(count + 1, sizeof(struct node *));
	if (!nodes)
		return err_origin(-ENOMEM);
	lock_scope(&o->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct handover_node *k = &h->nodes.items[i];

		if (atomic_load(&k->ino) == 0)
			continue;
		nodes[i] = find_node(o, k, o->restored[i] != NULL);
		if (!nodes[i])
			drop_node(o, k, NULL);
	}
	for (uint32_t i = 0; i < count; i++) {
		if (nodes[i])
			link_node(o, &h->nodes.items[i], nodes[i]);
	}
	for (uint32_t i = 0; i < count && r == 0; i++) {
		struct handover_node *k = &h->nodes.items[i];
		struct node *n = nodes[i];
		int e;

		if (!n)
			continue;
		r = claim_object(o, handover_node_attr(k), n);
		n->lookups = atomic_load(&k->lookups);
		n->kept = k;
		e = restore_live(o, n, o->restored[i]);
		r = r < 0 ? r : e;
		o->restored[i] = NULL;
		if (!n->live && !n->journaled && !n->children && n->kind == RECORD_FILE &&
		    !n->stored.key) {
			drop_node(o, k, n);
			continue;
		}
		kept_place(o, n);
		kept_attr(n);
	}
	free(nodes);
	return err_trace(r);
}

/* Those of handles that were never told to anyone. */
static void drop_unused(struct output *o)
{
	struct node *n, *next;

	HASH_ITER (by_ino, o->nodes, n, next) {
		if (n->live && n->opens == 0) {
			content_put(n->live, n->seq);
			n->live = NULL;
			kept_live(n, NULL);
		}
	}
}

int handover_restore_files(struct output *o)
{
	struct handover *h = o->config.handover;
	uint32_t limit = h ? atomic_load(&h->files.limit) : 0;
	int r = 0;

	free(o->restored);
	o->restored = NULL;
	if (!takes_over(o))
		return 0;
	o->files = calloc(limit + 1, sizeof(struct output_file *));
	o->file_count = limit;
	if (!o->files)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < limit; i++) {
		struct handover_file *f = &h->files.items[i];

		if (f->is_dir || handover_file_state(f) == HANDOVER_FREE)
			continue;
		r = file_restore(o, f->ino, f->flags, f->mode, &o->files[i]);
		if (r < 0)
			log_error("an open file could not be taken over inode=%llu "
				  "error=%s",
				  (unsigned long long)f->ino, strerror(-r));
	}
	lock_scope(&o->lock);
	drop_unused(o);
	return 0;
}

struct output_file *output_restored_file(struct output *o, uint32_t slot)
{
	struct output_file *f = NULL;

	if (o && slot < o->file_count) {
		f = o->files[slot];
		o->files[slot] = NULL;
	}
	return f;
}

/* ---- requests -------------------------------------------------------------------------- */

void output_set_request(uint64_t request)
{
	tail_set_request(request);
}

bool output_executed(struct output *o, uint64_t request)
{
	return o->config.handover && tail_executed(o->config.handover->tail, request);
}
