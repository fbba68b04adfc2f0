/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: fetch_start() takes buffers, links fills into their blocks (from then on
 * every other reader of these pages waits for this one request), submits; sink() copies
 * what arrives and wakes readers; a fill that is full goes to the writer at once, while the
 * request goes on; done() settles the rest.
 *
 * Failure modes: the request fails: fills that are not full fail and leave their blocks, so
 * that the next reader asks again. Too much, too little, or out of order: -EBADMSG. Another
 * version in the store: the object is stale for good.
 * On close: fetch_cancel_all() cancels and waits; the origin calls done for each.
 * Threads: fetch_start() on the reader's; sink() and done() on the origin's, which may be
 * inside submit: no lock is held there.
 */
#include "cache/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/budget.h"
#include "cache/object.h"
#include "cache/origin.h"
#include "cache/state.h"
#include "cache/store.h"
#include "cache/datafile.h"
#include "cache/wait.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define DEADLINE_MS 60000 /* of a prefetch, which has no reader's deadline */

enum {
	FILLS_MAX = FETCH_BLOCKS_MAX + 1
};

struct fetch {
	struct origin_req req;
	struct object *object; /* holds a reference until done */
	struct origin *origin;
	atomic_uint refs;  /* until done, and while being cancelled */
	struct list link;  /* in cache->fetches */
	bool cancelled;    /* under cache->lock */
	uint64_t off, end; /* of the request */
	uint64_t received;
	bool hold;              /* show nothing before the end */
	unsigned int count, at; /* fills; the one that receives */
	struct fill *fills[FILLS_MAX];
};

static void fetch_put(struct fetch *t)
{
	if (atomic_fetch_sub(&t->refs, 1) == 1)
		free(t);
}

/* ---- what arrives ---- */

static void wake_locked(struct fill *f)
{
	if (!f->waiters || (f->state == FILL_FETCHING && f->arrived < f->want))
		return;
	f->want = UINT32_MAX;
	pthread_cond_broadcast(&f->moved);
}

static void fail_locked(struct fill *f, int error)
{
	f->state = FILL_FAILED;
	f->error = f->object->error = error;
	fill_unlink_locked(f);
	wake_locked(f);
}

/* Full and right, as far as can be known: readers may have all of it, and the disk too. */
static void fill_ready(struct fill *f)
{
	struct object *o = f->object;
	bool right;

	lock_take(&o->lock);
	right = proof_add_locked(o, f->off, f->data, f->len, f->crc64);
	if (!right) {
		fail_locked(f, -EBADMSG);
		lock_drop(&o->lock);
		proof_clear(o);
		return;
	}
	f->state = FILL_READY;
	f->arrived = f->len;
	if (f->linked) {
		lock_take(&o->cache->lock);
		list_push_back(&o->cache->memory, &f->memory);
		lock_drop(&o->cache->lock);
	}
	wake_locked(f);
	lock_drop(&o->lock);
	store_fill(f);
}

static void fill_failed(struct fill *f, int error)
{
	lock_take(&f->object->lock);
	fail_locked(f, error);
	lock_drop(&f->object->lock);
}

/* The fetch of a fill has failed: what has arrived of it stays. */
static void fill_cut(struct fill *f, int error)
{
	lock_take(&f->object->lock);
	if (f->arrived)
		f->len = f->arrived;
	lock_drop(&f->object->lock);
	if (!f->arrived) {
		fill_failed(f, error);
		return;
	}
	f->crc64 = crc64(0, f->data, f->len);
	fill_ready(f);
}

/* The first bytes of a request: what waits for the others is not waiting for the network's
 * latency any more, and the object's checksum is there before its bytes. */
static void begin(struct fetch *t)
{
	struct object *o = t->object;

	lock_scope(&o->lock);
	for (unsigned int i = 0; i < t->count; i++)
		t->fills[i]->begun = true;
	if (t->req.attr.has_crc64) {
		o->crc64 = t->req.attr.crc64;
		o->has_crc64 = true;
	}
}

static int sink(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fetch *t = arg;
	const unsigned char *from = data;

	if (off != t->off + t->received || n > t->end - off)
		return err_origin(-EBADMSG);
	cache_count(&t->object->cache->count.bytes_fetched, n);
	if (t->received == 0)
		begin(t);
	while (n) {
		struct fill *f = t->fills[t->at];
		uint32_t have = (uint32_t)(t->off + t->received - f->off);
		uint32_t part = f->len - have < n ? f->len - have : (uint32_t)n;

		memcpy(f->data + have, from, part);
		f->crc64 = crc64(f->crc64, from, part);
		from += part;
		n -= part;
		t->received += part;
		if (have + part == f->len) {
			t->at++;
			if (!t->hold)
				fill_ready(f);
		} else if (!t->hold) {
			lock_take(&f->object->lock);
			/* Whole pages, as that is what can be kept when the rest fails. */
			f->arrived = (have + part) & ~(PAGE_BYTES - 1);
			wake_locked(f);
			lock_drop(&f->object->lock);
		}
	}
	return 0;
}

/* The store's word on the whole object, and ours on what it sent. */
static int judge(struct fetch *t)
{
	struct object *o = t->object;
	const struct origin_attr *attr = &t->req.attr;
	bool right;

	if (t->req.result < 0)
		return t->req.result;
	if (attr->size != o->size)
		return err_origin(-ESTALE);
	if (t->received != t->end - t->off)
		return err_origin(-EBADMSG);
	if (!ident_etag(o->ident)[0]) {
		struct ident *now;
		bool same;

		if (ident_new(o->origin->name, ident_key(o->ident), attr, &now) < 0)
			return err_origin(-ENOMEM);
		same = !memcmp(now->hash, o->ident->hash, sizeof(now->hash));
		free(now);
		if (!same)
			return err_origin(-ESTALE);
	}
	if (!attr->has_crc64)
		return 0;
	lock_take(&o->lock);
	o->crc64 = attr->crc64;
	o->has_crc64 = true;
	right = o->small || proof_judge_locked(o);
	lock_drop(&o->lock);
	if (!right)
		proof_clear(o);
	if (!o->small || t->fills[0]->crc64 == attr->crc64)
		return right ? 0 : err_origin(-EBADMSG);
	cache_count(&o->cache->count.crc_mismatches, 1);
	log_warn("object fails its checksum key=%s request=%s", ident_key(o->ident),
		 t->req.request_id);
	return err_origin(-EBADMSG);
}

static void done(struct origin_req *req)
{
	struct fetch *t = req->user;
	struct object *o = t->object;
	struct cache *c = o->cache;
	int r = judge(t);

	if (r < 0)
		cache_count(&c->count.requests_failed, 1);
	if (r == -ESTALE || r == -ENOENT) {
		lock_take(&o->lock);
		o->stale = true;
		lock_drop(&o->lock);
	}
	for (unsigned int i = 0; i < t->count; i++) {
		struct fill *f = t->fills[i];

		if (t->hold && r == 0)
			fill_ready(f);
		else if (t->hold || i >= t->at)
			fill_cut(f, r < 0 ? r : -EBADMSG);
		fill_put(f);
	}
	object_put(o);
	if (!req->background) {
		atomic_store(&c->demand_ms, clock_mono_ms());
		atomic_fetch_sub(&c->demand, 1);
	}
	news_tell(&c->news);
	/* Last of all: who waits for this may free the cache and the origin. */
	lock_take(&c->lock);
	list_remove(&t->link);
	c->fetch_count--;
	pthread_cond_broadcast(&c->fetch_gone);
	lock_drop(&c->lock);
	fetch_put(t);
}

/* ---- asking ---- */

static struct fill *fill_new(struct object *o, uint64_t off, uint32_t len, void *data)
{
	struct fill *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	object_ref(o);
	f->object = o;
	atomic_store(&f->refs, 1); /* the fetch's */
	f->data = data;
	f->off = off;
	f->len = f->room = len;
	f->want = UINT32_MAX;
	list_init(&f->memory);
	lock_cond_init(&f->moved);
	return f;
}

/* A buffer somebody waits for, or one that would be nice to have: prefetches leave a
 * quarter of the budget to readers. */
static int take_buffer(struct cache *c, uint32_t len, bool demanded, const struct wait *w,
		       void **out)
{
	uint64_t leave = budget_max(c->budget) / 4;

	if (demanded)
		return err_trace(budget_take(c->budget, len, w, out));
	*out = budget_try(c->budget, len, leave);
	if (!*out) {
		/* Never at the price of what other readers are still to come to. */
		fill_reclaim_used(c, len);
		*out = budget_try(c->budget, len, leave);
	}
	return *out ? 0 : FETCH_E_BUDGET;
}

/* One fill for each block that [off, end) touches, as far as memory goes. Only the first is
 * waited for: he who waits for memory must not sit on some that nobody can take back. */
static int make_fills(struct fetch *t, uint64_t demand_end, const struct wait *w)
{
	struct object *o = t->object;
	uint64_t at = t->off;
	int r = 0;

	while (at < t->end && t->count < FILLS_MAX) {
		uint64_t stop = (at | (BLOCK_BYTES - 1)) + 1;
		uint32_t len = (uint32_t)((stop < t->end ? stop : t->end) - at);
		void *data;

		r = take_buffer(o->cache, len, t->count == 0 && at < demand_end, w,
				&data);
		if (r != 0)
			break;
		t->fills[t->count] = fill_new(o, at, len, data);
		if (!t->fills[t->count]) {
			budget_give(o->cache->budget, data, len);
			r = err_origin(-ENOMEM);
			break;
		}
		t->fills[t->count++]->prefetch = at >= demand_end;
		at += len;
	}
	t->end = at;
	return t->count ? 0 : r;
}

static bool absent_locked(struct block *b, const struct fill *f, bool use_disk)
{
	uint32_t first = (uint32_t)(f->off >> PAGE_SHIFT) % BLOCK_PAGES;
	uint32_t last = first + (f->len + PAGE_BYTES - 1) / PAGE_BYTES, end;

	for (struct fill *other = b->fills; other; other = other->next)
		if (f->off < other->off + other->len && other->off < f->off + f->len)
			return false;
	/* With the disk out of use, what it holds counts for nothing. */
	if (!use_disk)
		return true;
	return block_run(b, first, last, &end) == BLOCK_ABSENT && end == last;
}

/* Links the fills as far as the pages are still absent; those behind are given up. */
static void link_fills(struct fetch *t, bool use_disk)
{
	struct object *o = t->object;
	unsigned int linked = 0;

	lock_take(&o->lock);
	while (linked < t->count) {
		struct fill *f = t->fills[linked];
		struct block *b = object_block_locked(o, f->off >> BLOCK_SHIFT);

		if (!b || !absent_locked(b, f, use_disk))
			break;
		f->next = b->fills;
		b->fills = f;
		f->linked = true;
		atomic_fetch_add(&f->refs, 1);
		linked++;
	}
	lock_drop(&o->lock);
	while (t->count > linked)
		fill_put(t->fills[--t->count]);
	if (linked)
		t->end = t->fills[linked - 1]->off + t->fills[linked - 1]->len;
}

static void submit(struct fetch *t, const struct wait *w)
{
	struct object *o = t->object;
	struct cache *c = o->cache;
	const char *etag = ident_etag(o->ident);

	t->req.op = ORIGIN_GET;
	t->req.key = ident_key(o->ident);
	t->req.off = t->off;
	t->req.len = t->end - t->off;
	t->req.if_match = etag[0] ? etag : NULL;
	t->req.sink = sink;
	t->req.sink_arg = t;
	t->req.done = done;
	t->req.user = t;
	t->req.deadline_ms = w && w->deadline_ms != UINT64_MAX
				     ? w->deadline_ms
				     : clock_mono_ms() + DEADLINE_MS;
	t->req.background = t->fills[0]->prefetch;
	if (!t->req.background)
		atomic_fetch_add(&c->demand, 1);
	cache_count(&c->count.requests, 1);
	for (unsigned int i = 0; i < t->count; i++)
		if (t->fills[i]->prefetch)
			cache_count(&c->count.bytes_prefetched, t->fills[i]->len);
	lock_take(&c->lock);
	list_push_back(&c->fetches, &t->link);
	c->fetch_count++;
	lock_drop(&c->lock);
	origin_submit(o->origin, &t->req);
}

int fetch_start(struct object *o, uint64_t off, uint64_t end, uint64_t demand_end,
		const struct wait *w, uint64_t *asked)
{
	struct fetch *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_origin(-ENOMEM);
	check(off % PAGE_BYTES == 0 && off < end && end <= o->size);
	object_ref(o);
	t->object = o;
	t->origin = o->origin;
	atomic_store(&t->refs, 1);
	list_init(&t->link);
	t->off = off;
	t->end = end;
	t->hold = o->small || !ident_etag(o->ident)[0];
	r = make_fills(t, demand_end, w);
	if (r == 0) {
		link_fills(t, store_disk_usable(o->cache));
		/* Nothing linked: someone else was quicker. */
		*asked = t->count ? t->end : off + PAGE_BYTES;
	}
	if (r == 0 && t->count) {
		submit(t, w);
	} else {
		object_put(o);
		fetch_put(t);
	}
	return err_trace(r);
}

static struct fetch *next_locked(struct cache *c, const struct origin *origin)
{
	struct list *it;

	list_for_each (it, &c->fetches) {
		struct fetch *t = container_of(it, struct fetch, link);

		if (t->cancelled || (origin && t->origin != origin))
			continue;
		t->cancelled = true;
		atomic_fetch_add(&t->refs, 1);
		return t;
	}
	return NULL;
}

static bool any_locked(struct cache *c, const struct origin *origin)
{
	struct list *it;

	list_for_each (it, &c->fetches)
		if (!origin || container_of(it, struct fetch, link)->origin == origin)
			return true;
	return false;
}

void fetch_cancel_all(struct cache *c, struct origin *origin)
{
	struct fetch *t;

	lock_take(&c->lock);
	while ((t = next_locked(c, origin))) {
		lock_drop(&c->lock);
		/* It may be over by now; the reference keeps the request in existence. */
		origin_cancel(t->origin, &t->req);
		fetch_put(t);
		lock_take(&c->lock);
	}
	while (any_locked(c, origin))
		lock_wait(&c->lock, &c->fetch_gone, UINT64_MAX);
	lock_drop(&c->lock);
}
