/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes leave the memory.
 *
 * A clean node is what the store holds, so it can be made again of what the store says. Its
 * directory keeps no more of it than that there may be such a name (node->left): who looks
 * for it asks the store for this one name (output_list.c), and who makes a new one is told
 * at once that it is free. Of more than `nodes_max` nodes clean ones go, once the kernel has
 * forgotten their numbers, for which it is asked when it does not by itself.
 *
 * What stays: directories with nodes below them or with a long listing, all that is open,
 * pending or in the journal, what never got to the store, what a sync has failed for, and the
 * lines of listings that someone reads.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/inode.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"
#include "fs/output_list.h"

#define BARREN 4096
#define TRIM_MIN 4096 /* nodes */
#define LONG_LISTING                                                                     \
	1000 /* names; it would take more than one request to list them again */

uint64_t node_max_count(const struct output *o)
{
	return o->config.nodes_max ? o->config.nodes_max : OUTPUT_NODES_MAX;
}

bool node_are_many(const struct output *o)
{
	return HASH_CNT(by_ino, o->nodes) >= node_max_count(o);
}

bool node_is_empty(const struct node *dir)
{
	return !dir->children && (!dir->left || dir->left->count == 0);
}

bool node_has_left(const struct node *dir, const char *name)
{
	return !dir->listed || (dir->left && name_set_may_have(dir->left, name));
}

/* A node that was made to be moved, and that no listing shows. */
static bool has_passed(const struct output *o, const struct node *n)
{
	return n->passing && !n->live && !n->parent->listed && o->listings == 0;
}

/* Whether something is to be done about it, or it is all that there is of it. */
static bool is_needed(const struct node *n)
{
	if (n->holds || n->opens || n->journaled || n->task || n->ahead || n->children ||
	    n->queue != QUEUE_NONE || !list_empty(&n->queued))
		return true;
	if (!n->parent)
		return false;
	/* A kernel that lets go of the last file of a directory lets go of that, too. */
	if (n->listed && n->left && n->left->count >= LONG_LISTING)
		return true;
	return n->kept_by || n->parent->openings || n->error || plan_is_dirty(n) ||
	       (n->kind == RECORD_FILE && !n->stored.key);
}

/* The directory has it in the store only. */
static void leave_name(struct node *dir, const char *name)
{
	dir->departures++;
	if (dir->refresh && name_set_add(&dir->refresh->left, name) < 0)
		dir->refresh->lost = true;
	if (!dir->listed)
		return;
	if (!dir->left)
		dir->left = calloc(1, sizeof(*dir->left));
	if (!dir->left || name_set_add(dir->left, name) < 0)
		dir->listed = false;
}

void node_settle(struct output *o, struct node *n)
{
	struct node *dir = n->parent;

	lock_assert_held(&o->lock);
	if (n == o->root || n->lookups || is_needed(n))
		return;
	/* A listing may have seen what was there before: only the node knows better. */
	if (dir && o->listings > 0 && n->stored_epoch > o->listings_epoch)
		return;
	if (dir) {
		/* A clean node is a line of its directory's listing. */
		if (HASH_CNT(by_ino, o->nodes) <= node_max_count(o) && !has_passed(o, n))
			return;
		leave_name(dir, n->name);
		for (struct node *it = dir; it; it = it->parent)
			it->born = false;
	}
	content_drop_retained(o, n);
	node_free(o, n);
	/* At most as deep as a path. */
	if (dir && dir->passing)
		node_settle(o, dir);
}

void node_unspare(struct output *o, struct node *n)
{
	o->spared_count -= n->spared;
	n->spared = false;
}

bool node_many_freed(struct output *o)
{
	uint64_t count = HASH_CNT(by_ino, o->nodes);

	lock_assert_held(&o->lock);
	if (o->freed_count < (count > TRIM_MIN ? count : TRIM_MIN))
		return false;
	o->freed_count = 0;
	return true;
}

static bool is_over(const struct output *o)
{
	uint64_t count = HASH_CNT(by_ino, o->nodes);

	return count - o->spared_count > node_max_count(o) &&
	       (count >= o->barren_nodes || o->moved >= o->barren_moved);
}

bool output_is_over(struct output *o)
{
	lock_scope(&o->lock);
	return is_over(o);
}

void node_note_over(struct output *o)
{
	lock_assert_held(&o->lock);
	if (o->on_over && is_over(o))
		o->on_over(o->on_over_arg);
}

void output_on_over(struct output *o, void (*fn)(void *arg), void *arg)
{
	lock_scope(&o->lock);
	o->on_over = fn;
	o->on_over_arg = arg;
}

static struct node *next_node(struct output *o)
{
	struct node *n = o->hand ? o->hand : o->nodes;

	o->hand = n->by_ino.next;
	return n;
}

size_t output_spare(struct output *o, uint64_t *out, size_t max)
{
	uint64_t keep = node_max_count(o) - node_max_count(o) / 16;
	uint64_t before, fresh = 0;
	size_t count = 0;

	lock_scope(&o->lock);
	before = HASH_CNT(by_ino, o->nodes);
	for (uint64_t seen = 0; seen < before && count < max; seen++) {
		struct node *n;

		if (HASH_CNT(by_ino, o->nodes) - o->spared_count <= keep)
			break;
		n = next_node(o);
		if (n->lookups == 0) {
			node_settle(o, n);
			continue;
		}
		if (n == o->root || n->kind == RECORD_DIR || is_needed(n))
			continue;
		/* What was in use the last time may not be any more. */
		fresh += !n->spared;
		o->spared_count += !n->spared;
		n->spared = true;
		out[count++] = n->ino;
	}
	o->barren_nodes = o->barren_moved = 0;
	if (fresh)
		return count;
	if (is_over(o)) {
		o->barren_nodes = HASH_CNT(by_ino, o->nodes) + BARREN;
		o->barren_moved = o->moved + BARREN;
	}
	return 0;
}

int output_name(struct output *o, uint64_t ino, struct inodes_name *out)
{
	struct node *n;

	lock_scope(&o->lock);
	n = node_find(o, ino);
	if (!n || !n->parent)
		return err_origin(-ESTALE);
	out->parent = n->parent->ino;
	strcpy(out->name, n->name); /* at most PATH_NAME_MAX */
	return 0;
}
