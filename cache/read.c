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

void object_reader_init(struct object_reader *reader)
{
	lock_init(&reader->lock);
	readahead_init(&reader->ra);
}

void object_reader_fini(struct object_reader *reader)
{
	lock_fini(&reader->lock);
}

/* ---- one run ---- */

struct call {
	struct object *o;
	uint64_t at, end; /* still to be read */
	unsigned char *p; /* where `at` goes */
	bool nowait;
	bool missed; /* had to wait for the store */
	bool silent; /* and for the first time, for a request without an answer yet */
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
	int r = 0;

	lock_take(&o->lock);
	while (r == 0 && f->state == FILL_FETCHING && f->arrived < want) {
		if (c->nowait) {
			r = OBJECT_E_WAIT;
			break;
		}
		if (!c->missed)
			c->silent = !f->begun;
		c->missed = true;
		if (want < f->want)
			f->want = want;
		f->waiters++;
		r = wait_on(c->w, &o->lock, &f->moved);
		f->waiters--;
	}
	if (r == 0 && f->state == FILL_FAILED)
		r = f->error;
	lock_drop(&o->lock);
	if (r == 0) {
		memcpy(c->p, f->data + from, want - from);
		advance(c, run->end);
		if (want == f->len)
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

/* Asks for what is absent of [at, end), in requests that end at multiples of `request`.
 * *reached = how far memory went. */
static int ask(struct object *o, uint64_t at, uint64_t end, uint64_t demand_end,
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

/* The read itself and what is to be ahead of it, or only the latter; how far it went. */
static int ask_for(struct call *c, const struct readahead_plan *plan, bool demand,
		   uint64_t *reached)
{
	struct object *o = c->o;
	uint64_t start = c->at & ~(uint64_t)(PAGE_BYTES - 1), end = page_up(o, c->end);
	uint64_t request = plan->request ? plan->request : REQUEST_MAX;
	int r = 0;

	if (demand && plan->off == c->end)
		return err_trace(ask(o, start, page_up(o, plan->end), end, request, c->w,
				     reached));
	if (demand)
		r = ask(o, start, end, end, request, c->w, reached);
	if (r == 0 && plan->end > plan->off)
		r = ask(o, plan->off & ~(uint64_t)(PAGE_BYTES - 1), page_up(o, plan->end),
			0, request, c->w, reached);
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
	static const struct readahead_plan none;
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
	} else {
		c->missed = c->silent = true;
		r = read_refused(c->o);
		if (r == 0)
			r = ask_for(c, &none, true, &reached);
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

static int read_large(struct call *c, struct object_reader *reader)
{
	struct object *o = c->o;
	uint64_t off = c->at, window = budget_max(o->cache->budget) / 2, reached = c->end;
	struct readahead_plan plan = {0};
	bool whole;
	int r = 0;

	lock_take(&o->lock);
	whole = o->whole;
	lock_drop(&o->lock);
	if (c->nowait && !at_hand(c))
		return OBJECT_E_WAIT;
	if (c->nowait)
		while (c->at < c->end && r == 0)
			r = serve(c);
	if (r != 0)
		return err_trace(r);
	if (!whole && reader) {
		lock_take(&reader->lock);
		plan = readahead_note(&reader->ra, off, c->end - off, o->size,
				      window < WINDOW_MAX ? window : WINDOW_MAX);
		lock_drop(&reader->lock);
	}
	if (!whole && read_refused(o) == 0)
		r = ask_for(c, &plan, !c->nowait, &reached);
	if (plan.end > plan.off && reached < plan.end) {
		lock_take(&reader->lock);
		readahead_retreat(&reader->ra, &plan, reached);
		lock_drop(&reader->lock);
	}
	while (c->at < c->end && r == 0)
		r = serve(c);
	if (c->missed && reader) {
		lock_take(&reader->lock);
		readahead_waited(&reader->ra, off, c->silent, clock_mono_ns() / 1000);
		lock_drop(&reader->lock);
	}
	return err_trace(r);
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
