/* SPDX-License-Identifier: Apache-2.0 */
/* Fills as such: how they are found, held and let go (states: fetch.h). */
#include <assert.h>
#include <stdlib.h>

#include "cache/budget.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/object.h"
#include "cache/state.h"
#include "fs/base/check.h"

static const char *const state_names[] = {"fetching", "ready", "failed"};
static_assert(sizeof(state_names) / sizeof(*state_names) == FILL_STATE_N, "fill states");

const char *fill_state_name(enum fill_state state)
{
	return state < FILL_STATE_N ? state_names[state] : "unknown";
}

struct fill *fill_find_locked(struct object *o, uint64_t off)
{
	struct block *b = object_block_locked(o, off >> BLOCK_SHIFT);

	for (struct fill *f = b ? b->fills : NULL; f; f = f->next)
		if (off >= f->off && off < f->off + f->len) {
			atomic_fetch_add(&f->refs, 1);
			return f;
		}
	return NULL;
}

void fill_put(struct fill *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) > 1)
		return;
	budget_give(f->object->cache->budget, f->data, f->room);
	object_put(f->object);
	pthread_cond_destroy(&f->moved);
	free(f);
}

void fill_unlink_locked(struct fill *f)
{
	struct object *o = f->object;
	struct fill **at;

	lock_assert_held(&o->lock);
	if (!f->linked)
		return;
	f->linked = false;
	at = &object_block_locked(o, f->off >> BLOCK_SHIFT)->fills;
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	lock_take(&o->cache->lock);
	list_remove(&f->memory);
	lock_drop(&o->cache->lock);
	/* The block's reference; the caller has another. */
	check(atomic_fetch_sub(&f->refs, 1) > 1);
}

enum pick {
	PICK_USED = 1 << 0,   /* only what a reader has read to its end */
	PICK_QUEUED = 1 << 1, /* also what waits for the writer */
	PICK_HELD = 1 << 2,   /* also what someone is just reading */
};

void fill_set_queued(struct fill *f, bool queued)
{
	struct cache *c = f->object->cache;

	lock_scope(&c->lock);
	atomic_store(&f->queued, queued);
	if (list_empty(&f->memory))
		return; /* unlinked */
	list_remove(&f->memory);
	list_push_back(queued ? &c->queued : &c->memory, &f->memory);
}

static struct fill *oldest_of(struct list *list, const struct origin *origin,
			      unsigned int pick)
{
	struct list *it;

	list_for_each (it, list) {
		struct fill *f = container_of(it, struct fill, memory);

		if (origin && f->object->origin != origin)
			continue;
		if ((pick & PICK_USED) && !atomic_load(&f->used))
			continue;
		/* One reference is the block's, one the queue's; more, and letting go would
		 * free nothing. */
		if (!(pick & PICK_HELD) &&
		    atomic_load(&f->refs) > 1u + atomic_load(&f->queued))
			continue;
		atomic_fetch_add(&f->refs, 1);
		return f;
	}
	return NULL;
}

/* The oldest fill that may go, with a reference. */
static struct fill *oldest(struct cache *c, const struct origin *origin,
			   unsigned int pick)
{
	struct fill *f;

	lock_scope(&c->lock);
	f = oldest_of(&c->memory, origin, pick);
	return f || !(pick & PICK_QUEUED) ? f : oldest_of(&c->queued, origin, pick);
}

static uint64_t let_go(struct fill *f)
{
	uint64_t n = f->room;

	lock_take(&f->object->lock);
	fill_unlink_locked(f);
	/* The writer's queue may hold it for long when the disk hangs: it keeps the fill,
	 * not the memory. Unlinked, nobody else can come to it. */
	if (atomic_load(&f->queued) && !f->writing && atomic_load(&f->refs) == 2) {
		budget_give(f->object->cache->budget, f->data, f->room);
		f->data = NULL;
	}
	lock_drop(&f->object->lock);
	fill_put(f);
	return n;
}

static uint64_t reclaim(struct cache *c, uint64_t want, unsigned int pick)
{
	uint64_t freed = 0;

	while (freed < want) {
		struct fill *f = oldest(c, NULL, pick);

		if (!f)
			break;
		freed += let_go(f);
	}
	return freed;
}

void fill_reclaim(void *cache, uint64_t want)
{
	struct cache *c = cache;
	uint64_t freed = reclaim(c, want, PICK_USED);

	/* What waits for a disk that hangs will wait for long. */
	if (freed < want)
		reclaim(c, want - freed,
			c->disk && !disk_usable(c->disk) ? PICK_QUEUED : 0);
}

void fill_reclaim_used(struct cache *c, uint64_t want)
{
	reclaim(c, want, PICK_USED);
}

void fill_drop_all(struct cache *c, const struct origin *origin)
{
	struct fill *f;

	while ((f = oldest(c, origin, PICK_QUEUED | PICK_HELD)))
		let_go(f);
}
