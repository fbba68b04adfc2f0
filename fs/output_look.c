/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What objects say of themselves: mode, owner, time, the target of a link; a listing has none
 * of these. Each is asked when someone looks at its name, and so are the next ones that he
 * will look at.
 *
 * A reader is whoever looks at names of one directory one after the other: as they were
 * listed, which is by name, or as a listing with cookies gave them. Who has come to the very
 * next name twice has a window of names asked for ahead, in parallel; it grows by one with
 * every name of them that he comes to. Nothing is asked for unless he comes to a name, so
 * that of all requests no more than the window are for names that nobody looks at. Where he
 * leaves names out, there is an end to it (`wasted`).
 *
 * A name asked for ahead is `foreseen` until its reader comes. What a listing gives to the
 * kernel with all attributes he does not ask for; every eighth name is kept back, to see
 * whether he is still there.
 *
 * An answer is of no use, and is dropped, when anything has happened to the node since.
 */
#include "fs/output_look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"

#define LOOK_TRIES_MAX 4
#define WINDOW_MAX 48 /* requests ahead, of all readers */
#define WASTED_MAX 96 /* names of a reader that he did not come to */
#define SKIP_MAX 256  /* nodes between two that are asked for */
#define READERS 16
#define ORDERS 4
#define GIVE_EACH 8
#define TARGET_MAX 4096

enum {
	LOOK_AGAIN = 2, /* beside TREE_E_WAIT */
};

/* One object is being asked. */
struct look {
	struct list link;  /* looks->flying */
	struct list fresh; /* in a batch that is to be submitted */
	struct output *output;
	struct node *node; /* held */
	char *key;
	uint64_t epoch; /* n->stored_epoch */
	uint32_t meta_change;
	bool ahead;
	int result;
	struct origin_req req;
	struct origin_attr attr;
	struct buf target; /* of a link */
};

enum order {
	ORDER_NODES,
	ORDER_COOKIES,
	ORDER_N
};

struct reader {
	uint64_t dir, last;
	uint64_t next[ORDER_N]; /* what comes behind, in either order; 0: nothing */
	enum order order;       /* while there is a window */
	uint32_t window, ahead; /* … of which so many are foreseen */
	uint32_t wasted, given;
	uint64_t used;
};

struct listing_order {
	uint64_t dir, used;
	struct look_place *places;
	size_t count;
};

struct looks {
	struct list flying;
	uint32_t ahead; /* of these */
	pthread_cond_t over;
	bool stopped;
	uint64_t clock; /* counts uses */
	struct reader readers[READERS];
	struct listing_order orders[ORDERS];
};

int look_start(struct output *o)
{
	o->looks = calloc(1, sizeof(*o->looks));
	if (!o->looks)
		return err_origin(-ENOMEM);
	list_init(&o->looks->flying);
	lock_cond_init(&o->looks->over);
	return 0;
}

void look_stop(struct output *o)
{
	struct looks *ls = o->looks;
	struct list *it;

	if (!ls)
		return;
	lock_take(&o->lock);
	ls->stopped = true;
	list_for_each (it, &ls->flying)
		origin_cancel(o->config.origin,
			      &container_of(it, struct look, link)->req);
	while (!list_empty(&ls->flying))
		lock_wait(&o->lock, &ls->over, UINT64_MAX);
	for (size_t i = 0; i < ORDERS; i++)
		free(ls->orders[i].places);
	o->looks = NULL;
	lock_drop(&o->lock);
	pthread_cond_destroy(&ls->over);
	free(ls);
}

/* ---- one object ------------------------------------------------------------------------ */

/* The object that knows: the node's, or the marker that a directory may have which nobody has
 * listed. */
static bool object_key(struct output *o, const struct node *n,
		       char key[static PATH_KEY_MAX + 1])
{
	if (n->stored.key) {
		strcpy(key, n->stored.key);
		return true;
	}
	return n->kind == RECORD_DIR && n->parent && !n->listed && !n->marker &&
	       !n->sources && node_key(n, key) == 0 && !source_of_key(o, key) &&
	       !node_claim(o, key);
}

static bool is_unknown(const struct node *n)
{
	return (n->unverified || (n->kind == RECORD_SYMLINK && !n->target)) &&
	       !n->acked && n->opens == 0;
}

bool look_is_due(struct output *o, const struct node *n)
{
	char key[PATH_KEY_MAX + 1];

	return is_unknown(n) && object_key(o, n, key);
}

/* Lock held. */
static struct look *look_new(struct output *o, struct node *n, bool ahead)
{
	char key[PATH_KEY_MAX + 1];
	struct look *l = object_key(o, n, key) ? calloc(1, sizeof(*l)) : NULL;

	if (!l)
		return NULL;
	l->key = strdup(key);
	if (!l->key) {
		free(l);
		return NULL;
	}
	l->output = o;
	l->node = n;
	l->epoch = n->stored_epoch;
	l->meta_change = n->meta_change;
	l->ahead = ahead;
	l->req = (struct origin_req){
		.op = ORIGIN_STAT, .key = l->key, .want_meta = true, .background = ahead};
	list_push_back(&o->looks->flying, &l->link);
	o->looks->ahead += ahead;
	node_hold(n);
	n->look = l;
	return l;
}

static int take_target(void *arg, uint64_t off, const void *data, size_t n)
{
	struct buf *b = arg;

	(void)off;
	buf_append(b, data, n);
	return buf_error(b);
}

/* After an answer: whether there is more to ask. */
static bool goes_on(struct look *l)
{
	bool first = l->req.op == ORIGIN_STAT;

	l->result = l->req.result;
	if (first)
		l->attr = l->req.attr;
	if (!first || l->result < 0 || !l->attr.is_symlink)
		return false;
	l->req = (struct origin_req){.op = ORIGIN_GET,
				     .key = l->key,
				     .len = TARGET_MAX,
				     .sink = take_target,
				     .sink_arg = &l->target,
				     .background = l->ahead};
	return true;
}

/* The object says that it is a link; the listing may have called it a file. */
static void become_link(struct node *n, char *target)
{
	if (!target || n->live || n->kind == RECORD_DIR) {
		free(target);
		return;
	}
	free(n->target);
	n->kind = RECORD_SYMLINK;
	n->target = target;
	n->mode = S_IFLNK | 0777;
}

/* Whoever has opened it since knows size and time better. */
static void take_permissions(struct node *n, const struct origin_attr *a)
{
	if (a->has_posix) {
		n->mode = (a->mode & 07777) | (n->mode & S_IFMT);
		n->uid = a->uid;
		n->gid = a->gid;
	}
	n->unverified = false;
	kept_attr(n);
}

static int take_all(struct output *o, struct node *n, struct look *l)
{
	if (!n->stored.key && store_take_marker(o, n, l->key, &l->attr) < 0)
		return err_origin(-ENOMEM);
	store_learn(n, &l->attr);
	store_take_attributes(o, n, &l->attr);
	n->unverified = false;
	if (l->attr.is_symlink)
		become_link(n, buf_steal(&l->target));
	return 0;
}

/* What came of it, into the node. */
static int take(struct look *l)
{
	struct output *o = l->output;
	struct node *n = l->node;
	char key[PATH_KEY_MAX + 1];
	bool there = object_key(o, n, key);

	if (there && strcmp(key, l->key) != 0)
		return LOOK_AGAIN;
	if (l->result == -ENOENT && there && !n->stored.key) {
		n->unverified = false; /* no marker: nothing says otherwise */
		return 0;
	}
	if (l->result == -ENOENT && !l->ahead && n->parent)
		n->parent->listed = false;
	if (l->result < 0 || !there)
		return l->result;
	if (n->meta_dirty) /* ours are newer */
		n->unverified = false;
	if (n->meta_dirty || n->meta_change != l->meta_change)
		return 0;
	if (n->stored_epoch != l->epoch)
		return LOOK_AGAIN;
	if (n->acked || n->opens > 0) {
		take_permissions(n, &l->attr);
		return 0;
	}
	/* Replaced by others: whoever wants it finds out. */
	if (l->ahead && n->stored.key && n->stored.etag[0] &&
	    strcmp(l->attr.etag, n->stored.etag) != 0)
		return 0;
	return err_trace(take_all(o, n, l));
}

/* Lock held. */
static int finish(struct look *l)
{
	struct output *o = l->output;
	int r = take(l);

	l->node->look = NULL;
	node_release(o, l->node);
	list_remove(&l->link);
	o->looks->ahead -= l->ahead;
	pthread_cond_broadcast(&o->looks->over);
	buf_fini(&l->target);
	free(l->key);
	free(l);
	return r;
}

static void answered(struct origin_req *req)
{
	struct look *l = req->user;
	struct output *o = l->output;
	bool more;

	/* look_stop() may be about to cancel it. */
	lock_take(&o->lock);
	more = goes_on(l) && !o->looks->stopped;
	if (!more)
		finish(l);
	lock_drop(&o->lock);
	if (!more)
		return;
	l->req.done = answered;
	l->req.user = l;
	origin_submit(o->config.origin, &l->req);
}

/* Drops the lock meanwhile. */
static int ask(struct output *o, struct node *n)
{
	struct look *l = look_new(o, n, false);

	if (!l)
		return err_origin(-ENOMEM);
	lock_drop(&o->lock);
	do {
		origin_call(o->config.origin, &l->req);
	} while (goes_on(l));
	lock_take(&o->lock);
	return finish(l);
}

/* ---- orders ---------------------------------------------------------------------------- */

static struct listing_order *order_of(struct output *o, uint64_t dir)
{
	for (size_t i = 0; i < ORDERS; i++) {
		if (o->looks->orders[i].places && o->looks->orders[i].dir == dir)
			return &o->looks->orders[i];
	}
	return NULL;
}

void look_note_order(struct output *o, const struct node *dir, struct look_place *places,
		     size_t count)
{
	struct listing_order *to = order_of(o, dir->ino);

	lock_assert_held(&o->lock);
	if (!places)
		return;
	for (size_t i = 0; !to && i < ORDERS; i++) {
		if (!o->looks->orders[i].places)
			to = &o->looks->orders[i];
	}
	for (size_t i = 0; !order_of(o, dir->ino) && i < ORDERS; i++) {
		if (!to || o->looks->orders[i].used < to->used)
			to = &o->looks->orders[i];
	}
	free(to->places);
	*to = (struct listing_order){dir->ino, ++o->looks->clock, places, count};
}

void look_end_order(struct output *o, uint64_t dir)
{
	struct listing_order *l = order_of(o, dir);

	lock_assert_held(&o->lock);
	if (!l || l->count <= node_max_count(o))
		return;
	free(l->places);
	*l = (struct listing_order){0};
}

/* What the listing gave behind the node. */
static struct node *after_by_cookie(struct output *o, const struct node *n)
{
	const struct listing_order *l = order_of(o, n->parent->ino);
	uint64_t cookie = output_cookie(n->name);
	size_t low = 0, high = l ? l->count : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (l->places[middle].cookie < cookie)
			low = middle + 1;
		else
			high = middle;
	}
	/* Those with the same checksum have the next cookies. */
	while (l && low < l->count && l->places[low].ino != n->ino &&
	       l->places[low].cookie - cookie < ORDERS)
		low++;
	for (size_t end = low + SKIP_MAX; l && ++low < l->count && low < end;) {
		struct node *next = node_find(o, l->places[low].ino);

		if (next && next->parent == n->parent)
			return next;
	}
	return NULL;
}

static struct node *after(struct output *o, const struct node *n, enum order order)
{
	return order == ORDER_NODES ? n->by_name.next : after_by_cookie(o, n);
}

/* The first one behind the node that is to be asked for. */
static uint64_t next_due(struct output *o, const struct node *n, enum order order)
{
	struct node *it = after(o, n, order);

	for (int i = 0; it && i < SKIP_MAX; i++) {
		if (!it->look && look_is_due(o, it))
			return it->ino;
		it = after(o, it, order);
	}
	return 0;
}

/* ---- readers --------------------------------------------------------------------------- */

static struct node *node_to_ask(struct output *o, const struct reader *r)
{
	struct node *n = node_find(o, r->next[r->order]);

	return n && n->parent && n->parent->ino == r->dir ? n : NULL;
}

/* Asks for what comes next, as far as the window goes; they are to be submitted. */
static void look_ahead(struct output *o, struct reader *r, struct list *batch)
{
	struct looks *ls = o->looks;

	if (ls->stopped || r->wasted > WASTED_MAX)
		return;
	while (r->ahead < r->window && ls->ahead < WINDOW_MAX) {
		struct node *n = node_to_ask(o, r);
		struct look *l = NULL;

		if (!n)
			return;
		r->next[r->order] = next_due(o, n, r->order);
		if (!n->look && look_is_due(o, n))
			l = look_new(o, n, true);
		if (!l)
			continue;
		n->foreseen = (uint8_t)(r - ls->readers + 1);
		r->ahead++;
		list_push_back(batch, &l->fresh);
	}
}

/* The reader for whom the node was asked for; it is not foreseen any more. */
static struct reader *reader_of(struct output *o, struct node *n)
{
	struct reader *r = &o->looks->readers[n->foreseen - 1];

	n->foreseen = 0;
	if (!n->parent || r->dir != n->parent->ino)
		return NULL;
	r->ahead -= r->ahead > 0;
	r->used = ++o->looks->clock;
	return r;
}

static void came_as_foreseen(struct output *o, struct node *n, struct list *batch)
{
	struct reader *r = reader_of(o, n);

	if (!r)
		return;
	r->last = n->ino;
	r->window += r->window < WINDOW_MAX;
	look_ahead(o, r, batch);
}

static void start_reader(struct output *o, const struct node *n)
{
	struct reader *oldest = &o->looks->readers[0];

	for (size_t i = 1; i < READERS; i++) {
		if (o->looks->readers[i].used < oldest->used)
			oldest = &o->looks->readers[i];
	}
	*oldest = (struct reader){
		.dir = n->parent->ino, .last = n->ino, .used = ++o->looks->clock};
	for (enum order i = 0; i < ORDER_N; i++)
		oldest->next[i] = next_due(o, n, i);
}

/* Whether the reader was expected to come to this name. */
static bool expects(struct reader *r, const struct node *n)
{
	if (r->dir != n->parent->ino)
		return false;
	if (r->window > 0)
		return r->next[r->order] == n->ino;
	for (enum order i = 0; i < ORDER_N; i++) {
		if (r->next[i] != n->ino)
			continue;
		r->order = i;
		return true;
	}
	return false;
}

/* Someone wants to know what is to be asked for. */
static void came(struct output *o, struct node *n, struct list *batch)
{
	for (size_t i = 0; i < READERS; i++) {
		struct reader *r = &o->looks->readers[i];

		if (r->dir == n->parent->ino && r->last == n->ino)
			return; /* he asks again, and waits this time */
		if (!expects(r, n))
			continue;
		r->last = n->ino;
		r->used = ++o->looks->clock;
		r->window += 1 + (r->window == 0);
		r->window -= r->window > WINDOW_MAX;
		/* What is foreseen and lies behind him was asked for in vain. */
		r->wasted += r->ahead;
		r->ahead = 0;
		r->next[r->order] = next_due(o, n, r->order);
		look_ahead(o, r, batch);
		return;
	}
	start_reader(o, n);
}

bool look_may_give(struct output *o, struct node *n)
{
	struct reader *r;

	if (look_is_due(o, n))
		return false;
	if (!n->foreseen)
		return true;
	r = &o->looks->readers[n->foreseen - 1];
	if (++r->given % GIVE_EACH == 0)
		return false;
	reader_of(o, n);
	return true;
}

static void submit(struct output *o, struct list *batch)
{
	while (!list_empty(batch)) {
		struct look *l = list_first(batch, struct look, fresh);

		list_remove(&l->fresh);
		l->req.done = answered;
		l->req.user = l;
		origin_submit(o->config.origin, &l->req);
	}
}

/* ---- what others call ------------------------------------------------------------------ */

/* Lock held. */
static int attributes_once(struct output *o, struct node *n, unsigned int flags)
{
	if (!look_is_due(o, n))
		return 0;
	if (flags & TREE_NOWAIT)
		return TREE_E_WAIT;
	if (!n->look)
		return ask(o, n);
	while (n->look)
		lock_wait(&o->lock, &o->looks->over, UINT64_MAX);
	return LOOK_AGAIN;
}

int store_attributes(struct output *o, struct node *n, unsigned int flags)
{
	struct list batch = LIST_INIT(batch);
	int r = LOOK_AGAIN;

	lock_take(&o->lock);
	if (n->foreseen)
		came_as_foreseen(o, n, &batch);
	else if (n->parent && !n->look && look_is_due(o, n))
		came(o, n, &batch);
	if (!list_empty(&batch)) {
		lock_drop(&o->lock);
		submit(o, &batch);
		lock_take(&o->lock);
	}
	for (int tries = 0; r == LOOK_AGAIN && tries < LOOK_TRIES_MAX; tries++)
		r = attributes_once(o, n, flags);
	lock_drop(&o->lock);
	return r == LOOK_AGAIN ? 0 : err_trace(r);
}
