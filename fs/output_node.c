/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of nodes, and whose object each key of the store is.
 *
 * A node is clean when the store holds it at its path as desired. Clean nodes are a cache
 * of the listing and may be forgotten; the others are in the journal.
 *
 * `claims` says for every node with an object which key that is. A key that is claimed
 * belongs to that node, wherever it is in the tree now; all other keys belong to their
 * paths. `displaced` counts, per prefix, the claims that are not at their node's path: only
 * where it is not zero can a listing show a directory that is not there any more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

struct node *node_new(struct output *o, enum record_kind kind, uint64_t ino)
{
	struct node *n = calloc(1, sizeof(*n));

	lock_assert_held(&o->lock);
	if (!n)
		return NULL;
	if (pthread_rwlock_init(&n->io, NULL) != 0) {
		free(n);
		return NULL;
	}
	pthread_mutex_init(&n->acking, NULL);
	if (ino == 0)
		ino = o->next_ino++;
	else if (ino >= o->next_ino)
		o->next_ino = ino + 1;
	kept_next_ino(o);
	n->ino = ino;
	n->kind = kind;
	n->pending_seq = OUTPUT_CLEAN;
	list_init(&n->queued);
	list_init(&n->retained);
	list_init(&n->writing);
	n->seen = o->last_refresh;
	HASH_ADD(by_ino, o->nodes, ino, sizeof(n->ino), n);
	return n;
}

struct node *node_find(struct output *o, uint64_t ino)
{
	struct node *n;

	lock_assert_held(&o->lock);
	HASH_FIND(by_ino, o->nodes, &ino, sizeof(ino), n);
	return n;
}

struct node *node_child(struct node *dir, const char *name)
{
	struct node *n;

	HASH_FIND(by_name, dir->children, name, strlen(name), n);
	return n;
}

int node_link(struct output *o, struct node *dir, struct node *n, const char *name)
{
	char key[PATH_KEY_MAX + 1];
	char *copy = strdup(name);
	int r;

	lock_assert_held(&o->lock);
	check(!n->parent && dir->kind == RECORD_DIR);
	if (!copy)
		return err_origin(-ENOMEM);
	free(n->name);
	n->name = copy;
	n->parent = dir;
	r = node_key(n, key);
	if (r < 0) {
		n->parent = NULL;
		return err_trace(r);
	}
	HASH_ADD_KEYPTR(by_name, dir->children, n->name, strlen(n->name), n);
	n->seen = o->last_refresh; /* no listing that began before can miss it */
	kept_move(o, n);
	if (n->journaled)
		dir->journaled_children++;
	return 0;
}

void node_unlink(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	check(n->parent);
	HASH_DELETE(by_name, n->parent->children, n);
	if (n->journaled)
		n->parent->journaled_children--;
	n->parent = NULL;
	kept_move(o, n);
}

void node_look(struct output *o, struct node *n, int64_t by)
{
	lock_assert_held(&o->lock);
	if (by < 0 && (uint64_t)-by > n->lookups)
		n->lookups = 0;
	else
		n->lookups += (uint64_t)by;
	if (by > 0 || n->lookups == 0)
		node_unspare(o, n);
	kept_lookups(o, n);
}

int node_key(const struct node *n, char out[static PATH_KEY_MAX + 1])
{
	char text[PATH_KEY_MAX + 1];
	size_t at = sizeof(text) - 1;

	text[at] = '\0';
	if (n->kind == RECORD_DIR && n->parent)
		text[--at] = '/';
	for (const struct node *it = n; it->parent; it = it->parent) {
		size_t len = strlen(it->name);

		if (it != n) {
			if (at == 0)
				return err_origin(-ENAMETOOLONG);
			text[--at] = '/';
		}
		if (at < len)
			return err_origin(-ENAMETOOLONG);
		at -= len;
		memcpy(text + at, it->name, len);
	}
	memcpy(out, text + at, sizeof(text) - at);
	return 0;
}

struct node *node_at_key(struct output *o, const char *key)
{
	struct node *n = o->root;
	char name[PATH_NAME_MAX + 1];

	while (*key && n) {
		size_t len = strcspn(key, "/");

		if (n->kind != RECORD_DIR || len == 0 || len > PATH_NAME_MAX)
			return NULL;
		memcpy(name, key, len);
		name[len] = '\0';
		n = node_child(n, name);
		key += len;
		if (*key == '/') {
			if (n && n->kind != RECORD_DIR)
				return NULL;
			key++;
		} else if (n && n->kind == RECORD_DIR) {
			return NULL; /* "a" is not the key of the directory "a/" */
		}
	}
	return n == o->root ? NULL : n;
}

struct node *node_claim(struct output *o, const char *key)
{
	struct node *n;

	lock_assert_held(&o->lock);
	HASH_FIND(by_key, o->claims, key, strlen(key), n);
	return n;
}

/* Adds `by` to the count of every prefix that the key lies below. */
static void count_displaced(struct output *o, const char *key, int by)
{
	for (const char *slash = strchr(key, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		size_t len = (size_t)(slash - key) + 1;
		struct displaced *d;

		HASH_FIND(hh, o->displaced, key, len, d);
		if (!d && by > 0) {
			d = calloc(1, sizeof(*d) + len + 1);
			if (!d) {
				log_error("no memory: a moved directory may show twice");
				return;
			}
			memcpy(d->prefix, key, len);
			HASH_ADD_KEYPTR(hh, o->displaced, d->prefix, len, d);
		}
		if (!d)
			continue;
		d->count += (uint64_t)(int64_t)by;
		if (d->count == 0) {
			HASH_DELETE(hh, o->displaced, d);
			free(d);
		}
	}
}

uint64_t displaced_below(struct output *o, const char *prefix)
{
	struct displaced *d;

	HASH_FIND(hh, o->displaced, prefix, strlen(prefix), d);
	return d ? d->count : 0;
}

/* Whether its key is not, by the path that it spells or the source that has it, the node's. */
static bool is_astray(const struct node *n)
{
	return n->displaced || n->guest;
}

void node_update_displaced(struct output *o, struct node *n)
{
	char key[PATH_KEY_MAX + 1];
	bool was = is_astray(n);

	n->displaced = n->stored.key && (!n->parent || node_key(n, key) < 0 ||
					 strcmp(key, n->stored.key) != 0);
	n->guest = n->stored.key && !n->displaced && source_blocks(o, key);
	if (is_astray(n) != was)
		count_displaced(o, n->stored.key, was ? -1 : 1);
}

struct node *node_next_below(struct node *top, struct node *n)
{
	if (n->children)
		return n->children;
	while (n != top) {
		if (n->by_name.next)
			return n->by_name.next;
		n = n->parent;
	}
	return NULL;
}

int node_set_stored(struct output *o, struct node *n, const char *key,
		    const struct origin_attr *attr)
{
	char *copy = NULL;

	lock_assert_held(&o->lock);
	if (key) {
		struct node *other = node_claim(o, key);

		copy = strdup(key);
		if (!copy)
			return err_origin(-ENOMEM);
		if (other && other != n)
			node_set_stored(o, other, NULL, NULL);
	}
	if (n->stored.key) {
		if (is_astray(n))
			count_displaced(o, n->stored.key, -1);
		n->displaced = n->guest = false;
		HASH_DELETE(by_key, o->claims, n);
		detour_end(n);
		free(n->stored.key);
		n->stored.key = NULL;
	}
	n->stored_epoch = ++o->epoch;
	n->stored.unsure = false;
	/* What became of the object is known now. */
	if (n->resume && n->resume->append)
		resume_free(n);
	if (!key) {
		kept_attr(n);
		return 0;
	}
	n->stored.key = copy;
	HASH_ADD_KEYPTR(by_key, o->claims, n->stored.key, strlen(n->stored.key), n);
	if (attr) {
		memcpy(n->stored.etag, attr->etag, sizeof(n->stored.etag));
		n->stored.size = attr->size;
		n->stored.crc64 = attr->crc64;
		n->stored.has_crc64 = attr->has_crc64;
		n->stored.mtime_ns = attr->mtime_ns;
		n->stored.appendable = attr->is_appendable;
	}
	node_update_displaced(o, n);
	kept_attr(n);
	return 0;
}

void node_attr(struct output *o, struct node *n, struct tree_attr *attr)
{
	struct stat st;

	lock_assert_held(&o->lock);
	*attr = (struct tree_attr){.ino = n->ino,
				   .size = n->size,
				   .mtime_ns = n->mtime_ns,
				   .ctime_ns = n->ctime_ns,
				   .mode = n->mode,
				   .nlink = n->parent || n == o->root ? 1 : 0,
				   .uid = n->uid,
				   .gid = n->gid,
				   .ttl_ms = o->config.ttl_ms};
	if (n->kind == RECORD_DIR)
		attr->nlink++;
	if (n->kind == RECORD_SYMLINK)
		attr->size = n->target ? strlen(n->target) : n->size;
	/* While a file is open its staged file knows best. */
	if (n->live && n->opens > 0 && fstat(content_fd(n->live), &st) == 0) {
		attr->size = (uint64_t)st.st_size;
		attr->blocks = (uint64_t)st.st_blocks;
		attr->mtime_ns = content_mtime(n, clock_from_timespec(st.st_mtim));
		attr->ctime_ns = content_ctime(n, &st);
		return;
	}
	attr->blocks = (attr->size + 511) / 512;
}

void resume_free(struct node *n)
{
	if (!n->resume)
		return;
	free(n->resume->key);
	free(n->resume->parts);
	free(n->resume);
	n->resume = NULL;
}

void node_free(struct output *o, struct node *n)
{
	struct content *live = n->live, *acked = n->acked;

	ahead_forget(n);
	/* At the end of a mount the kernel still knows many: they are its, not ours. */
	kept_forget(o, n);
	if (n->parent)
		node_unlink(o, n);
	if (n->queue != QUEUE_NONE)
		list_remove(&n->queued);
	list_remove(&n->queued);
	list_remove(&n->retained);
	node_set_stored(o, n, NULL, NULL);
	detour_end(n);
	source_drop_all(o, n);
	walk_count(o, n, false);
	node_unspare(o, n);
	if (o->hand == n)
		o->hand = n->by_ino.next;
	HASH_DELETE(by_ino, o->nodes, n);
	o->freed_count++;
	if (live && n->opens > 0)
		content_unpin(live);
	content_put(live, n->seq);
	content_put(acked, n->seq);
	content_put(n->saved, 0);
	resume_free(n);
	patch_free(n->recovered);
	pthread_rwlock_destroy(&n->io);
	pthread_mutex_destroy(&n->acking);
	free(n->name);
	free(n->target);
	free(n->why);
	if (n->left)
		name_set_fini(n->left);
	free(n->left);
	free(n);
}

void node_set_why(struct node *n, const char *why)
{
	free(n->why);
	n->why = why ? strdup(why) : NULL;
}

void node_hold(struct node *n)
{
	n->holds++;
}

void node_release(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	check(n->holds > 0);
	n->holds--;
	node_settle(o, n);
}
