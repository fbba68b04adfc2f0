/* SPDX-License-Identifier: Apache-2.0 */
/* Listings: what the store shows and what we know better, as it was at opendir. A cookie
 * is the place in that snapshot. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fs/output_impl.h"

struct name {
	uint64_t ino;
	char *name;
};

struct output_dir {
	struct output *output;
	struct name *names;
	size_t count;
};

static int by_name(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int snapshot(struct output *o, struct node *dir, struct output_dir *d)
{
	struct node *n, *next;

	lock_scope(&o->lock);
	d->names = calloc(HASH_CNT(by_name, dir->children) + 1, sizeof(*d->names));
	if (!d->names)
		return err_origin(-ENOMEM);
	HASH_ITER (by_name, dir->children, n, next) {
		struct name *e = &d->names[d->count];

		e->ino = n->ino;
		e->name = strdup(n->name);
		if (!e->name)
			return err_origin(-ENOMEM);
		d->count++;
	}
	/* The next daemon's listing must have the same places. */
	if (o->config.handover)
		qsort(d->names, d->count, sizeof(*d->names), by_name);
	return 0;
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
	lock_drop(&o->lock);
	if (r < 0)
		return r;
	r = store_refresh(o, dir, flags);
	d = r == 0 ? calloc(1, sizeof(*d)) : NULL;
	if (d) {
		d->output = o;
		r = snapshot(o, dir, d);
	} else if (r == 0) {
		r = err_origin(-ENOMEM);
	}
	lock_take(&o->lock);
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
	for (size_t i = cookie; i < dir->count; i++) {
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
		attr.unsure = may_be_link(n);
		if (with_lookup && !attr.unsure)
			node_look(o, n, 1);
		lock_drop(&o->lock);
		r = fill(arg, dir->names[i].name, &attr, i + 1);
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
	for (size_t i = 0; i < dir->count; i++)
		free(dir->names[i].name);
	free(dir->names);
	free(dir);
}
