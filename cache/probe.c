/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"

#define DEADLINE_MS 60000

/* One pair (or, of what is known to be a file, STAT alone) under way; found by key as long as it is. Lives until the last of those who
 * wait, and both requests, are through with it. */
struct pair {
	UT_hash_handle hh;
	struct probes *probes;
	struct origin_req stat, list;
	unsigned int refs;
	int pending;    /* requests */
	bool any_below; /* LIST found something */
	int64_t dir_mtime_ns;
	char key[PATH_KEY_MAX + 2];
	char below[PATH_KEY_MAX + 2]; /* key and '/' */
};

struct probes {
	struct origin *origin;
	bool want_meta;
	struct lock lock; /* pairs and all in them */
	pthread_cond_t settled;
	struct pair *pairs;
	uint64_t live; /* pairs with requests under way */
	uint64_t count;
};

int probes_new(struct origin *origin, bool want_meta, struct probes **out)
{
	struct probes *p = calloc(1, sizeof(*p));

	if (!p)
		return err_origin(-ENOMEM);
	lock_init(&p->lock);
	lock_cond_init(&p->settled);
	p->origin = origin;
	p->want_meta = want_meta;
	*out = p;
	return 0;
}

static void put_locked(struct pair *pair)
{
	if (--pair->refs == 0)
		free(pair);
}

struct probes *probes_free(struct probes *p)
{
	struct pair *pair, *next, **held;
	size_t n = 0;

	if (!p)
		return NULL;
	lock_take(&p->lock);
	held = calloc(HASH_COUNT(p->pairs) + 1, sizeof(struct pair *));
	if (held)
		HASH_ITER (hh, p->pairs, pair, next) {
			pair->refs++;
			held[n++] = pair;
		}
	lock_drop(&p->lock);
	for (size_t i = 0; i < n; i++) {
		origin_cancel(p->origin, &held[i]->stat);
		origin_cancel(p->origin, &held[i]->list);
	}
	lock_take(&p->lock);
	while (p->live)
		lock_wait(&p->lock, &p->settled, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		put_locked(held[i]);
	lock_drop(&p->lock);
	free(held);
	pthread_cond_destroy(&p->settled);
	lock_fini(&p->lock);
	free(p);
	return NULL;
}

static void answered(struct origin_req *req)
{
	struct pair *pair = req->user;
	struct probes *p = pair->probes;

	lock_scope(&p->lock);
	if (--pair->pending)
		return;
	HASH_DEL(p->pairs, pair);
	p->live--;
	pthread_cond_broadcast(&p->settled);
	put_locked(pair);
}

static int below(void *arg, const char *key, size_t key_len,
		 const struct origin_attr *attr)
{
	struct pair *pair = arg;

	pair->any_below = true;
	/* The directory's marker has the directory's time. */
	if (key_len == strlen(pair->below) && !memcmp(key, pair->below, key_len))
		pair->dir_mtime_ns = attr->mtime_ns;
	return 0;
}

static struct pair *begin_locked(struct probes *p, const char *key, bool is_file)
{
	uint64_t deadline = clock_mono_ms() + DEADLINE_MS;
	struct pair *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return NULL;
	pair->probes = p;
	pair->refs = 1; /* the requests' */
	snprintf(pair->key, sizeof(pair->key), "%s", key);
	snprintf(pair->below, sizeof(pair->below), "%s/", key);
	/* A key of full length has nothing below it. */
	pair->pending = is_file || origin_key_check(p->origin, pair->below) < 0 ? 1 : 2;
	pair->stat = (struct origin_req){
		.op = ORIGIN_STAT,
		.key = pair->key,
		.want_meta = p->want_meta,
		.deadline_ms = deadline,
		.done = answered,
		.user = pair,
	};
	pair->list = (struct origin_req){
		.op = ORIGIN_LIST,
		.key = pair->below,
		.list = {.count_max = 1, .entry = below, .entry_arg = pair},
		.deadline_ms = deadline,
		.done = answered,
		.user = pair,
	};
	HASH_ADD_STR(p->pairs, key, pair);
	p->live++;
	p->count++;
	return pair;
}

static int verdict_locked(const struct pair *pair, struct origin_attr *attr)
{
	int stat = pair->stat.result, list = pair->list.result;

	if (list == -ENOENT)
		list = 0;
	if (list < 0)
		return err_trace(list);
	if (pair->any_below) {
		*attr = (struct origin_attr){.is_dir = true,
					     .mtime_ns = pair->dir_mtime_ns};
		return 0;
	}
	if (stat == -ENOENT)
		return PROBE_E_NONE;
	if (stat < 0)
		return err_trace(stat);
	*attr = pair->stat.attr;
	return 0;
}

struct pair *probe_begin(struct probes *p, const char *key, bool is_file)
{
	struct pair *pair;
	bool mine = false, both = false;

	lock_take(&p->lock);
	HASH_FIND_STR(p->pairs, key, pair);
	if (!pair) {
		pair = begin_locked(p, key, is_file);
		mine = pair;
		both = pair && pair->pending == 2;
	}
	if (pair)
		pair->refs++;
	lock_drop(&p->lock);
	if (mine)
		origin_submit(p->origin, &pair->stat);
	if (both)
		origin_submit(p->origin, &pair->list);
	return pair;
}

int probe_end(struct probes *p, struct pair *pair, const struct wait *w,
	      struct origin_attr *attr)
{
	int r = 0;

	lock_scope(&p->lock);
	while (pair->pending && r == 0)
		r = wait_on(w, &p->lock, &p->settled);
	if (r == 0)
		r = verdict_locked(pair, attr);
	put_locked(pair);
	return err_trace(r);
}

uint64_t probes_count(struct probes *p)
{
	lock_scope(&p->lock);
	return p->count;
}
