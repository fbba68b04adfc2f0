/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching an object that no reader waits for, in steps that never block on the store. */
#include <errno.h>

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/object.h"
#include "cache/read.h"
#include "cache/state.h"
#include "cache/store.h"
#include "fs/base/err.h"

#define REQUEST_BYTES (4ull << 20)
#define LOOKS_MAX 64 /* requests' worth looked through in one call */

static bool small_on_disk(struct object *o, struct index_small *where)
{
	bool located;

	if (!store_disk_usable(o->cache))
		return false;
	lock_take(&o->lock);
	located = o->located;
	*where = o->where;
	lock_drop(&o->lock);
	return located || index_find_small(o->cache->index, o->ident->hash, where) == 0;
}

static bool large_on_disk(struct object *o)
{
	struct datafile *f;
	bool whole;

	if (!store_disk_usable(o->cache))
		return false;
	lock_take(&o->lock);
	whole = o->whole;
	lock_drop(&o->lock);
	if (datafile_open(o->cache->disk, o->ident, false, &f) != 0)
		return false;
	whole = whole || datafile_sealed(f);
	datafile_put(f);
	return whole;
}

bool object_cached(struct object *o)
{
	struct index_small where;

	if (o->size == 0)
		return true;
	if (o->small && small_on_disk(o, &where)) {
		index_touch_pack(o->cache->index, where.pack, 0);
		return true;
	}
	if (o->small || !large_on_disk(o))
		return false;
	index_touch_large(o->cache->index, o->ident->hash,
			  (o->pages << PAGE_SHIFT) + datafile_map_bytes(o->size));
	return true;
}

static struct fill *fill_at(struct object *o, uint64_t off)
{
	lock_scope(&o->lock);
	return fill_find_locked(o, off);
}

static int ask(struct object *o, uint64_t at, uint64_t end, uint64_t *reached,
	       struct fill **coming)
{
	int r;

	lock_take(&o->lock);
	o->error = 0;
	lock_drop(&o->lock);
	r = fetch_start(o, at, end, 0, NULL, reached);
	if (r == FETCH_E_BUDGET)
		return OBJECT_E_WAIT;
	if (r < 0)
		return err_trace(r);
	if (*reached > end)
		*reached = end;
	*coming = fill_at(o, *reached - 1);
	return 0;
}

static int ask_small(struct object *o, uint64_t *reached, struct fill **coming)
{
	struct index_small where;
	int r = 0;

	*coming = fill_at(o, 0);
	if (!*coming && !small_on_disk(o, &where))
		r = ask(o, 0, o->size, reached, coming);
	if (r == 0)
		*reached = o->size;
	return err_trace(r);
}

int object_ask(struct object *o, uint64_t at, uint64_t end, uint64_t *reached,
	       struct fill **coming)
{
	int r = read_refused(o);

	*coming = NULL;
	*reached = at;
	if (r < 0 || at >= end)
		return err_trace(r);
	if (o->small)
		return err_trace(ask_small(o, reached, coming));
	for (int i = 0; i < LOOKS_MAX && at < end; i++) {
		uint64_t stop = at - at % REQUEST_BYTES + REQUEST_BYTES, run_end;

		stop = stop < end ? stop : end;
		if (read_absent_until(o, at, stop, &run_end))
			return err_trace(ask(o, at, run_end, reached, coming));
		if (run_end <= at)
			return err_origin(-ENOMEM);
		*reached = at = run_end;
	}
	return 0;
}

static bool any_fill_locked(const struct object *o)
{
	for (uint64_t b = 0; b < o->block_count; b++) {
		const struct block *leaf = o->leaves[b / OBJECT_LEAF_BLOCKS];

		if (!leaf)
			b |= OBJECT_LEAF_BLOCKS - 1;
		else if (leaf[b % OBJECT_LEAF_BLOCKS].fills)
			return true;
	}
	return false;
}

enum object_end object_settled(struct object *o)
{
	struct index_small where;
	bool queued, disk = store_disk_usable(o->cache);

	if (o->size == 0)
		return OBJECT_KEPT;
	lock_take(&o->lock);
	/* What the writers were not given stays in memory until that is wanted. */
	queued = any_fill_locked(o) && disk;
	if (queued && o->small) {
		struct fill *f = o->leaves[0]->fills;

		queued = f->state == FILL_FETCHING || atomic_load(&f->queued);
	}
	queued = queued || o->whole_queued;
	if (!queued && !o->small && o->checked == o->pages && disk) {
		lock_drop(&o->lock);
		return OBJECT_KEPT;
	}
	lock_drop(&o->lock);
	if (queued)
		return OBJECT_SETTLING;
	if (o->small)
		return small_on_disk(o, &where) ? OBJECT_KEPT : OBJECT_LOST;
	return large_on_disk(o) ? OBJECT_KEPT : OBJECT_LOST;
}

uint64_t object_prefetch(struct object *o)
{
	uint64_t before = atomic_load(&o->cache->count.bytes_prefetched);
	uint64_t at = 0, reached;
	struct fill *coming;

	while (at < o->size) {
		if (object_ask(o, at, o->size, &reached, &coming) != 0)
			break;
		fill_put(coming);
		at = reached;
	}
	return atomic_load(&o->cache->count.bytes_prefetched) - before;
}
