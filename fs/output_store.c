/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store shows, under what we know better.
 *
 * A listed key that a node claims is that node's, wherever it lives now. Another key
 * becomes a clean node at its path. A listed sub-directory below which something of ours is
 * displaced may be a shell whose content has been moved or removed: it is shown only if
 * something below it is nobody's.
 *
 * While a listing runs, keys that we delete stay claimed (output->lingering), so that a
 * page fetched before the delete does not bring them back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_impl.h"

#define LIST_DEADLINE_MS 30000
#define STALE_MS 1000 /* how long an old listing serves when the store does not answer */

/* One page of a listing, kept until the lock can be taken. */
struct entry {
	char *key;
	struct origin_attr attr;
};

struct listing {
	struct entry *entries;
	size_t count, size;
};

static void listing_fini(struct listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->entries[i].key);
	free(l->entries);
	*l = (struct listing){0};
}

static int note_entry(void *arg, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	struct listing *l = arg;
	char *copy;

	if (l->count == l->size) {
		size_t size = l->size ? l->size * 2 : 64;
		struct entry *grown = realloc(l->entries, size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		l->entries = grown;
		l->size = size;
	}
	copy = strndup(key, key_len);
	if (!copy)
		return err_origin(-ENOMEM);
	l->entries[l->count++] = (struct entry){copy, *attr};
	return 0;
}

static int list_store(struct output *o, const char *prefix, bool recursive,
		      struct listing *l)
{
	struct origin_req req = {.op = ORIGIN_LIST,
				 .key = prefix,
				 .deadline_ms = clock_mono_ms() + LIST_DEADLINE_MS};

	req.list.recursive = recursive;
	req.list.entry = note_entry;
	req.list.entry_arg = l;
	return err_trace(origin_list_all(o->config.origin, &req));
}

static void listing_begin(struct output *o)
{
	o->listings++;
}

static void listing_end(struct output *o)
{
	struct list *it, *next;

	if (--o->listings > 0)
		return;
	list_for_each_safe (it, next, &o->lingering) {
		struct node *n = container_of(it, struct node, queued);

		list_remove(it);
		node_set_stored(o, n, NULL, NULL);
		n->gone = false;
		node_settle(o, n);
	}
}

static mode_t default_mode(const struct output *o, enum record_kind kind)
{
	mode_t file = o->config.file_mode ? o->config.file_mode : 0644;
	mode_t dir = o->config.dir_mode ? o->config.dir_mode : 0755;

	if (kind == RECORD_SYMLINK)
		return S_IFLNK | 0777;
	return kind == RECORD_DIR ? S_IFDIR | dir : S_IFREG | file;
}

void store_take_attributes(struct output *o, struct node *n, const struct origin_attr *a)
{
	if (a->has_posix) {
		n->mode = (a->mode & 07777) | (n->mode & S_IFMT);
		n->uid = a->uid;
		n->gid = a->gid;
		n->unverified = false;
	} else if (o->config.origin->caps & ORIGIN_CAP_META) {
		n->unverified = true;
	}
	if (a->mtime_ns) {
		n->mtime_ns = a->mtime_ns;
		n->ctime_ns = a->mtime_ns;
	}
	n->size = a->size;
	kept_attr(n);
}

static struct node *new_from_store(struct output *o, struct node *dir, const char *name,
				   const char *key, const struct origin_attr *attr)
{
	enum record_kind kind = attr->is_dir       ? RECORD_DIR
				: attr->is_symlink ? RECORD_SYMLINK
						   : RECORD_FILE;
	struct node *n = node_new(o, kind, 0);

	if (!n)
		return NULL;
	n->mode = default_mode(o, kind);
	n->uid = o->config.uid;
	n->gid = o->config.gid;
	store_take_attributes(o, n, attr);
	/* A common prefix is not an object: it has no key of its own. */
	if (node_link(o, dir, n, name) < 0 ||
	    (kind != RECORD_DIR && node_set_stored(o, n, key, attr) < 0)) {
		node_free(o, n);
		return NULL;
	}
	if (kind == RECORD_DIR)
		n->mtime_ns = n->ctime_ns = clock_real_ns();
	n->stored.version = n->version;
	return n;
}

static struct node *replace_node(struct output *o, struct node *n, const struct entry *e)
{
	_cleanup_(freep) char *name = strdup(n->name);
	struct node *dir = n->parent;

	if (!name)
		return n;
	node_unlink(o, n);
	node_set_stored(o, n, NULL, NULL);
	node_settle(o, n);
	return new_from_store(o, dir, name, e->key, &e->attr);
}

/* Nobody has it open, and it is the store's alone. */
static bool is_clean(const struct node *n)
{
	return !n->opens && !n->acked && !n->task && !n->journaled && !plan_is_dirty(n);
}

/* A key we hold to be ours: is it still what we put there? Returns the node that shows it.
 * What others put there is another file, with a number of its own: a kernel that writes
 * back believes only itself about the size of one that it knows. */
static struct node *compare(struct output *o, struct node *n, const struct entry *e,
			    uint64_t epoch)
{
	const struct origin_attr *attr = &e->attr;

	if (n->stored_epoch > epoch || n->task || attr->etag[0] == '\0' ||
	    strcmp(n->stored.etag, attr->etag) == 0)
		return n;
	log_debug(LOG_CACHE, "replaced by someone else key=%s", n->stored.key);
	n->stored_change++;
	memcpy(n->stored.etag, attr->etag, sizeof(n->stored.etag));
	n->stored.size = attr->size;
	n->stored.has_crc64 = attr->has_crc64;
	n->stored.crc64 = attr->crc64;
	n->seal.version = 0;
	n->outdated = n->opens > 0 && !n->acked;
	if (n->acked || n->opens > 0)
		return n; /* our version will win, as the last close does */
	content_drop_retained(o, n);
	if (n->kind == RECORD_FILE && n->lookups && is_clean(n))
		return replace_node(o, n, e);
	store_take_attributes(o, n, attr);
	return n;
}

/* The directory has an object of its own, and is to keep one wherever it goes. */
static int take_marker(struct output *o, struct node *dir, const struct entry *e)
{
	dir->marker = true;
	return err_trace(node_set_stored(o, dir, e->key, &e->attr));
}

/* The name below `prefix` that the key stands for, without the slash of a directory.
 * Returns false when it can be no name. */
static bool entry_name(const char *key, const char *prefix, char out[PATH_NAME_MAX + 1])
{
	const char *rest = key + strlen(prefix);
	size_t len = strcspn(rest, "/");

	if (path_name_check(rest, len) != PATH_OK || (rest[len] == '/' && rest[len + 1]))
		return false;
	memcpy(out, rest, len);
	out[len] = '\0';
	return true;
}

/* One entry of `dir`'s own prefix. Returns the node that it shows, if any, or sets
 * *doubtful when only a deeper look can tell. */
static struct node *merge_entry(struct output *o, struct node *dir, const char *prefix,
				const struct entry *e, uint64_t epoch, bool *doubtful)
{
	char name[PATH_NAME_MAX + 1];
	struct node *owner = node_claim(o, e->key), *n;

	if (strcmp(e->key, prefix) == 0) {
		/* The marker of this very directory. */
		if (!owner && dir != o->root && !dir->stored.key)
			take_marker(o, dir, e);
		return NULL;
	}
	if (!entry_name(e->key, prefix, name)) {
		o->hidden_keys++;
		return NULL;
	}
	n = node_child(dir, name);
	if (owner && !e->attr.is_dir)
		return owner == n ? compare(o, n, e, epoch) : NULL;
	if (n)
		return n;
	if (e->attr.is_dir && displaced_below(o, e->key) > 0) {
		*doubtful = true;
		return NULL;
	}
	return new_from_store(o, dir, name, e->key, &e->attr);
}

/* Clean nodes that the listing does not show have been removed by someone else. */
static void sweep_vanished(struct output *o, struct node *dir, uint64_t epoch,
			   struct node **shown, size_t shown_count)
{
	struct node *n, *next;

	for (size_t i = 0; i < shown_count; i++) {
		if (shown[i])
			shown[i]->holds++;
	}
	HASH_ITER (by_name, dir->children, n, next) {
		if (n->holds || n->opens || n->task || n->journaled || n->children ||
		    plan_is_dirty(n) || n->stored_epoch > epoch)
			continue;
		if (n->kind == RECORD_DIR && (n->marker || !n->stored.key) && n->lookups)
			continue;
		if (n->kind == RECORD_FILE && !n->stored.key)
			continue; /* new, not yet acknowledged */
		log_debug(LOG_CACHE, "removed by someone else name=%s", n->name);
		node_unlink(o, n);
		node_set_stored(o, n, NULL, NULL);
		node_settle(o, n);
	}
	for (size_t i = 0; i < shown_count; i++) {
		if (shown[i])
			shown[i]->holds--;
	}
}

/* Whether anything below the prefix is nobody's. Called without the lock. */
static int has_unclaimed(struct output *o, const char *prefix, bool *found)
{
	_cleanup_(listing_fini) struct listing l = {0};
	int r = list_store(o, prefix, true, &l);

	*found = false;
	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	for (size_t i = 0; i < l.count && !*found; i++)
		*found = !node_claim(o, l.entries[i].key);
	return 0;
}

static int resolve_doubtful(struct output *o, struct node *dir, const char *prefix,
			    const struct listing *l, const bool *doubtful)
{
	for (size_t i = 0; i < l->count; i++) {
		char name[PATH_NAME_MAX + 1];
		bool found;
		int r;

		if (!doubtful[i])
			continue;
		r = has_unclaimed(o, l->entries[i].key, &found);
		if (r < 0)
			return err_trace(r);
		if (!found || !entry_name(l->entries[i].key, prefix, name))
			continue;
		lock_scope(&o->lock);
		if (!node_child(dir, name))
			new_from_store(o, dir, name, l->entries[i].key,
				       &l->entries[i].attr);
	}
	return 0;
}

static int merge_listing(struct output *o, struct node *dir, const char *prefix,
			 const struct listing *l, uint64_t epoch)
{
	size_t count = l->count ? l->count : 1;
	_cleanup_(freep) bool *doubtful = calloc(count, sizeof(*doubtful));
	_cleanup_(freep) struct node **shown = calloc(count, sizeof(*shown));

	if (!doubtful || !shown)
		return err_origin(-ENOMEM);
	lock_take(&o->lock);
	for (size_t i = 0; i < l->count; i++)
		shown[i] =
			merge_entry(o, dir, prefix, &l->entries[i], epoch, &doubtful[i]);
	sweep_vanished(o, dir, epoch, shown, l->count);
	lock_drop(&o->lock);
	return err_trace(resolve_doubtful(o, dir, prefix, l, doubtful));
}

static bool is_fresh(const struct output *o, const struct node *dir)
{
	uint64_t now = clock_mono_ms();

	return dir->listed &&
	       (o->config.ttl_ms == UINT64_MAX || now < dir->stale_until_ms ||
		now - dir->listed_ms < o->config.ttl_ms);
}

int store_refresh(struct output *o, struct node *dir, unsigned int flags)
{
	_cleanup_(listing_fini) struct listing l = {0};
	char prefix[PATH_KEY_MAX + 1];
	uint64_t epoch, started = clock_mono_ms();
	int r;

	lock_take(&o->lock);
	if (is_fresh(o, dir) || (!dir->parent && dir != o->root)) {
		lock_drop(&o->lock);
		return 0;
	}
	if (flags & TREE_NOWAIT) {
		lock_drop(&o->lock);
		return TREE_E_WAIT;
	}
	r = node_key(dir, prefix);
	epoch = o->epoch;
	listing_begin(o);
	lock_drop(&o->lock);
	if (r == 0)
		r = list_store(o, prefix, false, &l);
	if (r == 0)
		r = merge_listing(o, dir, prefix, &l, epoch);
	lock_take(&o->lock);
	listing_end(o);
	if (r == 0) {
		dir->listed = true;
		dir->listed_ms = started;
	} else if (dir->listed && r != -ENOMEM) {
		/* The store is away. What it held a while ago is better than nothing: it
		 * lets a job go on. A directory never seen stays an error: "not there"
		 * would be a lie that makes a job start from scratch. */
		dir->stale_until_ms = clock_mono_ms() + STALE_MS;
		r = 0;
	}
	lock_drop(&o->lock);
	return err_trace(r);
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
	r = store_refresh(o, dir, flags);
	lock_scope(&o->lock);
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

/* The directory that holds the key, made where it is not known yet. */
static struct node *parent_of_key(struct output *o, struct node *top, const char *rest)
{
	struct origin_attr dir_attr = {.is_dir = true};
	struct node *dir = top;
	const char *slash;

	while ((slash = strchr(rest, '/'))) {
		char name[PATH_NAME_MAX + 1];
		size_t len = (size_t)(slash - rest);
		struct node *n;

		if (path_name_check(rest, len) != PATH_OK)
			return NULL;
		memcpy(name, rest, len);
		name[len] = '\0';
		n = node_child(dir, name);
		if (!n)
			n = new_from_store(o, dir, name, "", &dir_attr);
		if (!n || n->kind != RECORD_DIR)
			return NULL;
		dir = n;
		rest = slash + 1;
	}
	return dir;
}

static int load_entry(struct output *o, struct node *top, const char *prefix,
		      const struct entry *e)
{
	const char *rest = e->key + strlen(prefix);
	const char *base = strrchr(rest, '/');
	struct node *dir;

	if (node_claim(o, e->key))
		return 0;
	dir = parent_of_key(o, top, rest);
	if (!dir)
		return 0;
	base = base ? base + 1 : rest;
	if (*base == '\0') /* a marker */
		return dir->stored.key ? 0 : err_trace(take_marker(o, dir, e));
	if (node_child(dir, base) || path_name_check(base, strlen(base)) != PATH_OK)
		return 0;
	return new_from_store(o, dir, base, e->key, &e->attr) ? 0 : err_origin(-ENOMEM);
}

int store_load_tree(struct output *o, struct node *dir)
{
	_cleanup_(listing_fini) struct listing l = {0};
	char prefix[PATH_KEY_MAX + 1];
	int r;

	lock_take(&o->lock);
	r = dir->parent ? node_key(dir, prefix) : err_origin(-ENOENT);
	listing_begin(o);
	lock_drop(&o->lock);
	if (r == 0)
		r = list_store(o, prefix, true, &l);
	lock_take(&o->lock);
	for (size_t i = 0; r == 0 && i < l.count; i++)
		r = load_entry(o, dir, prefix, &l.entries[i]);
	listing_end(o);
	lock_drop(&o->lock);
	return err_trace(r);
}
