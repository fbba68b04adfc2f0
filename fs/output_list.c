/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a directory holds: a listing, as long as that is fresh; and of the names that it had
 * and that have no node (output_forget.c) the store's word, name by name.
 *
 * A listing goes into the tree page by page. While it is under way the directory's old one
 * stays in force, and whoever leaves the directory leaves his name with both. One listing of
 * a directory at a time; others wait for it.
 *
 * A directory is listed from its prefixes in their order (struct prefixes), one name is asked
 * for likewise. If a rename changes them meanwhile, it starts over.
 */
#include "fs/output_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

#define PAGE_MAX 1000
#define LIST_DEADLINE_MS 30000 /* of each page */
#define REFRESH_TRIES_MAX 16   /* while the directory is renamed all the time */
#define STALE_MS 1000 /* how long an old listing serves when the store does not answer */

static void refresh_fini(struct refresh *it)
{
	prefixes_fini(&it->prefixes);
	name_set_fini(&it->left);
}

static uint64_t epoch_now(struct output *o)
{
	lock_scope(&o->lock);
	return o->epoch;
}

/* ---- listings -------------------------------------------------------------------------- */

static int list_prefix(struct output *o, struct node *dir, struct refresh *it,
		       const char *prefix)
{
	char after[sizeof(((struct origin_req *)NULL)->list.next)] = "";

	for (;;) {
		_cleanup_(page_fini) struct page page = {.epoch = epoch_now(o)};
		struct origin_req req = {.op = ORIGIN_LIST,
					 .key = prefix,
					 .deadline_ms =
						 clock_mono_ms() + LIST_DEADLINE_MS};
		int r;

		req.list.after = *after ? after : NULL;
		req.list.count_max = PAGE_MAX;
		req.list.entry = page_note;
		req.list.entry_arg = &page;
		r = origin_call(o->config.origin, &req);
		if (r == 0)
			r = store_merge(o, dir, it, prefix, &page);
		if (r != 0)
			return err_trace(r);
		if (!req.list.truncated)
			return 0;
		/* A store whose pages do not advance must not hold us for ever. */
		if (strcmp(req.list.next, after) <= 0)
			return err_origin(-EBADMSG);
		strcpy(after, req.list.next);
	}
}

static int list_all(struct output *o, struct node *dir, struct refresh *it)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < it->prefixes.count; i++)
		r = list_prefix(o, dir, it, it->prefixes.items[i]);
	return err_trace(r);
}

/* The listing is through: what it has not shown is not there. Lock held. */
static int finish(struct output *o, struct node *dir, struct refresh *it)
{
	struct name_set before = {0};

	if (it->lost || (!dir->left && !(dir->left = calloc(1, sizeof(*dir->left)))))
		return err_origin(-ENOMEM);
	store_sweep(o, dir, it);
	if (it->lost) /* by what has gone */
		return err_origin(-ENOMEM);
	before = *dir->left;
	*dir->left = it->left;
	it->left = before;
	if (dir->left->count == 0) {
		free(dir->left);
		dir->left = NULL;
	}
	return 0;
}

/* One attempt; the lock is held before and after. */
static int refresh(struct output *o, struct node *dir, bool all)
{
	_cleanup_(refresh_fini) struct refresh it = {
		.id = ++o->last_refresh, .epoch = o->epoch, .all = all};
	int r = source_prefixes(o, dir, &it.prefixes);

	if (r < 0)
		return err_trace(r);
	dir->refresh = &it;
	store_listing_begin(o);
	lock_drop(&o->lock);
	r = list_all(o, dir, &it);
	lock_take(&o->lock);
	if (r == 0)
		r = finish(o, dir, &it);
	dir->refresh = NULL;
	store_listing_end(o);
	pthread_cond_broadcast(&o->changed);
	return r < 0 ? err_trace(r) : r;
}

static bool is_fresh(const struct output *o, const struct node *dir)
{
	uint64_t now = clock_mono_ms();

	return dir->listed &&
	       (o->config.ttl_ms == UINT64_MAX || now < dir->stale_until_ms ||
		now - dir->listed_ms < o->config.ttl_ms);
}

/* Whether what is known will do. */
static bool suffices(const struct node *dir, enum store_want want)
{
	return want == STORE_NAMES || !dir->left || dir->left->count == 0;
}

/* Waits while another thread lists the directory. */
static int wait_for_others(struct output *o, struct node *dir, unsigned int flags)
{
	while (dir->refresh) {
		if (flags & TREE_NOWAIT)
			return TREE_E_WAIT;
		lock_wait(&o->lock, &o->changed, UINT64_MAX);
	}
	return 0;
}

int store_refresh(struct output *o, struct node *dir, enum store_want want,
		  unsigned int flags)
{
	uint64_t started;
	int r = REFRESH_AGAIN;

	lock_scope(&o->lock);
	for (int tries = 0; r == REFRESH_AGAIN && tries < REFRESH_TRIES_MAX; tries++) {
		if (is_fresh(o, dir) && suffices(dir, want))
			return 0;
		if (wait_for_others(o, dir, flags) != 0)
			return TREE_E_WAIT;
		started = clock_mono_ms();
		if ((is_fresh(o, dir) && suffices(dir, want)) ||
		    (!dir->parent && dir != o->root))
			return 0;
		if (flags & TREE_NOWAIT)
			return TREE_E_WAIT;
		r = refresh(o, dir, want == STORE_ALL || dir->openings > 0);
	}
	if (r == REFRESH_AGAIN)
		return err_origin(-EBUSY);
	if (r == 0) {
		dir->listed = true;
		dir->listed_ms = started;
	} else if (dir->listed && suffices(dir, want) && r != -ENOMEM) {
		/* The store is away. What it held a while ago is better than nothing: it
		 * lets a job go on. A directory never seen stays an error: "not there"
		 * would be a lie that makes a job start from scratch. */
		dir->stale_until_ms = clock_mono_ms() + STALE_MS;
		r = 0;
	}
	return err_trace(r);
}

/* ---- one name -------------------------------------------------------------------------- */

/* Its object, with all that the store says of it. */
static int ask_file(struct output *o, const char *key, struct page *page)
{
	struct origin_req req = {.op = ORIGIN_STAT,
				 .key = key,
				 .want_meta = true,
				 .deadline_ms = clock_mono_ms() + LIST_DEADLINE_MS};
	int r = origin_call(o->config.origin, &req);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_trace(r);
	return err_trace(page_note(page, key, strlen(key), &req.attr));
}

static int note_below(void *below, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	(void)key;
	(void)key_len;
	(void)attr;
	*(bool *)below = true;
	return 0;
}

/* Whether it is a directory: `key` ends in '/'. */
static int ask_dir(struct output *o, const char *key, struct page *page)
{
	const struct origin_attr attr = {.is_dir = true};
	bool below = false;
	struct origin_req req = {.op = ORIGIN_LIST,
				 .key = key,
				 .deadline_ms = clock_mono_ms() + LIST_DEADLINE_MS};
	int r;

	req.list.count_max = 1;
	req.list.entry = note_below;
	req.list.entry_arg = &below;
	r = origin_call(o->config.origin, &req);
	if (r < 0)
		return err_trace(r);
	return below ? err_trace(page_note(page, key, strlen(key), &attr)) : 0;
}

typedef int (*ask_fn)(struct output *o, const char *key, struct page *page);

static int ask_key(struct output *o, struct node *dir, struct refresh *it,
		   const char *prefix, const char *key, ask_fn ask)
{
	_cleanup_(page_fini) struct page page = {.epoch = epoch_now(o)};
	int r;

	/* What can be no key is not there. */
	if (strlen(key) > PATH_KEY_MAX || origin_key_check(o->config.origin, key) < 0)
		return 0;
	r = ask(o, key, &page);
	if (r == 0 && page.count > 0)
		r = store_merge(o, dir, it, prefix, &page);
	return err_trace(r);
}

static bool has_child(struct output *o, struct node *dir, const char *name)
{
	lock_scope(&o->lock);
	return node_child(dir, name) != NULL;
}

/* The object of a file may be another node's, and a directory there all the same. */
static int ask_prefix(struct output *o, struct node *dir, struct refresh *it,
		      const char *prefix, const char *name)
{
	char key[PATH_KEY_MAX + PATH_NAME_MAX + 3];
	int r;

	strcpy(stpcpy(key, prefix), name);
	r = ask_key(o, dir, it, prefix, key, ask_file);
	if (r != 0 || has_child(o, dir, name))
		return err_trace(r);
	strcat(key, "/");
	return err_trace(ask_key(o, dir, it, prefix, key, ask_dir));
}

/* One attempt; the lock is held before and after. */
static int ask_once(struct output *o, struct node *dir, const char *name)
{
	_cleanup_(refresh_fini) struct refresh it = {.all = true, .epoch = o->epoch};
	int r = source_prefixes(o, dir, &it.prefixes);

	if (r < 0)
		return err_trace(r);
	store_listing_begin(o);
	lock_drop(&o->lock);
	for (size_t i = 0; r == 0 && i < it.prefixes.count; i++)
		r = ask_prefix(o, dir, &it, it.prefixes.items[i], name);
	lock_take(&o->lock);
	store_listing_end(o);
	return r < 0 ? err_trace(r) : r;
}

/* Whether the listing had more names than there are nodes, and this may be one of them. */
static bool is_left(const struct node *dir, const char *name)
{
	return dir->left && name_set_may_have(dir->left, name);
}

/* Makes a node of the name if the store has it. Lock held. */
static int ask_name(struct output *o, struct node *dir, const char *name,
		    unsigned int flags)
{
	int r = REFRESH_AGAIN;

	if (flags & TREE_NOWAIT)
		return TREE_E_WAIT;
	for (int tries = 0; r == REFRESH_AGAIN && tries < REFRESH_TRIES_MAX; tries++) {
		if (!dir->parent && dir != o->root)
			return 0;
		r = ask_once(o, dir, name);
	}
	return r == REFRESH_AGAIN ? err_origin(-EBUSY) : err_trace(r);
}

/* Whether the child needs no listing to be believed. */
static bool is_ours(const struct node *n)
{
	return n->journaled || n->opens > 0 || n->task || plan_is_dirty(n) ||
	       (n->kind == RECORD_FILE && !n->stored.key);
}

int store_lookup(struct output *o, uint64_t parent, const char *name, unsigned int flags,
		 struct node **out)
{
	struct node *dir, *n;
	int r;

	if (strlen(name) > PATH_NAME_MAX)
		return -ENAMETOOLONG;
	lock_take(&o->lock);
	dir = node_find(o, parent);
	if (!dir || dir->kind != RECORD_DIR) {
		lock_drop(&o->lock);
		return dir ? err_origin(-ENOTDIR) : err_origin(-ESTALE);
	}
	n = node_child(dir, name);
	if (n && is_ours(n)) {
		node_hold(n);
		lock_drop(&o->lock);
		*out = n;
		return 0;
	}
	node_hold(dir);
	lock_drop(&o->lock);
	r = store_refresh(o, dir, STORE_NAMES, flags);
	lock_scope(&o->lock);
	if (r == 0 && !node_child(dir, name) && is_left(dir, name))
		r = ask_name(o, dir, name, flags);
	n = r == 0 ? node_child(dir, name) : NULL;
	if (n)
		node_hold(n);
	node_release(o, dir);
	if (r != 0)
		return err_trace(r);
	if (!n)
		return -ENOENT; /* too common for a trace */
	*out = n;
	return 0;
}
