/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions and their bytes.
 *
 * An acknowledged version is a staged file and a length. Until the store has it, none of
 * those bytes may change: appending behind them is free, anything else first gives the
 * writers a file of their own (content_prepare). So what is sent is a snapshot, a crash in
 * the middle of an overwrite leaves the old version, and files that only grow (logs,
 * event files) are never copied. Nor may they change before the journal has durably let go
 * of them: a crash would send the changed bytes as the version (settle).
 *
 * A small version is not the staged file itself but a copy of its bytes, which the journal
 * carries (output_log.c): one sync of the journal makes the versions of all who close at
 * that moment durable, and what is written afterwards needs no copy.
 *
 * A file that is written behind our back (FUSE passthrough) cannot change its staged file
 * while it is open, so there the version gets the copy. While such a writer can write
 * anywhere, what fsync acknowledged is durable as on a local disk (until overwritten), and
 * is sent at the last close, or from a copy when it is published.
 *
 * Locks: node->io is held for reading while bytes are used, for writing while `live` is
 * exchanged.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

#define SEAL_GRAIN_NS 20000000 /* older kernels take times from a clock that ticks */

void content_update_frozen(struct node *n)
{
	uint64_t frozen = 0;

	if (n->live && (n->acked == n->live || n->unsettled))
		frozen = n->acked_size;
	/* An older version of the same file may still be on its way. */
	if (n->task && n->live) {
		uint64_t sending = sync_task_uses(n, n->live);

		if (sending > frozen)
			frozen = sending;
	}
	atomic_store(&n->frozen, frozen);
}

void content_drop_retained(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (list_empty(&n->retained))
		return;
	list_remove(&n->retained);
	o->retained_count--;
	o->retained_bytes -= n->size < o->retained_bytes ? n->size : o->retained_bytes;
	content_put(n->live, n->seq);
	n->live = NULL;
	n->unsettled = false;
	content_update_frozen(n);
}

/* Keeps the bytes of a closed, delivered file for whoever opens it next. */
void content_retain(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (!list_empty(&n->retained))
		return;
	list_push_back(&o->retained, &n->retained);
	o->retained_count++;
	o->retained_bytes += n->size;
	while (o->retained_count > OUTPUT_RETAIN_MAX ||
	       o->retained_bytes > OUTPUT_RETAIN_BYTES) {
		struct node *oldest = list_first(&o->retained, struct node, retained);

		content_drop_retained(o, oldest);
	}
}

/* Puts another staged file in the place of `live`; io is held for writing. Takes `c`, which
 * is pinned. */
static void exchange(struct output *o, struct node *n, struct content *c)
{
	struct content *old;

	lock_scope(&o->lock);
	old = n->live;
	if (old)
		content_follow_rebase(c, old);
	kept_live(n, c);
	if (old && list_empty(&n->retained)) {
		if (n->opens > 0)
			content_unpin(old);
		content_put(old, n->seq);
	} else {
		content_drop_retained(o, n);
	}
	n->live = c;
	n->unsettled = false;
	if (c && n->opens == 0)
		content_unpin(c);
	content_update_frozen(n);
}

/* What the journal says of the node becomes durable: that its bytes are no version. */
static int settle(struct output *o, struct node *n)
{
	uint64_t seq;
	int r;

	lock_take(&o->lock);
	seq = n->unsettled ? n->seq : 0;
	lock_drop(&o->lock);
	r = journal_sync(o->journal, seq);
	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	n->unsettled = false;
	content_update_frozen(n);
	return 0;
}

/* The version that is the writers' file becomes a copy of it. */
static int copy_version(struct output *o, struct node *n)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *copy;
	uint64_t seq;
	int r = content_copy(o, n->live, n->acked_size, &copy);

	if (r < 0)
		return err_trace(r);
	r = content_sync(copy);
	content_unpin(copy);
	lock_scope(&o->lock);
	/* The store may have it by now. */
	if (r < 0 || n->acked != n->live) {
		content_put(copy, 0);
		return err_trace(r);
	}
	content_follow_rebase(copy, n->live);
	n->acked = copy;
	log_node(o, &b, n);
	r = log_commit(o, &b, &seq);
	if (r == 0)
		n->seq = seq;
	n->unsettled = true;
	content_put(n->live, n->seq);
	return err_trace(r);
}

/* The version on its way gets a copy, the writers keep the file: passthrough. */
static int move_version_away(struct output *o, struct node *n)
{
	int r = n->acked && n->acked == n->live ? copy_version(o, n) : 0;

	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	/* What flies may still read the bytes that are about to change. */
	if (sync_task_uses(n, n->live) > 0)
		sync_cancel(o, n);
	while (sync_task_uses(n, n->live) > 0)
		lock_wait(&o->lock, &o->changed, UINT64_MAX);
	content_update_frozen(n);
	return 0;
}

int content_prepare(struct output *o, struct node *n, uint64_t off)
{
	struct content *c;
	struct stat st;
	int r = n->live ? 0 : content_make_live(o, n);

	if (r < 0)
		return err_trace(r);
	if (off < atomic_load(&n->frozen)) {
		r = n->passthrough ? move_version_away(o, n) : 0;
		if (r == 0)
			r = settle(o, n);
		if (r < 0 || n->passthrough)
			return err_trace(r);
	}
	if (off >= atomic_load(&n->frozen))
		return 0;
	if (fstat(content_fd(n->live), &st) < 0)
		return err_origin(-errno);
	r = content_wait_room(o, (uint64_t)st.st_blocks * 512);
	if (r == 0)
		r = content_copy(o, n->live, (uint64_t)st.st_size, &c);
	if (r < 0)
		return err_trace(r);
	/* What a program compares must not jump because we copied. */
	futimens(content_fd(c), (struct timespec[]){st.st_atim, st.st_mtim});
	exchange(o, n, c);
	return 0;
}

int content_truncate(struct output *o, struct node *n, uint64_t size)
{
	struct content *c;
	int r;

	/* Nothing of the old bytes is wanted, or only bytes that may not change. */
	if (!n->passthrough && size == 0 && (!n->live || atomic_load(&n->frozen) > 0)) {
		r = content_create(o, &c);
		if (r < 0)
			return err_trace(r);
		exchange(o, n, c);
		atomic_store(&n->changed, true);
		return 0;
	}
	r = content_prepare(o, n, size);
	if (r < 0)
		return err_trace(r);
	if (content_is_sparse(n->live))
		r = content_truncate_sparse(o, n, size);
	else if (ftruncate(content_fd(n->live), (off_t)size) < 0)
		r = err_origin(-errno);
	else if (content_patch(n->live))
		patch_cut(content_patch(n->live), size);
	if (r == 0)
		atomic_store(&n->changed, true);
	return err_trace(r);
}

/* What is carried can be neither written nor passed through: the open file gets a copy, a
 * page or a few to the page cache. Pinned. */
static int give_file(struct output *o, struct node *n)
{
	struct content *c;
	int r = stage_copy(o->stage, n->live, n->size, &c);

	if (r < 0)
		return err_trace(r);
	content_put(n->live, 0);
	n->live = c;
	return 0;
}

int content_take_acked(struct output *o, struct node *n)
{
	int r = 0;

	lock_assert_held(&o->lock);
	if (!n->live && (n->acked || n->saved))
		n->live = content_get(n->acked ? n->acked : n->saved);
	if (n->live && content_carried(n->live))
		r = give_file(o, n);
	else if (n->live)
		r = content_pin(n->live);
	if (r < 0) {
		content_put(n->live, n->seq);
		n->live = NULL;
		return err_trace(r);
	}
	kept_live(n, n->live);
	content_update_frozen(n);
	return 0;
}

static int open_once(struct output *o, struct node *n)
{
	bool restored;
	int r;

	if (n->opens++ > 0)
		return 0;
	/* What the last daemon had open knows its time better than we do. */
	restored = n->live && list_empty(&n->retained);
	if (!list_empty(&n->retained) && !store_base_is_there(n, n->live))
		content_drop_retained(o, n);
	if (!list_empty(&n->retained)) {
		list_remove(&n->retained);
		o->retained_count--;
		o->retained_bytes -=
			n->size < o->retained_bytes ? n->size : o->retained_bytes;
	}
	r = content_take_acked(o, n);
	if (r < 0)
		n->opens--;
	else if (n->live && !restored)
		content_begin_time(n);
	return err_trace(r);
}

int content_open(struct output *o, struct node *n)
{
	struct descriptor_wait w = {0};
	int r;

	lock_assert_held(&o->lock);
	node_hold(n);
	while ((r = open_once(o, n)) < 0 && content_wait_descriptor(o, r, &w))
		;
	node_release(o, n);
	return err_trace(r);
}

void content_close(struct output *o, struct node *n)
{
	bool outdated = n->outdated;
	struct stat st;

	lock_assert_held(&o->lock);
	check(n->opens > 0);
	if (--n->opens > 0)
		return;
	n->passthrough = false;
	n->publish = n->lingers = false;
	n->outdated = n->forsaken = false;
	kept_live(n, NULL);
	n->saved = content_put(n->saved, 0);
	if (!n->live)
		return;
	if (fstat(content_fd(n->live), &st) == 0) {
		n->size = (uint64_t)st.st_size;
		content_take_time(n, &st);
	}
	content_unpin(n->live);
	if (n->parent && !n->acked && !atomic_load(&n->changed) && n->error == 0 &&
	    !outdated) {
		content_retain(o, n);
		return;
	}
	/* Not acknowledged: no flush came, or it failed and the program knows. */
	if (!n->acked || n->acked != n->live)
		n->size = n->acked ? n->acked_size : n->stored.size;
	atomic_store(&n->changed, false);
	content_put(n->live, n->seq);
	n->live = NULL;
	content_update_frozen(n);
}

/* A sync failed. What the page cache still has goes to a new file; the old one is never
 * trusted again. */
static int rescue(struct output *o, struct node *n, struct content *dead)
{
	struct content *c;
	struct stat st;
	int r = 0;

	pthread_rwlock_wrlock(&n->io);
	if (n->live == dead) {
		r = n->passthrough ? err_origin(-EIO) : 0;
		if (r == 0 && fstat(content_fd(dead), &st) < 0)
			r = err_origin(-errno);
		if (r == 0)
			r = content_copy(o, dead, (uint64_t)st.st_size, &c);
		if (r == 0) {
			r = content_sync(c);
			if (r == 0) {
				exchange(o, n, c);
			} else {
				content_unpin(c);
				content_put(c, 0);
			}
		}
		if (r < 0)
			n->error = -EIO;
	}
	pthread_rwlock_unlock(&n->io);
	if (r < 0)
		log_error("a file could not be made durable name=%s error=%s", n->name,
			  strerror(-r));
	else
		log_warn("a file was rewritten after a failed sync name=%s", n->name);
	return r < 0 ? err_origin(-EIO) : 0;
}

/* `c` becomes the node's version: durable bytes, or what the journal is to carry. Lock
 * held. */
static int make_version(struct output *o, struct node *n, struct content *c,
			const struct seal *seal)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct content *old = n->acked;
	uint64_t old_size = n->acked_size;
	struct stat st;
	int r;

	n->acked = content_get(c);
	n->acked_size = seal->size;
	n->version++;
	n->size = seal->size;
	/* It may have been set since the bytes were looked at. */
	if (n->live && fstat(content_fd(n->live), &st) == 0)
		content_take_time(n, &st);
	else
		n->mtime_ns = content_mtime(n, seal->mtime_ns);
	log_node(o, &b, n);
	if (content_carried(c))
		log_data(&b, n);
	r = log_commit_own(o, &b, n);
	if (r < 0) {
		content_put(n->acked, 0);
		n->acked = old;
		n->acked_size = old_size;
		n->version--;
		return err_trace(r);
	}
	n->seal = *seal;
	n->seal.version = n->version;
	log_found(o, n);
	content_put(old, n->seq);
	if (!content_carried(c))
		content_measure(c, seal->size);
	content_update_frozen(n);
	n->acked_seq = n->seq;
	sync_queue(o, n);
	return 0;
}

/* Whether the last version has these very bytes and times. Lock held. */
static bool is_sealed(const struct node *n, const struct seal *now)
{
	const struct seal *s = &n->seal;

	if (!n->acked && (!n->stored.key || n->stored.version != n->version))
		return false;
	if (s->version == 0 || s->version != n->version || s->size != now->size ||
	    s->mtime_ns != now->mtime_ns || s->whole != now->whole)
		return false;
	return s->whole ? s->crc64 == now->crc64 : s->ctime_ns == now->ctime_ns;
}

/* What the staged file holds, with its bytes when those are few. `*bytes` is new or NULL. */
static int look(struct content *live, const struct stat *st, struct seal *seal,
		char **bytes)
{
	ssize_t got;
	int r;

	*bytes = NULL;
	*seal = (struct seal){.size = (uint64_t)st->st_size,
			      .mtime_ns = clock_from_timespec(st->st_mtim),
			      .ctime_ns = clock_from_timespec(st->st_ctim),
			      .whole = st->st_size <= STAGE_CARRY_MAX &&
				       !content_is_sparse(live)};
	if (!seal->whole)
		return 0;
	*bytes = malloc((size_t)st->st_size + 1);
	if (!*bytes)
		return err_origin(-ENOMEM);
	got = io_pread(content_fd(live), *bytes, (size_t)st->st_size, 0);
	r = got < 0 ? (int)got : content_check(live);
	if (r < 0) {
		free(*bytes);
		*bytes = NULL;
		return err_trace(r);
	}
	seal->size = (uint64_t)got;
	seal->crc64 = crc64(0, *bytes, (size_t)got);
	return 0;
}

bool content_is_saved(struct output *o, struct node *n)
{
	char *bytes = NULL;
	bool saved = false;
	struct seal seal;
	struct stat st;

	pthread_rwlock_rdlock(&n->io);
	if (n->live && fstat(content_fd(n->live), &st) == 0 &&
	    look(n->live, &st, &seal, &bytes) == 0) {
		lock_scope(&o->lock);
		saved = !n->parent || is_sealed(n, &seal);
	}
	pthread_rwlock_unlock(&n->io);
	free(bytes);
	return saved;
}

/* Without a sync: the journal's will do. Takes `bytes`. 1: there is no room to carry them. */
static int carry(struct output *o, struct node *n, struct content *live,
		 const struct seal *seal, char *bytes)
{
	struct content *c = NULL;
	int r;

	lock_scope(&o->lock);
	/* It may have lost its name meanwhile. */
	r = !n->parent || is_sealed(n, seal)
		    ? 0
		    : stage_carry(o->stage, bytes, seal->size, false, &c);
	if (!c) {
		free(bytes);
		return r == -ENOBUFS ? 1 : err_trace(r);
	}
	kill_point("carry.before");
	r = make_version(o, n, c, seal);
	kill_point("carry.appended");
	content_put(c, 0);
	o->acked_ms = clock_mono_ms();
	if (r == 0)
		content_spare(live);
	return err_trace(r);
}

/* The staged file as it stands becomes the version. */
static int sync_version(struct output *o, struct node *n, struct content *c,
			const struct seal *seal)
{
	int64_t now = clock_real_ns();
	int r;

	lock_take(&o->lock);
	r = is_sealed(n, seal);
	if (!r)
		ahead_flush(o, n);
	lock_drop(&o->lock);
	if (r)
		return 0;
	r = content_unscatter(o, n, c);
	if (r == 0)
		r = content_sync(c);
	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	if (!n->parent)
		return 0;
	r = make_version(o, n, c, seal);
	/* A write within the clock's grain would not show. */
	if (!seal->whole && now - seal->ctime_ns < SEAL_GRAIN_NS)
		n->seal.version = 0;
	return err_trace(r);
}

/* One try. io is held for reading, so that `live` stays what it is. */
static int ack_once(struct output *o, struct node *n, bool may_sync,
		    struct content **dead)
{
	char *bytes = NULL;
	struct content *c;
	struct seal seal;
	struct stat st;
	bool changed;
	int r;

	lock_take(&o->lock);
	c = n->live;
	/* Writes behind our back leave no other trace that can be trusted. */
	changed = atomic_load(&n->changed) || (n->passthrough && n->writers > 0);
	if (!n->parent || !c || n->kind != RECORD_FILE || !changed) {
		lock_drop(&o->lock);
		return 0;
	}
	/* Others replaced the object under what was written: no version can be made. */
	if (!store_base_is_there(n, c)) {
		lock_drop(&o->lock);
		return err_origin(-ESTALE);
	}
	atomic_store(&n->changed, false);
	lock_drop(&o->lock);
	r = fstat(content_fd(c), &st) < 0 ? err_origin(-errno)
					  : look(c, &st, &seal, &bytes);
	if (r == 0)
		r = bytes ? carry(o, n, c, &seal, bytes) : 1;
	if (r == 1 && !may_sync) {
		atomic_store(&n->changed, true);
		return TREE_E_WAIT;
	}
	if (r == 1)
		r = sync_version(o, n, c, &seal);
	if (r < 0) {
		atomic_store(&n->changed, true);
		*dead = content_is_dead(c) ? c : NULL;
	}
	return err_trace(r);
}

int content_carry(struct output *o, struct node *n, uint64_t *seq)
{
	struct content *dead = NULL;
	struct stat st;
	int r = 0;

	if (n->error || pthread_mutex_trylock(&n->acking) != 0)
		return TREE_E_WAIT;
	if (pthread_rwlock_tryrdlock(&n->io) != 0) {
		pthread_mutex_unlock(&n->acking);
		return TREE_E_WAIT;
	}
	if (n->live && (fstat(content_fd(n->live), &st) < 0 ||
			st.st_size > STAGE_CARRY_MAX || content_is_dead(n->live)))
		r = TREE_E_WAIT;
	else
		r = ack_once(o, n, false, &dead);
	pthread_rwlock_unlock(&n->io);
	pthread_mutex_unlock(&n->acking);
	lock_scope(&o->lock);
	*seq = n->seq;
	return dead ? TREE_E_WAIT : r;
}

/* A version of all that was written before the call, not durable yet. */
static int ack(struct output *o, struct node *n)
{
	int r = 0;

	for (int attempt = 0; attempt < 2; attempt++) {
		struct content *dead = NULL;

		if (n->error)
			return err_origin(n->error);
		pthread_rwlock_rdlock(&n->io);
		r = ack_once(o, n, true, &dead);
		pthread_rwlock_unlock(&n->io);
		if (!dead)
			break;
		r = rescue(o, n, dead);
		if (r < 0)
			break;
	}
	return err_trace(r);
}

/* Renames and publications look at files that others have open, and whose last close does not
 * wait for them: it must not take `live` away. False: nobody has it open. */
static bool stay_open(struct output *o, struct node *n)
{
	lock_scope(&o->lock);
	if (n->opens == 0)
		return false;
	n->opens++;
	return true;
}

static void let_close(struct output *o, struct node *n)
{
	lock_scope(&o->lock);
	content_close(o, n);
}

int content_ack(struct output *o, struct node *n)
{
	uint64_t seq;
	int r = 0;

	/* What nobody has open was acknowledged. */
	if (stay_open(o, n)) {
		pthread_mutex_lock(&n->acking);
		r = ack(o, n);
		pthread_mutex_unlock(&n->acking);
		let_close(o, n);
	}
	if (r < 0)
		return err_trace(r);
	lock_take(&o->lock);
	seq = n->seq;
	lock_drop(&o->lock);
	kill_point("flush.sync.before");
	r = journal_sync(o->journal, seq);
	kill_point("flush.reply.before");
	return err_trace(r);
}

static int publish_open(struct output *o, struct node *n, bool lingers)
{
	int r = content_ack(o, n);
	bool shared;

	lock_take(&o->lock);
	shared = n->passthrough && n->random_writers > 0;
	lock_drop(&o->lock);
	if (r == 0 && shared) {
		pthread_rwlock_wrlock(&n->io);
		r = move_version_away(o, n);
		pthread_rwlock_unlock(&n->io);
	}
	if (r < 0)
		return err_trace(r);
	lock_scope(&o->lock);
	n->publish = true;
	n->lingers |= lingers;
	sync_queue(o, n);
	return 0;
}

int content_publish(struct output *o, struct node *n, bool lingers)
{
	int r;

	if (!stay_open(o, n))
		return 0; /* on its way like every closed file */
	r = publish_open(o, n, lingers);
	let_close(o, n);
	return err_trace(r);
}
