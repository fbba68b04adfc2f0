/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rename. One transaction of the journal, whatever it moves; what the store holds of it
 * follows later. Of a directory only the nodes that are known are touched: the rest is said
 * by its sources (output_source.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

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
	return node_is_empty(m->target) ? 0 : err_origin(-ENOTEMPTY);
}

/* Every node of a moved tree: where it is stored is not where it is any more. What has no
 * node follows by source_keep(). */
static void log_moved(struct output *o, struct buf *b, struct node *top)
{
	if (top->kind == RECORD_DIR) {
		top->marker = true; /* it must stay when what is in it moves on */
		top->born = true;   /* its new path was free */
		source_come_home(o, top);
	}
	for (struct node *n = top; n; n = node_next_below(top, n)) {
		node_update_displaced(o, n);
		log_node(o, b, n);
		sync_queue(o, n);
	}
}

static int check_keys(const struct output *o, struct node *top)
{
	int r = 0;

	for (struct node *n = top; n && r == 0; n = node_next_below(top, n))
		r = name_check_key(o, n);
	return err_trace(r);
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
		r = check_keys(o, n);
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
		r = check_keys(o, c);
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

static bool keeps_upload(const struct rename *m)
{
	const struct resume *u = m->n->resume;

	/* What takes its place would wait, and it for that. */
	return u && u->detour && !(m->flags & RENAME_EXCHANGE);
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
	r = name_leave_traces(o, &b, m->n);
	if (r == 0 && m->target)
		r = name_leave_traces(o, &b, m->target);
	if (r == 0 && m->n->kind == RECORD_DIR)
		r = source_keep(o, m->n);
	if (r == 0 && (m->flags & RENAME_EXCHANGE) && m->target->kind == RECORD_DIR)
		r = source_keep(o, m->target);
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
			name_remove(o, &b, m->target, m->to, &drop);
	}
	if (r < 0)
		return err_trace(r);
	/* It would only be moved again. */
	if (m->n->kind == RECORD_FILE && !keeps_upload(m))
		sync_cancel(o, m->n);
	m->n->ctime_ns = clock_real_ns();
	log_moved(o, &b, m->n);
	log_node(o, &b, from);
	name_keep_dir(o, &b, from);
	name_touch(m->to);
	r = name_commit(o, &b, m->n);
	content_put(drop, m->n->seq);
	return err_trace(r);
}

/* Where a link and a directory cannot have one name, the link's object may have to go before
 * it has another one. */
static int fetch_link(struct output *o, struct node *n)
{
	if (!n || n->kind != RECORD_SYMLINK ||
	    !(o->config.origin->caps & ORIGIN_CAP_TREE))
		return 0;
	return err_trace(store_attributes(o, n, 0));
}

/* What has to come from the store before the tree can be changed. */
static int prepare_rename(struct output *o, struct rename *m)
{
	int r = fetch_link(o, m->n);

	if (r == 0)
		r = fetch_link(o, m->target);
	/* A file that replaces another one is durable first: after a crash there is the
	 * old or the new one. */
	if (r == 0 && m->n->kind == RECORD_FILE)
		r = content_ack(o, m->n);
	if (r == 0 && m->target && m->target->kind == RECORD_DIR &&
	    !(m->flags & RENAME_EXCHANGE))
		r = store_refresh(o, m->target, STORE_EXACT, 0);
	return err_trace(r);
}

int output_rename(struct output *o, uint64_t parent, const char *name,
		  uint64_t new_parent, const char *new_name, unsigned int flags)
{
	struct rename m = {.new_name = new_name, .flags = flags};
	int r = name_check(new_name);

	if (r < 0)
		return err_trace(r);
	if (flags & ~(unsigned int)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return err_origin(-EINVAL);
	for (int attempt = 0; attempt < 8; attempt++) {
		m.n = m.target = m.to = NULL;
		r = name_hold(o, new_parent, &m.to);
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
