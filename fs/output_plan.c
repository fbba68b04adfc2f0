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
 *  - nothing is put below a prefix while objects there may belong to another directory and
 *    have no node yet;
 *  - one request per key at a time;
 *  - what is open and has lost its name keeps its object until the bytes are here, if there
 *    is room for them.
 *
 * Where a name is a file or a directory (ORIGIN_CAP_TREE) more is in the way of a key: objects
 * below it, and one at a name above it. Of a file and a directory that wait for each other
 * the file comes home, and gives up its object before it has another one.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "fs/output_impl.h"

#define CYCLE_MAX                                                                        \
	4096 /* nodes that wait for each other in a row; longer is a cycle too */

static const char *const op_names[] = {
	"none",   "later", "blocked", "content", "small",  "copy",    "meta",
	"delete", "fetch", "fill",    "release", "finish", "abandon", "ahead",
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
	if (n->displaced || n->guest || n->meta_dirty || n->sources)
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

bool plan_is_doomed(const struct node *n)
{
	return !n->parent && n->stored.key && !n->gone && !n->resume;
}

bool plan_needs_object(const struct node *n)
{
	return (n->acked && content_is_sparse(n->acked)) ||
	       (n->live && n->opens > 0 && content_is_sparse(n->live));
}

bool plan_lacks_copy(const struct node *n)
{
	return n->publish && n->acked && n->acked == n->live && n->passthrough &&
	       n->random_writers > 0;
}

bool plan_is_missed(const struct node *n)
{
	return !n->parent && n->opens > 0 && n->kind == RECORD_FILE && n->stored.key &&
	       !n->saved && !n->forsaken && (!n->live || content_is_sparse(n->live));
}

static bool is_only_copy(const struct node *m)
{
	return m->parent && m->kind == RECORD_FILE && (!m->acked || plan_needs_object(m));
}

/* Whose object is a file or a link where `key` needs a directory, in a store that has real
 * ones. */
static struct node *file_above(struct output *o, const char *key)
{
	char above[PATH_KEY_MAX + 1];

	if (!(o->config.origin->caps & ORIGIN_CAP_TREE))
		return NULL;
	for (const char *c = strchr(key, '/'); c; c = strchr(c + 1, '/')) {
		struct node *m;

		memcpy(above, key, (size_t)(c - key));
		above[c - key] = '\0';
		m = node_claim(o, above);
		if (m)
			return m;
	}
	return NULL;
}

/* Whether `key` is a directory in such a store, for the sake of objects that are to leave. */
static bool is_directory(struct output *o, const char *key)
{
	char prefix[PATH_KEY_MAX + 2];

	if (!(o->config.origin->caps & ORIGIN_CAP_TREE))
		return false;
	snprintf(prefix, sizeof(prefix), "%s/", key);
	return displaced_below(o, prefix) > 0;
}

/* The linked node whose only copy keeps `n` from being put at `key`, if any. */
static struct node *only_copy_at(struct output *o, const struct node *n, const char *key)
{
	struct node *m = node_claim(o, key);

	if (!m || m == n)
		m = file_above(o, key);
	return m && is_only_copy(m) ? m : NULL;
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

/* Whether the object's name is a directory by now, or below what is none. */
static bool is_misplaced(struct output *o, const char *object)
{
	char key[PATH_KEY_MAX + 2];
	bool below = false;

	snprintf(key, sizeof(key), "%s/", object);
	if (node_at_key(o, key))
		return true;
	key[strlen(key) - 1] = '\0';
	for (char *c = strchr(key, '/'); c && !below; c = strchr(c + 1, '/')) {
		*c = '\0';
		below = node_at_key(o, key);
		*c = '/';
	}
	return below;
}

bool plan_is_barred(struct output *o, const char *key)
{
	return (o->config.origin->caps & ORIGIN_CAP_TREE) &&
	       (is_directory(o, key) || is_misplaced(o, key));
}

/* What a node can do whose place is not free: what is there may wait for the object that it
 * leaves behind. `stuck`: it does, or may. */
static enum sync_op make_way(struct output *o, struct node *n, bool stuck)
{
	bool tree = o->config.origin->caps & ORIGIN_CAP_TREE;

	if (!n->stored.key || n->kind == RECORD_DIR || sync_key_busy(o, n->stored.key))
		return SYNC_LATER;
	if (n->target || (n->acked && !plan_needs_object(n)))
		return tree && n->displaced && is_misplaced(o, n->stored.key)
			       ? SYNC_RELEASE
			       : SYNC_LATER;
	if (!stuck || n->kind != RECORD_FILE)
		return SYNC_LATER;
	return plan_needs_object(n) ? SYNC_FILL : SYNC_FETCH;
}

/* Whether the object at `key` may be replaced now by `n`'s; SYNC_NONE: yes. */
static enum sync_op key_in_the_way(struct output *o, struct node *n, const char *key)
{
	struct node *m;

	if (source_in_the_way(o, key))
		return SYNC_BLOCKED;
	m = node_claim(o, key);
	if (sync_key_busy(o, key) || (m && m != n && plan_is_missed(m)))
		return SYNC_LATER;
	/* One file comes home rather than all of a directory. */
	if (is_directory(o, key))
		return make_way(o, n,
				n->stored.key && (is_misplaced(o, n->stored.key) ||
						  node_at_key(o, n->stored.key)));
	m = only_copy_at(o, n, key);
	if (!m && !file_above(o, key))
		return SYNC_NONE;
	return make_way(o, n, m && waits_for_itself(o, n, m));
}

/* It has no name any more, and someone still reads it: what he may read comes home before
 * the object is replaced, or has to go. */
static enum sync_op plan_open(struct output *o, const struct node *n, bool wanted)
{
	bool misplaced = (o->config.origin->caps & ORIGIN_CAP_TREE) &&
			 is_misplaced(o, n->stored.key);

	if (!wanted && !misplaced)
		return SYNC_LATER;
	if (plan_is_missed(n))
		return n->live ? SYNC_FILL : SYNC_FETCH;
	return misplaced ? SYNC_DELETE : SYNC_LATER;
}

static enum sync_op plan_vanishing(struct output *o, struct node *n)
{
	struct node *heir;
	bool wanted;

	if (!n->stored.key || n->gone)
		return SYNC_NONE;
	if (detour_is_near(o, n) || sync_key_busy(o, n->stored.key))
		return SYNC_LATER;
	heir = node_at_key(o, n->stored.key);
	wanted = heir && plan_is_dirty(heir);
	if (n->opens > 0)
		return plan_open(o, n, wanted);
	/* It is about to be replaced: never a moment without either. */
	return wanted ? SYNC_LATER : SYNC_DELETE;
}

/* The store has it as it should be. It stays in the journal while what others would make of
 * its key is not known. */
static enum sync_op plan_stored(struct output *o, const struct node *n, const char *key)
{
	return n->guest && source_blocks(o, key) ? SYNC_BLOCKED : SYNC_NONE;
}

static enum sync_op plan_small(struct output *o, struct node *n, const char *key)
{
	enum sync_op op;

	if (n->kind == RECORD_DIR && !n->marker && !n->stored.key)
		return SYNC_NONE;
	if (n->stored.key && !n->displaced && !n->meta_dirty)
		return plan_stored(o, n, key);
	op = key_in_the_way(o, n, key);
	if (op != SYNC_NONE)
		return op;
	/* Attributes that only the object has go with it. */
	return n->stored.key && n->displaced && n->unverified ? SYNC_COPY : SYNC_SMALL;
}

static enum sync_op plan_file(struct output *o, struct node *n, const char *key)
{
	enum sync_op way;

	if (n->acked) {
		if (n->writers > 0 && (!n->publish || plan_lacks_copy(n)))
			return SYNC_LATER;
		/* Its last parts ahead are about to land. */
		if (ahead_is_busy(n))
			return SYNC_LATER;
		if (plan_needs_object(n) && n->stored.key &&
		    sync_key_busy(o, n->stored.key))
			return SYNC_LATER;
		if (n->uncopyable && plan_needs_object(n))
			return SYNC_FILL;
		way = key_in_the_way(o, n, key);
		return way == SYNC_NONE ? SYNC_CONTENT : way;
	}
	if (!n->stored.key)
		return SYNC_NONE;
	if ((n->displaced || n->meta_dirty) && n->uncopyable)
		return sync_key_busy(o, n->stored.key) ? SYNC_LATER : SYNC_FETCH;
	if (n->displaced) {
		if (sync_key_busy(o, n->stored.key))
			return SYNC_LATER;
		way = key_in_the_way(o, n, key);
		return way == SYNC_NONE ? SYNC_COPY : way;
	}
	if (!n->meta_dirty)
		return plan_stored(o, n, key);
	/* A version is about to come, and brings the attributes along. */
	if (n->writers > 0 && atomic_load(&n->changed))
		return SYNC_LATER;
	return sync_key_busy(o, key) ? SYNC_LATER : SYNC_META;
}

/* An upload begun for another version cannot be finished, one for another name only by a
 * detour. */
static bool resume_is_stale(const struct node *n, const char *key)
{
	if (n->resume->append)
		return false; /* it leaves nothing to tidy up */
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
	enum sync_op op;

	lock_assert_held(&o->lock);
	key[0] = '\0';
	if (n->parent && node_key(n, key) < 0)
		return SYNC_LATER; /* node_link() refuses such names */
	if (n->resume && is_to_be_finished(n))
		return sync_key_busy(o, n->resume->key) ? SYNC_LATER : SYNC_FINISH;
	if (n->resume && detour_is_on(o, n))
		memcpy(key, n->resume->key, strlen(n->resume->key) + 1);
	if (n->resume && resume_is_stale(n, key)) {
		/* Looking for one without an id would find those of others. */
		return !n->resume->upload_id[0] && sync_key_busy(o, n->resume->key)
			       ? SYNC_LATER
			       : SYNC_ABANDON;
	}
	if (!n->parent || n->kind == RECORD_GARBAGE)
		return plan_vanishing(o, n);
	if (n->kind == RECORD_FILE)
		return plan_file(o, n, key);
	op = plan_small(o, n, key);
	return op == SYNC_NONE && n->sources ? SYNC_LATER : op;
}
