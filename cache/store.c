/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writers. For a large object: space is counted, pages go to the data file, then their
 * records to the map, then the bits in memory say so and the fill leaves. For a small one:
 * a record is appended to the pack and the index is told.
 *
 * Failure modes: no room: evict, try once more, else the fill stays in memory. The disk
 * fails: pause (disk.h), the fill stays in memory. The file was removed by another process:
 * begin a new one.
 * Threads: writers only.
 */
#include "cache/store.h"

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/evict.h"
#include "cache/fetch.h"
#include "cache/object.h"
#include "cache/pack.h"
#include "cache/state.h"
#include "cache/verify.h"
#include "cache/wait.h"
#include "cache/whole.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/worker.h"

#define ROOM_TRIES 3

enum store_condition {
	STORE_E_FULL = 1,
	STORE_E_AGAIN
};

bool store_disk_usable(struct cache *c)
{
	return c->disk && disk_usable(c->disk);
}

/* While a file that was found wrong is being removed there is none, for a moment. */
static void wait_dropped(struct object *o)
{
	struct news *news = &o->cache->news;

	for (;;) {
		uint64_t seen = news_count(news);
		bool dropping;

		lock_take(&o->lock);
		dropping = o->proof.dropping;
		lock_drop(&o->lock);
		if (!dropping)
			return;
		news_wait(news, seen, clock_mono_ms() + WAIT_SLICE_MS);
	}
}

/* A file to write to that others will find. */
static int writable_file(struct object *o, struct datafile **out)
{
	struct datafile *f;
	int r;

	wait_dropped(o);
	r = object_file(o, true, &f);
	if (r == DATAFILE_E_FULL || r == DATAFILE_E_NONE)
		return STORE_E_FULL;
	if (r < 0)
		return err_trace(r);
	if (!datafile_gone(f)) {
		*out = f;
		return 0;
	}
	lock_take(&o->lock);
	if (o->file == f)
		object_detach_locked(o);
	lock_drop(&o->lock);
	datafile_put(f);
	return STORE_E_AGAIN;
}

/* Pages that do not count yet; another process may have stored the same ones. */
static uint32_t count_absent(const uint32_t *records, uint32_t count)
{
	uint32_t absent = 0;

	for (uint32_t i = 0; i < count; i++)
		absent += records[i] == 0;
	return absent;
}

static void make_records(const struct fill *f, uint32_t count, uint32_t *records)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = i * PAGE_BYTES;
		uint32_t n = f->len - at < PAGE_BYTES ? f->len - at : PAGE_BYTES;

		records[i] = datafile_record(f->data + at, n);
	}
}

static int write_pages(struct fill *f, struct datafile *file, uint32_t count)
{
	struct disk *disk = f->object->cache->disk;
	uint64_t page = f->off >> PAGE_SHIFT, bytes;
	uint32_t records[BLOCK_PAGES];
	bool has_crc64;
	uint64_t crc64;
	int r = datafile_load(file, page, count, records);

	if (r < 0)
		return err_trace(r);
	lock_take(&f->object->lock);
	has_crc64 = f->object->has_crc64;
	crc64 = f->object->crc64;
	lock_drop(&f->object->lock);
	bytes = (uint64_t)count_absent(records, count) << PAGE_SHIFT;
	if (!disk_reserve(disk, bytes))
		return STORE_E_FULL;
	make_records(f, count, records);
	r = datafile_write(file, f->off, f->data, f->len);
	if (r == 0 && has_crc64)
		r = datafile_note_crc64(file, crc64);
	if (r == 0)
		r = datafile_store(file, page, count, records);
	if (r < 0)
		disk_release(disk, bytes);
	return err_trace(r);
}

static void mark(struct fill *f, struct datafile *file, uint32_t count)
{
	struct object *o = f->object;
	uint32_t first = (uint32_t)(f->off >> PAGE_SHIFT) % BLOCK_PAGES;
	bool complete = false, revoked;
	struct block *b;

	lock_take(&o->lock);
	revoked = f->revoked;
	b = object_block_locked(o, f->off >> BLOCK_SHIFT);
	/* Written to a file that is not the object's any more: as if it had not been. */
	if (b && !revoked && o->nonce == file->nonce) {
		o->checked += block_mark(b, first, count);
		complete = o->checked == o->pages;
		fill_unlink_locked(f);
	}
	lock_drop(&o->lock);
	if (revoked)
		verify_drop_file(o, file);
	if (complete)
		whole_start(o);
}

static bool is_revoked(const struct fill *f)
{
	lock_scope(&f->object->lock);
	return f->revoked;
}

static int write_large(struct fill *f)
{
	uint32_t count = (f->len + PAGE_BYTES - 1) / PAGE_BYTES;
	struct datafile *file = NULL;
	int r = writable_file(f->object, &file);

	if (r == STORE_E_AGAIN)
		r = writable_file(f->object, &file);
	/* Revoked later than this, it goes to a file that is given up with it. */
	if (r == 0 && !is_revoked(f)) {
		r = write_pages(f, file, count);
		if (r == 0)
			mark(f, file, count);
	}
	datafile_put(file);
	return r == STORE_E_AGAIN ? STORE_E_FULL : err_trace(r);
}

static int write_small(struct fill *f)
{
	struct object *o = f->object;
	struct cache *c = o->cache;
	struct index_small where;
	uint64_t pack_bytes;
	int r = pack_append(c->packs, o->ident, f->data, &where);

	if (r != 0)
		return r == PACK_E_FULL ? STORE_E_FULL : err_trace(r);
	index_add_small(c->index, o->ident->hash, &where);
	if (pack_current(c->packs, &pack_bytes) == where.pack)
		index_touch_pack(c->index, where.pack, pack_bytes);
	lock_take(&o->lock);
	o->where = where;
	o->located = o->proven = true;
	fill_unlink_locked(f);
	lock_drop(&o->lock);
	return 0;
}

static int write_fill(struct fill *f)
{
	struct object *o = f->object;

	return o->small ? write_small(f) : write_large(f);
}

static void write_job(void *arg)
{
	struct fill *f = arg;
	struct object *o = f->object;
	struct cache *c = o->cache;
	int r = STORE_E_FULL, slot;

	lock_take(&o->lock);
	f->writing = f->data && f->linked && !f->revoked;
	lock_drop(&o->lock);
	if (f->writing && store_disk_usable(c)) {
		slot = disk_begin(c->disk);
		r = write_fill(f);
		/* What was made free, another writer may have taken. */
		for (int i = 0; r == STORE_E_FULL && i < ROOM_TRIES; i++) {
			if (!evict_room(c, f->len + datafile_map_bytes(o->size)))
				break;
			r = write_fill(f);
		}
		disk_end(c->disk, slot);
	}
	if (r != 0)
		cache_count(&c->count.bypassed, 1);
	if (r < 0)
		disk_fault(c->disk, r, "writing");
	lock_take(&o->lock);
	f->writing = false;
	lock_drop(&o->lock);
	fill_set_queued(f, false);
	fill_put(f);
	news_tell(&c->news);
}

void store_fill(struct fill *f)
{
	struct cache *c = f->object->cache;

	if (!c->disk)
		return;
	atomic_fetch_add(&f->refs, 1);
	fill_set_queued(f, true);
	if (disk_usable(c->disk) && worker_try_submit(c->writers, write_job, f))
		return;
	fill_set_queued(f, false);
	cache_count(&c->count.bypassed, 1);
	fill_put(f);
}
