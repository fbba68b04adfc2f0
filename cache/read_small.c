/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a small object can be: in memory (a fill), in a pack (`where`, its checksum seen or
 * not yet seen right), or only in the store. Each step of read_small() serves the read or
 * moves it to the next place; damaged or vanished pack records move it back to the store.
 */
#include "cache/read_small.h"

#include <errno.h>
#include <string.h>

#include "cache/budget.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/object.h"
#include "cache/origin.h"
#include "cache/pack.h"
#include "cache/state.h"
#include "cache/store.h"
#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define TOUCH_MS 10000

enum small_condition {
	SMALL_E_NEXT = 2
}; /* beside OBJECT_E_WAIT: look again */

struct call {
	struct object *o;
	uint64_t off;
	void *p;
	size_t n;
	bool nowait;
	bool missed;
	const struct wait *w;
};

static int copy_fill(struct call *c, struct fill *f)
{
	struct object *o = c->o;
	int r = 0;

	lock_take(&o->lock);
	while (r == 0 && f->state == FILL_FETCHING) {
		if (c->nowait) {
			r = OBJECT_E_WAIT;
			break;
		}
		c->missed = true;
		f->want = 0;
		f->waiters++;
		r = wait_on(c->w, &o->lock, &f->moved);
		f->waiters--;
	}
	if (r == 0 && f->state == FILL_FAILED)
		r = f->error;
	lock_drop(&o->lock);
	if (r == 0) {
		memcpy(c->p, f->data + c->off, c->n);
		if (c->off + c->n == f->len)
			atomic_store_explicit(&f->used, true, memory_order_relaxed);
	}
	return err_trace(r);
}

/* The record is not what the index said: look in the store. */
static int lose(struct call *c, const struct index_small *where, int r)
{
	struct object *o = c->o;
	struct cache *cache = o->cache;

	if (r < 0) {
		disk_fault(cache->disk, r, "reading");
		return SMALL_E_NEXT; /* the disk is out of use now */
	}
	if (r == PACK_E_DAMAGED) {
		cache_count(&cache->count.damaged, 1);
		log_warn("damaged object in the cache, dropped key=%s",
			 ident_key(o->ident));
	}
	index_drop_small(cache->index, o->ident->hash);
	lock_take(&o->lock);
	if (o->where.pack == where->pack && o->where.off == where->off)
		o->located = o->proven = false;
	lock_drop(&o->lock);
	return SMALL_E_NEXT;
}

/* First use: the whole record is read and compared, straight into the reader's memory when
 * it wants the whole. */
static int prove(struct call *c, const struct index_small *where)
{
	struct object *o = c->o;
	struct cache *cache = o->cache;
	bool direct = c->off == 0 && c->n == o->size;
	void *data = c->p;
	int r = 0, slot;

	if (!direct && c->nowait) {
		data = budget_try(cache->budget, o->size, 0);
		r = data ? 0 : OBJECT_E_WAIT;
	} else if (!direct) {
		r = budget_take(cache->budget, o->size, c->w, &data);
	}
	if (r != 0)
		return err_trace(r);
	slot = c->nowait ? -1 : disk_begin(cache->disk);
	r = pack_read(cache->packs, o->ident, where, data, c->nowait);
	disk_end(cache->disk, slot);
	if (r == 0 && !direct)
		memcpy(c->p, (char *)data + c->off, c->n);
	if (!direct)
		budget_give(cache->budget, data, o->size);
	if (r == PACK_E_WAIT)
		return OBJECT_E_WAIT;
	if (r != 0)
		return lose(c, where, r);
	lock_take(&o->lock);
	if (o->located && o->where.pack == where->pack && o->where.off == where->off)
		o->proven = true;
	lock_drop(&o->lock);
	return 0;
}

static int from_pack(struct call *c, const struct index_small *where, bool proven)
{
	struct cache *cache = c->o->cache;
	int r, slot;

	if (!proven)
		return err_trace(prove(c, where));
	slot = c->nowait ? -1 : disk_begin(cache->disk);
	r = pack_read_part(cache->packs, where, (uint32_t)c->off, c->p, c->n, c->nowait);
	disk_end(cache->disk, slot);
	if (r == PACK_E_WAIT)
		return OBJECT_E_WAIT;
	return r == 0 ? 0 : lose(c, where, r);
}

static int from_store(struct call *c)
{
	struct object *o = c->o;
	uint64_t asked;
	bool stale;

	if (c->nowait)
		return OBJECT_E_WAIT;
	lock_take(&o->lock);
	stale = o->stale;
	lock_drop(&o->lock);
	if (stale)
		return err_origin(-ESTALE);
	c->missed = true;
	return err_trace(fetch_start(o, 0, o->size, o->size, c->w, &asked));
}

static int step(struct call *c)
{
	struct object *o = c->o;
	bool located, proven, use_disk = store_disk_usable(o->cache);
	struct index_small where;
	uint64_t now = clock_mono_ms();
	struct fill *f;
	int r;

	lock_take(&o->lock);
	f = fill_find_locked(o, 0);
	located = o->located;
	proven = o->proven;
	where = o->where;
	if (located && use_disk && now - o->touched_ms > TOUCH_MS) {
		o->touched_ms = now;
		index_touch_pack(o->cache->index, where.pack, 0);
	}
	lock_drop(&o->lock);
	if (f) {
		r = copy_fill(c, f);
		fill_put(f);
		return err_trace(r);
	}
	if (use_disk && located)
		return err_trace(from_pack(c, &where, proven));
	if (use_disk) {
		r = index_find_small(o->cache->index, o->ident->hash, &where);
		if (r == 0) {
			lock_take(&o->lock);
			o->where = where;
			o->located = true;
			o->proven = false;
			lock_drop(&o->lock);
			return SMALL_E_NEXT;
		}
	}
	r = from_store(c);
	return r == 0 ? SMALL_E_NEXT : err_trace(r);
}

int read_small(struct object *o, uint64_t off, void *p, size_t n, bool nowait,
	       const struct wait *w, bool *missed)
{
	struct call c = {.o = o, .off = off, .p = p, .n = n, .nowait = nowait, .w = w};
	unsigned int failures = 0;
	int r;

	do {
		r = step(&c);
		if (r < 0 && (r == -ECANCELED || origin_is_transient(r)) &&
		    wait_check(w) == 0 && ++failures < OBJECT_FAILURES_MAX)
			r = SMALL_E_NEXT;
		lock_take(&o->lock);
		if (r < 0 && o->stale)
			r = -ESTALE;
		lock_drop(&o->lock);
	} while (r == SMALL_E_NEXT);
	*missed = c.missed;
	return err_trace(r);
}
