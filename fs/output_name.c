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

#include "cache/tail.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/output_impl.h"

static int check_name(const char *name)
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

static void touch_dir(struct node *dir)
{
	dir->mtime_ns = dir->ctime_ns = clock_real_ns();
}

/* Appends what was gathered and remembers up to where `n` has to be synced. */
static int commit(struct output *o, struct buf *b, struct node *n)
{
	uint64_t seq;
	int r;

	tail_set_final(true); /* this is what the request is for */
	r = log_commit(o, b, &seq);
	tail_set_final(false);
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

	lock_scope(&o->lock);
	n = node_find(o, ino);
	if (!n || n == o->root)
		return;
	node_look(o, n, -(int64_t)count);
	node_settle(o, n);
}

/* The node, held; the lock is not. */
static int hold_ino(struct output *o, uint64_t ino, struct node **out)
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
	int r = hold_ino(o, ino, &n);

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
	if (r == 0)
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
	if (n->live && n->opens > 0) {
		struct timespec t[2] = {{.tv_nsec = UTIME_OMIT},
					{mtime_ns / 1000000000, mtime_ns % 1000000000}};

		if (t[1].tv_nsec < 0) {
			t[1].tv_sec--;
			t[1].tv_nsec += 1000000000;
		}
		futimens(content_fd(n->live), t);
	}
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
	int r = hold_ino(o, ino, &n);

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
		if (set & ~(unsigned int)(OUTPUT_SET_SIZE | OUTPUT_SET_OPEN)) {
			n->meta_change++;
			n->unverified = false;
			/* A store without metadata has nothing to be told. */
			if (n->parent && (n->stored.key || n->acked) &&
			    (o->config.origin->caps & ORIGIN_CAP_META))
				n->meta_dirty = true;
		}
		if (n->parent) {
			log_node(o, &b, n);
			r = commit(o, &b, n);
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

/* A linked node of that kind, with one lookup reference, if the name is free. Lock held. */
static int make_node(struct output *o, uint64_t parent, const char *name,
		     enum record_kind kind, mode_t mode, struct output_owner owner,
		     struct node **out)
{
	struct node *dir = node_find(o, parent), *n;
	int r;

	if (!dir || (!dir->parent && dir != o->root))
		return err_origin(-ENOENT);
	if (node_child(dir, name))
		return err_origin(-EEXIST);
	n = node_new(o, kind, 0);
	if (!n)
		return err_origin(-ENOMEM);
	n->mode = mode;
	n->uid = owner.uid;
	n->gid = owner.gid;
	n->mtime_ns = n->ctime_ns = clock_real_ns();
	r = node_link(o, dir, n, name);
	if (r < 0) {
		node_free(o, n);
		return err_trace(r);
	}
	node_look(o, n, 1);
	touch_dir(dir);
	*out = n;
	return 0;
}

/* 0 when the name is free, as far as the store knows too. */
static int expect_free(struct output *o, uint64_t parent, const char *name)
{
	struct node *n;
	int r = check_name(name);

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

/* Undoes make_node() after a failed commit. */
static void unmake(struct output *o, struct node *n)
{
	node_look(o, n, -1);
	node_free(o, n);
}

int output_mkdir(struct output *o, uint64_t parent, const char *name, mode_t mode,
		 struct output_owner owner, struct tree_attr *attr)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct node *n;
	int r = expect_free(o, parent, name);

	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	r = make_node(o, parent, name, RECORD_DIR, S_IFDIR | (mode & 07777), owner, &n);
	if (r < 0)
		return err_trace(r);
	n->marker = true;
	n->born = true;
	n->listed = true;
	n->listed_ms = clock_mono_ms();
	n->pending_ns = n->mtime_ns;
	log_node(o, &b, n);
	r = commit(o, &b, n);
	if (r < 0) {
		unmake(o, n);
		return err_trace(r);
	}
	sync_queue(o, n);
	node_attr(o, n, attr);
	return 0;
}

int output_symlink(struct output *o, uint64_t parent, const char *name,
		   const char *target, struct output_owner owner, struct tree_attr *attr)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct node *n;
	int r = expect_free(o, parent, name);

	if (r < 0)
		return err_trace(r);
	if (strlen(target) == 0 || strlen(target) >= 4096)
		return target[0] ? err_origin(-ENAMETOOLONG) : err_origin(-ENOENT);
	lock_scope(&o->lock);
	r = make_node(o, parent, name, RECORD_SYMLINK, S_IFLNK | 0777, owner, &n);
	if (r < 0)
		return err_trace(r);
	n->target = strdup(target);
	n->size = strlen(target);
	if (!n->target) {
		unmake(o, n);
		return err_origin(-ENOMEM);
	}
	n->pending_ns = n->mtime_ns;
	log_node(o, &b, n);
	r = commit(o, &b, n);
	if (r < 0) {
		unmake(o, n);
		return err_trace(r);
	}
	sync_queue(o, n);
	node_attr(o, n, attr);
	return 0;
}

int output_readlink(struct output *o, uint64_t ino, unsigned int flags, char *target,
		    size_t target_size)
{
	struct node *n;
	int r = hold_ino(o, ino, &n);

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
		struct output_owner owner, struct content *c, struct node **out)
{
	struct node *n;
	int r;

	lock_scope(&o->lock);
	r = make_node(o, parent, name, RECORD_FILE, S_IFREG | (mode & 07777), owner, &n);
	if (r < 0)
		return err_trace(r);
	n->live = c;
	n->opens = 1;
	kept_live(n, c);
	atomic_store(&n->changed, true);
	*out = n;
	return 0;
}

/* A request may have put an object at this key, or may yet, without our being told: a lost
 * answer, a crash. Before the path leaves the key, what may be there becomes garbage; when
 * the answer comes after all, the node takes it back. */
static int leave_traces(struct output *o, struct buf *b, struct node *top)
{
	char key[PATH_KEY_MAX + 1];

	for (struct node *n = top; n; n = node_next_below(top, n)) {
		int r;

		if (!n->maybe_sent)
			continue;
		n->maybe_sent = n->task != NULL;
		r = node_key(n, key);
		if (r == 0 && !node_claim(o, key))
			r = sync_make_garbage(o, b, key);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

/* ---- names that go ------------------------------------------------------------------------------- */

/* A directory that exists only because of what is in it must not vanish with that. */
static void keep_dir(struct output *o, struct buf *b, struct node *dir)
{
	touch_dir(dir);
	if (dir == o->root || dir->children || dir->marker || dir->stored.key)
		return;
	dir->marker = true;
	log_node(o, b, dir);
	sync_queue(o, dir);
}

/* The node has no name in `dir` any more; what the store holds of it is to vanish. The
 * caller commits, then puts `*drop`. */
static void remove_node(struct output *o, struct buf *b, struct node *n, struct node *dir,
			struct content **drop)
{
	check(!n->parent);
	sync_cancel(o, n);
	content_drop_retained(o, n);
	*drop = n->acked;
	n->acked = NULL;
	n->meta_dirty = false;
	n->ctime_ns = clock_real_ns();
	content_update_frozen(n);
	log_node(o, b, n);
	log_node(o, b, dir);
	keep_dir(o, b, dir);
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
		r = store_refresh(o, n, 0);
	lock_scope(&o->lock);
	if (r == 0 && dir != (n->kind == RECORD_DIR))
		r = dir ? err_origin(-ENOTDIR) : err_origin(-EISDIR);
	if (r == 0 && n->children)
		r = err_origin(-ENOTEMPTY);
	if (r == 0 && !n->parent)
		r = err_origin(-ENOENT);
	if (r == 0) {
		struct node *from = n->parent;

		r = leave_traces(o, &b, n);
		if (r == 0) {
			node_unlink(o, n);
			remove_node(o, &b, n, from, &drop);
			r = commit(o, &b, n);
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

/* ---- rename --------------------------------------------------------------------------------------- */

struct rename {
	struct node *n, *target; /* held; target may be NULL */
	struct node *to;         /* directory; held */
	const char *new_name;
	unsigned int flags;
};

static bool is_below(const struct node *n, const struct node *top)
{
	for (; n; n = n->parent) {
		if (n == top)
			return true;
	}
	return false;
}

static int check_rename(struct output *o, const struct rename *m)
{
	struct node *now = node_child(m->to, m->new_name);

	if (!m->n->parent || now != m->target || (!m->to->parent && m->to != o->root))
		return err_origin(-EAGAIN); /* changed while we asked the store */
	if (is_below(m->to, m->n))
		return err_origin(-EINVAL);
	if (m->flags & RENAME_EXCHANGE) {
		if (!m->target)
			return err_origin(-ENOENT);
		return is_below(m->n, m->target) ? err_origin(-EINVAL) : 0;
	}
	if (!m->target)
		return 0;
	if (m->flags & RENAME_NOREPLACE)
		return err_origin(-EEXIST);
	if (m->n->kind == RECORD_DIR && m->target->kind != RECORD_DIR)
		return err_origin(-ENOTDIR);
	if (m->n->kind != RECORD_DIR && m->target->kind == RECORD_DIR)
		return err_origin(-EISDIR);
	return m->target->children ? err_origin(-ENOTEMPTY) : 0;
}

/* Every node of a moved tree: where it is stored is not where it is any more. */
static void log_moved(struct output *o, struct buf *b, struct node *top)
{
	if (top->kind == RECORD_DIR && !top->marker) {
		top->marker = true; /* it must stay when what is in it moves on */
	}
	for (struct node *n = top; n; n = node_next_below(top, n)) {
		node_update_displaced(o, n);
		log_node(o, b, n);
		sync_queue(o, n);
	}
}

static int check_lengths(struct node *top)
{
	char key[PATH_KEY_MAX + 1];

	for (struct node *n = top; n; n = node_next_below(top, n)) {
		if (node_key(n, key) < 0)
			return err_origin(-ENAMETOOLONG);
	}
	return 0;
}

/* Moves the node; on failure it is where it was. */
static int relink(struct output *o, struct node *n, struct node *to, const char *name)
{
	_cleanup_(freep) char *old_name = strdup(n->name);
	struct node *from = n->parent;
	int r;

	if (!old_name)
		return err_origin(-ENOMEM);
	node_unlink(o, n);
	r = node_link(o, to, n, name);
	if (r == 0) {
		r = check_lengths(n);
		if (r == 0)
			return 0;
		node_unlink(o, n);
	}
	check(node_link(o, from, n, old_name) == 0);
	return err_trace(r);
}

static int exchange_names(struct output *o, struct buf *b, struct rename *m)
{
	struct node *a = m->n, *c = m->target, *from = a->parent;
	_cleanup_(freep) char *a_name = strdup(a->name);
	_cleanup_(freep) char *c_name = strdup(c->name);
	int r;

	if (!a_name || !c_name)
		return err_origin(-ENOMEM);
	node_unlink(o, c);
	r = relink(o, a, m->to, c_name);
	if (r < 0) {
		check(node_link(o, m->to, c, c_name) == 0);
		return err_trace(r);
	}
	r = node_link(o, from, c, a_name);
	if (r == 0)
		r = check_lengths(c);
	if (r < 0) {
		if (c->parent)
			node_unlink(o, c);
		check(relink(o, a, from, a_name) == 0);
		check(node_link(o, m->to, c, c_name) == 0);
		return err_trace(r);
	}
	log_moved(o, b, c);
	return 0;
}

static int rename_locked(struct output *o, struct rename *m)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *drop = NULL;
	struct node *from = m->n->parent;
	int r;

	if (m->n == m->target)
		return m->flags & RENAME_NOREPLACE ? err_origin(-EEXIST) : 0;
	r = check_rename(o, m);
	if (r < 0)
		return err_trace(r);
	r = leave_traces(o, &b, m->n);
	if (r == 0 && m->target)
		r = leave_traces(o, &b, m->target);
	if (r < 0)
		return err_trace(r);
	if (m->flags & RENAME_EXCHANGE) {
		r = exchange_names(o, &b, m);
	} else {
		if (m->target)
			node_unlink(o, m->target);
		r = relink(o, m->n, m->to, m->new_name);
		if (m->target && r < 0)
			check(node_link(o, m->to, m->target, m->new_name) == 0);
		else if (m->target)
			remove_node(o, &b, m->target, m->to, &drop);
	}
	if (r < 0)
		return err_trace(r);
	if (m->n->kind == RECORD_FILE)
		sync_cancel(o, m->n); /* it would only be moved again */
	m->n->ctime_ns = clock_real_ns();
	log_moved(o, &b, m->n);
	log_node(o, &b, from);
	keep_dir(o, &b, from);
	touch_dir(m->to);
	r = commit(o, &b, m->n);
	content_put(drop, m->n->seq);
	return err_trace(r);
}

/* What has to come from the store before the tree can be changed. */
static int prepare_rename(struct output *o, struct rename *m)
{
	int r = 0;

	/* A file that replaces another one is durable first: after a crash there is the
	 * old or the new one. */
	if (m->n->kind == RECORD_FILE)
		r = content_ack(o, m->n);
	if (r == 0 && m->n->kind == RECORD_DIR && !m->n->born)
		r = store_load_tree(o, m->n);
	if (r == 0 && m->target && m->target->kind == RECORD_DIR)
		r = m->flags & RENAME_EXCHANGE ? store_load_tree(o, m->target)
					       : store_refresh(o, m->target, 0);
	return err_trace(r);
}

int output_rename(struct output *o, uint64_t parent, const char *name,
		  uint64_t new_parent, const char *new_name, unsigned int flags)
{
	struct rename m = {.new_name = new_name, .flags = flags};
	int r = check_name(new_name);

	if (r < 0)
		return err_trace(r);
	if (flags & ~(unsigned int)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return err_origin(-EINVAL);
	for (int attempt = 0; attempt < 8; attempt++) {
		m.n = m.target = m.to = NULL;
		r = hold_ino(o, new_parent, &m.to);
		if (r == 0)
			r = store_lookup(o, parent, name, 0, &m.n);
		if (r == 0)
			r = store_lookup(o, new_parent, new_name, 0, &m.target);
		if (r == -ENOENT && m.n)
			r = 0;
		if (r == 0)
			r = prepare_rename(o, &m);
		lock_scope(&o->lock);
		if (r == 0)
			r = rename_locked(o, &m);
		if (m.n)
			node_release(o, m.n);
		if (m.target)
			node_release(o, m.target);
		if (m.to)
			node_release(o, m.to);
		if (r != -EAGAIN)
			break;
	}
	return err_trace(r);
}
