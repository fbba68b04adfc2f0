/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node needs next, from its desired and stored states and its neighbours' alone. No
 * input or output, no clock.
 *
 * The rules that keep every acknowledged byte in reach:
 *  - a key is overwritten only when no linked node's only copy is there; such a node moves
 *    first, and where two or more wait for each other one comes home to the stage;
 *  - an object is deleted only when no linked node is about to replace it, so that a
 *    rename over it never shows a moment without either;
 *  - one request per key at a time.
 */
#include <assert.h>
#include <string.h>

#include "fs/output_impl.h"

#define CYCLE_MAX                                                                        \
	4096 /* nodes that wait for each other in a row; longer is a cycle too */

static const char *const op_names[] = {
	"none",   "later", "content", "small",  "copy",    "meta",
	"delete", "fetch", "fill",    "finish", "abandon",
};
static_assert(sizeof(op_names) / sizeof(*op_names) == SYNC_OP_N, "sync operations");

const char *sync_op_name(enum sync_op op)
{
	return op < SYNC_OP_N ? op_names[op] : "unknown";
}

bool plan_is_dirty(const struct node *n)
{
	if (n->resume || n->acked)
		return true;
	if (!n->parent)
		return n->stored.key && !n->gone;
	if (n->displaced || n->meta_dirty)
		return true;
	switch (n->kind) {
	case RECORD_DIR:
		return n->marker && !n->stored.key;
	case RECORD_SYMLINK:
		return !n->stored.key;
	default:
		return false;
	}
}

bool plan_needs_object(const struct node *n)
{
	return (n->acked && content_is_sparse(n->acked)) ||
	       (n->live && n->opens > 0 && content_is_sparse(n->live));
}

/* The linked node whose only copy is the object at `key`, if any. */
static struct node *only_copy_at(struct output *o, const struct node *n, const char *key)
{
	struct node *m = node_claim(o, key);

	if (!m || m == n || !m->parent || m->kind != RECORD_FILE)
		return NULL;
	return !m->acked || plan_needs_object(m) ? m : NULL;
}

/* Whether waiting for `m` to move out of the way would be waiting for ourselves. */
static bool waits_for_itself(struct output *o, const struct node *n, struct node *m)
{
	char key[PATH_KEY_MAX + 1];

	for (int i = 0; m && i < CYCLE_MAX; i++) {
		if (m == n)
			return true;
		if (node_key(m, key) < 0)
			return false;
		m = only_copy_at(o, m, key);
	}
	return m != NULL;
}

/* Whether the object at `key` may be replaced now by `n`'s; SYNC_NONE: yes. */
static enum sync_op key_in_the_way(struct output *o, struct node *n, const char *key)
{
	struct node *m;

	if (sync_key_busy(o, key))
		return SYNC_LATER;
	m = only_copy_at(o, n, key);
	if (!m)
		return SYNC_NONE;
	if (!n->stored.key || sync_key_busy(o, n->stored.key) ||
	    (n->acked && !plan_needs_object(n)) || !waits_for_itself(o, n, m))
		return SYNC_LATER;
	return plan_needs_object(n) ? SYNC_FILL : SYNC_FETCH;
}

static enum sync_op plan_vanishing(struct output *o, struct node *n)
{
	struct node *heir;

	if (!n->stored.key || n->gone)
		return SYNC_NONE;
	/* Someone still reads it. */
	if (n->opens > 0)
		return SYNC_LATER;
	heir = node_at_key(o, n->stored.key);
	/* It is about to be replaced: never a moment without either. */
	if (heir && plan_is_dirty(heir))
		return SYNC_LATER;
	return sync_key_busy(o, n->stored.key) ? SYNC_LATER : SYNC_DELETE;
}

static enum sync_op plan_small(struct output *o, struct node *n, const char *key)
{
	enum sync_op op;

	if (n->kind == RECORD_DIR && !n->marker && !n->stored.key)
		return SYNC_NONE;
	if (n->stored.key && !n->displaced && !n->meta_dirty)
		return SYNC_NONE;
	op = key_in_the_way(o, n, key);
	return op == SYNC_NONE ? SYNC_SMALL : SYNC_LATER;
}

static enum sync_op plan_file(struct output *o, struct node *n, const char *key)
{
	enum sync_op way;

	if (n->acked) {
		if (n->writers > 0 && !n->publish)
			return SYNC_LATER;
		if (plan_needs_object(n) && n->stored.key &&
		    sync_key_busy(o, n->stored.key))
			return SYNC_LATER;
		way = key_in_the_way(o, n, key);
		return way == SYNC_NONE ? SYNC_CONTENT : way;
	}
	if (!n->stored.key)
		return SYNC_NONE;
	if (n->displaced) {
		if (sync_key_busy(o, n->stored.key))
			return SYNC_LATER;
		way = key_in_the_way(o, n, key);
		return way == SYNC_NONE ? SYNC_COPY : way;
	}
	if (!n->meta_dirty)
		return SYNC_NONE;
	/* A version is about to come, and brings the attributes along. */
	if (n->writers > 0 && atomic_load(&n->changed))
		return SYNC_LATER;
	return sync_key_busy(o, key) ? SYNC_LATER : SYNC_META;
}

/* An upload begun for another version or another name cannot be finished. */
static bool resume_is_stale(const struct node *n, const char *key)
{
	return n->resume->upload_id[0] == '\0' || !n->parent || !n->acked ||
	       n->resume->version != n->version || n->resume->size != n->acked_size ||
	       strcmp(n->resume->key, key) != 0;
}

/* The upload may be complete, and then it has replaced the object that our contents need
 * bytes of. Its end alone can tell: with the parts that were recorded, whatever a plan
 * would say today. */
static bool is_to_be_finished(const struct node *n)
{
	const struct resume *u = n->resume;

	return u->ending && n->parent && n->stored.key && plan_needs_object(n) &&
	       strcmp(u->key, n->stored.key) == 0;
}

enum sync_op plan_node(struct output *o, struct node *n,
		       char key[static PATH_KEY_MAX + 1])
{
	lock_assert_held(&o->lock);
	key[0] = '\0';
	if (n->parent && node_key(n, key) < 0)
		return SYNC_LATER; /* node_link() refuses such names */
	if (n->resume && is_to_be_finished(n))
		return sync_key_busy(o, n->resume->key) ? SYNC_LATER : SYNC_FINISH;
	if (n->resume && resume_is_stale(n, key))
		return SYNC_ABANDON;
	if (!n->parent || n->kind == RECORD_GARBAGE)
		return plan_vanishing(o, n);
	if (n->kind == RECORD_FILE)
		return plan_file(o, n, key);
	return plan_small(o, n, key);
}
