/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page that does not match its record is looked at once more under the object's lock and
 * then dropped: it is absent from there on, and the next reader fetches it.
 */
#include "cache/verify.h"

#include <errno.h>

#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/object.h"
#include "cache/state.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

void verify_drop_file(struct object *o, struct datafile *file)
{
	struct disk *disk = o->cache->disk;
	uint64_t freed;

	if (!datafile_gone(file) && datafile_remove(disk, o->ident->hash, &freed) == 0)
		disk_release(disk, freed);
	lock_take(&o->lock);
	if (o->nonce == file->nonce)
		object_detach_locked(o);
	lock_drop(&o->lock);
}

/* Another look at one page: between two reads another thread may have mended it. */
static bool still_wrong(struct datafile *file, uint64_t page)
{
	unsigned char data[PAGE_BYTES];
	uint64_t off = page << PAGE_SHIFT;
	uint64_t n = file->size - off < PAGE_BYTES ? file->size - off : PAGE_BYTES;
	uint32_t record;

	if (datafile_load(file, page, 1, &record) < 0 || !record)
		return false;
	return datafile_read(file, off, data, n, false) != (ssize_t)n ||
	       record != datafile_record(data, n);
}

/* All under the lock, reading and writing one page too: while a page is present nobody
 * fetches it, so nobody else can be writing what is looked at here. */
static bool drop_locked(struct object *o, struct datafile *file, uint64_t page)
{
	static const uint32_t none;
	uint32_t at = page % BLOCK_PAGES, end;
	struct block *b = object_block_locked(o, page / BLOCK_PAGES);

	if (!b || o->nonce != file->nonce ||
	    block_run(b, at, at + 1, &end) == BLOCK_ABSENT || !still_wrong(file, page))
		return false;
	if (datafile_store(file, page, 1, &none) == 0)
		disk_release(o->cache->disk, PAGE_BYTES);
	/* The next process must not take our word for what comes in its place. */
	if (datafile_sealed(file) && datafile_unseal(file) < 0)
		log_warn("cache map not unsealed key=%s", ident_key(o->ident));
	o->checked -= block_drop(b, at, 1);
	o->whole = false;
	proof_lose_locked(o, page / BLOCK_PAGES);
	return true;
}

static void drop_page(struct object *o, struct datafile *file, uint64_t page)
{
	bool dropped;

	lock_take(&o->lock);
	dropped = drop_locked(o, file, page);
	lock_drop(&o->lock);
	if (!dropped)
		return;
	cache_count(&o->cache->count.damaged, 1);
	log_warn("damaged page in the cache, dropped key=%s page=%llu",
		 ident_key(o->ident), (unsigned long long)page);
}

/* Pages from `first` on whose records match; the first that does not is dropped. */
static uint32_t compare(struct object *o, struct datafile *file, uint64_t first,
			const unsigned char *p, uint32_t n, const uint32_t *records)
{
	uint32_t at = 0;

	while (at < n) {
		uint32_t part = n - at < PAGE_BYTES ? n - at : PAGE_BYTES;
		uint32_t record = records[at >> PAGE_SHIFT];

		/* A record that has gone is not damage: someone dropped the page. */
		if (!record || record != datafile_record(p + at, part)) {
			if (record)
				drop_page(o, file, first + (at >> PAGE_SHIFT));
			return at;
		}
		at += part;
	}
	return at;
}

int verify_read(struct object *o, struct datafile *file, uint64_t off, void *p,
		uint32_t n, bool nowait, uint32_t *good)
{
	uint32_t count = (n + PAGE_BYTES - 1) / PAGE_BYTES, fresh;
	uint64_t first = off >> PAGE_SHIFT;
	uint32_t records[BLOCK_PAGES];
	bool right = true;
	struct block *b;
	ssize_t got;
	uint64_t crc;
	int r;

	got = datafile_read(file, off, p, n, nowait);
	if (got == -EAGAIN && nowait)
		return OBJECT_E_WAIT;
	if (got < 0)
		return err_trace((int)got);
	r = datafile_load(file, first, count, records);
	if (r < 0)
		return err_trace(r);
	*good = compare(o, file, first, p, (uint32_t)got, records);
	/* A file shorter than its object: someone cut it off. */
	if ((uint32_t)got < n && *good == (uint32_t)got)
		drop_page(o, file, first + (*good >> PAGE_SHIFT));
	fresh = (*good + PAGE_BYTES - 1) / PAGE_BYTES;
	crc = crc64(0, p, *good);
	lock_take(&o->lock);
	b = object_block_locked(o, off >> BLOCK_SHIFT);
	if (b && o->nonce == file->nonce) {
		o->checked += block_mark(b, first % BLOCK_PAGES, fresh);
		/* Where the verdict is known these pages were part of it. */
		if (*good && !o->proof.right)
			right = proof_add_locked(o, off, p, *good, crc);
	}
	lock_drop(&o->lock);
	if (!right) {
		proof_clear(o);
		*good = 0;
	}
	return 0;
}
