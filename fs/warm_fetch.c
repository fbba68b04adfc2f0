/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job does with a name: looks it up, lists a tree, asks whether there is room, hands
 * the object to ahead.c and counts how it ended.
 */
#include "fs/warm_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "cache/meta.h"
#include "cache/object.h"
#include "cache/origin.h"
#include "cache/wait.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/path.h"

#define FAILURES_MAX 64 /* requests in a row */
#define TRIES_MAX 3     /* of an object that is replaced meanwhile, or arrives damaged */
#define FILL_PER_MILLE 940 /* of the cache: eviction begins at 960 */
/* Fetched and not read yet: until it is read, as much again is fetched and read. */
#define AHEAD_PER_MILLE 400
#define PAGE_DEADLINE_MS 60000
#define LAG_MAX 4096 /* files of an order that its reader may leave out for now */

void warm_problem_locked(struct warm_job *j, const char *format, ...)
{
	va_list args;

	if (j->problem_count == WARM_PROBLEMS_SHOWN)
		return;
	va_start(args, format);
	vsnprintf(j->problems[j->problem_count++], sizeof(j->problems[0]), format, args);
	va_end(args);
}

/* ---- what is read of a recorded order -------------------------------------------------- */

void warm_unmark_locked(struct warm *w, struct warm_job *j, struct warm_mark *m)
{
	j->mark_cost -= m->cost;
	HASH_DEL(j->marks_by_hash, m);
	list_remove(&m->link);
	free(m);
	atomic_fetch_sub(&w->marks, 1);
}

static void mark_locked(struct warm *w, struct warm_job *j, const char *key,
			uint64_t cost)
{
	struct warm_mark *m = calloc(1, sizeof(*m)), *other;

	if (!m)
		return;
	m->hash = crc64(0, key, strlen(key));
	m->cost = cost;
	m->number = j->mark_number++;
	HASH_FIND(hh, j->marks_by_hash, &m->hash, sizeof(m->hash), other);
	if (other) {
		free(m);
		return;
	}
	HASH_ADD(hh, j->marks_by_hash, hash, sizeof(m->hash), m);
	list_push_back(&j->marks, &m->link);
	j->mark_cost += cost;
	atomic_fetch_add(&w->marks, 1);
}

static void read_locked(struct warm *w, struct warm_job *j, uint64_t hash)
{
	struct warm_mark *m;
	uint64_t number;

	HASH_FIND(hh, j->marks_by_hash, &hash, sizeof(hash), m);
	if (!m)
		return;
	number = m->number;
	warm_unmark_locked(w, j, m);
	/* What lies far behind will not be read any more. */
	while (!list_empty(&j->marks)) {
		m = list_first(&j->marks, struct warm_mark, link);
		if (m->number + LAG_MAX > number)
			break;
		warm_unmark_locked(w, j, m);
	}
	pthread_cond_broadcast(&w->moved);
}

bool warm_cares(struct warm *w)
{
	return atomic_load_explicit(&w->marks, memory_order_relaxed) > 0;
}

void warm_read(struct warm *w, const char *dir, const char *name)
{
	uint64_t hash;
	struct list *it;

	if (!warm_cares(w))
		return;
	hash = crc64(crc64(0, dir, strlen(dir)), name, strlen(name));
	lock_scope(&w->lock);
	list_for_each (it, &w->jobs)
		read_locked(w, container_of(it, struct warm_job, link), hash);
}

/* ---- room in the cache ----------------------------------------------------------------- */

/* What an object takes on disk, about. */
static uint64_t cost_of(const char *key, uint64_t size)
{
	return (size + 4095) / 4096 * 4096 / 1023 * 1024 + strlen(key) + 512;
}

static bool fits_locked(struct warm *w, struct warm_job *j, uint64_t cost)
{
	uint64_t limit = cache_disk_limit(w->config.cache);

	return j->cost + cost <= limit / 1000 * FILL_PER_MILLE ||
	       (j->reader->recorded &&
		j->mark_cost + cost <= limit / 1000 * AHEAD_PER_MILLE);
}

/* Waits until the object may be fetched; false: it may not. Lock held. */
static bool admit_locked(struct warm *w, struct warm_job *j, const char *key,
			 uint64_t size)
{
	uint64_t cost = cost_of(key, size);

	while (!atomic_load(&j->stop)) {
		if (!fits_locked(w, j, cost)) {
			if (!j->reader->recorded || list_empty(&j->marks)) {
				j->files_too_many++;
				j->bytes_too_many += size;
				return false;
			}
			j->ahead_of_readers = true;
		} else if (j->outstanding < WARM_OUTSTANDING_MAX) {
			j->cost += cost;
			j->files_found++;
			j->bytes_found += size;
			j->outstanding++;
			if (j->reader->recorded)
				mark_locked(w, j, key, cost);
			return true;
		}
		lock_wait(&w->lock, &w->moved, UINT64_MAX);
	}
	return false;
}

/* ---- one object ------------------------------------------------------------------------ */

void warm_fail_locked(struct warm *w, struct warm_job *j, int error)
{
	j->error = error;
	atomic_store(&j->stop, true);
	ahead_wake(w->config.ahead);
	pthread_cond_broadcast(&w->moved);
}

static void failed_locked(struct warm *w, struct warm_job *j, const char *key, int r)
{
	char shown[160];

	if (r == -ECANCELED || r == -EINTR)
		return;
	if (r == -ENOENT) {
		j->files_missing++;
		warm_problem_locked(j, "%s: no such file",
				    log_escape(shown, sizeof(shown), key));
		return;
	}
	j->files_failed++;
	warm_problem_locked(j, "%s: %s", log_escape(shown, sizeof(shown), key),
			    r == AHEAD_E_LOST ? "the cache did not keep it"
					      : strerror(-r));
	if (r == -EACCES || r == -EKEYEXPIRED)
		warm_fail_locked(w, j, r);
}

/* Woken in batches: what is under way lasts until the lookers have found more. */
static void item_over_locked(struct warm_item *item)
{
	if (--item->job->outstanding % (WARM_OUTSTANDING_MAX / 4) == 0)
		pthread_cond_broadcast(&item->warm->moved);
	free(item);
}

/* On ahead's thread. */
static void done(struct ahead_item *ahead, int r)
{
	struct warm_item *item = (struct warm_item *)ahead;
	struct warm *w = item->warm;
	struct warm_job *j = item->job;

	object_put(ahead->object);
	ahead->object = NULL;
	lock_scope(&w->lock);
	item->gone = r == -ESTALE || r == -ENOENT;
	/* A time-out has taken its time already. */
	if (r < 0 && !item->gone && r != -ECANCELED && ++j->failures >= FAILURES_MAX)
		warm_fail_locked(w, j, r);
	if ((item->gone || (origin_is_transient(r) && r != -ETIMEDOUT)) &&
	    ++item->tries < TRIES_MAX && !atomic_load(&j->stop)) {
		list_push_back(&w->again, &item->link);
		pthread_cond_broadcast(&w->moved);
		return;
	}
	if (r == 0 || r == AHEAD_E_CACHED) {
		j->failures = 0;
		*(r == 0 ? &j->files_fetched : &j->files_cached) += 1;
		*(r == 0 ? &j->bytes_fetched : &j->bytes_cached) += item->size;
	} else {
		failed_locked(w, j, item->key, r);
	}
	item_over_locked(item);
}

/* Hands it over. It is outstanding already. */
static void submit(struct warm_item *item, const struct origin_attr *attr)
{
	struct warm *w = item->warm;
	int r = object_get(w->config.cache, w->config.origin, item->key, attr,
			   &item->ahead.object);

	if (r < 0) {
		lock_scope(&w->lock);
		failed_locked(w, item->job, item->key, r);
		item_over_locked(item);
		return;
	}
	item->size = attr->size;
	item->ahead.stop = &item->job->stop;
	item->ahead.done = done;
	list_init(&item->ahead.link);
	ahead_submit(w->config.ahead, &item->ahead);
}

static void fetch(struct warm *w, struct warm_job *j, const char *key,
		  const struct origin_attr *attr)
{
	struct warm_item *item;
	bool go;

	lock_take(&w->lock);
	go = admit_locked(w, j, key, attr->size);
	lock_drop(&w->lock);
	if (!go)
		return;
	item = calloc(1, sizeof(*item));
	if (!item) {
		lock_scope(&w->lock);
		failed_locked(w, j, key, -ENOMEM);
		j->outstanding--;
		return;
	}
	item->warm = w;
	item->job = j;
	list_init(&item->link);
	memcpy(item->key, key, strlen(key) + 1);
	submit(item, attr);
}

/* ---- names ----------------------------------------------------------------------------- */

static int look_up(struct warm *w, struct warm_job *j, const char *key,
		   struct meta_entry *entry)
{
	struct wait wait = {.deadline_ms = clock_mono_ms() + w->config.deadline_ms,
			    .interrupted = &j->stop};
	char dir[PATH_KEY_MAX + 2];
	const char *slash = strrchr(key, '/');
	size_t n = slash ? (size_t)(slash - key) + 1 : 0;
	int r;

	memcpy(dir, key, n);
	dir[n] = '\0';
	r = meta_lookup(w->config.meta, dir, key + n, false, &wait, entry);
	return r == META_E_NONE ? -ENOENT : err_trace(r);
}

static void forget(struct warm *w, const char *key)
{
	char dir[PATH_KEY_MAX + 2];
	const char *slash = strrchr(key, '/');
	size_t n = slash ? (size_t)(slash - key) + 1 : 0;

	memcpy(dir, key, n);
	dir[n] = '\0';
	meta_invalidate(w->config.meta, dir, key + n);
}

/* The version that is there now, or once more. */
void warm_fetch_again(struct warm_item *item)
{
	struct warm *w = item->warm;
	struct meta_entry entry;
	int r;

	if (item->gone && !atomic_load(&item->job->stop))
		forget(w, item->key);
	r = look_up(w, item->job, item->key, &entry);
	if (r == 0 && entry.attr.is_dir)
		r = -EISDIR;
	if (r == 0) {
		submit(item, &entry.attr);
		return;
	}
	lock_scope(&w->lock);
	failed_locked(w, item->job, item->key, r);
	item_over_locked(item);
}

/* ---- trees ----------------------------------------------------------------------------- */

struct page {
	struct {
		char *key;
		struct origin_attr attr;
	} entries[1000];
	unsigned int count;
};

static int on_entry(void *arg, const char *key, size_t n, const struct origin_attr *attr)
{
	struct page *p = arg;

	/* What cannot be shown is not fetched either. */
	if (attr->is_dir || !n || key[n - 1] == '/' || path_key_check(key, n) != PATH_OK)
		return 0;
	if (p->count == sizeof(p->entries) / sizeof(p->entries[0]))
		return err_origin(-EBADMSG);
	p->entries[p->count].key = strndup(key, n);
	if (!p->entries[p->count].key)
		return err_origin(-ENOMEM);
	p->entries[p->count++].attr = *attr;
	return 0;
}

static int list_page(struct warm *w, struct warm_job *j, struct origin_req *req)
{
	int slot = 0, r;

	lock_take(&w->lock);
	while (w->requests[slot])
		slot++;
	check(slot < WARM_LOOKERS);
	w->requests[slot] = req;
	r = atomic_load(&j->stop) ? -ECANCELED : 0;
	lock_drop(&w->lock);
	if (r == 0)
		r = origin_call(w->config.origin, req);
	lock_take(&w->lock);
	w->requests[slot] = NULL;
	lock_drop(&w->lock);
	return r;
}

static void take_page(struct warm *w, struct warm_job *j, struct page *p)
{
	for (unsigned int i = 0; i < p->count; i++) {
		if (!atomic_load(&j->stop))
			fetch(w, j, p->entries[i].key, &p->entries[i].attr);
		free(p->entries[i].key);
	}
	p->count = 0;
}

static void count_page(struct warm *w, struct warm_job *j, struct page *p)
{
	lock_scope(&w->lock);
	for (unsigned int i = 0; i < p->count; i++) {
		j->tree_files++;
		j->tree_bytes += p->entries[i].attr.size;
		free(p->entries[i].key);
	}
	p->count = 0;
}

/* Everything below a prefix: "" or ending in '/'. */
static int each_page(struct warm *w, struct warm_job *j, const char *prefix,
		     void (*take)(struct warm *w, struct warm_job *j, struct page *p))
{
	struct origin_req req = {.op = ORIGIN_LIST, .key = prefix, .background = true};
	char after[sizeof(req.list.next)] = "";
	struct page *p = calloc(1, sizeof(*p));
	int r = p ? 0 : err_origin(-ENOMEM);

	req.list.recursive = true;
	req.list.count_max = 1000;
	req.list.entry = on_entry;
	req.list.entry_arg = p;
	while (r == 0 && !atomic_load(&j->stop)) {
		req.deadline_ms = clock_mono_ms() + PAGE_DEADLINE_MS;
		r = list_page(w, j, &req);
		take(w, j, p);
		if (r < 0 || !req.list.truncated)
			break;
		if (strcmp(req.list.next, after) <= 0)
			r = err_origin(-EBADMSG);
		memcpy(after, req.list.next, sizeof(after));
		req.list.after = after;
	}
	free(p);
	return err_trace(r);
}

static int take_tree(struct warm *w, struct warm_job *j, const char *key)
{
	size_t n = strlen(key);
	struct warm_tree *tree = calloc(1, sizeof(*tree) + n + 2);
	char prefix[PATH_KEY_MAX + 2];

	if (!tree)
		return err_origin(-ENOMEM);
	memcpy(prefix, key, n);
	if (n)
		prefix[n++] = '/';
	prefix[n] = '\0';
	memcpy(tree->prefix, prefix, n + 1);
	lock_take(&w->lock);
	list_push_back(&j->trees, &tree->link);
	j->counting++;
	j->line_trees++;
	pthread_cond_broadcast(&w->moved);
	lock_drop(&w->lock);
	return err_trace(each_page(w, j, prefix, take_page));
}

void warm_take_key(struct warm *w, struct warm_job *j, const char *key)
{
	struct meta_entry entry = {.attr = {.is_dir = true}};
	int r = *key ? look_up(w, j, key, &entry) : 0;

	if (r == 0 && entry.attr.is_dir) {
		r = take_tree(w, j, key);
	} else if (r == 0) {
		lock_take(&w->lock);
		j->line_bytes += entry.attr.size;
		lock_drop(&w->lock);
		fetch(w, j, key, &entry.attr);
	}
	if (r < 0) {
		lock_scope(&w->lock);
		failed_locked(w, j, *key ? key : "/", r);
	}
}

void warm_count_tree(struct warm *w, struct warm_job *j, struct warm_tree *tree)
{
	/* Without a count there is no estimate, no more. */
	(void)!each_page(w, j, tree->prefix, count_page);
	free(tree);
}
