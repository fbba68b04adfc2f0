/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and attributes. Each change is one transaction of the journal, made under the lock,
 * so that the journal tells the same story as the tree. It becomes durable with the next
 * sync (an fsync, a close, or a moment later); the store never learns of a change before
 * that.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "cache/tail.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/heap.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

int name_check(const char *name)
{
	switch (path_name_check(name, strlen(name))) {
	case PATH_OK:
		return 0;
	case PATH_E_LONG:
		return err_origin(-ENAMETOOLONG);
	default:
		return err_origin(-EINVAL);
	}
}

void name_touch(struct node *dir)
{
	dir->mtime_ns = dir->ctime_ns = clock_real_ns();
}

int name_commit(struct output *o, struct buf *b, struct node *n)
{
	uint64_t seq;
	int r;

	kill_point("name.commit.before");
	tail_set_final(true); /* this is what the request is for */
	r = log_commit(o, b, &seq);
	tail_set_final(false);
	kill_point("name.commit.after");
	if (r == 0)
		n->seq = seq;
	return err_trace(r);
}

int output_lookup(struct output *o, uint64_t parent, const char *name, unsigned int flags,
		  struct tree_attr *attr)
{
	struct node *n;
	int r = store_lookup(o, parent, name, flags, &n);

	if (r != 0)
		return r;
	r = store_attributes(o, n, flags);
	lock_scope(&o->lock);
	if (r == 0) {
		node_look(o, n, 1);
		node_attr(o, n, attr);
	}
	node_release(o, n);
	return r;
}

void output_forget(struct output *o, uint64_t ino, uint64_t count)
{
	struct node *n;
	bool trim;

	lock_take(&o->lock);
	n = node_find(o, ino);
	if (n && n != o->root) {
		node_look(o, n, -(int64_t)count);
		node_settle(o, n);
	}
	trim = node_many_freed(o);
	lock_drop(&o->lock);
	if (trim)
		heap_trim();
}

int name_hold(struct output *o, uint64_t ino, struct node **out)
{
	lock_scope(&o->lock);
	*out = node_find(o, ino);
	if (!*out)
		return err_origin(-ESTALE);
	node_hold(*out);
	return 0;
}

static void let_go(struct output *o, struct node *n)
{
	lock_scope(&o->lock);
	node_release(o, n);
}

int output_getattr(struct output *o, uint64_t ino, unsigned int flags,
		   struct tree_attr *attr)
{
	struct node *n;
	int r = name_hold(o, ino, &n);

	if (r < 0)
		return err_trace(r);
	r = store_attributes(o, n, flags);
	lock_scope(&o->lock);
	if (r == 0)
		node_attr(o, n, attr);
	node_release(o, n);
	return r;
}

/* ---- setattr --------------------------------------------------------------------------------- */

static int set_size(struct output *o, struct node *n, uint64_t size, bool open)
{
	int r;

	if (n->kind != RECORD_FILE)
		return n->kind == RECORD_DIR ? err_origin(-EISDIR) : err_origin(-EINVAL);
	pthread_rwlock_wrlock(&n->io);
	lock_take(&o->lock);
	r = content_open(o, n);
	lock_drop(&o->lock);
	if (r < 0) {
		pthread_rwlock_unlock(&n->io);
		return err_trace(r);
	}
	r = content_truncate(o, n, size);
	pthread_rwlock_unlock(&n->io);
	/* truncate(2) by name: there is no close to come that acknowledges it, though the
	 * file may be open for reading or a writer's close may be under way. */
	if (r == 0 && !open)
		r = content_ack(o, n);
	lock_take(&o->lock);
	content_close(o, n);
	lock_drop(&o->lock);
	return err_trace(r);
}

static void set_mtime(struct node *n, int64_t mtime_ns)
{
	n->mtime_ns = mtime_ns;
	if (n->live && n->opens > 0)
		content_set_time(n);
}

/* What a change of content or owner takes from a file that runs with others' rights. */
static mode_t without_privileges(mode_t mode)
{
	if (!S_ISREG(mode))
		return mode;
	return mode & ~(mode_t)(S_ISUID | (mode & S_IXGRP ? S_ISGID : 0));
}

void output_drop_privileges(struct output_file *file)
{
	struct tree_attr attr;
	mode_t mode;

	lock_take(&file->output->lock);
	mode = file->node->mode;
	attr.ino = file->node->ino;
	lock_drop(&file->output->lock);
	attr.mode = without_privileges(mode);
	if (attr.mode != mode)
		output_setattr(file->output, attr.ino, OUTPUT_SET_MODE, &attr);
}

int output_setattr(struct output *o, uint64_t ino, unsigned int set,
		   struct tree_attr *attr)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct node *n;
	int r = name_hold(o, ino, &n);

	if (r < 0)
		return err_trace(r);
	r = store_attributes(o, n, 0);
	if (r == 0 && (set & OUTPUT_SET_SIZE))
		r = set_size(o, n, attr->size, set & OUTPUT_SET_OPEN);
	lock_scope(&o->lock);
	if (r == 0) {
		if (set & OUTPUT_SET_MODE)
			n->mode = (n->mode & S_IFMT) | (attr->mode & 07777);
		else if (set & (OUTPUT_SET_UID | OUTPUT_SET_GID | OUTPUT_SET_DROP))
			n->mode = without_privileges(n->mode);
		if (set & OUTPUT_SET_UID)
			n->uid = attr->uid;
		if (set & OUTPUT_SET_GID)
			n->gid = attr->gid;
		if (set & OUTPUT_SET_MTIME)
			set_mtime(n, attr->mtime_ns);
		n->ctime_ns = clock_real_ns();
		if (set & ~sync_untold(n)) {
			n->meta_change++;
			n->unverified = false;
			/* A store without metadata has nothing to be told. */
			if (n->parent && (n->stored.key || n->acked) &&
			    (o->config.origin->caps & ORIGIN_CAP_META))
				n->meta_dirty = true;
		}
		if (n->parent) {
			log_node(o, &b, n);
			r = name_commit(o, &b, n);
			sync_queue(o, n);
		}
		kept_attr(n);
	}
	if (r == 0)
		node_attr(o, n, attr);
	node_release(o, n);
	return err_trace(r);
}

/* ---- new names --------------------------------------------------------------------------------- */

int name_check_key(const struct output *o, const struct node *n)
{
	char key[PATH_KEY_MAX + 1];
	int r = node_key(n, key);

	return r < 0 ? err_trace(r) : err_trace(origin_key_check(o->config.origin, key));
}

uint32_t name_departures(struct output *o, uint64_t parent)
{
	struct node *dir;

	lock_scope(&o->lock);
	dir = node_find(o, parent);
	return dir ? dir->departures : 0;
}

/* A linked node of that kind, with one lookup reference, if the name is free. It was when so
 * many names had left the directory; NAME_AGAIN: it may be one that has left since. Lock
 * held. */
static int make_node(struct output *o, uint64_t parent, const char *name,
		     enum record_kind kind, mode_t mode, struct output_owner owner,
		     uint32_t departures, struct node **out)
{
	struct node *dir = node_find(o, parent), *n;
	int r;

	if (!dir || (!dir->parent && dir != o->root))
		return err_origin(-ENOENT);
	if (node_child(dir, name))
		return err_origin(-EEXIST);
	if (dir->departures != departures && node_has_left(dir, name))
		return NAME_AGAIN;
	n = node_new(o, kind, 0);
	if (!n)
		return err_origin(-ENOMEM);
	n->mode = mode;
	n->uid = owner.uid;
	n->gid = owner.gid;
	n->mtime_ns = n->ctime_ns = clock_real_ns();
	node_look(o, n, 1); /* before it has a name: that counts with the transaction */
	r = node_link(o, dir, n, name);
	if (r == 0)
		r = name_check_key(o, n);
	if (r < 0) {
		node_free(o, n);
		return err_trace(r);
	}
	name_touch(dir);
	*out = n;
	return 0;
}

/* 0 when the name is free, as far as the store knows too. */
static int expect_free(struct output *o, uint64_t parent, const char *name)
{
	struct node *n;
	int r = name_check(name);

	if (r < 0)
		return err_trace(r);
	r = store_lookup(o, parent, name, 0, &n);
	if (r == -ENOENT)
		return 0;
	if (r == 0) {
		let_go(o, n);
		return err_origin(-EEXIST);
	}
	return err_trace(r);
}

/* As make_node(), of a name that nobody has; the lock is held when it returns 0. */
static int take_name(struct output *o, uint64_t parent, const char *name,
		     enum record_kind kind, mode_t mode, struct output_owner owner,
		     struct node **out)
{
	for (;;) {
		uint32_t departures = name_departures(o, parent);
		int r = expect_free(o, parent, name);

		if (r < 0)
			return err_trace(r);
		lock_take(&o->lock);
		r = make_node(o, parent, name, kind, mode, owner, departures, out);
		if (r == 0)
			return 0;
		lock_drop(&o->lock);
		if (r != NAME_AGAIN)
			return err_trace(r);
	}
}

/* Undoes make_node() after a failed commit. */
static void unmake(struct output *o, struct node *n)
{
	node_look(o, n, -1);
	node_free(o, n);
}

/* Its first record; what the caller gets of it. Lock held. */
static int commit_new(struct output *o, struct node *n, struct tree_attr *attr)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r;

	n->pending_ns = n->mtime_ns;
	log_node(o, &b, n);
	r = name_commit(o, &b, n);
	if (r < 0) {
		unmake(o, n);
		return err_trace(r);
	}
	sync_queue(o, n);
	node_attr(o, n, attr);
	return 0;
}

int output_mkdir(struct output *o, uint64_t parent, const char *name, mode_t mode,
		 struct output_owner owner, struct tree_attr *attr)
{
	struct node *n;
	int r = take_name(o, parent, name, RECORD_DIR, S_IFDIR | (mode & 07777), owner,
			  &n);

	if (r < 0)
		return err_trace(r);
	n->marker = true;
	n->born = true;
	n->listed = true;
	n->listed_ms = clock_mono_ms();
	r = commit_new(o, n, attr);
	lock_drop(&o->lock);
	return err_trace(r);
}

int output_symlink(struct output *o, uint64_t parent, const char *name,
		   const char *target, struct output_owner owner, struct tree_attr *attr)
{
	size_t len = strlen(target);
	struct node *n;
	int r;

	if (len == 0 || len >= 4096)
		return len ? err_origin(-ENAMETOOLONG) : err_origin(-ENOENT);
	r = take_name(o, parent, name, RECORD_SYMLINK, S_IFLNK | 0777, owner, &n);
	if (r < 0)
		return err_trace(r);
	n->target = strdup(target);
	n->size = len;
	if (n->target) {
		r = commit_new(o, n, attr);
	} else {
		unmake(o, n);
		r = err_origin(-ENOMEM);
	}
	lock_drop(&o->lock);
	return err_trace(r);
}

int output_readlink(struct output *o, uint64_t ino, unsigned int flags, char *target,
		    size_t target_size)
{
	struct node *n;
	int r = name_hold(o, ino, &n);

	if (r < 0)
		return err_trace(r);
	r = store_attributes(o, n, flags);
	lock_scope(&o->lock);
	if (r == 0 && (n->kind != RECORD_SYMLINK || !n->target))
		r = err_origin(-EINVAL);
	if (r == 0 &&
	    (size_t)snprintf(target, target_size, "%s", n->target) >= target_size)
		r = err_origin(-ENAMETOOLONG);
	node_release(o, n);
	return r;
}

int name_create(struct output *o, uint64_t parent, const char *name, mode_t mode,
		struct output_owner owner, uint32_t departures, struct content *c,
		struct node **out)
{
	struct node *n;
	int r;

	lock_scope(&o->lock);
	r = make_node(o, parent, name, RECORD_FILE, S_IFREG | (mode & 07777), owner,
		      departures, &n);
	if (r != 0)
		return r;
	n->live = c;
	n->opens = 1;
	kept_live(n, c);
	kept_place(o, n); /* its first transaction is its first acknowledgement's */
	atomic_store(&n->changed, true);
	*out = n;
	return 0;
}

int name_leave_traces(struct output *o, struct buf *b, struct node *top)
{
	char key[PATH_KEY_MAX + 1];

	for (struct node *n = top; n; n = node_next_below(top, n)) {
		int r;

		r = node_key(n, key);
		if (r == 0 && !n->maybe_sent && !detour_may_begin(n, key))
			continue;
		/* What flies is for this key, not for the next one. */
		n->maybe_sent = false;
		/* Where a renamed directory's objects are, nothing of ours was sent. */
		if (r == 0 && !node_claim(o, key) && !source_blocks(o, key))
			r = sync_make_garbage(o, b, key);
		if (r < 0)
			return err_trace(r);
		detour_begin(o, n, key);
	}
	return 0;
}

/* ---- names that go ------------------------------------------------------------------------------- */

void name_keep_dir(struct output *o, struct buf *b, struct node *dir)
{
	name_touch(dir);
	if (dir == o->root || dir->children || dir->marker || dir->stored.key)
		return;
	dir->marker = true;
	log_node(o, b, dir);
	sync_queue(o, dir);
}

void name_remove(struct output *o, struct buf *b, struct node *n, struct node *dir,
		 struct content **drop)
{
	check(!n->parent);
	source_drop_all(o, n); /* it is empty */
	sync_cancel(o, n);
	content_drop_retained(o, n);
	*drop = n->acked;
	n->acked = NULL;
	log_found(o, n);
	n->meta_dirty = false;
	n->ctime_ns = clock_real_ns();
	node_update_displaced(o, n);
	content_update_frozen(n);
	log_node(o, b, n);
	log_node(o, b, dir);
	name_keep_dir(o, b, dir);
	sync_queue(o, n);
}

static int remove_name(struct output *o, uint64_t parent, const char *name, bool dir)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *drop = NULL;
	struct node *n;
	int r = store_lookup(o, parent, name, 0, &n);

	if (r != 0)
		return err_trace(r);
	if (dir && n->kind == RECORD_DIR)
		r = store_refresh(o, n, STORE_EXACT, 0);
	lock_scope(&o->lock);
	if (r == 0 && dir != (n->kind == RECORD_DIR))
		r = dir ? err_origin(-ENOTDIR) : err_origin(-EISDIR);
	if (r == 0 && !node_is_empty(n))
		r = err_origin(-ENOTEMPTY);
	if (r == 0 && !n->parent)
		r = err_origin(-ENOENT);
	if (r == 0) {
		struct node *from = n->parent;

		r = name_leave_traces(o, &b, n);
		if (r == 0) {
			node_unlink(o, n);
			name_remove(o, &b, n, from, &drop);
			r = name_commit(o, &b, n);
		}
		content_put(drop, n->seq);
	}
	node_release(o, n);
	return err_trace(r);
}

int output_unlink(struct output *o, uint64_t parent, const char *name)
{
	return err_trace(remove_name(o, parent, name, false));
}

int output_rmdir(struct output *o, uint64_t parent, const char *name)
{
	return err_trace(remove_name(o, parent, name, true));
}
