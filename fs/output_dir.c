/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings: what the store shows and what we know better, as it was at opendir.
 *
 * A cookie is the place in that snapshot; with a hand-over it is made of the name, and the
 * snapshot in the order of cookies, so that the next daemon's, of what is there then, goes on
 * behind the same name.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/crc.h"
#include "fs/heap.h"
#include "fs/output_look.h"

#define LIST_TRIES_MAX 16

struct name {
	uint64_t ino;
	uint64_t cookie; /* to go on behind it; they ascend */
	char *name;
};

struct output_dir {
	struct output *output;
	uint64_t ino;
	struct name *names;
	size_t count;
};

static int by_cookie(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	if (x->cookie != y->cookie)
		return x->cookie < y->cookie ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Positive also as an off_t with what is added to it. */
uint64_t output_cookie(const char *name)
{
	return (crc64(0, name, strlen(name)) >> 2) + 1;
}

static void order_by_name(struct output_dir *d)
{
	for (size_t i = 0; i < d->count; i++)
		d->names[i].cookie = output_cookie(d->names[i].name);
	qsort(d->names, d->count, sizeof(*d->names), by_cookie);
	for (size_t i = 1; i < d->count; i++) {
		if (d->names[i].cookie <= d->names[i - 1].cookie)
			d->names[i].cookie = d->names[i - 1].cookie + 1;
	}
}

/* The first one behind the cookie. */
static size_t behind(const struct output_dir *d, uint64_t cookie)
{
	size_t low = 0, high = d->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (d->names[middle].cookie > cookie)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Who reads it may look at its names in this order. Lock held. */
static void note_order(struct output *o, const struct node *dir,
		       const struct output_dir *d)
{
	struct look_place *places = calloc(d->count + 1, sizeof(*places));

	for (size_t i = 0; places && i < d->count; i++)
		places[i] = (struct look_place){d->names[i].cookie, d->names[i].ino};
	look_note_order(o, dir, places, d->count);
}

/* Lock held. */
static int snapshot(struct output *o, struct node *dir, struct output_dir *d)
{
	struct node *n, *next;

	d->names = calloc(HASH_CNT(by_name, dir->children) + 1, sizeof(*d->names));
	if (!d->names)
		return err_origin(-ENOMEM);
	HASH_ITER (by_name, dir->children, n, next) {
		struct name *e = &d->names[d->count];

		e->ino = n->ino;
		e->name = strdup(n->name);
		if (!e->name)
			return err_origin(-ENOMEM);
		e->cookie = ++d->count;
		n->kept_by++; /* or it would be missing when its turn comes */
	}
	if (o->config.handover) {
		order_by_name(d);
		note_order(o, dir, d);
	}
	return 0;
}

/* Makes the listing whole, and takes it; nobody leaves the directory in between. */
static int take_listing(struct output *o, struct node *dir, unsigned int flags,
			struct output_dir *d)
{
	int r;

	for (int tries = 0; tries < LIST_TRIES_MAX; tries++) {
		r = store_refresh(o, dir, STORE_ALL, flags);
		if (r != 0)
			return err_trace(r);
		lock_scope(&o->lock);
		/* A listing of another thread's may have come in between. */
		if (!dir->left || dir->left->count == 0)
			return err_trace(snapshot(o, dir, d));
	}
	return err_origin(-EBUSY);
}

int output_opendir(struct output *o, uint64_t ino, unsigned int flags,
		   struct output_dir **out)
{
	struct output_dir *d;
	struct node *dir;
	int r = 0;

	lock_take(&o->lock);
	dir = node_find(o, ino);
	if (!dir || dir->kind != RECORD_DIR)
		r = dir ? err_origin(-ENOTDIR) : err_origin(-ESTALE);
	else
		node_hold(dir);
	if (r == 0)
		dir->openings++;
	lock_drop(&o->lock);
	if (r < 0)
		return r;
	d = calloc(1, sizeof(*d));
	if (d) {
		d->output = o;
		d->ino = ino;
		r = take_listing(o, dir, flags, d);
	} else {
		r = err_origin(-ENOMEM);
	}
	lock_take(&o->lock);
	dir->openings--;
	node_release(o, dir);
	lock_drop(&o->lock);
	if (r == 0)
		*out = d;
	else if (d)
		output_closedir(d);
	return r;
}

/* Listings do not tell symbolic links from the files that hold their targets. */
static bool may_be_link(const struct node *n)
{
	return n->unverified && n->kind == RECORD_FILE && n->stored.size < PATH_MAX;
}

int output_readdir(struct output_dir *dir, uint64_t cookie, bool with_lookup,
		   unsigned int flags, tree_fill_fn fill, void *arg)
{
	struct output *o = dir->output;

	(void)flags;
	for (size_t i = behind(dir, cookie); i < dir->count; i++) {
		struct tree_attr attr;
		struct node *n;
		int r;

		lock_take(&o->lock);
		n = node_find(o, dir->names[i].ino);
		if (!n || !n->parent || strcmp(n->name, dir->names[i].name) != 0) {
			lock_drop(&o->lock);
			continue; /* gone since opendir */
		}
		node_attr(o, n, &attr);
		attr.unsure = with_lookup ? !look_may_give(o, n) : may_be_link(n);
		if (may_be_link(n))
			attr.mode = 0;
		if (with_lookup && !attr.unsure)
			node_look(o, n, 1);
		lock_drop(&o->lock);
		r = fill(arg, dir->names[i].name, &attr, dir->names[i].cookie);
		if (r == 0)
			continue;
		if (with_lookup && !attr.unsure)
			output_forget(o, attr.ino, 1);
		return r == TREE_E_FULL ? 0 : r;
	}
	return 0;
}

int output_fsyncdir(struct output *o, uint64_t ino)
{
	(void)ino;
	return err_trace(journal_sync(o->journal, journal_appended(o->journal)));
}

void output_closedir(struct output_dir *dir)
{
	struct output *o = dir->output;
	bool trim;

	lock_take(&o->lock);
	look_end_order(o, dir->ino);
	for (size_t i = 0; i < dir->count; i++) {
		struct node *n = node_find(o, dir->names[i].ino);

		free(dir->names[i].name);
		if (n && n->kept_by-- == 1)
			node_settle(o, n);
	}
	o->barren_nodes = o->barren_moved = 0;
	node_note_over(o);
	trim = node_many_freed(o);
	lock_drop(&o->lock);
	free(dir->names);
	free(dir);
	if (trim)
		heap_trim();
}
