/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the read cache bottom-up, takes it down in the opposite order, and runs the
 * janitor: one thread that commits the index, watches the disk, lets go of what others have
 * removed, and makes room before writers need it.
 *
 * Failure modes: whatever the directory cannot do, the cache does without (memory only).
 * On close: requests are cancelled and waited for, writers finish what is queued, then all
 * memory goes back.
 */
#include "cache/cache.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cache/budget.h"
#include "cache/disk.h"
#include "cache/evict.h"
#include "cache/fetch.h"
#include "cache/index.h"
#include "cache/object.h"
#include "cache/pack.h"
#include "cache/state.h"
#include "cache/store.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/base/worker.h"

#define SIZE_DEFAULT (10ull << 30)
#define SIZE_MIN (4ull << 20)
#define MEMORY_DEFAULT (256ull << 20)
#define TICK_MS 250
#define TICKS_SLOW 4 /* the slower duties: every so many ticks */
#define WRITERS 2
#define WRITE_QUEUE 4096
#define OPEN_MIN 8    /* objects with an open file, */
#define OPEN_MAX 4096 /* whatever the process may have */
#define CHECK_QUEUE 1024

/* The directories this process has open. LMDB's locks belong to the process and break when
 * it opens an environment twice, so the second one is refused. */
enum {
	REGISTRY_MAX = 64
};
static struct {
	struct lock lock;
	struct {
		uint64_t dev, ino;
	} open[REGISTRY_MAX];
	int count;
} registry = {.lock = {PTHREAD_MUTEX_INITIALIZER, 0}};

static int enter_registry(struct cache *c, struct why *why)
{
	struct stat st;

	if (fstat(disk_fd(c->disk), &st) < 0)
		return err_origin(-errno);
	lock_scope(&registry.lock);
	for (int i = 0; i < registry.count; i++)
		if (registry.open[i].dev == st.st_dev &&
		    registry.open[i].ino == st.st_ino)
			return why_set(
				why, err_origin(-EBUSY),
				"this process has the cache directory open already; "
				"share the handle");
	if (registry.count == REGISTRY_MAX)
		return why_set(why, err_origin(-EMFILE), "too many cache directories");
	c->dir_dev = registry.open[registry.count].dev = st.st_dev;
	c->dir_ino = registry.open[registry.count].ino = st.st_ino;
	registry.count++;
	return 0;
}

static void leave_registry(struct cache *c)
{
	if (!c->dir_ino)
		return;
	lock_scope(&registry.lock);
	for (int i = 0; i < registry.count; i++)
		if (registry.open[i].dev == c->dir_dev &&
		    registry.open[i].ino == c->dir_ino)
			registry.open[i--] = registry.open[--registry.count];
}

/* ---- janitor ---- */

static void tick(struct cache *c, bool slow)
{
	int slot;

	if (!c->disk)
		return;
	disk_watch(c->disk);
	if (!disk_usable(c->disk) || !slow)
		return;
	slot = disk_begin(c->disk);
	if (index_flush(c->index) < 0)
		log_debug(LOG_CACHE, "index flush failed");
	object_tidy(c);
	packs_tidy(c->packs);
	evict_gone(c);
	evict_tick(c);
	disk_end(c->disk, slot);
}

static void *keep_house(void *arg)
{
	struct cache *c = arg;
	unsigned int ticks = 0;

	prctl(PR_SET_NAME, "cache-janitor");
	lock_take(&c->janitor_lock);
	while (!c->janitor_stop) {
		lock_wait(&c->janitor_lock, &c->janitor_wake, clock_mono_ms() + TICK_MS);
		lock_drop(&c->janitor_lock);
		tick(c, ++ticks % TICKS_SLOW == 0);
		lock_take(&c->janitor_lock);
	}
	lock_drop(&c->janitor_lock);
	return NULL;
}

static int start_janitor(struct cache *c)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&c->janitor, NULL, keep_house, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_origin(-r);
	c->janitor_runs = true;
	return 0;
}

static void stop_janitor(struct cache *c)
{
	if (!c->janitor_runs)
		return;
	lock_take(&c->janitor_lock);
	c->janitor_stop = true;
	pthread_cond_signal(&c->janitor_wake);
	lock_drop(&c->janitor_lock);
	pthread_join(c->janitor, NULL);
}

/* ---- open and close ---- */

static void close_dir(struct cache *c)
{
	c->packs = packs_free(c->packs);
	c->index = index_close(c->index);
	leave_registry(c);
	c->disk = disk_close(c->disk);
}

/* Which failures of a directory are the user's to mend, and which the cache lives with. */
static bool is_refusal(int r)
{
	return r == -EPERM || r == -EBUSY || r == -EINVAL || r == -ENOTDIR ||
	       r == -ELOOP || r == -ENAMETOOLONG || r == -ENOMEM;
}

static int open_dir(struct cache *c, const struct cache_config *config, struct why *why)
{
	struct disk_config disk = {.dir = config->dir,
				   .size_max = c->size_max,
				   .free_min = config->free_min};
	bool had_index;
	int r = disk_open(&disk, &c->disk, why);

	if (r < 0)
		return err_trace(r);
	r = enter_registry(c, why);
	if (r < 0)
		return err_trace(r);
	had_index = faccessat(disk_fd(c->disk), "index/data.mdb", F_OK, 0) == 0;
	r = index_open(disk_fd(c->disk), "index", disk_alone(c->disk), &c->index);
	if (r < 0)
		return why_set(why, r, "cache index: %s", strerror(-r));
	r = packs_new(c->disk, c->size_max, &c->packs);
	if (r < 0)
		return err_trace(r);
	if (!had_index)
		evict_relearn(c);
	return 0;
}

static int build(struct cache *c, const struct cache_config *config, struct why *why)
{
	int r = budget_new(&c->budget,
			   config->memory_max ? config->memory_max : MEMORY_DEFAULT);

	if (r < 0)
		return err_trace(r);
	budget_set_reclaim(c->budget, fill_reclaim, c);
	if (config->dir) {
		struct why reason = {0};

		r = open_dir(c, config, &reason);
		if (r < 0) {
			close_dir(c);
			if (is_refusal(r))
				return why_set(why, r, "%s", reason.text);
			log_warn("cache directory bypassed, working in memory reason=%s",
				 reason.text[0] ? reason.text : strerror(-r));
		}
	}
	r = worker_pool_new(&c->writers, "cache-write", WRITERS, WRITE_QUEUE);
	if (r == 0)
		r = worker_pool_new(&c->checkers, "cache-check", 1, CHECK_QUEUE);
	if (r == 0)
		r = start_janitor(c);
	return r < 0 ? why_set(why, r, "cannot start the cache's threads: %s",
			       strerror(-r))
		     : 0;
}

/* How many objects may have their two descriptors open: half of what the process may. */
static uint64_t open_files_max(void)
{
	struct rlimit limit;
	uint64_t max = OPEN_MAX;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < max)
		max = limit.rlim_cur / 4;
	return max > OPEN_MIN ? max : OPEN_MIN;
}

int cache_open(const struct cache_config *config, struct cache **out, struct why *why)
{
	struct cache *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_origin(-ENOMEM);
	lock_init(&c->lock);
	lock_init(&c->evict_lock);
	lock_init(&c->janitor_lock);
	lock_init(&c->whole_lock);
	lock_cond_init(&c->whole_settled);
	lock_cond_init(&c->janitor_wake);
	news_init(&c->news);
	lock_cond_init(&c->fetch_gone);
	list_init(&c->idle);
	list_init(&c->gone);
	list_init(&c->open);
	c->open_max = open_files_max();
	list_init(&c->memory);
	list_init(&c->queued);
	list_init(&c->fetches);
	c->size_max = config->size_max ? config->size_max : SIZE_DEFAULT;
	if (c->size_max < SIZE_MIN)
		c->size_max = SIZE_MIN;
	r = build(c, config, why);
	if (r < 0) {
		cache_close(c);
		return err_trace(r);
	}
	*out = c;
	return 0;
}

struct cache *cache_close(struct cache *c)
{
	if (!c)
		return NULL;
	fetch_cancel_all(c, NULL);
	c->writers = worker_pool_free(c->writers);
	c->checkers = worker_pool_free(c->checkers);
	stop_janitor(c);
	fill_drop_all(c, NULL);
	object_trim(c, true);
	check(!c->objects);
	if (c->disk)
		evict_gone(c);
	close_dir(c);
	c->budget = budget_free(c->budget);
	news_fini(&c->news);
	pthread_cond_destroy(&c->fetch_gone);
	pthread_cond_destroy(&c->janitor_wake);
	pthread_cond_destroy(&c->whole_settled);
	lock_fini(&c->whole_lock);
	lock_fini(&c->janitor_lock);
	lock_fini(&c->evict_lock);
	lock_fini(&c->lock);
	free(c);
	return NULL;
}

struct budget *cache_budget(struct cache *c)
{
	return c->budget;
}

uint64_t cache_disk_limit(struct cache *c)
{
	return store_disk_usable(c) ? disk_limit(c->disk) : 0;
}

/* ---- figures ---- */

static uint64_t value(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void cache_stats(struct cache *c, struct cache_stats *s)
{
	struct cache_counters *n = &c->count;

	*s = (struct cache_stats){
		.size_max = c->size_max,
		.size_used = c->disk ? disk_used(c->disk) : 0,
		.memory_max = budget_max(c->budget),
		.memory_used = budget_in_use(c->budget),
		.memory_peak = budget_peak(c->budget),
		.hits = value(&n->hits),
		.misses = value(&n->misses),
		.bytes_hit = value(&n->bytes_hit),
		.bytes_read = value(&n->bytes_read),
		.bytes_fetched = value(&n->bytes_fetched),
		.requests = value(&n->requests),
		.requests_failed = value(&n->requests_failed),
		.bytes_prefetched = value(&n->bytes_prefetched),
		.damaged = value(&n->damaged),
		.crc_mismatches = value(&n->crc_mismatches),
		.wrong_shown = value(&n->wrong_shown),
		.evicted = value(&n->evicted),
		.bytes_evicted = value(&n->bytes_evicted),
		.bypassed = value(&n->bypassed),
		.disk = store_disk_usable(c),
	};
}

void cache_status_json(struct cache *c, struct buf *b)
{
	struct cache_stats s;

	cache_stats(c, &s);
	json_put_bool(b, "disk", s.disk);
	json_put_uint(b, "size_max", s.size_max);
	json_put_uint(b, "size_used", s.size_used);
	json_put_uint(b, "memory_max", s.memory_max);
	json_put_uint(b, "memory_used", s.memory_used);
	json_put_uint(b, "memory_peak", s.memory_peak);
	json_put_uint(b, "hits", s.hits);
	json_put_uint(b, "misses", s.misses);
	json_put_double(b, "hit_ratio",
			s.bytes_read ? (double)s.bytes_hit / (double)s.bytes_read : 0);
	json_put_uint(b, "bytes_read", s.bytes_read);
	json_put_uint(b, "bytes_hit", s.bytes_hit);
	json_put_uint(b, "bytes_fetched", s.bytes_fetched);
	json_put_uint(b, "bytes_prefetched", s.bytes_prefetched);
	json_put_uint(b, "requests", s.requests);
	json_put_uint(b, "requests_failed", s.requests_failed);
	json_put_uint(b, "damaged", s.damaged);
	json_put_uint(b, "crc_mismatches", s.crc_mismatches);
	json_put_uint(b, "wrong_shown", s.wrong_shown);
	json_put_uint(b, "evicted", s.evicted);
	json_put_uint(b, "bytes_evicted", s.bytes_evicted);
	json_put_uint(b, "bypassed", s.bypassed);
}
