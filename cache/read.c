/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read takes the request apart into runs of pages in the same state (block.h) and serves
 * each from where it is: the file, after a first comparison of checksums; the memory of a
 * fill; or the store. What is missing is asked for first, all of it, then copied in order.
 *
 * Failure modes: a fill that fails is asked for again a few times, within the deadline; a
 * disk that fails is gone around; a damaged page is dropped and fetched.
 * Threads: any number of readers; no lock is held while reading a file, copying or asking.
 */
#include "cache/read.h"

#include <errno.h>
#include <string.h>

#include "cache/budget.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/guard.h"
#include "cache/object.h"
#include "cache/read_small.h"
#include "cache/state.h"
#include "cache/store.h"
#include "cache/verify.h"
#include "cache/wait.h"
#include "cache/whole.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"

#define WINDOW_MAX (128ull << 20)
#define REQUEST_MAX (4ull << 20)
#define FIRST_SHARE 4 /* of the window, for a reader that has shown nothing itself */

void object_reader_init(struct object_reader *reader, struct object *o,
			enum object_verify verify, object_wrong_fn wrong, void *wrong_arg)
{
	*reader = (struct object_reader){
		.object = o, .verify = verify, .wrong = wrong, .wrong_arg = wrong_arg};
	lock_init(&reader->lock);
	atomic_init(&reader->noted, false);
	readahead_init(&reader->ra);
	lock_scope(&o->lock);
	reader->generation = o->proof.generation;
	list_push_back(&o->readers, &reader->link);
}

void object_reader_fini(struct object_reader *reader)
{
	lock_take(&reader->object->lock);
	list_remove(&reader->link);
	lock_drop(&reader->object->lock);
	lock_fini(&reader->lock);
}

/* ---- one run ---- */

struct call {
	struct object *o;
	uint64_t at, end; /* still to be read */
	unsigned char *p; /* where `at` goes */
	bool nowait;
	bool missed;     /* had to wait for the store */
	bool silent;     /* and for the first time, for a request without an answer yet */
	uint64_t stream; /* bytes of its requests, if it is part of a sequence */
	bool guarded;    /* nothing is shown before the verdict on all of it */
	uint32_t generation; /* of the proof, when the read began */
	unsigned int failures;
	const struct wait *w;
};

struct run {
	enum block_page state;
	bool unloaded;         /* the map must be read first */
	bool closed;           /* the file must be opened first */
	uint64_t end;          /* of the run, at most the call's end */
	struct fill *fill;     /* COMING: with a reference */
	struct datafile *file; /* on disk: with a reference */
};

static int look(const struct call *c, bool use_disk, struct run *run)
{
	struct object *o = c->o;
	uint64_t block = c->at >> BLOCK_SHIFT, stop = (block + 1) << BLOCK_SHIFT;
	uint32_t first = (uint32_t)(c->at >> PAGE_SHIFT) % BLOCK_PAGES, last, end;
	struct block *b;

	*run = (struct run){.state = BLOCK_ABSENT};
	stop = stop < c->end ? stop : c->end;
	run->end = stop;
	last = (uint32_t)((stop - (block << BLOCK_SHIFT) + PAGE_BYTES - 1) >> PAGE_SHIFT);
	lock_scope(&o->lock);
	b = object_block_locked(o, block);
	if (!b)
		return err_origin(-ENOMEM);
	run->fill = fill_find_locked(o, c->at);
	if (run->fill) {
		run->state = BLOCK_COMING;
		end = run->fill->len;
		if (run->fill->off + end < stop)
			run->end = run->fill->off + end;
		return 0;
	}
	/* Up to where the next fill begins. */
	for (struct fill *f = b->fills; f; f = f->next)
		if (f->off > c->at && f->off < run->end)
			run->end = f->off;
	if (!use_disk)
		return 0;
	run->state = block_run(b, first, last, &end);
	run->unloaded = !b->loaded && run->state != BLOCK_CHECKED;
	stop = (block << BLOCK_SHIFT) + ((uint64_t)end << PAGE_SHIFT);
	run->end = stop < run->end ? stop : run->end;
	if (run->state != BLOCK_ABSENT && o->file)
		run->file = datafile_get(o->file);
	run->closed = run->state != BLOCK_ABSENT && !o->file;
	return 0;
}

static void advance(struct call *c, uint64_t to)
{
	c->p += to - c->at;
	c->at = to;
}

/* From memory: waits until all that is wanted of the fill is there. */
static int copy_fill(struct call *c, struct run *run)
{
	struct fill *f = run->fill;
	struct object *o = c->o;
	uint32_t from = (uint32_t)(c->at - f->off), want = (uint32_t)(run->end - f->off);
	uint32_t least;
	bool cut, last;
	int r = 0;

	lock_take(&o->lock);
	while (r == 0 && f->state == FILL_FETCHING && (f->arrived < want || c->guarded)) {
		if (c->nowait) {
			r = OBJECT_E_WAIT;
			break;
		}
		if (!c->missed)
			c->silent = !f->begun;
		c->missed = true;
		least = c->guarded ? f->len : want;
		if (least < f->want)
			f->want = least;
		f->waiters++;
		r = wait_on(c->w, &o->lock, &f->moved);
		f->waiters--;
	}
	if (r == 0 && f->state == FILL_FAILED)
		r = f->error;
	/* It ended before: the rest is to be asked for again. */
	cut = f->len < want;
	last = f->len == want;
	lock_drop(&o->lock);
	if (r == 0 && !cut) {
		memcpy(c->p, f->data + from, want - from);
		advance(c, run->end);
		if (last)
			atomic_store_explicit(&f->used, true, memory_order_relaxed);
	}
	return err_trace(r);
}

static int read_file(struct call *c, struct run *run)
{
	struct disk *disk = c->o->cache->disk;
	size_t n = run->end - c->at;
	int slot = c->nowait ? -1 : disk_begin(disk);
	ssize_t got = datafile_read(run->file, c->at, c->p, n, c->nowait);

	disk_end(disk, slot);
	if (got == (ssize_t)n) {
		advance(c, run->end);
		return 0;
	}
	if (got == -EAGAIN && c->nowait)
		return OBJECT_E_WAIT;
	/* What was checked is not there any more: nothing of this file can be trusted. */
	cache_count(&c->o->cache->count.damaged, 1);
	if (got < 0)
		disk_fault(disk, (int)got, "reading");
	verify_drop_file(c->o, run->file);
	return 0;
}

/* First use of pages that this process did not write. */
static int read_unchecked(struct call *c, struct run *run)
{
	struct budget *budget = c->o->cache->budget;
	struct disk *disk = c->o->cache->disk;
	uint64_t start = c->at & ~(uint64_t)(PAGE_BYTES - 1);
	uint64_t stop = (run->end + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
	uint32_t n, good = 0;
	void *data = NULL;
	int r = 0, slot;

	stop = stop < c->o->size ? stop : c->o->size;
	n = (uint32_t)(stop - start);
	if (c->nowait) {
		data = budget_try(budget, n, 0);
		r = data ? 0 : OBJECT_E_WAIT;
	} else {
		r = budget_take(budget, n, c->w, &data);
	}
	if (r != 0)
		return err_trace(r);
	slot = c->nowait ? -1 : disk_begin(disk);
	r = verify_read(c->o, run->file, start, data, n, c->nowait, &good);
	disk_end(disk, slot);
	if (r == 0 && start + good > c->at) {
		uint64_t to = start + good < run->end ? start + good : run->end;

		memcpy(c->p, (char *)data + (c->at - start), to - c->at);
		advance(c, to);
	}
	budget_give(budget, data, n);
	if (r < 0) {
		disk_fault(disk, r, "reading");
		r = 0;
	}
	return r;
}

/* ---- asking the store ---- */

bool read_absent_until(struct object *o, uint64_t at, uint64_t stop, uint64_t *end)
{
	struct call c = {.o = o, .at = at, .end = stop};
	bool absent = true;

	while (c.at < stop) {
		bool use_disk = store_disk_usable(o->cache);
		struct run run;

		if (look(&c, use_disk, &run) < 0)
			break;
		fill_put(run.fill);
		datafile_put(run.file);
		if (run.unloaded && run.state == BLOCK_ABSENT) {
			if (object_load(o, c.at >> BLOCK_SHIFT) < 0)
				break;
			continue;
		}
		if (run.state != BLOCK_ABSENT) {
			absent = c.at != at;
			if (!absent)
				c.at = run.end;
			break;
		}
		c.at = run.end;
	}
	*end = c.at;
	return absent;
}

int read_ask(struct object *o, uint64_t at, uint64_t end, uint64_t demand_end,
	     uint64_t request, const struct wait *w, uint64_t *reached)
{
	*reached = at;
	while (at < end) {
		uint64_t stop = at - at % request + request, run_end;
		int r;

		stop = stop < end ? stop : end;
		if (!read_absent_until(o, at, stop, &run_end)) {
			*reached = at = run_end;
			continue;
		}
		if (run_end <= at)
			return err_origin(-ENOMEM);
		r = fetch_start(o, at, run_end, demand_end, w, &at);
		if (r == FETCH_E_BUDGET)
			return 0;
		if (r < 0)
			return err_trace(r);
		*reached = at;
		/* Waited for once: what has come for it must be read before more memory is
		 * waited for, or several readers take it from each other for ever. */
		demand_end = 0;
	}
	return 0;
}

static uint64_t page_up(const struct object *o, uint64_t off)
{
	off = (off + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
	return off < o->size ? off : o->size;
}

int read_refused(struct object *o)
{
	lock_scope(&o->lock);
	if (o->stale)
		return err_origin(-ESTALE);
	return o->failures >= OBJECT_FAILURES_MAX ? err_origin(-EIO) : 0;
}

static bool is_summed(struct object *o, uint64_t off)
{
	const struct block *b;

	lock_scope(&o->lock);
	b = object_block_locked(o, off >> BLOCK_SHIFT);
	return b && (b->has_crc64 || b->sums);
}

/* What was summed and has gone again must come in whole blocks, to be compared with what it
 * was. Random reads cannot afford that. */
static void widen(struct object *o, uint64_t *start, uint64_t *end)
{
	uint64_t last = *end - 1;

	if (is_summed(o, *start))
		*start &= ~(uint64_t)(BLOCK_BYTES - 1);
	if (is_summed(o, last))
		*end = (last | (BLOCK_BYTES - 1)) + 1;
	if (*end > o->size)
		*end = o->size;
}

static int ask_range(struct call *c, const struct readahead_plan *plan, uint64_t start,
		     uint64_t end, uint64_t demand_end, uint64_t *reached)
{
	uint64_t request = plan->request ? plan->request : REQUEST_MAX;

	start &= ~(uint64_t)(PAGE_BYTES - 1);
	end = page_up(c->o, end);
	if (plan->request)
		widen(c->o, &start, &end);
	return err_trace(read_ask(c->o, start, end, demand_end, request, c->w, reached));
}

/* The read itself and what is to be ahead of it, or only the latter; how far it went. */
static int ask_for(struct call *c, const struct readahead_plan *plan, bool demand,
		   uint64_t *reached)
{
	uint64_t end = page_up(c->o, c->end);
	int r = 0;

	if (demand && plan->off == c->end)
		return err_trace(ask_range(c, plan, c->at, plan->end, end, reached));
	if (demand)
		r = ask_range(c, plan, c->at, end, end, reached);
	if (r == 0 && plan->end > plan->off)
		r = ask_range(c, plan, plan->off, plan->end, 0, reached);
	return err_trace(r);
}

/* A fill failed. Whoever asked for it may have had less time, or been cancelled. */
static int again(struct call *c, int r)
{
	int refusal = read_refused(c->o);

	if (refusal < 0)
		return err_trace(refusal);
	if (r == -EINTR || wait_check(c->w) < 0)
		return err_trace(r);
	if (r != -ECANCELED && !origin_is_transient(r))
		return err_trace(r);
	return ++c->failures < OBJECT_FAILURES_MAX ? 0 : err_trace(r);
}

static int serve(struct call *c)
{
	const struct readahead_plan here = {.request = c->stream};
	struct disk *disk = c->o->cache->disk;
	uint64_t reached;
	struct run run;
	int slot, r = look(c, store_disk_usable(c->o->cache), &run);

	if (r < 0)
		return err_trace(r);
	if (run.state == BLOCK_COMING) {
		r = copy_fill(c, &run);
		fill_put(run.fill);
		return r < 0 ? err_trace(again(c, r)) : r;
	}
	if (c->nowait && (run.unloaded || run.closed)) {
		r = OBJECT_E_WAIT; /* opening a file is waiting for the disk */
	} else if (run.unloaded) {
		slot = disk_begin(disk);
		r = object_load(c->o, c->at >> BLOCK_SHIFT);
		disk_end(disk, slot);
	} else if (run.closed) {
		slot = disk_begin(disk);
		r = object_file(c->o, false, &run.file);
		disk_end(disk, slot);
		if (r > 0) {
			lock_take(&c->o->lock);
			if (!c->o->file)
				object_detach_locked(c->o);
			lock_drop(&c->o->lock);
		} else if (r < 0) {
			disk_fault(c->o->cache->disk, r, "opening");
		}
		r = 0;
	} else if (run.state == BLOCK_CHECKED) {
		r = read_file(c, &run);
	} else if (run.state == BLOCK_UNCHECKED) {
		r = read_unchecked(c, &run);
	} else if (c->nowait) {
		r = OBJECT_E_WAIT;
	} else if (c->guarded) {
		c->missed = true;
		r = read_refused(c->o);
		if (r == 0)
			r = guard_fetch(c->o, c->at, c->w);
	} else {
		c->missed = c->silent = true;
		r = read_refused(c->o);
		if (r == 0)
			r = ask_for(c, &here, true, &reached);
	}
	datafile_put(run.file);
	return err_trace(r);
}

/* ---- the whole read ---- */

/* Whether all of it is in memory or in the file: a read that would stop half way is not
 * begun where nobody may wait, because it starts over where one may. */
static bool at_hand(const struct call *read)
{
	struct call c = *read;
	bool there = true;

	while (c.at < c.end && there) {
		struct run run;

		if (look(&c, store_disk_usable(c.o->cache), &run) < 0)
			return false;
		there = run.state != BLOCK_ABSENT && !run.unloaded && !run.closed;
		if (run.fill) {
			lock_take(&c.o->lock);
			there = run.fill->arrived >= run.end - run.fill->off;
			lock_drop(&c.o->lock);
		}
		fill_put(run.fill);
		datafile_put(run.file);
		c.at = run.end;
	}
	return there;
}

/* What to fetch ahead of the read. Objects that are read from their start are often read on
 * as the one before was: each such reader may rely on that, which halves it, and restores it
 * by reading on itself. */
static struct readahead_plan
plan_ahead(const struct object *o, struct object_reader *reader, uint64_t off, uint64_t n)
{
	uint64_t window = budget_max(o->cache->budget) / 2, known, read_on;
	_Atomic uint64_t *shared = &o->cache->read_on;
	struct readahead_plan plan;

	window = window < WINDOW_MAX ? window : WINDOW_MAX;
	atomic_store_explicit(&reader->noted, true, memory_order_relaxed);
	lock_scope(&reader->lock);
	known = atomic_load_explicit(shared, memory_order_relaxed);
	if (off == 0 && reader->ra.clock == 0) {
		reader->ra.first = known;
		known /= 2;
		atomic_store_explicit(shared, known, memory_order_relaxed);
	}
	plan = readahead_note(&reader->ra, off, n, o->size, window);
	read_on = readahead_read_on(&reader->ra);
	if (read_on > window / FIRST_SHARE)
		read_on = window / FIRST_SHARE;
	if (read_on > known)
		atomic_store_explicit(shared, read_on, memory_order_relaxed);
	return plan;
}

/* Asks for what is missing of the read at off, and ahead of it. */
static int look_around(struct call *c, struct object_reader *reader, uint64_t off,
		       bool whole)
{
	struct object *o = c->o;
	struct readahead_plan plan = {0};
	uint64_t reached = c->end;
	int r;

	/* One that began before it was whole goes on to show how it reads. */
	if (reader &&
	    (!whole || atomic_load_explicit(&reader->noted, memory_order_relaxed)))
		plan = plan_ahead(o, reader, off, c->end - off);
	if (whole || read_refused(o) < 0)
		return 0;
	c->stream = plan.request;
	r = ask_for(c, &plan, !c->nowait, &reached);
	if (plan.end > plan.off && reached < plan.end) {
		lock_take(&reader->lock);
		readahead_retreat(&reader->ra, &plan, reached);
		lock_drop(&reader->lock);
	}
	return err_trace(r);
}

/* Once through; whether what was copied may be shown is seen behind it. */
static int read_once(struct call *c, struct object_reader *reader, bool whole)
{
	uint64_t off = c->at, began_us, now_us;
	int r = 0;

	if (c->nowait && !at_hand(c))
		return OBJECT_E_WAIT;
	if (c->nowait)
		while (c->at < c->end && r == 0)
			r = serve(c);
	if (r == 0 && c->guarded)
		r = c->nowait ? 0 : guard_wait(c->o, c->w);
	else if (r == 0)
		r = look_around(c, reader, off, whole);
	began_us = clock_mono_ns() / 1000;
	while (c->at < c->end && r == 0)
		r = serve(c);
	if (c->missed && reader && !c->guarded) {
		now_us = clock_mono_ns() / 1000;
		lock_take(&reader->lock);
		readahead_waited(&reader->ra, off, c->silent, now_us - began_us, now_us);
		lock_drop(&reader->lock);
	}
	return err_trace(r);
}

/* Whether this reader may go on, and how. */
static int begin(struct call *c, struct object_reader *reader, bool *whole)
{
	struct object *o = c->o;

	lock_scope(&o->lock);
	*whole = o->whole;
	c->generation = o->proof.generation;
	c->guarded = guard_wanted_locked(o, reader ? reader->verify : OBJECT_VERIFY_END);
	if (!reader || reader->generation == c->generation)
		return 0;
	if (reader->generation <= o->proof.tainted)
		return err_origin(-EIO);
	/* Until it is known what was wrong, the guard lets nobody pass. */
	if (!o->proof.suspect)
		reader->generation = c->generation;
	return o->proof.suspect && !c->guarded ? err_origin(-EIO) : 0;
}

/* False: what was copied has been found wrong, or to be not yet known right. */
static bool end(struct call *c, struct object_reader *reader, uint64_t off)
{
	struct object *o = c->o;

	lock_scope(&o->lock);
	if (o->proof.generation != c->generation ||
	    (reader && reader->generation != c->generation) ||
	    (c->guarded && !guard_passes_locked(o)))
		return false;
	proof_shown_locked(o, off, c->end);
	return true;
}

static int read_large(struct call *c, struct object_reader *reader)
{
	const struct call start = *c;
	bool whole;
	int r;

	for (;;) {
		r = begin(c, reader, &whole);
		if (r == 0)
			r = read_once(c, reader, whole);
		if (r != 0 || end(c, reader, start.at))
			return err_trace(r);
		if (c->nowait)
			return OBJECT_E_WAIT;
		c->at = start.at;
		c->p = start.p;
	}
}

int object_read(struct object *o, struct object_reader *reader, uint64_t off, void *p,
		size_t n, unsigned int flags, const struct wait *w, size_t *got)
{
	struct cache_counters *count = &o->cache->count;
	struct call c = {
		.o = o, .at = off, .p = p, .nowait = flags & OBJECT_NOWAIT, .w = w};
	int r;

	if (off >= o->size || n == 0) {
		*got = 0;
		return 0;
	}
	if (n > o->size - off)
		n = (size_t)(o->size - off);
	c.end = off + n;
	if (o->small)
		r = read_small(o, off, p, n, c.nowait, w, &c.missed);
	else
		r = read_large(&c, reader);
	if (r != 0)
		return err_trace(r);
	cache_count(&count->bytes_read, n);
	cache_count(c.missed ? &count->misses : &count->hits, 1);
	if (!c.missed)
		cache_count(&count->bytes_hit, n);
	*got = n;
	return 0;
}

static bool is_whole(struct object *o, const struct datafile *file)
{
	lock_scope(&o->lock);
	return o->whole && o->nonce == file->nonce;
}

int object_backing_fd(struct object *o, unsigned int flags, int *fd)
{
	struct datafile *file;
	int r = object_file(o, false, &file);

	if (r != 0)
		return -ENODATA;
	if (!is_whole(o, file)) {
		r = whole_soon(o, file) ? OBJECT_E_WAIT : -ENODATA;
		if (r == OBJECT_E_WAIT && !(flags & OBJECT_NOWAIT))
			r = whole_now(o) && is_whole(o, file) ? 0 : -ENODATA;
	}
	if (r == 0) {
		*fd = datafile_reopen(file);
		r = *fd < 0 ? -ENODATA : 0;
	}
	datafile_put(file);
	return r;
}
