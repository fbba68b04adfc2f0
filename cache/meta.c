/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tables: directories with their current listing, and loose names, found one by one.
 * Both drop the least recently used beyond a limit.
 *
 * A look-up goes: fresh listing? loose name? If neither: the third in a directory begins
 * its listing and waits for the first page; else two requests at once, STAT of the name and
 * LIST of what is below it, one pair for all who ask for the same name.
 *
 * Failure modes: a listing that fails is not kept; those who read it get the error, the
 * next one begins anew.
 * On close: requests are cancelled and waited for.
 * Threads: any; listings run on a small pool; answers to look-ups arrive on the origin's
 * threads.
 */
#include "cache/meta.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "cache/lister.h"
#include "cache/listing.h"
#include "cache/probe.h"
#include "cache/shelf.h"
#include "cache/wait.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"

#define LOOSE_MAX 16384
#define DIRS_MAX 32768
#define KEEP_TTL_MIN_MS 600000 /* listings that live shorter are not worth keeping */
#define DIRECT_MAX 2           /* look-ups in a directory before it is listed */
#define MEMORY_DEFAULT (16ull << 20)

struct dir {
	UT_hash_handle hh;
	struct list link;        /* in meta->dir_lru */
	struct listing *listing; /* a reference; NULL: none */
	uint64_t charged;        /* bytes of it in meta->memory */
	unsigned int direct;     /* look-ups without a listing, lately */
	bool looked;             /* for one on disk */
	char key[];
};

struct loose {
	UT_hash_handle hh;
	struct list link; /* in meta->loose_lru */
	struct meta_entry entry;
	bool none;
	char key[];
};

struct meta {
	struct origin *origin;
	struct cache *cache;
	uint64_t ttl_ms, memory_max;
	bool posix;
	struct lister *lister;
	struct probes *probes;
	struct lock load_lock; /* one look on disk at a time; taken before `lock` */

	struct lock lock; /* everything below */
	struct dir *dirs;
	struct list dir_lru;
	struct loose *loose;
	struct list loose_lru;
	uint64_t memory;
	uint64_t hidden, shadowed, listings;
};

int meta_new(const struct meta_config *config, struct meta **out)
{
	struct meta *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return err_origin(-ENOMEM);
	lock_init(&m->lock);
	lock_init(&m->load_lock);
	list_init(&m->dir_lru);
	list_init(&m->loose_lru);
	m->origin = config->origin;
	m->cache = config->cache;
	m->ttl_ms = config->ttl_ms;
	m->posix = config->posix;
	m->memory_max = config->memory_max ? config->memory_max : MEMORY_DEFAULT;
	r = probes_new(config->origin, config->posix, &m->probes);
	if (r == 0)
		r = lister_new(config->origin, &m->lister);
	if (r < 0) {
		meta_free(m);
		return err_trace(r);
	}
	*out = m;
	return 0;
}

static void drop_listing_locked(struct meta *m, struct dir *d)
{
	m->memory -= d->charged;
	d->charged = 0;
	listing_put(d->listing);
	d->listing = NULL;
}

static void drop_dir_locked(struct meta *m, struct dir *d)
{
	drop_listing_locked(m, d);
	HASH_DEL(m->dirs, d);
	list_remove(&d->link);
	free(d);
}

static void drop_loose_locked(struct meta *m, struct loose *l)
{
	HASH_DEL(m->loose, l);
	list_remove(&l->link);
	free(l);
}

struct meta *meta_free(struct meta *m)
{
	if (!m)
		return NULL;
	m->lister = lister_free(m->lister);
	m->probes = probes_free(m->probes);
	while (!list_empty(&m->dir_lru))
		drop_dir_locked(m, list_first(&m->dir_lru, struct dir, link));
	while (!list_empty(&m->loose_lru))
		drop_loose_locked(m, list_first(&m->loose_lru, struct loose, link));
	lock_fini(&m->load_lock);
	lock_fini(&m->lock);
	free(m);
	return NULL;
}

static uint64_t until(const struct meta *m, uint64_t born_ms)
{
	return m->ttl_ms == META_FOREVER ? META_FOREVER : born_ms + m->ttl_ms;
}

uint64_t meta_listing_until(struct meta *m, struct listing *l)
{
	return until(m, listing_facts(l).born_ms);
}

/* ---- tables ---- */

static struct dir *find_dir_locked(struct meta *m, const char *key, bool make)
{
	struct dir *d;
	size_t n = strlen(key);

	HASH_FIND_STR(m->dirs, key, d);
	if (!d && make) {
		d = calloc(1, sizeof(*d) + n + 1);
		if (!d)
			return NULL;
		memcpy(d->key, key, n + 1);
		list_init(&d->link);
		HASH_ADD_STR(m->dirs, key, d);
		if (HASH_COUNT(m->dirs) > DIRS_MAX)
			drop_dir_locked(m, list_first(&m->dir_lru, struct dir, link));
	}
	if (d) {
		list_remove(&d->link);
		list_push_back(&m->dir_lru, &d->link);
	}
	return d;
}

/* Its listing, if it is fresh; one that failed or aged is let go. */
static struct listing *fresh_locked(struct meta *m, struct dir *d)
{
	struct listing_facts f;

	if (!d || !d->listing)
		return NULL;
	f = listing_facts(d->listing);
	if (f.error == 0 && clock_mono_ms() < until(m, f.born_ms))
		return d->listing;
	d->direct = 0;
	drop_listing_locked(m, d);
	return NULL;
}

static void remember_loose(struct meta *m, const char *key,
			   const struct meta_entry *entry, bool none)
{
	size_t n = strlen(key);
	struct loose *l;

	lock_scope(&m->lock);
	HASH_FIND_STR(m->loose, key, l);
	if (!l) {
		l = calloc(1, sizeof(*l) + n + 1);
		if (!l)
			return;
		memcpy(l->key, key, n + 1);
		list_init(&l->link);
		HASH_ADD_STR(m->loose, key, l);
		if (HASH_COUNT(m->loose) > LOOSE_MAX)
			drop_loose_locked(m,
					  list_first(&m->loose_lru, struct loose, link));
	}
	list_remove(&l->link);
	list_push_back(&m->loose_lru, &l->link);
	l->entry = *entry;
	l->none = none;
}

static int find_loose_locked(struct meta *m, const char *key, struct meta_entry *entry)
{
	struct loose *l;

	HASH_FIND_STR(m->loose, key, l);
	if (!l)
		return META_E_WAIT;
	if (clock_mono_ms() >= l->entry.until_ms) {
		drop_loose_locked(m, l);
		return META_E_WAIT;
	}
	*entry = l->entry;
	return l->none ? META_E_NONE : 0;
}

/* ---- listings ---- */

/* The oldest listings go when they take too much; those still being read stay with their
 * readers. */
static void charge_locked(struct meta *m, const char *dir, struct listing *listing)
{
	struct listing_facts f = listing_facts(listing);
	struct dir *d = find_dir_locked(m, dir, false);
	struct list *it, *next;

	if (d && d->listing == listing) {
		m->memory += f.bytes - d->charged;
		d->charged = f.bytes;
	}
	list_for_each_safe (it, next, &m->dir_lru) {
		struct dir *old = container_of(it, struct dir, link);

		if (m->memory <= m->memory_max)
			break;
		if (old != d && old->charged)
			drop_listing_locked(m, old);
	}
}

static bool keeps(const struct meta *m)
{
	return m->cache && m->ttl_ms >= KEEP_TTL_MIN_MS;
}

/* A lister_before_fn: what lies on disk need not be asked for. */
static int from_disk(void *arg, struct listing *listing)
{
	struct meta *m = arg;

	if (!keeps(m) || listing_load(listing, m->origin->name, m->ttl_ms) != 0)
		return -ENOENT;
	return 0;
}

/* A lister_after_fn. Who sees the end of the listing finds it counted. */
static void settled(void *arg, const char *dir, struct listing *listing, int r)
{
	struct listing_facts f = listing_facts(listing);
	struct meta *m = arg;

	lock_take(&m->lock);
	m->listings++;
	m->hidden += f.hidden;
	m->shadowed += f.shadowed;
	charge_locked(m, dir, listing);
	lock_drop(&m->lock);
	if (r == 0 && keeps(m))
		listing_save(listing, m->origin->name);
}

/* An empty listing of d, to be fetched; it is d->listing then. */
static int begin_locked(struct meta *m, struct dir *d)
{
	struct listing *l;
	int r = listing_new(d->key, clock_mono_ms(), m->cache, &l);

	if (r < 0)
		return err_trace(r);
	drop_listing_locked(m, d);
	d->listing = l;
	return 0;
}

int meta_list(struct meta *m, const char *dir, struct listing **out)
{
	struct listing *fresh;
	struct dir *d;
	int r = 0;

	lock_take(&m->lock);
	d = find_dir_locked(m, dir, true);
	if (!d)
		r = err_origin(-ENOMEM);
	fresh = fresh_locked(m, d);
	if (r == 0 && !fresh)
		r = begin_locked(m, d);
	if (r == 0)
		*out = listing_get(d->listing);
	lock_drop(&m->lock);
	if (r == 0 && !fresh &&
	    !lister_start(m->lister, *out, dir, from_disk, settled, m))
		listing_done(*out, -EAGAIN);
	return err_trace(r);
}

int meta_listing(struct meta *m, const char *dir, struct listing **out)
{
	struct listing *l;

	lock_scope(&m->lock);
	l = fresh_locked(m, find_dir_locked(m, dir, false));
	if (!l)
		return META_E_WAIT;
	*out = listing_get(l);
	return 0;
}

/* Once for each directory, a listing of it that lies on disk. */
static void look_on_disk(struct meta *m, const char *dir)
{
	struct listing *l = NULL;
	struct dir *d;
	bool looked;

	if (!keeps(m))
		return;
	lock_scope(&m->load_lock);
	lock_take(&m->lock);
	d = find_dir_locked(m, dir, true);
	looked = !d || d->listing || d->looked;
	if (d)
		d->looked = true;
	lock_drop(&m->lock);
	if (looked || listing_new(dir, 0, m->cache, &l) < 0)
		return;
	if (listing_load(l, m->origin->name, m->ttl_ms) == 0) {
		lock_take(&m->lock);
		d = find_dir_locked(m, dir, true);
		if (d && !d->listing) {
			d->listing = listing_get(l);
			charge_locked(m, dir, l);
		}
		lock_drop(&m->lock);
	}
	listing_put(l);
}

/* ---- look-ups ---- */

/* What is known of a name without asking. */
struct known {
	struct listing *listing; /* a running one to look at; a reference */
	bool list;               /* it is time to begin one */
	bool disk;               /* there may be one on disk */
	bool is_file;            /* listed, but not all that is to be shown of it */
};

static int from_listing(struct meta *m, struct listing *l, const char *name, bool nowait,
			struct meta_entry *entry, struct known *k)
{
	struct listing_entry found;
	int r = listing_find(l, name, nowait, &found);

	if (r == LISTING_E_WAIT)
		return META_E_WAIT;
	entry->until_ms = meta_listing_until(m, l);
	if (r == LISTING_E_END)
		return META_E_NONE;
	k->is_file = m->posix && !found.attr.is_dir && !found.attr.has_posix;
	if (k->is_file)
		return META_E_WAIT;
	entry->attr = found.attr;
	return 0;
}

/* META_E_WAIT: too little; *k says what can be done. */
static int known(struct meta *m, const char *dir, const char *name, const char *key,
		 bool nowait, struct meta_entry *entry, struct known *k)
{
	struct listing *l;
	struct dir *d;
	int r = META_E_WAIT;

	*k = (struct known){0};
	lock_take(&m->lock);
	d = find_dir_locked(m, dir, false);
	l = fresh_locked(m, d);
	if (l)
		listing_get(l);
	k->list = !l && d && d->direct >= DIRECT_MAX;
	k->disk = !l && (!d || !d->looked);
	lock_drop(&m->lock);
	if (l)
		r = from_listing(m, l, name, nowait, entry, k);
	if (r == META_E_WAIT) {
		lock_take(&m->lock);
		r = find_loose_locked(m, key, entry);
		lock_drop(&m->lock);
	}
	if (r == META_E_WAIT && l && !k->is_file && !listing_facts(l).complete)
		k->listing = listing_get(l);
	listing_put(l);
	return r;
}

static void note_direct(struct meta *m, const char *dir)
{
	struct dir *d;

	lock_scope(&m->lock);
	d = find_dir_locked(m, dir, true);
	if (d)
		d->direct++;
}

/* Takes the answer and remembers it. */
static int answered(struct meta *m, const char *key, struct pair *pair, uint64_t born,
		    const struct wait *w, struct meta_entry *entry)
{
	int r = probe_end(m->probes, pair, w, &entry->attr);

	if (r < 0)
		return err_trace(r);
	entry->until_ms = until(m, born);
	remember_loose(m, key, entry, r == PROBE_E_NONE);
	return r == PROBE_E_NONE ? META_E_NONE : 0;
}

static int ask(struct meta *m, const char *dir, const char *key, bool is_file,
	       const struct wait *w, struct meta_entry *entry)
{
	uint64_t born = clock_mono_ms();
	struct pair *pair = probe_begin(m->probes, key, is_file);

	note_direct(m, dir);
	return pair ? answered(m, key, pair, born, w, entry) : err_origin(-ENOMEM);
}

int meta_lookup(struct meta *m, const char *dir, const char *name, bool nowait,
		const struct wait *w, struct meta_entry *entry)
{
	char key[PATH_KEY_MAX + 2];
	struct meta_entry found = {0};
	struct known k;
	int r;

	if (snprintf(key, sizeof(key), "%s%s", dir, name) > PATH_KEY_MAX) {
		entry->until_ms = META_FOREVER;
		return META_E_NONE;
	}
	r = known(m, dir, name, key, nowait, &found, &k);
	if (r == META_E_WAIT && !nowait && k.disk && keeps(m)) {
		look_on_disk(m, dir);
		r = known(m, dir, name, key, false, &found, &k);
	}
	if (r == META_E_WAIT && !nowait) {
		if (k.list && !k.listing && meta_list(m, dir, &k.listing) < 0)
			k.listing = NULL;
		if (k.listing) {
			r = listing_wait_page(k.listing, w);
			if (r == 0)
				r = from_listing(m, k.listing, name, false, &found, &k);
		}
		if (r == META_E_WAIT)
			r = ask(m, dir, key, k.is_file, w, &found);
	}
	listing_put(k.listing);
	if (r == 0 || r == META_E_NONE)
		*entry = found;
	return err_trace(r);
}

void meta_ask_files(struct meta *m, const char *dir,
		    const char (*names)[PATH_NAME_MAX + 1], size_t count,
		    const struct wait *w)
{
	struct pair *pairs[META_ASK_MAX];
	struct meta_entry entry;
	uint64_t born = clock_mono_ms();
	char key[PATH_KEY_MAX + 2];

	check(count <= META_ASK_MAX);
	for (size_t i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%s", dir, names[i]);
		lock_take(&m->lock);
		pairs[i] = NULL;
		if (find_loose_locked(m, key, &entry) != META_E_WAIT)
			key[0] = '\0';
		lock_drop(&m->lock);
		if (key[0])
			pairs[i] = probe_begin(m->probes, key, true);
	}
	/* All of them, for each has to be given back. */
	for (size_t i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%s", dir, names[i]);
		if (pairs[i])
			(void)answered(m, key, pairs[i], born, w, &entry);
	}
}

static void forget_listing(struct meta *m, const char *dir)
{
	struct dir *d;

	lock_scope(&m->lock);
	d = find_dir_locked(m, dir, false);
	if (d && d->listing) {
		d->direct = 0;
		drop_listing_locked(m, d);
	}
}

void meta_invalidate(struct meta *m, const char *dir, const char *name)
{
	char key[PATH_KEY_MAX + 2];
	struct loose *l;

	snprintf(key, sizeof(key), "%s%s", dir, name);
	lock_take(&m->lock);
	HASH_FIND_STR(m->loose, key, l);
	if (l)
		drop_loose_locked(m, l);
	lock_drop(&m->lock);
	forget_listing(m, dir);
	if (keeps(m))
		shelf_forget(m->cache, m->origin->name, dir);
}

void meta_stats(struct meta *m, struct meta_stats *stats)
{
	lock_scope(&m->lock);
	*stats = (struct meta_stats){
		.hidden_keys = m->hidden,
		.shadowed_keys = m->shadowed,
		.listings = m->listings,
		.lookups = probes_count(m->probes),
		.memory = m->memory,
		.pages = m->lister ? lister_pages(m->lister) : 0,
	};
}
