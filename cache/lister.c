/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run is one listing under way: spans of keys in their order, each fetched page by page,
 * one request at a time. A thread takes the first span that nobody works on, or cuts one.
 * Between pages it goes to the end of the queue, so that listings share the threads.
 *
 *   span: fresh   cut off, no answer yet: it may turn out to be empty
 *         proven  has brought a page, and there is more
 *         done    removed
 *
 * A span may be cut while its request is under way: what that brings from beyond the cut
 * is left to the new span.
 *
 * Failure modes: the first error ends the listing, after the requests under way.
 * On close: requests are cancelled, every run ends with -ECANCELED.
 * Threads: LISTER_PARALLEL.
 */
#include "cache/lister.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/listing.h"
#include "cache/split.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/base/worker.h"

#define QUEUE_MAX 4096
#define PAGE_DEADLINE_MS 60000
#define EMPTY_PAGES_MAX 16 /* in a row */
#define CHOICES 4

struct lister {
	struct origin *origin;
	struct worker_pool *pool;
	atomic_bool closing;
	_Atomic uint64_t pages;
	struct lock lock; /* the three below */
	pthread_cond_t ended;
	uint64_t runs;
	struct origin_req *requests[LISTER_PARALLEL]; /* under way, to be cancelled */
};

struct span {
	struct list link; /* in run->spans, in the order of keys */
	struct listing_range *range;
	struct run *run;
	bool busy, proven;
	bool bounded;        /* `until` counts */
	bool passed;         /* an entry from behind `until` came */
	unsigned int cuts;   /* tried */
	unsigned int empty;  /* pages in a row */
	uint64_t count;      /* entries */
	uint32_t page_count; /* entries of the page under way */
	char start[SPLIT_KEY_SIZE], until[SPLIT_KEY_SIZE];
	char first[PATH_KEY_MAX + 1], last[PATH_KEY_MAX + 1]; /* of the last page */
};

struct run {
	struct lister *lister;
	struct listing *listing; /* a reference */
	lister_before_fn before;
	lister_after_fn after;
	void *arg;

	struct lock lock; /* everything below */
	struct list spans;
	unsigned int workers; /* threads at it, or on their way */
	unsigned int fresh;
	uint64_t pages, count; /* answered */
	uint32_t page_max;     /* entries of the largest page */
	int error;
	struct split split;
	char dir[PATH_KEY_MAX + 2];
};

int lister_new(struct origin *o, struct lister **out)
{
	struct lister *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return err_origin(-ENOMEM);
	x->origin = o;
	lock_init(&x->lock);
	lock_cond_init(&x->ended);
	r = worker_pool_new(&x->pool, "list", LISTER_PARALLEL, QUEUE_MAX);
	if (r < 0) {
		lister_free(x);
		return err_trace(r);
	}
	*out = x;
	return 0;
}

struct lister *lister_free(struct lister *x)
{
	if (!x)
		return NULL;
	atomic_store(&x->closing, true);
	lock_take(&x->lock);
	for (int i = 0; i < LISTER_PARALLEL; i++)
		if (x->requests[i])
			origin_cancel(x->origin, x->requests[i]);
	while (x->runs)
		lock_wait(&x->lock, &x->ended, UINT64_MAX);
	lock_drop(&x->lock);
	x->pool = worker_pool_free(x->pool);
	pthread_cond_destroy(&x->ended);
	lock_fini(&x->lock);
	free(x);
	return NULL;
}

uint64_t lister_pages(struct lister *x)
{
	return atomic_load(&x->pages);
}

/* ---- spans ---- */

static struct span *new_span(struct run *run, struct listing_range *range,
			     const char *start)
{
	struct span *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->run = run;
	s->range = range;
	list_init(&s->link);
	strcpy(s->start, start);
	return s;
}

/* Entries that are probably left in it; unknown is much. */
static double left(const struct run *run, const struct span *s)
{
	double here = split_position(&run->split, s->last);
	double listed = here - split_position(&run->split, s->start);
	double more;

	if (!s->bounded)
		return 1e18;
	more = split_position(&run->split, s->until) - here;
	if (listed <= 0 || more <= 0)
		return 2.0 * run->page_max + (double)s->count / 1e6;
	return more * (double)s->count / listed;
}

/* A guess costs a request when it is wrong, and at least the end of a page. */
static bool may_cut(const struct run *run)
{
	uint64_t whole = run->page_max ? run->count / run->page_max : 0;
	uint64_t waste = run->pages > whole ? run->pages - whole : 0;

	return run->pages >= LISTER_ALONE &&
	       run->fresh + waste < LISTER_WASTE + whole / 4;
}

static struct span *longest(struct run *run)
{
	struct span *best = NULL;
	double most = 2.0 * run->page_max;
	struct list *it;

	list_for_each (it, &run->spans) {
		struct span *s = container_of(it, struct span, link);
		double n;

		if (!s->proven || s->cuts > 2 * s->count / run->page_max + 8)
			continue;
		n = left(run, s);
		if (n >= most) {
			most = n;
			best = s;
		}
	}
	return best;
}

/* Which span to cut, and where. */
static struct span *choose(struct run *run, char *key)
{
	for (int i = 0; i < CHOICES; i++) {
		struct span *s = longest(run);
		const char *until;
		bool coarse;

		if (!s)
			return NULL;
		until = s->bounded ? s->until : NULL;
		coarse = s->cuts++ % 2 == 0 || split_varies(&run->split, s->last, until);
		if (split_point(&run->split, s->first, s->last, until, coarse, key))
			return s;
	}
	return NULL;
}

/* Cuts the span that has most left; the new one, or NULL. */
static struct span *cut(struct run *run)
{
	char key[SPLIT_KEY_SIZE];
	struct listing_range *range;
	struct span *s, *upper;

	if (run->error || !may_cut(run))
		return NULL;
	s = choose(run, key);
	if (!s)
		return NULL;
	upper = new_span(run, NULL, key);
	range = upper ? listing_split(s->range, key) : NULL;
	if (!range) {
		free(upper);
		return NULL;
	}
	upper->range = range;
	upper->bounded = s->bounded;
	strcpy(upper->until, s->until);
	s->bounded = true;
	strcpy(s->until, key);
	list_push_front(&s->link, &upper->link);
	run->fresh++;
	return upper;
}

static struct span *take_locked(struct run *run)
{
	struct list *it;

	list_for_each (it, &run->spans) {
		struct span *s = container_of(it, struct span, link);

		if (!s->busy)
			return s;
	}
	return cut(run);
}

static void drop_span(struct run *run, struct span *s)
{
	run->fresh -= !s->proven;
	list_remove(&s->link);
	free(s);
}

/* ---- pages ---- */

/* An origin_entry_fn. What lies behind a cut made meanwhile belongs to another span. */
static int note(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr)
{
	struct span *s = arg;
	struct run *run = s->run;
	int r;

	lock_scope(&run->lock);
	if (s->passed)
		return 0;
	if (s->bounded && strcmp(key, s->until) > 0) {
		s->passed = true;
		return 0;
	}
	r = listing_add(s->range, key, key_len, attr);
	if (r < 0)
		return err_trace(r);
	if (key_len > PATH_KEY_MAX)
		return err_origin(-EBADMSG);
	if (!s->page_count++)
		memcpy(s->first, key, key_len + 1);
	memcpy(s->last, key, key_len + 1);
	split_note(&run->split, key);
	return 0;
}

static int call(struct lister *x, struct origin_req *req)
{
	int slot = 0, r;

	lock_take(&x->lock);
	while (x->requests[slot])
		slot++;
	check(slot < LISTER_PARALLEL);
	x->requests[slot] = req;
	lock_drop(&x->lock);
	atomic_fetch_add(&x->pages, 1);
	r = atomic_load(&x->closing) ? -ECANCELED : origin_call(x->origin, req);
	lock_take(&x->lock);
	x->requests[slot] = NULL;
	lock_drop(&x->lock);
	return r;
}

/* One page of the span. *more: it goes on. */
static int fetch_page(struct run *run, struct span *s, bool *more)
{
	struct origin_req *req = calloc(1, sizeof(*req));
	char after[SPLIT_KEY_SIZE], until[SPLIT_KEY_SIZE + 1] = "";
	int r;

	if (!req)
		return err_origin(-ENOMEM);
	req->op = ORIGIN_LIST;
	req->key = run->dir;
	req->deadline_ms = clock_mono_ms() + PAGE_DEADLINE_MS;
	req->list.entry = note;
	req->list.entry_arg = s;
	lock_take(&run->lock);
	s->page_count = 0;
	strcpy(after, s->proven || s->count ? s->last : s->start);
	if (s->bounded) {
		/* Up to the cut, with it: no key comes between these two. */
		size_t n = strlen(s->until);

		memcpy(until, s->until, n);
		memcpy(until + n, "\1", 2);
		req->list.until = until;
	}
	lock_drop(&run->lock);
	req->list.after = *after ? after : NULL;
	r = call(run->lister, req);
	lock_take(&run->lock);
	*more = r == 0 && req->list.truncated && !s->passed;
	/* A store whose pages do not advance, or never bring anything, is wrong. */
	s->empty = s->page_count ? 0 : s->empty + 1;
	if (*more && (strcmp(req->list.next, after) <= 0 || s->empty > EMPTY_PAGES_MAX))
		r = err_origin(-EBADMSG);
	if (*more && r == 0 && strlen(req->list.next) <= PATH_KEY_MAX)
		strcpy(s->last, req->list.next);
	lock_drop(&run->lock);
	free(req);
	return err_trace(r);
}

/* ---- runs ---- */

static void end_run(struct run *run)
{
	struct lister *x = run->lister;
	int r = run->error;

	if (r < 0)
		log_debug(LOG_CACHE, "listing failed dir=%s error=%s", run->dir,
			  strerror(-r));
	if (r == 0)
		listing_count_twins(run->listing);
	if (run->after)
		run->after(run->arg, run->dir, run->listing, r);
	listing_done(run->listing, r);
	listing_put(run->listing);
	while (!list_empty(&run->spans))
		drop_span(run, list_first(&run->spans, struct span, link));
	lock_fini(&run->lock);
	free(run);
	lock_scope(&x->lock);
	x->runs--;
	pthread_cond_broadcast(&x->ended);
}

static void work(void *arg);

/* More threads while there is something for them; the first such thing is the caller's. */
static void call_help(struct run *run)
{
	unsigned int idle = 0;
	struct list *it;

	lock_take(&run->lock);
	list_for_each (it, &run->spans)
		idle += !container_of(it, struct span, link)->busy;
	while (run->workers + idle <= LISTER_PARALLEL && cut(run))
		idle++;
	while (!run->error && idle-- > 1 && run->workers < LISTER_PARALLEL) {
		run->workers++;
		if (!worker_try_submit(run->lister->pool, work, run)) {
			run->workers--;
			break;
		}
	}
	lock_drop(&run->lock);
}

/* Fetches a page of some span. false: there is nothing to do for this thread. */
static bool step(struct run *run)
{
	bool more = false;
	struct span *s;
	int r;

	lock_take(&run->lock);
	s = run->error ? NULL : take_locked(run);
	if (s)
		s->busy = true;
	lock_drop(&run->lock);
	if (!s)
		return false;
	r = fetch_page(run, s, &more);
	if (r == 0)
		listing_page_done(s->range);
	lock_take(&run->lock);
	run->pages++;
	run->count += s->page_count;
	s->count += s->page_count;
	if (s->page_count > run->page_max)
		run->page_max = s->page_count;
	if (r < 0 && !run->error)
		run->error = r;
	if (r == 0 && more) {
		run->fresh -= !s->proven;
		s->proven = true;
		s->busy = false;
	} else if (r == 0) {
		listing_range_done(s->range);
		drop_span(run, s);
	}
	lock_drop(&run->lock);
	return r == 0;
}

/* A thread's turn: a page, then back into the queue; the last one to find nothing to do
 * ends the run. */
static void work(void *arg)
{
	struct run *run = arg;
	bool last;

	while (step(run)) {
		call_help(run);
		if (worker_try_submit(run->lister->pool, work, run))
			return;
	}
	lock_take(&run->lock);
	last = --run->workers == 0;
	lock_drop(&run->lock);
	if (last)
		end_run(run);
}

static void begin(void *arg)
{
	struct run *run = arg;
	struct listing_range *range;
	struct span *s;

	if (run->before && run->before(run->arg, run->listing) == 0) {
		run->after = NULL;
		end_run(run);
		return;
	}
	range = listing_first_range(run->listing);
	s = range ? new_span(run, range, run->dir) : NULL;
	if (!s) {
		run->error = -ENOMEM;
		end_run(run);
		return;
	}
	s->start[0] = '\0';
	list_push_back(&run->spans, &s->link);
	run->fresh = 1;
	work(run);
}

bool lister_start(struct lister *x, struct listing *l, const char *dir,
		  lister_before_fn before, lister_after_fn after, void *arg)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return false;
	run->lister = x;
	run->listing = listing_get(l);
	run->before = before;
	run->after = after;
	run->arg = arg;
	run->workers = 1;
	lock_init(&run->lock);
	list_init(&run->spans);
	strcpy(run->dir, dir);
	run->split.base = strlen(dir);
	lock_take(&x->lock);
	x->runs++;
	lock_drop(&x->lock);
	if (worker_try_submit(x->pool, begin, run))
		return true;
	lock_take(&x->lock);
	x->runs--;
	lock_drop(&x->lock);
	listing_put(l);
	lock_fini(&run->lock);
	free(run);
	return false;
}
