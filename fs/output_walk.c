/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees on the move: makes nodes of what lies below the sources (output_source.c), which the
 * reconciler then copies to where they belong.
 *
 * Happy path: list a page, take in its keys, in one transaction; go on when few enough of
 * them are left to be moved; at the end of the listing every key below the prefix has been
 * claimed, and the source goes. Each key is claimed by a node that the journal knows before
 * the record that drops the source, so nothing falls back to its path in between.
 *
 * Failure modes: the store does not answer: the source waits, longer each time. The process
 * dies: the walk starts over; what was moved is not there any more, what was claimed is
 * passed over.
 *
 * Memory: no more than `walk_ahead` taken in and not moved, unless nodes wait for the prefix
 * itself (source->wanted): they cannot be sent before every key below it is claimed, and
 * what is to be moved may in turn wait for them.
 *
 * Threads: "walk", one.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/output_impl.h"
#include "fs/output_list.h"

#define PAGE_MAX 1000
#define LIST_DEADLINE_MS 30000
#define BACKOFF_BASE_MS 100
#define BACKOFF_MAX_MS 10000

static uint64_t ahead_max(const struct output *o)
{
	return o->config.walk_ahead ? o->config.walk_ahead : OUTPUT_WALK_AHEAD;
}

/* ---- taking in ------------------------------------------------------------------------- */

void walk_own(struct output *o, struct buf *b, struct node *n)
{
	lock_assert_held(&o->lock);
	log_node(o, b, n);
	sync_queue(o, n);
	if (n->queue == QUEUE_NONE)
		walk_count(o, n, false);
}

/* The directory that the key is below of, made where it is not known yet. NULL: a name on
 * the way is none, or is taken by something else. */
static struct node *dir_of_key(struct output *o, struct node *top, const char *rest)
{
	struct node *dir = top;
	const char *slash;

	for (; (slash = strchr(rest, '/')); rest = slash + 1) {
		char name[PATH_NAME_MAX + 1];
		size_t len = (size_t)(slash - rest);
		struct node *n;

		if (path_name_check(rest, len) != PATH_OK)
			return NULL;
		memcpy(name, rest, len);
		name[len] = '\0';
		n = node_child(dir, name);
		if (!n)
			n = store_new_dir(o, dir, name);
		if (!n || n->kind != RECORD_DIR)
			return NULL;
		dir = n;
	}
	return dir;
}

/* Whether an object can have that name there. */
static bool has_room(const struct output *o, struct node *dir, const char *name)
{
	char key[2 * PATH_KEY_MAX + 2];
	int r = name_check(name);

	if (r < 0 || node_child(dir, name) || node_key(dir, key) < 0)
		return false;
	strcat(key, name);
	return strlen(key) <= PATH_KEY_MAX &&
	       origin_key_check(o->config.origin, key) == 0;
}

/* One key: a node that is to be moved, unless it is somebody's already. */
static int take_in(struct output *o, struct source *s, struct buf *b, const char *key,
		   const struct origin_attr *attr)
{
	const char *rest = key + strlen(s->prefix), *base = strrchr(rest, '/');
	struct node *dir, *n;

	if (strlen(key) > PATH_KEY_MAX || node_claim(o, key) ||
	    source_of_key(o, key) != s)
		return 0;
	dir = dir_of_key(o, s->node, rest);
	base = base ? base + 1 : rest;
	if (!dir || (*base && !has_room(o, dir, base))) {
		log_warn("an object stays behind where its directory was key=%s", key);
		o->hidden_keys++;
		return 0;
	}
	if (*base == '\0' && dir->stored.key)
		return err_trace(sync_make_garbage(o, b, key));
	if (*base == '\0')
		n = store_take_marker(o, dir, key, attr) < 0 ? NULL : dir;
	else
		n = store_new_file(o, dir, base, key, attr);
	if (!n)
		return err_origin(-ENOMEM);
	n->passing = n != s->node;
	if (n->pending_ns == 0)
		n->pending_ns = s->node->pending_ns;
	if (!n->sources) /* it waits for more than its own object */
		walk_count(o, n, true);
	walk_own(o, b, n);
	return 0;
}

void walk_count(struct output *o, struct node *n, bool counted)
{
	if (n->counted == counted)
		return;
	n->counted = counted;
	o->walk_count += counted ? 1 : -1;
	if (!counted && o->walk_count <= ahead_max(o) / 2)
		pthread_cond_broadcast(&o->walk_cond);
}

/* ---- pages ----------------------------------------------------------------------------- */

/* Writes down what has become of the source's directory. */
static int settle(struct output *o, struct buf *b, struct node *n)
{
	uint64_t seq;
	int r;

	log_node(o, b, n);
	r = log_commit(o, b, &seq);
	if (r == 0)
		n->seq = seq;
	sync_queue(o, n);
	return err_trace(r);
}

static void finish(struct output *o, struct source *s)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct node *n = s->node;

	log_info("all objects of a renamed directory are known prefix=%s", s->prefix);
	source_drop(o, s);
	settle(o, &b, n);
	kill_point("walk.finished");
	pthread_cond_broadcast(&o->drained);
}

static void take_page(struct output *o, struct source *s, const struct page *page,
		      const struct origin_req *req)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r = 0;

	for (size_t i = 0; i < page->count && r == 0; i++)
		r = take_in(o, s, &b, page->entries[i].key, &page->entries[i].attr);
	/* What has a node has to have its record, whatever came of the others. */
	if (settle(o, &b, s->node) < 0 || r < 0) {
		s->not_before_ms = clock_mono_ms() + BACKOFF_BASE_MS;
		return;
	}
	s->attempts = 0;
	node_set_why(s->node, NULL);
	kill_point("walk.page");
	if (req->list.truncated)
		strcpy(s->after, req->list.next);
	else
		finish(o, s);
}

static void page_failed(struct output *o, struct source *s, const struct origin_req *req)
{
	if (req->result == -ECANCELED)
		return;
	s->not_before_ms =
		clock_mono_ms() +
		clock_backoff_ms(++s->attempts, BACKOFF_BASE_MS, BACKOFF_MAX_MS);
	atomic_fetch_add(&o->totals->failures, 1);
	o->last_failure = req->why;
	node_set_why(s->node, req->why.text);
	log_warn("a renamed directory cannot be listed, will try again prefix=%s "
		 "attempt=%u error=%s",
		 s->prefix, s->attempts, req->why.text);
}

/* Drops the lock meanwhile. */
static void walk_page(struct output *o, struct source *s)
{
	_cleanup_(page_fini) struct page page = {0};
	char prefix[PATH_KEY_MAX + 1], after[PATH_KEY_MAX + 1];
	struct origin_req req = {.op = ORIGIN_LIST,
				 .key = prefix,
				 .background = true,
				 .deadline_ms = clock_mono_ms() + LIST_DEADLINE_MS};
	uint64_t id = s->id, count = ahead_max(o) / 2;
	size_t len = strlen(s->prefix);

	s->turn = ++o->walk_turn;
	strcpy(prefix, s->prefix);
	strcpy(after, s->after);
	req.list.after = after[0] ? after : NULL;
	req.list.recursive = true;
	req.list.count_max = count < PAGE_MAX ? (uint32_t)count : PAGE_MAX;
	req.list.entry = page_note;
	req.list.entry_arg = &page;
	store_listing_begin(o);
	o->walk_req = &req;
	lock_drop(&o->lock);
	origin_call(o->config.origin, &req);
	lock_take(&o->lock);
	o->walk_req = NULL;
	HASH_FIND(hh, o->sources, prefix, len, s);
	if (s && s->id == id && !source_is_home(s)) {
		if (req.result == 0)
			take_page(o, s, &page, &req);
		else
			page_failed(o, s, &req);
	}
	store_listing_end(o);
}

/* ---- the thread ------------------------------------------------------------------------ */

/* The one that was not looked at for longest. NULL: none is to be walked before *until. */
static struct source *choose(struct output *o, uint64_t now, uint64_t *until)
{
	bool full = o->walk_count >= ahead_max(o);
	struct source *best = NULL;

	for (struct source *s = o->sources; s; s = s->hh.next) {
		if ((full && !s->wanted) || source_is_home(s))
			continue;
		if (s->not_before_ms > now)
			*until = s->not_before_ms < *until ? s->not_before_ms : *until;
		else if (!best || s->turn < best->turn)
			best = s;
	}
	return best;
}

/* Sources whose keys are their directory's by the path alone again. */
static void come_home(struct output *o)
{
	struct source *s = o->sources;

	while (s) {
		_cleanup_(buf_fini) struct buf b = BUF_INIT;
		struct node *n = s->node;

		if (!source_is_home(s) || source_around(o, s)) {
			s = s->hh.next;
			continue;
		}
		source_come_home(o, n);
		settle(o, &b, n);
		s = o->sources; /* the table has changed */
	}
}

static void *walk_main(void *arg)
{
	struct output *o = arg;

	pthread_setname_np(pthread_self(), "walk");
	lock_take(&o->lock);
	while (!o->stopping) {
		uint64_t until = UINT64_MAX;
		struct source *s;

		come_home(o);
		s = choose(o, clock_mono_ms(), &until);
		if (s)
			walk_page(o, s);
		else
			lock_wait(&o->lock, &o->walk_cond, until);
	}
	lock_drop(&o->lock);
	return NULL;
}

int walk_start(struct output *o)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&o->walk_thread, NULL, walk_main, o);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	o->walk_started = r == 0;
	return r < 0 ? err_origin(r) : 0;
}

void walk_stop(struct output *o)
{
	if (!o->walk_started)
		return;
	lock_take(&o->lock);
	o->stopping = true;
	if (o->walk_req)
		origin_cancel(o->config.origin, o->walk_req);
	pthread_cond_broadcast(&o->walk_cond);
	lock_drop(&o->lock);
	pthread_join(o->walk_thread, NULL);
	o->walk_started = false;
}
