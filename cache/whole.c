/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/whole.h"

#include <errno.h>

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/object.h"
#include "cache/state.h"
#include "cache/verify.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/worker.h"

enum whole_condition {
	WHOLE_E_NOT = 1
};

static uint32_t block_len(const struct object *o, uint64_t block)
{
	uint64_t rest = o->size - (block << BLOCK_SHIFT);

	return rest < BLOCK_BYTES ? (uint32_t)rest : BLOCK_BYTES;
}

/* Reads a block to see its pages' checksums and, when wanted, its CRC-64. */
static int read_block(struct object *o, struct datafile *file, uint64_t block)
{
	uint32_t n = block_len(o, block), good;
	void *data;
	int r = budget_take(o->cache->budget, n, NULL, &data);

	if (r < 0)
		return err_trace(r);
	r = verify_read(o, file, block << BLOCK_SHIFT, data, n, false, &good);
	if (r == 0 && good == n) {
		uint64_t crc = crc64(0, data, n);
		struct block *b;

		lock_take(&o->lock);
		b = object_block_locked(o, block);
		if (b && o->nonce == file->nonce) {
			b->crc64 = crc;
			b->has_crc64 = true;
		}
		lock_drop(&o->lock);
	}
	budget_give(o->cache->budget, data, n);
	return r == 0 && good == n ? 0 : WHOLE_E_NOT;
}

/* Makes sure of one block; adds its CRC-64 to the object's when `combine`. */
static int settle_block(struct object *o, struct datafile *file, uint64_t block,
			bool combine, uint64_t *crc)
{
	uint32_t n = block_len(o, block), pages = (n + PAGE_BYTES - 1) / PAGE_BYTES, end;
	bool settled;
	struct block *b;
	int r;

	for (int tries = 0; tries < 2; tries++) {
		lock_take(&o->lock);
		b = object_block_locked(o, block);
		settled = b && o->nonce == file->nonce &&
			  block_run(b, 0, pages, &end) == BLOCK_CHECKED && end == pages &&
			  (b->has_crc64 || !combine);
		if (settled && combine)
			*crc = crc64_combine(*crc, b->crc64, n);
		lock_drop(&o->lock);
		if (settled)
			return 0;
		r = object_load(o, block);
		if (r == 0)
			r = read_block(o, file, block);
		if (r != 0)
			return err_trace(r);
	}
	return WHOLE_E_NOT;
}

static void drop_wrong(struct object *o, struct datafile *file)
{
	cache_count(&o->cache->count.crc_mismatches, 1);
	log_warn("object fails its checksum, dropped key=%s", ident_key(o->ident));
	lock_take(&o->lock);
	o->failures++;
	lock_drop(&o->lock);
	verify_drop_file(o, file);
}

static void find_out(struct object *o, struct datafile *file)
{
	bool sealed = datafile_sealed(file), combine;
	uint64_t crc = 0, wanted;
	int r = 0;

	lock_take(&o->lock);
	/* A seal says that these very pages have passed before. */
	combine = o->has_crc64 && !sealed;
	wanted = o->crc64;
	lock_drop(&o->lock);
	for (uint64_t i = 0; i < o->block_count && r == 0; i++)
		r = settle_block(o, file, i, combine, &crc);
	if (r != 0)
		return;
	if (combine && crc != wanted) {
		drop_wrong(o, file);
		return;
	}
	if (!sealed && datafile_seal(file) < 0)
		return;
	lock_take(&o->lock);
	if (o->nonce == file->nonce && o->checked == o->pages) {
		o->whole = true;
		o->failures = 0;
	}
	lock_drop(&o->lock);
}

static void job(void *arg)
{
	struct object *o = arg;
	struct datafile *file;

	if (object_file(o, false, &file) == 0) {
		find_out(o, file);
		datafile_put(file);
	}
	lock_take(&o->lock);
	o->whole_queued = false;
	lock_drop(&o->lock);
	object_put(o);
}

void whole_start(struct object *o)
{
	bool go;

	lock_take(&o->lock);
	go = !o->whole && !o->whole_queued;
	if (go)
		o->whole_queued = true;
	lock_drop(&o->lock);
	if (!go)
		return;
	object_ref(o);
	if (worker_try_submit(o->cache->checkers, job, o))
		return;
	lock_take(&o->lock);
	o->whole_queued = false;
	lock_drop(&o->lock);
	object_put(o);
}
