/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/proof.h"

#include <stdlib.h>

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/object.h"
#include "cache/origin.h"
#include "cache/state.h"
#include "cache/store.h"
#include "cache/sums.h"
#include "fs/base/crc.h"
#include "fs/base/log.h"

/* A piece takes 16 bytes: together at most a 64th of what the buffers may take. */
#define PIECES_PER_BUDGET 1024

static bool is_summed(const struct object *o)
{
	return !o->small && (o->origin->caps & ORIGIN_CAP_CRC64);
}

void proof_init(struct object *o)
{
	o->proof.unsummed = o->block_count;
	o->proof.generation = 1;
}

/* ---- sums ---- */

static struct block *next_touched(struct object *o, uint64_t *block)
{
	for (; *block < o->block_count; ++*block) {
		struct block *leaf = o->leaves[*block / OBJECT_LEAF_BLOCKS];

		if (leaf)
			return &leaf[(*block)++ % OBJECT_LEAF_BLOCKS];
		*block |= OBJECT_LEAF_BLOCKS - 1;
	}
	return NULL;
}

static void begin_anew(struct object *o)
{
	uint64_t at = 0, pieces = 0;
	struct block *b;

	while ((b = next_touched(o, &at)))
		pieces += sums_drop(b);
	atomic_fetch_sub(&o->cache->sum_pieces, pieces);
	o->proof.unsummed = o->block_count;
	o->proof.right = false;
	o->proof.lo = o->proof.hi = 0;
}

void proof_fini(struct object *o)
{
	if (o->leaves)
		begin_anew(o);
	free(o->proof.suspect);
}

static enum sums_result add(struct object *o, struct block *b, uint64_t off,
			    const void *data, uint32_t n, uint64_t crc)
{
	uint64_t before = atomic_load(&o->cache->sum_pieces), now = before;
	uint64_t max = budget_max(o->cache->budget) / PIECES_PER_BUDGET;
	enum sums_result r = sums_add(b, object_block_len(o, off >> BLOCK_SHIFT),
				      (uint32_t)(off >> PAGE_SHIFT) % BLOCK_PAGES, data,
				      n, crc, max, &now);

	atomic_fetch_add(&o->cache->sum_pieces, now - before);
	return r;
}

void proof_lose_locked(struct object *o, uint64_t block)
{
	struct block *b = object_block_locked(o, block);

	o->proof.right = false;
	if (!b)
		return;
	o->proof.unsummed += b->has_crc64;
	o->checked -= block_uncheck(b);
	atomic_fetch_sub(&o->cache->sum_pieces, sums_drop(b));
}

/* ---- verdicts ---- */

bool proof_can_keep(const struct object *o)
{
	struct cache *c = o->cache;
	uint64_t limit;

	if (!store_disk_usable(c))
		return o->size <= budget_max(c->budget) / 4;
	limit = disk_limit(c->disk);
	return o->size + datafile_map_bytes(o->size) <= limit - limit / 16;
}

bool proof_doubts_locked(const struct object *o)
{
	return o->failures > 0;
}

static void taint(struct object *o, uint32_t generation)
{
	o->proof.tainted = generation;
	cache_count(&o->cache->count.wrong_shown, 1);
	log_error("wrong bytes were shown, files open since before will fail key=%s",
		  ident_key(o->ident));
}

/* What there was of blocks' sums, to be compared with the right ones. */
static uint64_t *keep_sums(const struct object *o)
{
	uint64_t *sums;

	if (o->proof.unsummed)
		return NULL;
	sums = malloc(o->block_count * sizeof(*sums));
	for (uint64_t i = 0; sums && i < o->block_count; i++)
		sums[i] = o->leaves[i / OBJECT_LEAF_BLOCKS][i % OBJECT_LEAF_BLOCKS].crc64;
	return sums;
}

/* Nobody must find what is in memory; a writer that has some in hand drops it. */
static void drop_fills(struct object *o)
{
	uint64_t at = 0;
	struct block *b;

	while ((b = next_touched(o, &at)))
		for (struct fill *f = b->fills, *next; f; f = next) {
			next = f->next;
			if (f->state != FILL_READY)
				continue;
			atomic_fetch_add(&f->refs, 1);
			f->revoked = true;
			fill_unlink_locked(f);
			f->next = o->proof.dropped;
			o->proof.dropped = f;
		}
}

static void tell_readers(struct object *o)
{
	struct list *it;

	list_for_each (it, &o->readers) {
		struct object_reader *reader =
			container_of(it, struct object_reader, link);

		if (reader->wrong)
			reader->wrong(reader->wrong_arg);
	}
}

static bool wrong(struct object *o, bool complete)
{
	struct proof *p = &o->proof;
	bool shown = p->hi > p->lo;

	cache_count(&o->cache->count.crc_mismatches, 1);
	log_warn("object fails its checksum, dropped key=%s", ident_key(o->ident));
	o->failures++;
	if (shown && !p->suspect && complete && proof_can_keep(o)) {
		p->suspect = keep_sums(o);
		p->suspect_lo = p->lo;
		p->suspect_hi = p->hi;
	}
	if (shown && (!p->suspect || !complete))
		taint(o, p->generation);
	p->generation++;
	begin_anew(o);
	drop_fills(o);
	object_detach_locked(o);
	p->dropping = true;
	if (shown)
		tell_readers(o);
	return false;
}

/* Which blocks were wrong, and whether anybody has seen them. */
static void settle_suspicion(struct object *o)
{
	struct proof *p = &o->proof;
	uint64_t lo = UINT64_MAX, hi = 0;

	for (uint64_t i = 0; i < o->block_count; i++) {
		if (p->suspect[i] ==
		    o->leaves[i / OBJECT_LEAF_BLOCKS][i % OBJECT_LEAF_BLOCKS].crc64)
			continue;
		lo = lo < i ? lo : i;
		hi = i + 1;
	}
	lo <<= BLOCK_SHIFT;
	hi <<= BLOCK_SHIFT;
	log_warn("wrong bytes were in [%llu, %llu), repaired key=%s",
		 (unsigned long long)lo, (unsigned long long)hi, ident_key(o->ident));
	if (lo < p->suspect_hi && p->suspect_lo < hi)
		taint(o, p->generation - 1);
	free(p->suspect);
	p->suspect = NULL;
}

bool proof_judge_locked(struct object *o)
{
	struct proof *p = &o->proof;
	uint64_t total = 0, zeros = crc64_zeros(BLOCK_BYTES);

	lock_assert_held(&o->lock);
	if (p->unsummed || p->right || !o->has_crc64 || !is_summed(o))
		return true;
	for (uint64_t i = 0; i < o->block_count; i++) {
		uint32_t n = object_block_len(o, i);
		uint64_t crc =
			o->leaves[i / OBJECT_LEAF_BLOCKS][i % OBJECT_LEAF_BLOCKS].crc64;

		total = n == BLOCK_BYTES ? crc64_append(total, crc, zeros)
					 : crc64_combine(total, crc, n);
	}
	if (total != o->crc64)
		return wrong(o, true);
	p->right = true;
	p->lo = p->hi = 0;
	o->failures = 0;
	if (p->suspect)
		settle_suspicion(o);
	return true;
}

/* Where sums have been lost: what is on disk is summed when it is read again, as if another
 * process had written it; what is in memory only is summed now. */
static void sum_again(struct object *o)
{
	uint64_t at = 0;
	struct block *b;

	o->whole = false;
	while ((b = next_touched(o, &at))) {
		o->checked -= block_uncheck(b);
		for (struct fill *f = b->fills; f; f = f->next)
			if (f->state == FILL_READY &&
			    add(o, b, f->off, f->data, f->len, f->crc64) == SUMS_COMPLETE)
				o->proof.unsummed--;
	}
}

bool proof_add_locked(struct object *o, uint64_t off, const void *data, uint32_t n,
		      uint64_t crc)
{
	struct block *b = object_block_locked(o, off >> BLOCK_SHIFT);
	enum sums_result r;

	if (!b || !is_summed(o))
		return true;
	r = add(o, b, off, data, n, crc);
	if (r == SUMS_MIXED) {
		begin_anew(o);
		sum_again(o);
		r = add(o, b, off, data, n, crc);
	}
	if (r == SUMS_DIFFER)
		return wrong(o, false);
	if (r != SUMS_SAME)
		o->proof.right = false;
	if (r == SUMS_COMPLETE)
		o->proof.unsummed--;
	return proof_judge_locked(o);
}

void proof_clear(struct object *o)
{
	struct cache *c = o->cache;
	struct fill *dropped;
	uint64_t freed;
	int slot;

	if (c->disk) {
		slot = disk_begin(c->disk);
		if (datafile_remove(c->disk, o->ident->hash, &freed) == 0)
			disk_release(c->disk, freed);
		disk_end(c->disk, slot);
	}
	lock_take(&o->lock);
	o->proof.dropping = false;
	dropped = o->proof.dropped;
	o->proof.dropped = NULL;
	lock_drop(&o->lock);
	while (dropped) {
		struct fill *f = dropped;

		dropped = f->next;
		fill_put(f);
	}
	news_tell(&c->news);
}

void proof_trust_locked(struct object *o)
{
	struct proof *p = &o->proof;

	p->right = true;
	p->lo = p->hi = 0;
	o->failures = 0;
	/* What was wrong cannot be told any more. */
	if (p->suspect)
		taint(o, p->generation - 1);
	free(p->suspect);
	p->suspect = NULL;
}

void proof_shown_locked(struct object *o, uint64_t off, uint64_t end)
{
	struct proof *p = &o->proof;

	if (p->right || !is_summed(o))
		return;
	if (p->lo == p->hi)
		p->lo = p->hi = off;
	p->lo = off < p->lo ? off : p->lo;
	p->hi = end > p->hi ? end : p->hi;
}
