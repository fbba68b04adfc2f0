/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/whole.h"

#include <errno.h>

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/object.h"
#include "cache/state.h"
#include "cache/verify.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/worker.h"

#define NOW_MS 1000                /* that a reader is kept waiting at most */
#define NOW_BYTES_MAX (4ull << 30) /* that can be checked in about this time */

enum whole_condition {
	WHOLE_E_NOT = 1,
	WHOLE_E_LATE
};

/* Reads a block to see its pages' checksums, and to have it summed. */
static int read_block(struct object *o, struct datafile *file, uint64_t block)
{
	uint32_t n = object_block_len(o, block), good;
	void *data;
	int r = budget_take(o->cache->budget, n, NULL, &data);

	if (r < 0)
		return err_trace(r);
	r = verify_read(o, file, block << BLOCK_SHIFT, data, n, false, &good);
	budget_give(o->cache->budget, data, n);
	return r == 0 && good == n ? 0 : WHOLE_E_NOT;
}

/* Makes sure of one block, and of its sum where the verdict is open. */
static int settle_block(struct object *o, struct datafile *file, uint64_t block)
{
	uint32_t n = object_block_len(o, block),
		 pages = (n + PAGE_BYTES - 1) / PAGE_BYTES, end;
	bool settled;
	struct block *b;
	int r;

	for (int tries = 0; tries < 2; tries++) {
		lock_take(&o->lock);
		b = object_block_locked(o, block);
		settled = b && o->nonce == file->nonce &&
			  block_run(b, 0, pages, &end) == BLOCK_CHECKED && end == pages &&
			  (b->has_crc64 || !o->has_crc64 || o->proof.right);
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

/* WHOLE_E_LATE: `until_ms` came before the end. */
static int find_out(struct object *o, struct datafile *file, uint64_t until_ms)
{
	bool right;
	int r = 0;

	for (uint64_t i = 0; i < o->block_count && r == 0; i++) {
		r = settle_block(o, file, i);
		if (r == 0 && clock_mono_ms() > until_ms)
			r = WHOLE_E_LATE;
	}
	if (r != 0)
		return r;
	lock_take(&o->lock);
	right = o->proof.right || !o->has_crc64;
	lock_drop(&o->lock);
	if (!right || (!datafile_sealed(file) && datafile_seal(file) < 0))
		return WHOLE_E_NOT;
	lock_take(&o->lock);
	if (o->nonce == file->nonce && o->checked == o->pages &&
	    (o->proof.right || !o->has_crc64)) {
		o->whole = true;
		o->failures = 0;
	}
	lock_drop(&o->lock);
	return 0;
}

static void settled(struct object *o)
{
	struct cache *c = o->cache;

	lock_take(&o->lock);
	o->whole_queued = false;
	lock_drop(&o->lock);
	lock_take(&c->whole_lock);
	pthread_cond_broadcast(&c->whole_settled);
	lock_drop(&c->whole_lock);
	news_tell(&c->news);
}

/* Leaves the next process a note that it need not look again. */
static void mark(struct object *o, struct datafile *file)
{
	bool whole;

	lock_take(&o->lock);
	whole = o->whole && o->nonce == file->nonce;
	lock_drop(&o->lock);
	if (whole && !datafile_marked(file) && datafile_mark(file) < 0)
		log_debug(LOG_CACHE, "file not marked key=%s", ident_key(o->ident));
}

static void job(void *arg)
{
	struct object *o = arg;
	struct datafile *file = NULL;

	if (object_file(o, false, &file) == 0)
		find_out(o, file, UINT64_MAX);
	settled(o);
	if (file)
		mark(o, file);
	datafile_put(file);
	object_put(o);
}

/* Claims the object for the caller to find out. */
static bool claim(struct object *o)
{
	bool go;

	lock_take(&o->lock);
	go = !o->whole && !o->whole_queued;
	if (go)
		o->whole_queued = true;
	lock_drop(&o->lock);
	return go;
}

static void start_claimed(struct object *o)
{
	object_ref(o);
	if (worker_try_submit(o->cache->checkers, job, o))
		return;
	settled(o);
	object_put(o);
}

void whole_start(struct object *o)
{
	if (claim(o))
		start_claimed(o);
}

/* 0: nobody is finding out about it. */
static int wait_settled(struct object *o, uint64_t until_ms)
{
	struct cache *c = o->cache;
	bool queued;
	int r = 0;

	lock_scope(&c->whole_lock);
	for (;;) {
		lock_take(&o->lock);
		queued = o->whole_queued;
		lock_drop(&o->lock);
		if (!queued || r == LOCK_E_TIMEOUT)
			return queued ? WHOLE_E_LATE : 0;
		r = lock_wait(&c->whole_lock, &c->whole_settled, until_ms);
	}
}

static bool is_whole(struct object *o)
{
	lock_scope(&o->lock);
	return o->whole;
}

bool whole_now(struct object *o)
{
	uint64_t until_ms = clock_mono_ms() + NOW_MS;
	struct datafile *file;
	int r;

	if (!claim(o))
		return wait_settled(o, until_ms) == 0 && is_whole(o);
	r = object_file(o, false, &file);
	if (r != 0) {
		settled(o);
		return false;
	}
	r = find_out(o, file, until_ms);
	datafile_put(file);
	/* What is left, and the mark. */
	if (r == WHOLE_E_LATE || r == 0)
		start_claimed(o);
	else
		settled(o);
	return is_whole(o);
}

bool whole_soon(struct object *o, const struct datafile *file)
{
	bool queued, sealed = datafile_sealed(file);

	if (sealed && o->size > NOW_BYTES_MAX) {
		whole_start(o);
		return false;
	}
	lock_take(&o->lock);
	queued = o->whole_queued;
	lock_drop(&o->lock);
	return queued || sealed;
}
