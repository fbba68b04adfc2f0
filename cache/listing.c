/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges in the order of keys. The first one that is not done is the front: its blocks are
 * settled as they fill, and its open block is read as it grows. When the front is done the
 * next range becomes it, and what that one has gathered is settled at once.
 *
 *   settled blocks | front: its open block | range: blocks, open | range: blocks, open | …
 *   what readers see                       | what only listing_find() sees
 *
 * Failure modes: a block that cannot be read back makes the listing fail, so that the next
 * look at the directory begins a new one.
 * Threads: one fetcher a range, any number of readers.
 */
#include "cache/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/listing_impl.h"
#include "cache/shelf.h"
#include "cache/wait.h"
#include "fs/base/err.h"

#define FILE_SHARE (128u << 10) /* what an open file counts in facts.bytes */

int listing_new(const char *dir, uint64_t born_ms, struct cache *cache,
		struct listing **out)
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l)
		return err_origin(-ENOMEM);
	atomic_store(&l->refs, 1);
	lock_init(&l->lock);
	lock_init(&l->spill_lock);
	lock_cond_init(&l->moved);
	list_init(&l->ranges);
	list_init(&l->spill);
	l->born_ms = born_ms;
	l->cache = cache;
	l->dir_len = strlen(dir);
	l->dir = strdup(dir);
	if (!l->dir) {
		listing_put(l);
		return err_origin(-ENOMEM);
	}
	*out = l;
	return 0;
}

struct listing *listing_get(struct listing *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

static void free_blocks(struct block_refs *blocks)
{
	for (size_t i = 0; i < blocks->count; i++) {
		entries_put(blocks->at[i]->mem);
		free(blocks->at[i]);
	}
	free(blocks->at);
}

void listing_free_range(struct listing_range *range)
{
	list_remove(&range->link);
	free_blocks(&range->blocks);
	entries_put(range->open);
	free(range->after);
	free(range);
}

void listing_put(struct listing *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) > 1)
		return;
	while (!list_empty(&l->ranges))
		listing_free_range(list_first(&l->ranges, struct listing_range, link));
	free_blocks(&l->settled);
	for (int i = 0; i < RECENT_N; i++)
		entries_put(l->recent[i].entries);
	for (uint32_t i = 0; i < l->twin_count; i++)
		free(l->twins[i]);
	free(l->twins);
	shelf_file_free(l->file);
	pthread_cond_destroy(&l->moved);
	lock_fini(&l->spill_lock);
	lock_fini(&l->lock);
	free(l->dir);
	free(l);
}

void listing_fail_locked(struct listing *l, int r)
{
	if (!l->error)
		l->error = r;
	l->complete = true;
}

/* ---- finding ---- */

/* The entries of a block. The lock is dropped while they are read from the disk. */
static int hold_locked(struct listing *l, struct block_ref *b, bool nowait,
		       struct entries **out)
{
	struct entries *e = b->mem;
	int r;

	for (int i = 0; i < RECENT_N && !e; i++)
		if (l->recent[i].block == b)
			e = l->recent[i].entries;
	if (e) {
		*out = entries_get(e);
		return 0;
	}
	lock_drop(&l->lock);
	r = listing_load_block(l, b, nowait, &e);
	lock_take(&l->lock);
	if (r < 0)
		listing_fail_locked(l, r);
	if (r != 0)
		return err_trace(r);
	entries_put(l->recent[l->recent_next].entries);
	l->recent[l->recent_next].block = b;
	l->recent[l->recent_next].entries = entries_get(e);
	l->recent_next = (l->recent_next + 1) % RECENT_N;
	*out = e;
	return 0;
}

/* The range that a key belongs to; NULL: it lies before the front. */
static struct listing_range *range_of(const struct listing *l, const char *key)
{
	struct listing_range *found = NULL;
	struct list *it;

	list_for_each (it, &l->ranges) {
		struct listing_range *range =
			container_of(it, struct listing_range, link);

		if (strcmp(range->after, key) >= 0)
			break;
		found = range;
	}
	return found;
}

static struct block_ref *block_of(const struct block_refs *blocks, const char *key)
{
	size_t low = 0, high = blocks->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(blocks->at[mid]->first_key, key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? blocks->at[low - 1] : NULL;
}

#define NOWHERE UINT64_MAX

struct found {
	struct origin_attr *attr;
	uint64_t position; /* NOWHERE: not settled yet */
};

/* `first` is the position of the block, or NOWHERE. */
static bool find_in(const struct entries *e, uint64_t first, const char *name, size_t n,
		    bool is_dir, struct found *found)
{
	uint32_t i = entries_lower_bound(e, name, n, is_dir);

	if (i == entries_count(e) || entries_compare(e, i, name, n, is_dir) != 0)
		return false;
	entries_attr(e, i, found->attr);
	found->position = first == NOWHERE ? NOWHERE : first + i;
	return true;
}

/* One key. LISTING_E_END: it is not there, nor will it come; LISTING_E_WAIT: not known, or
 * not without the disk; negative errno. */
static int find_key_locked(struct listing *l, const char *name, bool is_dir, bool nowait,
			   struct found *out)
{
	char key[PATH_NAME_MAX + 2];
	size_t n = strlen(name);
	struct listing_range *range;
	struct entries *e = NULL;
	struct block_ref *b;
	bool found, decided, settled;
	int r = 0;

	if (n > PATH_NAME_MAX)
		return LISTING_E_END;
	memcpy(key, name, n);
	memcpy(key + n, is_dir ? "/" : "", 2 - !is_dir);
	range = range_of(l, key);
	if (range)
		decided = range->done || strcmp(range->last, key) >= 0;
	else
		decided = l->begun;
	settled = !range || listing_is_front(range);
	if (range && range->open &&
	    find_in(range->open, settled ? l->settled_count : NOWHERE, name, n, is_dir,
		    out))
		return 0;
	b = block_of(settled ? &l->settled : &range->blocks, key);
	if (b)
		r = hold_locked(l, b, nowait, &e);
	if (r != 0)
		return err_trace(r);
	found = e && find_in(e, settled ? b->first : NOWHERE, name, n, is_dir, out);
	entries_put(e);
	if (found)
		return 0;
	return decided ? LISTING_E_END : LISTING_E_WAIT;
}

int listing_find(struct listing *l, const char *name, bool nowait,
		 struct listing_entry *entry)
{
	struct found found = {.attr = &entry->attr};
	size_t n = strlen(name);
	int dir, r;

	if (n > PATH_NAME_MAX)
		return LISTING_E_END;
	lock_scope(&l->lock);
	dir = find_key_locked(l, name, true, nowait, &found);
	r = dir == 0 ? 0 : find_key_locked(l, name, false, nowait, &found);
	if (dir < 0 || r < 0)
		return LISTING_E_WAIT; /* another listing will tell */
	/* A file may still turn out to be a directory. */
	if (r == 0 && dir == LISTING_E_WAIT)
		return LISTING_E_WAIT;
	if (r == LISTING_E_END && dir != LISTING_E_END)
		r = LISTING_E_WAIT;
	memcpy(entry->name, name, n + 1);
	return r;
}

void listing_count_twins(struct listing *l)
{
	struct origin_attr attr;
	struct found found = {.attr = &attr};

	lock_scope(&l->lock);
	for (uint32_t i = 0; i < l->twin_count; i++) {
		l->shadowed += find_key_locked(l, l->twins[i], false, false, &found) == 0;
		free(l->twins[i]);
	}
	l->twin_count = 0;
}

void listing_done(struct listing *l, int error)
{
	lock_scope(&l->lock);
	if (error < 0)
		listing_fail_locked(l, error);
	l->complete = true;
	pthread_cond_broadcast(&l->moved);
}

int listing_after(struct listing *l, const char *name, uint64_t *position)
{
	struct origin_attr attr;
	struct found found = {.attr = &attr, .position = NOWHERE};
	int r;

	lock_scope(&l->lock);
	r = find_key_locked(l, name, false, false, &found);
	if (r != 0)
		r = find_key_locked(l, name, true, false, &found);
	if (r != 0 || found.position == NOWHERE)
		return r < 0 ? err_trace(r) : LISTING_E_WAIT;
	*position = found.position + 1;
	return 0;
}

/* ---- reading along ---- */

/* The block of a position, or what there is instead. */
static int block_at_locked(struct listing *l, uint64_t position, bool nowait,
			   struct entries **out, uint64_t *first)
{
	struct listing_range *front;
	size_t low = 0, high = l->settled.count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (l->settled.at[mid]->first <= position)
			low = mid + 1;
		else
			high = mid;
	}
	if (position < l->settled_count) {
		*first = l->settled.at[low - 1]->first;
		return hold_locked(l, l->settled.at[low - 1], nowait, out);
	}
	front = list_empty(&l->ranges)
			? NULL
			: list_first(&l->ranges, struct listing_range, link);
	if (front && front->open &&
	    position < l->settled_count + entries_count(front->open)) {
		*first = l->settled_count;
		*out = entries_get(front->open);
		return 0;
	}
	if (!l->complete)
		return LISTING_E_WAIT;
	return l->error < 0 ? err_trace(l->error) : LISTING_E_END;
}

static int block_at(struct listing *l, uint64_t position, bool wait, bool nowait,
		    const struct wait *w, struct entries **out, uint64_t *first)
{
	int r;

	lock_scope(&l->lock);
	while ((r = block_at_locked(l, position, nowait, out, first)) == LISTING_E_WAIT &&
	       wait) {
		r = wait_on(w, &l->lock, &l->moved);
		if (r < 0)
			return err_trace(r);
	}
	return err_trace(r);
}

static bool begins_with(const struct entries *e, uint32_t i, const char *name, size_t n)
{
	bool is_dir;
	size_t have;
	const char *other = entries_name(e, i, &have, &is_dir);

	return have >= n && !memcmp(other, name, n);
}

/* Whether the other kind of this name may be in the listing: between "a" and "a/" there
 * are only names that begin with "a". */
static bool may_have_twin(const struct entries *e, uint32_t i, const char *name, size_t n,
			  bool is_dir)
{
	if (is_dir)
		return i == 0 || begins_with(e, i - 1, name, n);
	return i + 1 >= entries_count(e) || begins_with(e, i + 1, name, n);
}

/* Fills the i-th entry. LISTING_E_END: it is not shown, because its name has been;
 * LISTING_E_WAIT: the disk must tell. */
static int show(struct listing *l, const struct entries *e, uint32_t i, bool nowait,
		struct listing_entry *entry)
{
	struct origin_attr other;
	struct found found = {.attr = &other};
	bool is_dir;
	size_t n;
	const char *name = entries_name(e, i, &n, &is_dir);
	int r = LISTING_E_END;

	memcpy(entry->name, name, n + 1);
	entries_attr(e, i, &entry->attr);
	if (!may_have_twin(e, i, name, n, is_dir))
		return 0;
	lock_scope(&l->lock);
	r = find_key_locked(l, entry->name, !is_dir, nowait, &found);
	if (r == 0 && is_dir)
		return LISTING_E_END;
	if (r == 0)
		entry->attr = other;
	/* What is before a directory has come: it is only not in memory. */
	if (r == LISTING_E_WAIT && (is_dir || (l->complete && !l->error)))
		return LISTING_E_WAIT;
	return r < 0 ? err_trace(r) : 0;
}

struct walk {
	struct listing *l;
	uint64_t position;
	bool any; /* something has been handed out */
	bool nowait;
	listing_fn fn;
	void *arg;
};

static int walk_block(struct walk *w, const struct entries *e, uint64_t first)
{
	struct listing_entry entry;
	uint32_t count = entries_count(e);

	while (w->position - first < count) {
		int r = show(w->l, e, (uint32_t)(w->position - first), w->nowait, &entry);

		if (r < 0 || r == LISTING_E_WAIT)
			return err_trace(r);
		if (r == 0) {
			r = w->fn(w->arg, &entry, w->position + 1);
			if (r != 0)
				return r;
			w->any = true;
		}
		w->position++;
	}
	return 0;
}

int listing_each(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
		 listing_fn fn, void *arg)
{
	struct walk walk = {
		.l = l, .position = position, .nowait = nowait, .fn = fn, .arg = arg};
	int r = 0;

	while (r == 0) {
		struct entries *e;
		uint64_t first = 0;

		r = block_at(l, walk.position, !nowait && !walk.any, nowait, w, &e,
			     &first);
		if (r == 0) {
			r = walk_block(&walk, e, first);
			entries_put(e);
		}
	}
	return r;
}

static int take_one(void *arg, const struct listing_entry *entry, uint64_t next)
{
	struct listing_entry *out = arg;

	(void)next;
	*out = *entry;
	return LISTING_E_WAIT + 1;
}

int listing_at(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
	       struct listing_entry *entry)
{
	int r = listing_each(l, position, nowait, w, take_one, entry);

	return r == LISTING_E_WAIT + 1 ? 0 : err_trace(r);
}

int listing_wait_page(struct listing *l, const struct wait *w)
{
	int r = 0;

	lock_scope(&l->lock);
	while (!l->pages && !l->complete && r == 0)
		r = wait_on(w, &l->lock, &l->moved);
	return err_trace(r);
}

struct listing_facts listing_facts(struct listing *l)
{
	lock_scope(&l->lock);
	return (struct listing_facts){
		.born_ms = l->born_ms,
		.count = l->count,
		.bytes = sizeof(*l) + l->memory +
			 l->settled.count * (sizeof(struct block_ref) + 64) +
			 (l->file ? FILE_SHARE : 0),
		.hidden = l->hidden,
		.shadowed = l->shadowed,
		.complete = l->complete,
		.error = l->error,
	};
}
