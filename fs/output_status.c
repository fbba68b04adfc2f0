/* SPDX-License-Identifier: Apache-2.0 */
/* How far the upload is: progress, drain with its receipt, status, extended attributes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "cache/ledger.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"
#include "fs/receipt.h"

#define PENDING_LISTED_MAX 1000 /* pending files that a receipt names */
#define GIVEN_UP_MS 200         /* it is looked for so often */
#define XATTR_STATE "user.sluice.state"
#define XATTR_ETAG "user.sluice.etag"

static bool count_pending(void *arg, struct node *n)
{
	struct output_progress *p = arg;
	int64_t age = (clock_real_ns() - n->pending_ns) / 1000000;

	p->files_pending++;
	if (n->acked)
		p->bytes_pending += n->acked_size;
	if (n->pending_ns && age > 0 && (uint64_t)age > p->oldest_pending_ms)
		p->oldest_pending_ms = (uint64_t)age;
	return true;
}

static void progress_locked(struct output *o, struct output_progress *p)
{
	struct list *it;

	*p = (struct output_progress){.nodes = HASH_CNT(by_ino, o->nodes),
				      .files_stored = o->totals->files,
				      .bytes_stored = o->totals->bytes,
				      .files_moved = o->totals->moved,
				      .moving = HASH_CNT(hh, o->sources),
				      .bytes_in_flight =
					      uploader_bytes_flying(o->uploader),
				      .failures = o->totals->failures,
				      .last_failure = o->last_failure};
	list_for_each (it, &o->writing)
		p->files_open++;
	sync_each(o, count_pending, p);
}

void output_progress(struct output *o, struct output_progress *progress)
{
	lock_scope(&o->lock);
	progress_locked(o, progress);
}

/* ---- drain --------------------------------------------------------------------------------------- */

/* Publishes what open files hold. Files that cannot be are pending for all to see. */
static void publish_open(struct output *o)
{
	struct list *it;

	lock_take(&o->lock);
	list_for_each (it, &o->writing)
		container_of(it, struct node, writing)->drain = true;
	for (;;) {
		struct node *n = NULL;
		int r;

		list_for_each (it, &o->writing) {
			struct node *candidate = container_of(it, struct node, writing);

			if (candidate->drain && candidate->parent) {
				n = candidate;
				break;
			}
		}
		if (!n)
			break;
		n->drain = false;
		node_hold(n);
		lock_drop(&o->lock);
		r = content_publish(o, n, true);
		if (r < 0)
			log_warn("an open file cannot be published error=%s",
				 strerror(-r));
		lock_take(&o->lock);
		node_release(o, n);
	}
	lock_drop(&o->lock);
}

struct pending_since {
	uint64_t seq;
	bool found;
};

static bool was_pending(void *arg, struct node *n)
{
	struct pending_since *p = arg;

	p->found = n->pending_seq <= p->seq;
	return !p->found;
}

/* The first one answers: this is asked again with every file that is stored. */
static bool is_pending(struct output *o, uint64_t seq)
{
	struct pending_since p = {.seq = seq};

	sync_each(o, was_pending, &p);
	return p.found;
}

static void write_pending(struct buf *b, struct node *n)
{
	char key[PATH_KEY_MAX + 1] = "";

	if (n->parent)
		node_key(n, key);
	json_begin_object(b, NULL);
	json_put_string(b, "path", key[0] ? key : (n->stored.key ? n->stored.key : ""));
	json_put_uint(b, "bytes", n->acked ? n->acked_size : n->lost.size);
	json_put_string(b, "error", n->why);
	json_end_object(b);
}

struct pending_list {
	struct buf *b;
	size_t count;
};

static bool write_some_pending(void *arg, struct node *n)
{
	struct pending_list *l = arg;

	write_pending(l->b, n);
	return ++l->count < PENDING_LISTED_MAX;
}

/* Pending for good, unless they are written again or removed. */
static void write_lost(struct output *o, struct pending_list *l)
{
	struct node *n, *next;

	HASH_ITER (by_ino, o->nodes, n, next)
		if (n->lost.flags && !n->acked && l->count < PENDING_LISTED_MAX)
			write_some_pending(l, n);
}

/* All but the files, of an object that stays open. */
static void write_receipt(struct output *o, struct buf *b, bool complete)
{
	struct pending_list l = {b, 0};
	struct output_progress p;

	progress_locked(o, &p);
	kill_point("receipt.write");
	json_begin_object(b, NULL);
	json_put_string(b, "status", complete ? "stored" : "pending");
	json_put_uint(b, "files_stored", p.files_stored);
	json_put_uint(b, "bytes_stored", p.bytes_stored);
	json_put_uint(b, "files_pending", p.files_pending + o->lost_contents);
	json_put_uint(b, "bytes_pending", p.bytes_pending);
	json_put_uint(b, "files_moved", p.files_moved);
	json_put_uint(b, "moving", p.moving);
	json_put_uint(b, "damaged", o->recovered.damaged + o->lost_contents);
	json_begin_array(b, "pending");
	sync_each(o, write_some_pending, &l);
	if (o->lost_contents > 0)
		write_lost(o, &l);
	json_end_array(b);
}

/* The files as they are by now: they may be ahead of the rest. */
static int make_receipt(struct output *o, struct buf *object, struct receipt **out)
{
	struct ledger_view *files;
	int r = ledger_look(o->ledger, &files);

	return r < 0 ? err_trace(r) : err_trace(receipt_new(object, files, out));
}

int output_drain(struct output *o, uint64_t deadline_ms, struct receipt **receipt)
{
	return output_drain_unless(o, deadline_ms, NULL, receipt);
}

int output_drain_unless(struct output *o, uint64_t deadline_ms,
			const atomic_bool *given_up, struct receipt **receipt)
{
	_cleanup_(buf_fini) struct buf object = BUF_INIT;
	uint64_t seq;
	bool pending;
	int r = 0;

	kill_point("drain.begin");
	publish_open(o);
	lock_take(&o->lock);
	seq = journal_appended(o->journal);
	o->drains++;
	sync_kick(o);
	while ((pending = is_pending(o, seq))) {
		uint64_t until = clock_mono_ms() + (given_up ? GIVEN_UP_MS : 1000);

		if (clock_mono_ms() >= deadline_ms || o->stopping ||
		    (given_up && atomic_load(given_up)))
			break;
		lock_wait(&o->lock, &o->drained,
			  until < deadline_ms ? until : deadline_ms);
	}
	o->drains--;
	/* Bytes that were acknowledged and are damaged are not in the store. */
	pending = pending || o->lost_contents > 0;
	if (receipt)
		write_receipt(o, &object, !pending);
	lock_drop(&o->lock);
	if (receipt)
		r = make_receipt(o, &object, receipt);
	if (r < 0)
		return err_trace(r);
	return pending ? OUTPUT_E_PENDING : 0;
}

/* ---- status ---------------------------------------------------------------------------------------- */

void output_status_json(struct output *o, struct buf *b)
{
	struct journal_stats journal;
	struct output_progress p;
	uint64_t total, available;

	journal_stats(o->journal, &journal);
	stage_space(o->stage, &total, &available);
	lock_scope(&o->lock);
	progress_locked(o, &p);
	json_put_string(b, "durability",
			o->config.durability == OUTPUT_REMOTE ? "remote" : "local");
	json_put_uint(b, "files_pending", p.files_pending);
	json_put_uint(b, "bytes_pending", p.bytes_pending);
	json_put_uint(b, "bytes_in_flight", p.bytes_in_flight);
	json_put_uint(b, "files_moved", p.files_moved);
	json_put_uint(b, "moving", p.moving);
	json_put_uint(b, "oldest_pending_ms", p.oldest_pending_ms);
	json_put_uint(b, "files_open", p.files_open);
	json_put_uint(b, "files_stored", p.files_stored);
	json_put_uint(b, "bytes_stored", p.bytes_stored);
	json_put_uint(b, "bytes_ahead", o->bytes_ahead);
	json_put_uint(b, "failures", p.failures);
	json_put_string(b, "last_failure", p.failures ? p.last_failure.text : NULL);
	json_put_uint(b, "hidden_keys", o->hidden_keys);
	json_put_uint(b, "nodes", p.nodes);
	json_begin_object(b, "stage");
	json_put_uint(b, "used", stage_used(o->stage));
	json_put_uint(b, "available", available);
	json_end_object(b);
	json_begin_object(b, "journal");
	json_put_uint(b, "records", journal.appends);
	json_put_uint(b, "commits", journal.commits);
	json_put_uint(b, "bytes", journal.segment_bytes);
	json_put_uint(b, "failures", journal.failures);
	json_end_object(b);
	json_begin_object(b, "recovered");
	json_put_uint(b, "records", o->recovered.records);
	json_put_uint(b, "damaged", o->recovered.damaged);
	json_put_uint(b, "torn_bytes", o->recovered.torn_bytes);
	json_put_uint(b, "lost_contents", o->lost_contents);
	json_put_string(b, "quarantined",
			o->recovered.quarantined[0] ? o->recovered.quarantined : NULL);
	json_end_object(b);
	json_put_string(b, "health",
			o->recovered.damaged || o->lost_contents || journal.failures
				? "degraded"
				: "good");
}

/* Bytes that are kept for the next open until a writer needs their room. */
static uint64_t retained_room(struct output *o)
{
	struct list *it;
	uint64_t n = 0;

	lock_scope(&o->lock);
	list_for_each (it, &o->retained)
		n += content_counted(container_of(it, struct node, retained)->live);
	return n;
}

int output_statfs(struct output *o, struct statvfs *st)
{
	uint64_t total, available;

	if (fstatvfs(o->stage_fd, st) < 0)
		return err_origin(-errno);
	stage_space(o->stage, &total, &available);
	available += retained_room(o);
	if (available > total)
		available = total;
	st->f_blocks = total / st->f_frsize;
	st->f_bfree = st->f_bavail = available / st->f_frsize;
	st->f_namemax = PATH_NAME_MAX;
	return 0;
}

/* Whether there may be bytes written behind our back that the last version lacks: only size
 * and times tell. Lock held. */
static bool may_have_more(const struct node *n)
{
	const struct seal *s = &n->seal;
	struct stat st;

	if (!n->passthrough || n->writers == 0 || !n->live)
		return false;
	return s->version == 0 || s->version != n->version ||
	       fstat(content_fd(n->live), &st) < 0 || s->size != (uint64_t)st.st_size ||
	       s->mtime_ns != clock_from_timespec(st.st_mtim) ||
	       (!s->whole && s->ctime_ns != clock_from_timespec(st.st_ctim));
}

static const char *state_of(const struct node *n)
{
	if (n->task)
		return "uploading";
	if (plan_is_dirty(n) || atomic_load(&n->changed) || !n->stored.key ||
	    may_have_more(n))
		return "local";
	return "stored";
}

ssize_t output_getxattr(struct output *o, uint64_t ino, const char *name, void *value,
			size_t size)
{
	const char *text = NULL;
	struct node *n;
	size_t len;

	lock_scope(&o->lock);
	n = node_find(o, ino);
	if (!n)
		return err_origin(-ESTALE);
	if (n->kind == RECORD_FILE && strcmp(name, XATTR_STATE) == 0)
		text = state_of(n);
	else if (n->kind == RECORD_FILE && strcmp(name, XATTR_ETAG) == 0 && n->stored.key)
		text = n->stored.etag;
	if (!text)
		return -ENODATA;
	len = strlen(text);
	if (size == 0)
		return (ssize_t)len;
	if (size < len)
		return -ERANGE;
	memcpy(value, text, len);
	return (ssize_t)len;
}

ssize_t output_listxattr(struct output *o, uint64_t ino, void *list, size_t size)
{
	static const char state[] = XATTR_STATE, etag[] = XATTR_ETAG;
	struct node *n;
	size_t len = 0;

	lock_scope(&o->lock);
	n = node_find(o, ino);
	if (!n)
		return err_origin(-ESTALE);
	if (n->kind != RECORD_FILE)
		return 0;
	len = sizeof(state) + (n->stored.key ? sizeof(etag) : 0);
	if (size == 0)
		return (ssize_t)len;
	if (size < len)
		return -ERANGE;
	memcpy(list, state, sizeof(state));
	if (n->stored.key)
		memcpy((char *)list + sizeof(state), etag, sizeof(etag));
	return (ssize_t)len;
}
