/* SPDX-License-Identifier: Apache-2.0 */
/* Open directories of the input tree. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/listing.h"
#include "cache/meta.h"
#include "fs/base/err.h"
#include "fs/inode.h"
#include "fs/input_impl.h"

struct input_dir {
	struct input *in;
	uint64_t ino;
	struct listing *listing;
	char path[PATH_KEY_MAX + 2]; /* "" or ending in '/' */
};

int input_opendir(struct input *in, uint64_t ino, unsigned int flags,
		  struct input_dir **out)
{
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];
	struct meta_entry entry;
	struct input_dir *d;
	int r = input_find_current(in, ino, flags, dir, name, &entry);

	if (r != 0)
		return input_border(r);
	if (name[0] && !entry.attr.is_dir)
		return err_origin(-ENOTDIR);
	d = calloc(1, sizeof(*d));
	if (!d)
		return err_origin(-ENOMEM);
	d->in = in;
	d->ino = ino;
	r = input_dir_key(in, ino, d->path);
	/* The request goes out now: readdir() will wait for less. */
	if (r == 0)
		r = meta_list(in->meta, d->path, &d->listing);
	if (r < 0) {
		free(d);
		return input_border(r);
	}
	*out = d;
	return 0;
}

/* What to show with a name; with `posix` a file may have to be asked for. */
static int entry_attr(struct input_dir *d, const struct listing_entry *e,
		      unsigned int flags, struct meta_entry *entry)
{
	struct input *in = d->in;
	int r;

	if (in->config.posix && !e->attr.is_dir && !e->attr.has_posix) {
		r = input_find(in, d->path, e->name, flags, entry);
		if (r == META_E_WAIT)
			return TREE_E_WAIT;
		if (r != META_E_NONE)
			return err_trace(r);
		/* Gone since it was listed: as it was then. */
	}
	*entry = (struct meta_entry){
		.attr = e->attr, .until_ms = meta_listing_until(in->meta, d->listing)};
	return 0;
}

/* One readdir on its way. */
struct page {
	struct input_dir *dir;
	uint64_t at; /* the position to go on from */
	uint32_t count;
	bool with_lookup;
	unsigned int flags;
	tree_fill_fn fill;
	void *arg;
	int result; /* what ended it early */
	/* With posix: files to be asked for before they are shown. */
	char (*names)[PATH_NAME_MAX + 1];
	uint32_t name_count, entry_count;
};

/* A listing_fn. */
static int gather(void *arg, const struct listing_entry *e, uint64_t next)
{
	struct page *p = arg;

	(void)next;
	if (!e->attr.is_dir && !e->attr.has_posix)
		strcpy(p->names[p->name_count++], e->name);
	return ++p->entry_count == META_ASK_MAX ? LISTING_E_END : 0;
}

/* So that a page costs a round trip and not one for each of its files. */
static int ask_files(struct page *p, const struct wait *w)
{
	int r;

	p->names = calloc(META_ASK_MAX, sizeof(*p->names));
	if (!p->names)
		return err_origin(-ENOMEM);
	r = listing_each(p->dir->listing, p->at, false, w, gather, p);
	if (r >= 0)
		meta_ask_files(p->dir->in->meta, p->dir->path, p->names, p->name_count,
			       w);
	free(p->names);
	return r < 0 ? err_trace(r) : 0;
}

static int show(struct page *p, const struct listing_entry *e, uint64_t next)
{
	struct input_dir *d = p->dir;
	struct inodes *inodes = d->in->inodes;
	struct meta_entry entry;
	struct tree_attr attr;
	int r = entry_attr(d, e, p->with_lookup ? p->flags : p->flags | TREE_NOWAIT,
			   &entry);

	if (r == TREE_E_WAIT && !p->with_lookup)
		entry = (struct meta_entry){.attr = e->attr};
	else if (r != 0)
		return err_trace(r);
	input_fill_attr(d->in, &entry.attr, entry.until_ms, &attr);
	if (!p->with_lookup) {
		attr.ino = inodes_peek(inodes, d->ino, e->name);
		return p->fill(p->arg, e->name, &attr, next);
	}
	r = input_enter(d->in, d->ino, e->name, &entry.attr, &attr);
	if (r < 0)
		return err_trace(r);
	r = p->fill(p->arg, e->name, &attr, next);
	if (r != 0)
		inodes_forget(inodes, attr.ino, 1);
	return r;
}

/* A listing_fn. */
static int show_next(void *arg, const struct listing_entry *e, uint64_t next)
{
	struct page *p = arg;

	p->result = show(p, e, next);
	if (p->result != 0)
		return LISTING_E_END;
	p->at = next;
	p->count++;
	return p->entry_count && p->count == p->entry_count ? LISTING_E_END : 0;
}

int input_readdir(struct input_dir *dir, uint64_t cookie, bool with_lookup,
		  unsigned int flags, tree_fill_fn fill, void *arg)
{
	struct page p = {
		.dir = dir,
		.at = cookie,
		.with_lookup = with_lookup,
		.flags = flags,
		.fill = fill,
		.arg = arg,
	};
	struct blocked b;
	const struct wait *w;
	int r = 0;

	/* Once there is something to show, showing it beats waiting for more. */
	if (flags & TREE_NOWAIT) {
		r = listing_each(dir->listing, cookie, true, NULL, show_next, &p);
	} else {
		w = input_block_begin(dir->in, &b);
		if (dir->in->config.posix && with_lookup)
			r = ask_files(&p, w);
		if (r == 0)
			r = listing_each(dir->listing, cookie, false, w, show_next, &p);
		input_block_end(dir->in, &b);
	}
	if (p.count || p.result == TREE_E_FULL)
		return 0;
	if (p.result != 0)
		return input_border(p.result);
	if (r == LISTING_E_WAIT)
		return TREE_E_WAIT;
	return r == LISTING_E_END ? 0 : input_border(r);
}

void input_closedir(struct input_dir *dir)
{
	if (!dir)
		return;
	listing_put(dir->listing);
	free(dir);
}
