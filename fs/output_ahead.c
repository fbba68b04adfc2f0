/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a large file are sent while it is still being written.
 *
 * Nobody tells us of the writes (FUSE passthrough), so nothing here is believed: a part
 * that was sent is a claim, and counts for a version only if its CRC-64 is that of the
 * version's bytes. What was rewritten since is sent again. No acknowledgement depends on it.
 *
 *   looked at ──grows──→ sending ⇄ resting ──version is to be sent──→ its upload
 *                           └──── truncated, replaced, removed ──→ abandoned
 *
 * The upload has a node of its own in the journal, garbage without an object: a file that is
 * still being written may have no record, and is not pending because of this. Whatever is
 * found of such a node after a crash is an upload to be aborted. When the file's version
 * is sent, the upload becomes the file's (ahead_take), in one transaction. After a rename it
 * goes on to the old key (output_detour.c).
 *
 * A file is left alone when it has an object to copy parts from, when it is on its way
 * already, while a drain waits, and where there are few cores and the writer needs them.
 * Only bytes without a hole before them are sent, and the last part behind the writer not
 * before it asks for a sync.
 *
 * Lock: output->lock. Requests run on the uploader's workers, behind all others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_task.h"

#define PARTS_MIN 4            /* of a file that is worth it */
#define CORES_TO_SPARE 4       /* with fewer, what is sent slows the writer … */
#define BUSY_RATE (256u << 20) /* … so one that writes this much a second is left alone */
#define LOST_MAX 3 /* uploads given up of one open file, then it is left alone */
#define BACKOFF_BASE_MS 500
#define BACKOFF_MAX_MS 10000
#define LATE_NS                                                                          \
	30000000000ll /* the store's own time serves if it is no later than this */

static void ahead_free(struct ahead *a)
{
	a->file->ahead = NULL;
	a->upload->ahead = NULL;
	content_put(a->content, 0);
	free(a);
}

void ahead_forget(struct node *n)
{
	if (n->ahead)
		ahead_free(n->ahead);
}

bool ahead_is_busy(const struct node *n)
{
	return n->ahead && n->ahead->upload->task;
}

void ahead_cancel(struct output *o, struct node *n)
{
	struct node *g;

	lock_assert_held(&o->lock);
	if (!n->ahead)
		return;
	g = n->ahead->upload;
	n->ahead_lost++;
	ahead_free(n->ahead);
	if (g->task)
		uploader_cancel(o->uploader, &g->task->job);
	else if (g->resume)
		sync_queue(o, g);
	else
		node_settle(o, g);
}

void ahead_review(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	if (!n->ahead)
		return;
	if (!n->parent || (n->writers == 0 && !n->acked))
		ahead_cancel(o, n);
	else if (n->acked && (n->writers == 0 || n->publish) && ahead_is_busy(n))
		uploader_stop(o->uploader, &n->ahead->upload->task->job);
}

/* Whether the node's file may be sent before there is a version of it. */
static bool may_send(struct output *o, const struct node *n)
{
	struct patch *p = n->live ? content_patch(n->live) : NULL;

	return n->live && o->drains == 0 && !o->stopping && n->parent && n->error == 0 &&
	       n->ahead_lost < LOST_MAX && !n->task && !n->resume && n->writers > 0 &&
	       !(n->acked && n->publish) && (!p || patch_len(p) == 0);
}

/* Whether what was sent can still be of use. */
static bool is_true(struct output *o, const struct node *n, uint64_t size)
{
	const struct ahead *a = n->ahead;
	const struct resume *u = a->upload->resume;
	char key[PATH_KEY_MAX + 1];

	return a->content == n->live && size >= a->size && n->parent &&
	       (!u || (node_key(n, key) == 0 && strcmp(u->key, key) == 0) ||
		detour_keeps(o, n, u->key));
}

static struct ahead *begin(struct output *o, struct node *n)
{
	struct ahead *a = calloc(1, sizeof(*a));
	struct node *g = a ? node_new(o, RECORD_GARBAGE, 0) : NULL;

	if (!g) {
		free(a);
		return NULL;
	}
	a->file = n;
	a->upload = g;
	a->content = content_get(n->live);
	a->rank = ++o->ahead_rank;
	n->ahead = g->ahead = a;
	return a;
}

/* Sends what is wanted and was not sent, unless parts fly already. */
static void go_on(struct output *o, struct ahead *a)
{
	char key[PATH_KEY_MAX + 1];
	struct node *g = a->upload;
	struct task *t;

	if (g->task || a->want <= a->size || clock_mono_ms() < a->not_before_ms)
		return;
	/* The file may have been renamed since. */
	if (g->resume)
		memcpy(key, g->resume->key, strlen(g->resume->key) + 1);
	else if (node_key(a->file, key) < 0)
		return;
	a->size = a->want;
	t = task_new(o, g, SYNC_AHEAD, key);
	if (!t) {
		a->size = 0; /* once more, at the next look */
		return;
	}
	g->task = t;
	uploader_submit(o->uploader, &t->job);
}

/* Whether to begin when `end` bytes are there: close is what a job waits for. */
static bool is_time(const struct node *n, uint64_t end)
{
	uint64_t ms = clock_mono_ms() - n->watch.since_ms;

	return sysconf(_SC_NPROCESSORS_ONLN) >= CORES_TO_SPARE ||
	       end < BUSY_RATE / 1000 * ms;
}

/* Whole parts before `end` are to be sent. */
static void send_up_to(struct output *o, struct node *n, uint64_t end)
{
	uint64_t part = task_part_size(o);
	struct ahead *a = n->ahead;

	/* Other parts will be needed, all of them. */
	if (end > upload_schedule_reach(part)) {
		ahead_cancel(o, n);
		return;
	}
	end = upload_schedule_whole(part, end);
	if (!a)
		a = end >= (PARTS_MIN - 1) * part && is_time(n, end) ? begin(o, n) : NULL;
	if (!a)
		return;
	if (a->want < end)
		a->want = end;
	go_on(o, a);
}

/* How far the file has bytes without a hole, and its size; 0 on failure. */
static uint64_t data_end(struct node *n, uint64_t *size)
{
	int fd = content_fd(n->live);
	uint64_t from = n->ahead ? n->ahead->size : 0;
	struct stat st;
	off_t hole;

	*size = 0;
	if (fstat(fd, &st) < 0)
		return 0;
	*size = (uint64_t)st.st_size;
	if (from >= *size)
		return from == *size ? from : 0;
	hole = lseek(fd, (off_t)from, SEEK_HOLE);
	return hole < 0 ? 0 : (uint64_t)hole;
}

uint64_t ahead_look(struct output *o, struct node *n)
{
	uint64_t part = task_part_size(o), size, end;
	struct stat st;

	lock_assert_held(&o->lock);
	if (!n->live || part == 0 || content_is_sparse(n->live)) {
		ahead_cancel(o, n);
		return 0;
	}
	/* The common case, small files, at the cost of one call. */
	if (!n->ahead && (fstat(content_fd(n->live), &st) < 0 ||
			  (uint64_t)st.st_size < PARTS_MIN * part))
		return 0;
	end = data_end(n, &size);
	if (n->ahead && !is_true(o, n, size))
		ahead_cancel(o, n);
	end = end > part ? end - part : 0;
	if (end > 0 && may_send(o, n))
		send_up_to(o, n, end);
	return end;
}

void ahead_flush(struct output *o, struct node *n)
{
	uint64_t part = task_part_size(o), size, end;

	lock_assert_held(&o->lock);
	if (!n->live || part == 0 || content_is_sparse(n->live))
		return;
	end = data_end(n, &size);
	if (size < PARTS_MIN * part || (n->ahead && !is_true(o, n, size)) ||
	    !may_send(o, n))
		return;
	send_up_to(o, n, end);
}

void ahead_take(struct output *o, struct node *n, const char *key)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct ahead *a = n->ahead;
	struct node *g;
	struct patch *p;

	lock_assert_held(&o->lock);
	g = a->upload;
	p = content_patch(n->acked);
	/* Nothing came of it, or a plan would have other parts. */
	if (!g->resume || g->resume->part_count == 0 || n->resume ||
	    content_carried(n->acked) || (p && patch_len(p) > 0) ||
	    n->acked_size <= g->resume->part_size) {
		ahead_cancel(o, n);
		return;
	}
	n->resume = g->resume;
	g->resume = NULL;
	n->resume->version = n->version;
	n->resume->size = n->acked_size;
	if (o->config.origin->caps & ORIGIN_CAP_META)
		n->meta_dirty = true;
	ahead_free(a);
	if (strcmp(n->resume->key, key) != 0)
		detour_take_ahead(o, n);
	log_node(o, &b, n);
	log_node(o, &b, g);
	/* If it cannot be recorded the upload will be aborted after a crash, and the version
	 * sent anew. */
	if (log_commit_own(o, &b, n) < 0)
		log_warn("an upload is not recorded key=%s", key);
	node_settle(o, g);
}

bool ahead_lacks_attributes(const struct output *o, const struct node *n)
{
	const struct resume *u = n->resume;
	int64_t late = clock_real_ns() - n->mtime_ns;

	if (!u || !u->early || !(o->config.origin->caps & ORIGIN_CAP_META))
		return false;
	return u->mode != n->mode || u->uid != n->uid || u->gid != n->gid || late < 0 ||
	       late > LATE_NS;
}

/* A request has ended: the upload rests, goes on, or is given up. */
void ahead_done(struct upload_job *job)
{
	struct task *t = container_of(job, struct task, job);
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct output *o = t->output;
	struct node *g = t->node;
	struct resume *u;
	struct ahead *a;
	bool lost;

	lock_take(&o->lock);
	node_hold(g);
	g->task = NULL;
	a = g->ahead;
	u = g->resume;
	/* The store has forgotten it, or it was never begun for all we know. */
	lost = u && strcmp(u->upload_id, job->state.upload_id) != 0;
	if (u && !u->upload_id[0])
		lost = true;
	if (u && u->upload_id[0] && !job->state.upload_id[0]) {
		resume_free(g); /* aborted, or forgotten by the store */
		u = NULL;
		lost = true;
	}
	if (a && job->result < 0) {
		a->attempts++;
		a->size = 0; /* parts that are there are not sent again */
		a->not_before_ms =
			clock_mono_ms() +
			clock_backoff_ms(a->attempts, BACKOFF_BASE_MS, BACKOFF_MAX_MS);
		log_debug(LOG_UPLOAD, "ahead key=%s error=%s", t->key,
			  strerror(-job->result));
	} else if (a) {
		a->attempts = 0;
	}
	task_free(t, 0);
	if (a && lost)
		ahead_cancel(o, a->file);
	else if (!a && u)
		sync_queue(o, g);
	else if (a && may_send(o, a->file))
		go_on(o, a);
	log_node(o, &b, g);
	if (log_commit_own(o, &b, g) < 0)
		log_warn("no memory for a journal record");
	node_release(o, g);
	o->unblocked = true;
	sync_landed(o);
	lock_drop(&o->lock);
}
