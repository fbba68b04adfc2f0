/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of objects, and the life of one: made at the first object_get(), shared by all
 * who want the same version, idle when nobody holds it, forgotten when too many are idle.
 *
 * An idle object has no descriptors. Its blocks stay true as long as the file on disk is
 * the one they speak of, which the file's nonce tells when it is opened again.
 *
 * Threads: any. Lock order: object, then cache.
 */
#include "cache/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/evict.h"
#include "cache/fetch.h"
#include "cache/pack.h"
#include "cache/state.h"
#include "cache/store.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/worker.h"

#define IDLE_MAX 8192         /* objects */
#define IDLE_BLOCKS_MAX 65536 /* and blocks: 64 GiB of large objects */
#define LOOK_AGAIN_MS 1000    /* for a file that another process may have made */

static uint64_t leaf_count(const struct object *o)
{
	return (o->block_count + OBJECT_LEAF_BLOCKS - 1) / OBJECT_LEAF_BLOCKS;
}

static struct object *object_free(struct object *o)
{
	if (!o)
		return NULL;
	proof_fini(o);
	for (uint64_t i = 0; o->leaves && i < leaf_count(o); i++)
		free(o->leaves[i]);
	free(o->leaves);
	datafile_put(o->file);
	free(o->ident);
	lock_fini(&o->lock);
	free(o);
	return NULL;
}

static int object_new(struct cache *c, struct origin *origin, struct ident *ident,
		      struct object **out)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return err_origin(-ENOMEM);
	lock_init(&o->lock);
	o->cache = c;
	o->origin = origin;
	o->size = ident->size;
	o->pages = (o->size + PAGE_BYTES - 1) >> PAGE_SHIFT;
	o->block_count = (o->size + BLOCK_BYTES - 1) >> BLOCK_SHIFT;
	o->small = o->size <= PACK_OBJECT_MAX;
	o->key.origin = origin;
	memcpy(o->key.hash, ident->hash, sizeof(o->key.hash));
	list_init(&o->idle);
	list_init(&o->open);
	list_init(&o->readers);
	proof_init(o);
	o->leaves = calloc(leaf_count(o) + 1, sizeof(*o->leaves));
	if (!o->leaves) {
		object_free(o);
		return err_origin(-ENOMEM);
	}
	o->ident = ident;
	o->name.origin = origin;
	o->name.crc64 = crc64(0, ident_key(ident), strlen(ident_key(ident)));
	*out = o;
	return 0;
}

static struct object *find_locked(struct cache *c, const struct object_key *key)
{
	struct object *o;

	HASH_FIND(hh, c->objects, key, sizeof(*key), o);
	if (!o)
		return NULL;
	if (o->refs++ == 0) {
		list_remove(&o->idle);
		c->idle_count--;
		c->idle_blocks -= o->block_count;
	}
	return o;
}

static struct object *current_locked(struct cache *c, const struct object_name *name)
{
	struct object *o;

	HASH_FIND(hh_name, c->current, name, sizeof(*name), o);
	return o;
}

int object_get(struct cache *c, struct origin *origin, const char *key,
	       const struct origin_attr *attr, struct object **out)
{
	struct object_key wanted;
	struct object *o, *fresh = NULL;
	struct ident *ident;
	int r = ident_new(origin->name, key, attr, &ident);

	if (r < 0)
		return err_trace(r);
	memset(&wanted, 0, sizeof(wanted));
	wanted.origin = origin;
	memcpy(wanted.hash, ident->hash, sizeof(wanted.hash));
	lock_take(&c->lock);
	o = find_locked(c, &wanted);
	if (!o) {
		r = object_new(c, origin, ident, &fresh);
		if (r == 0) {
			ident = NULL;
			o = fresh;
			o->refs = 1;
			if (attr->has_crc64) {
				o->crc64 = attr->crc64;
				o->has_crc64 = true;
			}
			HASH_ADD(hh, c->objects, key, sizeof(o->key), o);
			if (!current_locked(c, &o->name))
				HASH_ADD(hh_name, c->current, name, sizeof(o->name), o);
		}
	}
	lock_drop(&c->lock);
	free(ident);
	if (r < 0)
		return err_trace(r);
	*out = o;
	return 0;
}

bool object_is_small(const struct object *o)
{
	return o->small;
}

void object_ref(struct object *o)
{
	lock_scope(&o->cache->lock);
	check(o->refs > 0);
	o->refs++;
}

static void remove_idle_locked(struct cache *c, struct object *o)
{
	list_remove(&o->idle);
	c->idle_count--;
	c->idle_blocks -= o->block_count;
	HASH_DEL(c->objects, o);
	if (current_locked(c, &o->name) == o)
		HASH_DELETE(hh_name, c->current, o);
	object_free(o);
}

/* A version that is gone will not be asked for again. */
static void forget_gone_locked(struct cache *c, struct object *o)
{
	evict_note_gone_locked(c, o);
	remove_idle_locked(c, o);
}

void object_current(struct object *o)
{
	struct cache *c = o->cache;
	struct object *last;

	lock_scope(&c->lock);
	o->replaced = false;
	last = current_locked(c, &o->name);
	if (last == o)
		return;
	if (last)
		HASH_DELETE(hh_name, c->current, last);
	HASH_ADD(hh_name, c->current, name, sizeof(o->name), o);
	if (!last || strcmp(ident_key(last->ident), ident_key(o->ident)) != 0)
		return;
	last->replaced = true;
	if (last->refs == 0)
		forget_gone_locked(c, last);
}

static void trim_locked(struct cache *c, bool all)
{
	while (!list_empty(&c->idle) &&
	       (all || c->idle_count > IDLE_MAX || c->idle_blocks > IDLE_BLOCKS_MAX))
		remove_idle_locked(c, list_first(&c->idle, struct object, idle));
}

void object_trim(struct cache *c, bool all)
{
	lock_scope(&c->lock);
	trim_locked(c, all);
}

/* The file, for the caller to put, when the object has none from now on. Both held. */
static struct datafile *take_file_locked(struct object *o)
{
	struct datafile *f = o->file;

	lock_assert_held(&o->lock);
	lock_assert_held(&o->cache->lock);
	if (f) {
		list_remove(&o->open);
		o->cache->open_count--;
	}
	o->file = NULL;
	return f;
}

static void close_file_locked(struct object *o)
{
	struct datafile *f;

	lock_take(&o->cache->lock);
	f = take_file_locked(o);
	lock_drop(&o->cache->lock);
	datafile_put(f);
}

void object_put(struct object *o)
{
	struct cache *c;
	struct datafile *file = NULL;

	if (!o)
		return;
	c = o->cache;
	/* The object's lock comes first in the order, and the last reference must find the
	 * file closed: whoever comes back opens it again. */
	lock_take(&o->lock);
	lock_take(&c->lock);
	check(o->refs > 0);
	if (--o->refs == 0) {
		file = take_file_locked(o);
		lock_drop(&o->lock);
		list_push_back(&c->idle, &o->idle);
		c->idle_count++;
		c->idle_blocks += o->block_count;
		if (o->stale || o->replaced)
			forget_gone_locked(c, o);
		trim_locked(c, false);
	} else {
		lock_drop(&o->lock);
	}
	lock_drop(&c->lock);
	datafile_put(file);
}

struct block *object_block_locked(struct object *o, uint64_t block)
{
	uint64_t leaf = block / OBJECT_LEAF_BLOCKS, count = OBJECT_LEAF_BLOCKS;

	lock_assert_held(&o->lock);
	check(block < o->block_count);
	if (!o->leaves[leaf]) {
		if (leaf == leaf_count(o) - 1)
			count = o->block_count - leaf * OBJECT_LEAF_BLOCKS;
		o->leaves[leaf] = calloc(count, sizeof(**o->leaves));
		if (!o->leaves[leaf])
			return NULL;
	}
	return &o->leaves[leaf][block % OBJECT_LEAF_BLOCKS];
}

void object_detach_locked(struct object *o)
{
	lock_assert_held(&o->lock);
	close_file_locked(o);
	o->nonce = 0;
	o->looked_ms = 0;
	o->checked = 0;
	o->whole = false;
	o->located = o->proven = false;
	for (uint64_t b = 0; b < o->block_count; b++) {
		struct block *block = o->leaves[b / OBJECT_LEAF_BLOCKS];

		if (!block) {
			b |= OBJECT_LEAF_BLOCKS - 1;
			continue;
		}
		block += b % OBJECT_LEAF_BLOCKS;
		memset(block->present, 0, sizeof(block->present));
		memset(block->checked, 0, sizeof(block->checked));
		block->loaded = false;
	}
}

/* A use, for the eviction's idea of age. */
static void touch_locked(struct object *o)
{
	uint64_t now = clock_mono_ms();

	if (o->touched_ms && now - o->touched_ms < 10000)
		return;
	o->touched_ms = now;
	index_touch_large(o->cache->index, o->ident->hash,
			  ((o->whole ? o->pages : o->checked) << PAGE_SHIFT) +
				  datafile_map_bytes(o->size));
}

static void adopt_locked(struct object *o, struct datafile *f, bool sealed, bool marked)
{
	uint64_t nonce = f->nonce;

	/* Another file than the blocks speak of: they mean nothing any more. */
	if (o->nonce != nonce)
		object_detach_locked(o);
	o->file = f;
	o->nonce = nonce;
	o->touched_ms = 0;
	o->whole = o->whole || marked;
	if (sealed)
		proof_trust_locked(o);
	lock_take(&o->cache->lock);
	list_push_back(&o->cache->open, &o->open);
	o->cache->open_count++;
	lock_drop(&o->cache->lock);
}

/* Closes the file that was opened first when there are too many: its reader opens it
 * again, and what is passed through needs none. No lock held. */
static void limit_open(struct cache *c)
{
	struct object *o = NULL;

	lock_take(&c->lock);
	if (c->open_count > c->open_max) {
		o = list_first(&c->open, struct object, open);
		o->refs++; /* it had some: an idle object has no file */
	}
	lock_drop(&c->lock);
	if (!o)
		return;
	lock_take(&o->lock);
	close_file_locked(o);
	lock_drop(&o->lock);
	object_put(o);
}

int object_file(struct object *o, bool create, struct datafile **out)
{
	struct datafile *f;
	bool sealed, marked, noted;
	uint32_t generation;
	uint64_t crc64;
	int r;

	if (!o->cache->disk || o->small)
		return DATAFILE_E_NONE;
	lock_take(&o->lock);
	/* A disk that hangs would not let go of us. */
	if (!o->file && !o->proof.dropping && store_disk_usable(o->cache) &&
	    (create || !o->looked_ms || clock_mono_ms() - o->looked_ms > LOOK_AGAIN_MS)) {
		generation = o->proof.generation;
		lock_drop(&o->lock);
		r = datafile_open(o->cache->disk, o->ident, create, &f);
		sealed = r == 0 && datafile_sealed(f);
		marked = sealed && datafile_marked(f);
		noted = r == 0 && datafile_crc64(f, &crc64);
		if (r == 0)
			limit_open(o->cache);
		lock_take(&o->lock);
		/* Another thread was first, or it has been found wrong meanwhile. */
		if (r == 0 && (o->file || generation != o->proof.generation))
			datafile_put(f);
		else if (r == 0)
			adopt_locked(o, f, sealed, marked);
		if (r == 0 && noted && !o->has_crc64) {
			o->crc64 = crc64;
			o->has_crc64 = true;
		}
		if (r == DATAFILE_E_NONE)
			o->looked_ms = clock_mono_ms();
		if (r != 0) {
			lock_drop(&o->lock);
			return err_trace(r);
		}
	}
	if (o->file) {
		touch_locked(o);
		*out = datafile_get(o->file);
	}
	r = o->file ? 0 : DATAFILE_E_NONE;
	lock_drop(&o->lock);
	return r;
}

int object_load(struct object *o, uint64_t block)
{
	uint64_t first = block * BLOCK_PAGES;
	uint32_t count = o->pages - first < BLOCK_PAGES ? (uint32_t)(o->pages - first)
							: BLOCK_PAGES;
	uint32_t records[BLOCK_PAGES] = {0};
	struct datafile *f = NULL;
	struct block *b;
	int r = object_file(o, false, &f);

	if (r == 0)
		r = datafile_load(f, first, count, records);
	lock_take(&o->lock);
	b = object_block_locked(o, block);
	/* The file may have changed hands while we read: then these records are another's. */
	if (b && r == 0 && f->nonce == o->nonce)
		block_merge(b, 0, count, records);
	if (b)
		b->loaded = true;
	lock_drop(&o->lock);
	datafile_put(f);
	if (r < 0)
		disk_fault(o->cache->disk, r, "reading a map");
	return b ? 0 : err_origin(-ENOMEM);
}

/* Files of open objects that another process has evicted keep their space until closed. */
void object_tidy(struct cache *c)
{
	struct object *o, *next, **held;
	size_t count = 0;

	lock_take(&c->lock);
	held = calloc(HASH_COUNT(c->objects) + 1, sizeof(struct object *));
	if (held)
		HASH_ITER (hh, c->objects, o, next) {
			if (o->refs == 0 || o->small)
				continue;
			o->refs++;
			held[count++] = o;
		}
	lock_drop(&c->lock);
	for (size_t i = 0; i < count; i++) {
		o = held[i];
		lock_take(&o->lock);
		if (o->file && datafile_gone(o->file))
			object_detach_locked(o);
		lock_drop(&o->lock);
		object_put(o);
	}
	free(held);
}

void object_forget_origin(struct cache *c, struct origin *origin)
{
	struct list *it, *next;

	/* Each may begin what the next one does, and none what one before it does. */
	fetch_cancel_all(c, origin);
	worker_drain(c->writers);
	worker_drain(c->checkers);
	fill_drop_all(c, origin);
	lock_scope(&c->lock);
	list_for_each_safe (it, next, &c->idle) {
		struct object *o = container_of(it, struct object, idle);

		if (o->origin == origin)
			remove_idle_locked(c, o);
	}
}
