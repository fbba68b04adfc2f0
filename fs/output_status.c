/* SPDX-License-Identifier: Apache-2.0 */
/* How far the upload is: progress, drain with its receipt, status, extended attributes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/output_impl.h"

#define PENDING_LISTED_MAX 1000 /* pending files that a receipt names */
#define XATTR_STATE "user.sluice.state"
#define XATTR_ETAG "user.sluice.etag"

typedef void (*pending_fn)(void *arg, struct node *n);

/* Everything acknowledged that the store does not have yet. Lock held. */
static void each_pending(struct output *o, pending_fn fn, void *arg)
{
	struct list *queues[] = {&o->ready, &o->waiting}, *it;

	for (size_t i = 0; i < 2; i++) {
		list_for_each (it, queues[i]) {
			struct node *n = container_of(it, struct node, queued);

			if (plan_is_dirty(n))
				fn(arg, n);
		}
	}
	list_for_each (it, &o->flying)
		fn(arg, sync_task_node(it));
}

static void count_pending(void *arg, struct node *n)
{
	struct output_progress *p = arg;
	int64_t age = (clock_real_ns() - n->pending_ns) / 1000000;

	p->files_pending++;
	if (n->acked)
		p->bytes_pending += n->acked_size;
	if (n->pending_ns && age > 0 && (uint64_t)age > p->oldest_pending_ms)
		p->oldest_pending_ms = (uint64_t)age;
}

static void progress_locked(struct output *o, struct output_progress *p)
{
	struct list *it;

	*p = (struct output_progress){.files_stored = o->files_stored,
				      .bytes_stored = o->bytes_stored,
				      .bytes_in_flight =
					      uploader_bytes_flying(o->uploader),
				      .failures = o->failures,
				      .last_failure = o->last_failure};
	list_for_each (it, &o->writing)
		p->files_open++;
	each_pending(o, count_pending, p);
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
		r = content_publish(o, n);
		if (r < 0)
			log_warn("an open file cannot be published error=%s",
				 strerror(-r));
		lock_take(&o->lock);
		node_release(o, n);
	}
	lock_drop(&o->lock);
}

/* The first one answers: this is asked again with every file that is stored. */
static bool is_pending(struct output *o, uint64_t seq)
{
	struct list *queues[] = {&o->ready, &o->waiting}, *it;

	list_for_each (it, &o->flying)
		if (sync_task_node(it)->pending_seq <= seq)
			return true;
	for (size_t i = 0; i < 2; i++) {
		list_for_each (it, queues[i]) {
			struct node *n = container_of(it, struct node, queued);

			if (n->pending_seq <= seq && plan_is_dirty(n))
				return true;
		}
	}
	return false;
}

static void write_pending(void *arg, struct node *n)
{
	struct buf *b = arg;
	char key[PATH_KEY_MAX + 1] = "";

	if (n->parent)
		node_key(n, key);
	json_begin_object(b, NULL);
	json_put_string(b, "path", key[0] ? key : (n->stored.key ? n->stored.key : ""));
	json_put_uint(b, "bytes", n->acked ? n->acked_size : 0);
	json_put_string(b, "error", n->why.text[0] ? n->why.text : NULL);
	json_end_object(b);
}

struct pending_list {
	struct buf *b;
	size_t count;
};

static void write_some_pending(void *arg, struct node *n)
{
	struct pending_list *l = arg;

	if (l->count++ < PENDING_LISTED_MAX)
		write_pending(l->b, n);
}

static void write_receipt(struct output *o, struct buf *b, bool complete)
{
	struct pending_list l = {b, 0};
	struct output_progress p;
	struct delivered *d, *next;
	char crc[24];

	progress_locked(o, &p);
	kill_point("receipt.write");
	json_begin_object(b, NULL);
	json_put_string(b, "status", complete ? "stored" : "pending");
	json_put_uint(b, "files_stored", p.files_stored);
	json_put_uint(b, "bytes_stored", p.bytes_stored);
	json_put_uint(b, "files_pending", p.files_pending);
	json_put_uint(b, "bytes_pending", p.bytes_pending);
	json_put_uint(b, "damaged", o->recovered.damaged + o->lost_contents);
	json_begin_array(b, "files");
	HASH_ITER (hh, o->receipt, d, next) {
		json_begin_object(b, NULL);
		json_put_string(b, "key", d->key);
		json_put_uint(b, "size", d->size);
		snprintf(crc, sizeof(crc), "%llu", (unsigned long long)d->crc64);
		json_put_string(b, "crc64", crc);
		json_put_string(b, "etag", d->etag);
		json_end_object(b);
	}
	json_end_array(b);
	json_begin_array(b, "pending");
	each_pending(o, write_some_pending, &l);
	json_end_array(b);
	json_end_object(b);
}

int output_drain(struct output *o, uint64_t deadline_ms, struct buf *receipt)
{
	uint64_t seq;
	bool pending;

	kill_point("drain.begin");
	publish_open(o);
	lock_scope(&o->lock);
	seq = journal_appended(o->journal);
	o->drains++;
	sync_kick(o);
	while ((pending = is_pending(o, seq))) {
		uint64_t until = clock_mono_ms() + 1000;

		if (clock_mono_ms() >= deadline_ms || o->stopping)
			break;
		lock_wait(&o->lock, &o->changed,
			  until < deadline_ms ? until : deadline_ms);
	}
	o->drains--;
	/* Bytes that were acknowledged and are damaged are not in the store. */
	pending = pending || o->lost_contents > 0;
	if (receipt)
		write_receipt(o, receipt, !pending);
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
	json_put_uint(b, "oldest_pending_ms", p.oldest_pending_ms);
	json_put_uint(b, "files_open", p.files_open);
	json_put_uint(b, "files_stored", p.files_stored);
	json_put_uint(b, "bytes_stored", p.bytes_stored);
	json_put_uint(b, "failures", p.failures);
	json_put_string(b, "last_failure", p.failures ? p.last_failure.text : NULL);
	json_put_uint(b, "hidden_keys", o->hidden_keys);
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

int output_statfs(struct output *o, struct statvfs *st)
{
	uint64_t total, available;

	if (fstatvfs(o->stage_fd, st) < 0)
		return err_origin(-errno);
	stage_space(o->stage, &total, &available);
	st->f_blocks = total / st->f_frsize;
	st->f_bfree = st->f_bavail = available / st->f_frsize;
	st->f_namemax = PATH_NAME_MAX;
	return 0;
}

static const char *state_of(const struct node *n)
{
	if (n->task)
		return "uploading";
	if (plan_is_dirty(n) || atomic_load(&n->changed) || !n->stored.key)
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
