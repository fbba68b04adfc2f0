/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item is asked for piece by piece as long as a slot (a request under way) is free:
 *
 *   waiting -> asking -> arriving (nothing left to ask, slots in use) -> settling -> done
 *
 * Guesses end when they have arrived; for jobs' items the disk is waited for, too.
 *
 * Failure modes: no memory: look again soon. A request fails: the item ends with its error
 * (guesses are forgotten). The store or the disk hangs: requests have deadlines, settling
 * has SETTLE_MS.
 * On close: guesses are let go; their requests end with the origin.
 * Threads: one; the notes and the items that come in are under `lock`.
 */
#include "cache/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cache/budget.h"
#include "cache/disk.h"
#include "cache/fetch.h"
#include "cache/follow.h"
#include "cache/listing.h"
#include "cache/meta.h"
#include "cache/object.h"
#include "cache/state.h"
#include "cache/store.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"

#define REQUESTS_DEFAULT 28
#define REQUESTS_MAX 256
#define NOTES_MAX 1024
#define UNREAD_MAX (64ull << 20) /* bytes of guesses not read yet */
#define GUESS_LARGE                                                                      \
	(1ull << 20)    /* of a large file only this much is fetched on a guess */
#define CREDIT 1024     /* opens that are looked at after a slow one */
#define ITEM_REQUESTS 8 /* of one item under way at most */
#define CALM_MS 100     /* after a reader's last request */
#define RETRY_MS 3      /* for memory */
#define SETTLE_LOOK_MS 20
#define SETTLE_MS 30000

struct note {
	struct list link;
	size_t dir_len;
	char key[];
};

struct slot {
	struct ahead_item *item;
	struct fill *fill; /* a reference; NULL: free */
};

struct ahead {
	struct ahead_config config;
	struct cache *cache;
	pthread_t thread;
	bool runs;
	_Atomic uint32_t credit;

	struct lock lock; /* the five below */
	struct list notes, inbox;
	uint32_t note_count;
	bool stop;
	struct ahead_stats stats;

	/* The thread's own. */
	struct follow *follow;
	struct list waiting, settling; /* items; asking is the head of waiting */
	struct slot slots[REQUESTS_MAX];
	uint32_t slots_used, jobs_used;
	struct ahead_item *held; /* a guess that waits for memory */
	uint64_t wake_ms;        /* look again then, whatever happens */
};

/* ---- what the tree tells --------------------------------------------------------------- */

bool ahead_cares(struct ahead *a, bool slow)
{
	uint32_t left = atomic_load_explicit(&a->credit, memory_order_relaxed);

	if (slow)
		atomic_store_explicit(&a->credit, CREDIT, memory_order_relaxed);
	else if (left) /* two at once may count as one */
		atomic_store_explicit(&a->credit, left - 1, memory_order_relaxed);
	return slow || left;
}

void ahead_opened(struct ahead *a, const char *dir, const char *name)
{
	size_t n = strlen(dir), m = strlen(name);
	struct note *note;

	note = malloc(sizeof(*note) + n + m + 2);
	if (!note)
		return;
	/* Two strings: the directory's and the name. */
	note->dir_len = n;
	memcpy(note->key, dir, n + 1);
	memcpy(note->key + n + 1, name, m + 1);
	lock_take(&a->lock);
	if (a->note_count < NOTES_MAX) {
		list_push_back(&a->notes, &note->link);
		a->note_count++;
		note = NULL;
	}
	lock_drop(&a->lock);
	free(note);
	news_tell(&a->cache->news);
}

static struct note *next_note(struct ahead *a)
{
	struct note *note;

	lock_scope(&a->lock);
	if (list_empty(&a->notes))
		return NULL;
	note = list_first(&a->notes, struct note, link);
	list_remove(&note->link);
	a->note_count--;
	return note;
}

static void take_notes(struct ahead *a)
{
	struct note *note;

	while ((note = next_note(a))) {
		follow_opened(a->follow, note->key, note->key + note->dir_len + 1);
		free(note);
	}
}

struct names {
	follow_add_fn add;
	void *to;
	uint32_t left;
};

static int offer_name(void *arg, const struct listing_entry *entry, uint64_t next)
{
	struct names *n = arg;

	(void)next;
	if (entry->attr.is_dir || entry->attr.is_symlink)
		return 0;
	return n->add(n->to, entry->name) && --n->left ? 0 : -ENOSPC;
}

static void names(void *arg, const char *dir, const char *name, uint32_t count,
		  follow_add_fn add, void *to)
{
	struct ahead *a = arg;
	struct names n = {add, to, count};
	struct listing *l;
	uint64_t position;

	if (meta_listing(a->config.meta, dir, &l) != 0)
		return;
	if (listing_after(l, name, &position) == 0)
		(void)!listing_each(l, position, true, NULL, offer_name, &n);
	listing_put(l);
}

/* ---- items ----------------------------------------------------------------------------- */

static void finish(struct ahead_item *item, int result)
{
	list_remove(&item->link);
	if (item->guess) {
		object_put(item->object);
		free(item);
	} else {
		item->done(item, result);
	}
}

/* The next file along a listing, or NULL. */
static struct ahead_item *guess(struct ahead *a)
{
	char dir[PATH_KEY_MAX + 2];
	struct meta_entry entry;
	struct ahead_item *item;
	const char *key;
	size_t dir_len;

	while (follow_next(a->follow, &key, &dir_len)) {
		struct object *o;

		memcpy(dir, key, dir_len);
		dir[dir_len] = '\0';
		if (meta_lookup(a->config.meta, dir, key + dir_len, true, NULL, &entry) !=
			    0 ||
		    entry.attr.is_dir || entry.attr.size == 0 ||
		    object_get(a->cache, a->config.origin, key, &entry.attr, &o) < 0)
			continue;
		item = object_cached(o) ? NULL : calloc(1, sizeof(*item));
		if (!item) {
			object_put(o);
			continue;
		}
		item->object = o;
		item->guess = true;
		item->end = o->small || o->size < GUESS_LARGE ? o->size : GUESS_LARGE;
		list_init(&item->link);
		return item;
	}
	return NULL;
}

static bool stopped(const struct ahead_item *item)
{
	return item->stop && atomic_load(item->stop);
}

static void occupy(struct ahead *a, struct ahead_item *item, struct fill *coming)
{
	struct slot *s = a->slots;

	while (s->fill)
		s++;
	*s = (struct slot){item, coming};
	a->slots_used++;
	a->jobs_used += !item->guess;
	item->under_way++;
}

/* Asks for the next piece. false: no memory now. */
static bool ask(struct ahead *a, struct ahead_item *item)
{
	struct fill *coming;
	uint64_t reached;
	int r = object_ask(item->object, item->at, item->end, &reached, &coming);

	if (r == OBJECT_E_WAIT) {
		a->wake_ms = clock_mono_ms() + RETRY_MS;
		return false;
	}
	if (r < 0) {
		item->error = r;
		item->at = item->end;
		return true;
	}
	item->at = reached;
	if (coming)
		occupy(a, item, coming);
	return true;
}

/* All is asked for: it waits for what is under way, and a job's item for the disk. */
static void all_asked(struct ahead *a, struct ahead_item *item)
{
	list_remove(&item->link);
	if (item->guess && !item->under_way) {
		finish(item, item->error);
		return;
	}
	item->since_ms = clock_mono_ms();
	list_push_back(&a->settling, &item->link);
}

/* ---- starting -------------------------------------------------------------------------- */

static uint32_t jobs_max(struct ahead *a)
{
	struct cache *c = a->cache;
	uint32_t max = a->config.requests_max;
	bool calm = !atomic_load(&c->demand) &&
		    clock_mono_ms() - atomic_load(&c->demand_ms) > CALM_MS;

	return calm ? max : max / 4 ? max / 4 : 1;
}

/* A job's item that can go on. */
static struct ahead_item *next_job(struct ahead *a)
{
	struct list *it;

	if (a->jobs_used >= jobs_max(a)) {
		a->wake_ms = clock_mono_ms() + CALM_MS;
		return NULL;
	}
	list_for_each (it, &a->waiting) {
		struct ahead_item *item = container_of(it, struct ahead_item, link);

		if (stopped(item) || item->under_way < ITEM_REQUESTS)
			return item;
	}
	return NULL;
}

static bool begin_job(struct ahead *a, struct ahead_item *item)
{
	if (stopped(item)) {
		item->error = -ECANCELED;
		item->at = item->end;
	} else if (item->at == 0 && item->looks++ == 0 && object_cached(item->object)) {
		finish(item, AHEAD_E_CACHED);
		return true;
	} else if (!ask(a, item)) {
		return false;
	}
	if (item->at >= item->end)
		all_asked(a, item);
	return true;
}

/* false: no memory now. */
static bool begin_guess(struct ahead *a, struct ahead_item *item)
{
	if (!ask(a, item)) {
		a->held = item;
		return false;
	}
	a->held = NULL;
	if (item->under_way)
		follow_asked(a->follow, ident_key(item->object->ident), item->end);
	all_asked(a, item);
	return true;
}

static void start(struct ahead *a)
{
	struct ahead_item *item;

	while (a->slots_used < a->config.requests_max &&
	       (item = a->held ? a->held : guess(a)))
		if (!begin_guess(a, item))
			return;
	while (a->slots_used < a->config.requests_max && (item = next_job(a)))
		if (!begin_job(a, item))
			return;
}

/* ---- ending ---------------------------------------------------------------------------- */

static void reap(struct ahead *a)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct slot *s = &a->slots[i];
		struct object *o;
		enum fill_state state;
		int error;

		if (!s->fill)
			continue;
		o = s->fill->object;
		lock_take(&o->lock);
		state = s->fill->state;
		error = s->fill->error;
		lock_drop(&o->lock);
		if (state == FILL_FETCHING)
			continue;
		if (state == FILL_FAILED && s->item->error == 0)
			s->item->error = error;
		if (state == FILL_FAILED)
			s->item->at = s->item->end;
		s->item->under_way--;
		a->slots_used--;
		a->jobs_used -= !s->item->guess;
		fill_put(s->fill);
		s->fill = NULL;
	}
}

/* Whether the item is over, and how. */
static bool settled(struct ahead *a, struct ahead_item *item, int *result)
{
	uint64_t now = clock_mono_ms();
	enum object_end end;

	if (item->under_way)
		return false;
	if (item->guess || item->error < 0) {
		*result = item->error;
		return true;
	}
	if (now < item->look_ms)
		return false;
	end = object_settled(item->object);
	if (end == OBJECT_SETTLING && now - item->since_ms < SETTLE_MS) {
		item->look_ms = 0;
		return false;
	}
	/* What is just being handed to the writers looks lost for a moment. */
	if (end == OBJECT_LOST && item->looks++ < 3) {
		item->look_ms = now + SETTLE_LOOK_MS;
		a->wake_ms = item->look_ms;
		return false;
	}
	lock_take(&item->object->lock);
	*result = end == OBJECT_KEPT        ? 0
		  : item->object->error < 0 ? item->object->error
					    : AHEAD_E_LOST;
	lock_drop(&item->object->lock);
	return true;
}

static void settle(struct ahead *a)
{
	struct list *it, *next;
	int result;

	list_for_each_safe (it, next, &a->settling) {
		struct ahead_item *item = container_of(it, struct ahead_item, link);

		if (settled(a, item, &result))
			finish(item, result);
	}
}

/* ---- the thread ------------------------------------------------------------------------ */

void ahead_submit(struct ahead *a, struct ahead_item *item)
{
	item->at = item->under_way = item->looks = 0;
	item->look_ms = 0;
	item->error = 0;
	item->guess = false;
	item->end = item->object->size;
	lock_take(&a->lock);
	list_push_back(&a->inbox, &item->link);
	lock_drop(&a->lock);
	news_tell(&a->cache->news);
}

void ahead_wake(struct ahead *a)
{
	news_tell(&a->cache->news);
}

/* false: it is time to end. */
static bool take_news(struct ahead *a)
{
	struct follow_stats f = follow_stats(a->follow);

	lock_scope(&a->lock);
	while (!list_empty(&a->inbox)) {
		struct list *first = a->inbox.next;

		list_remove(first);
		list_push_back(&a->waiting, first);
	}
	a->stats = (struct ahead_stats){.files = f.asked,
					.hits = f.hits,
					.unread = f.unread,
					.wasted = f.wasted,
					.under_way = a->slots_used};
	return !a->stop;
}

static void *run(void *arg)
{
	struct ahead *a = arg;

	prctl(PR_SET_NAME, "ahead");
	for (;;) {
		uint64_t seen = news_count(&a->cache->news);

		a->wake_ms = UINT64_MAX;
		if (!take_news(a))
			break;
		take_notes(a);
		reap(a);
		settle(a);
		start(a);
		if (!list_empty(&a->settling) && a->wake_ms == UINT64_MAX)
			a->wake_ms = clock_mono_ms() + SETTLE_LOOK_MS * 10;
		news_wait(&a->cache->news, seen, a->wake_ms);
	}
	return NULL;
}

int ahead_new(const struct ahead_config *config, struct ahead **out)
{
	struct follow_config follow = {.names = names, .unread_max = UNREAD_MAX};
	struct ahead *a = calloc(1, sizeof(*a));
	sigset_t all, old;
	int r;

	if (!a)
		return err_origin(-ENOMEM);
	lock_init(&a->lock);
	list_init(&a->notes);
	list_init(&a->inbox);
	list_init(&a->waiting);
	list_init(&a->settling);
	a->config = *config;
	a->cache = config->cache;
	if (!a->config.requests_max)
		a->config.requests_max = REQUESTS_DEFAULT;
	if (a->config.requests_max > REQUESTS_MAX)
		a->config.requests_max = REQUESTS_MAX;
	/* Guesses never take more than a part of what they would push out. */
	if (a->cache->size_max / 8 < follow.unread_max)
		follow.unread_max = a->cache->size_max / 8;
	if (!a->cache->disk && budget_max(a->cache->budget) / 4 < follow.unread_max)
		follow.unread_max = budget_max(a->cache->budget) / 4;
	follow.arg = a;
	r = follow_new(&follow, &a->follow);
	if (r < 0) {
		ahead_free(a);
		return err_trace(r);
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&a->thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		ahead_free(a);
		return err_origin(r);
	}
	a->runs = true;
	*out = a;
	return 0;
}

/* Items of jobs are done; guesses are ours. */
static void let_go(struct ahead *a)
{
	struct note *note;

	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		fill_put(a->slots[i].fill);
	if (a->held)
		finish(a->held, -ECANCELED);
	while (!list_empty(&a->settling))
		finish(list_first(&a->settling, struct ahead_item, link), -ECANCELED);
	while ((note = next_note(a)))
		free(note);
}

struct ahead *ahead_free(struct ahead *a)
{
	if (!a)
		return NULL;
	if (a->runs) {
		lock_take(&a->lock);
		a->stop = true;
		lock_drop(&a->lock);
		news_tell(&a->cache->news);
		pthread_join(a->thread, NULL);
	}
	let_go(a);
	a->follow = follow_free(a->follow);
	lock_fini(&a->lock);
	free(a);
	return NULL;
}

void ahead_stats(struct ahead *a, struct ahead_stats *stats)
{
	lock_scope(&a->lock);
	*stats = a->stats;
}
