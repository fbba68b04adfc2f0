/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each worker: find the oldest job that has something to do, do it without any lock, say
 * how it went, look again. What a content needs next is upload_step's decision; the other
 * kinds are one request.
 *
 * Every byte that is sent has had its CRC-64 computed here, from the staged file, and the
 * store's own figure is compared with it, part by part and for the whole.
 *
 * On stop: what flies is cancelled. An upload id that is journaled stays good.
 */
#include "cache/uploader.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "cache/stage.h"
#include "fs/base/check.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

#define WORKERS_MAX 256
#define ABANDON_MAX 64 /* forgotten uploads of one key that are removed in one go */

static const char *const kind_names[] = {
	"content", "copy", "delete", "fetch", "abandon",
};
static_assert(sizeof(kind_names) / sizeof(*kind_names) == UPLOAD_KIND_N, "upload kinds");

const char *upload_kind_name(enum upload_kind kind)
{
	return kind < UPLOAD_KIND_N ? kind_names[kind] : "unknown";
}

struct worker {
	struct uploader *uploader;
	pthread_t thread;
	struct upload_job *job; /* it works for */
	struct origin_req *req; /* in flight; for cancel */
};

struct uploader {
	struct origin *origin;
	struct lock lock;    /* all below */
	pthread_cond_t cond; /* a job has something to do, or stop */
	struct list jobs;    /* oldest first */
	bool stopping;
	uint32_t worker_count;
	struct worker *workers;
	_Atomic uint64_t bytes_flying;
};

/* Sends one request where uploader_cancel() can reach it. */
static int call(struct worker *w, struct origin_req *req)
{
	struct uploader *u = w->uploader;
	bool cancelled;
	int r;

	lock_take(&u->lock);
	cancelled = w->job->cancelled || u->stopping;
	if (!cancelled)
		w->req = req;
	lock_drop(&u->lock);
	/* What tidies up after a cancel is let through, but not after a stop. */
	if (cancelled && (u->stopping || req->op != ORIGIN_MULTI_ABORT))
		return -ECANCELED;
	atomic_fetch_add(&u->bytes_flying, req->body.len);
	r = origin_call(u->origin, req);
	atomic_fetch_sub(&u->bytes_flying, req->body.len);
	lock_take(&u->lock);
	w->req = NULL;
	if (r < 0 && r != -ECANCELED)
		w->job->why = req->why;
	lock_drop(&u->lock);
	return r;
}

static int body_of(struct upload_job *job, uint64_t off, uint64_t n,
		   struct origin_body *body, uint64_t *crc)
{
	*body = (struct origin_body){.fd = -1, .len = n};
	if (!job->content) {
		body->data = job->data ? (const char *)job->data + off : "";
		*crc = crc64(0, body->data, (size_t)n);
		return 0;
	}
	body->fd = content_fd(job->content);
	body->fd_off = off;
	return err_trace(content_crc64(job->content, off, n, crc));
}

static int mismatch(struct upload_job *job, uint64_t ours, uint64_t theirs)
{
	return why_set(&job->why, err_origin(-EBADMSG),
		       "the store's checksum of %s differs: %016llx here, %016llx there",
		       job->key, (unsigned long long)ours, (unsigned long long)theirs);
}

/* Whether the key holds just these bytes. -ENOENT: something else, or nothing. */
static int check_stored(struct worker *w, struct upload_job *job, uint64_t crc)
{
	struct origin_req req = {.op = ORIGIN_STAT, .key = job->key};
	int r = call(w, &req);

	if (r < 0)
		return r;
	if (req.attr.size != job->state.size || !req.attr.has_crc64 ||
	    req.attr.crc64 != crc)
		return -ENOENT;
	job->attr = req.attr;
	return 0;
}

/* A store that promises checksums but gave none with its answer is asked again. */
static int verify(struct worker *w, struct upload_job *job,
		  const struct origin_attr *attr, uint64_t crc)
{
	int r;

	job->attr = *attr;
	job->attr.size = job->state.size;
	if (attr->has_crc64)
		return attr->crc64 == crc ? 0 : mismatch(job, crc, attr->crc64);
	if (!(w->uploader->origin->caps & ORIGIN_CAP_CRC64)) {
		job->attr.crc64 = crc;
		job->attr.has_crc64 = true;
		return 0;
	}
	r = check_stored(w, job, crc);
	if (r == -ENOENT)
		return why_set(&job->why, err_origin(-EBADMSG),
			       "the store does not show what was sent to %s", job->key);
	return r;
}

static int do_put(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_PUT, .key = job->key, .meta = job->meta};
	int r = body_of(job, 0, job->state.size, &req.body, &req.expect_crc64);

	if (r < 0)
		return r;
	if (job->is_known && job->known.has_crc64 && job->known.size == job->state.size &&
	    job->known.crc64 == req.expect_crc64) {
		job->attr = job->known;
		return 0;
	}
	req.has_expect_crc64 = true;
	kill_point("put.before");
	r = call(w, &req);
	if (r < 0)
		return r;
	kill_point("put.acked");
	return verify(w, job, &req.attr, req.expect_crc64);
}

static int do_begin(struct worker *w, struct upload_job *job, char *upload_id)
{
	struct origin_req req = {.op = ORIGIN_MULTI_BEGIN,
				 .key = job->key,
				 .meta = job->meta,
				 .size = job->state.size};
	int r = job->note(job, UPLOAD_NOTE_BEGIN, NULL);

	if (r < 0)
		return r;
	r = call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.begin.after");
	memcpy(upload_id, req.upload_id_result, ORIGIN_UPLOAD_ID_MAX);
	/* Written down before the first part; no one else reads the id in this phase. */
	memcpy(job->state.upload_id, upload_id, ORIGIN_UPLOAD_ID_MAX);
	r = job->note(job, UPLOAD_NOTE_ID, NULL);
	kill_point("multi.id.recorded");
	return r;
}

static int do_part(struct worker *w, struct upload_job *job, uint32_t number,
		   struct origin_part *part)
{
	struct origin_req req = {.op = ORIGIN_MULTI_PART,
				 .key = job->key,
				 .part = number,
				 .upload_id = job->state.upload_id};
	uint64_t crc, n;
	int r;

	*part = (struct origin_part){.number = number};
	upload_part_range(&job->state, number, &req.off, &n);
	r = body_of(job, req.off, n, &req.body, &crc);
	if (r < 0)
		return r;
	kill_point("multi.part.before");
	r = call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.part.acked");
	if (req.part_result.crc64 != crc)
		return mismatch(job, crc, req.part_result.crc64);
	*part = req.part_result;
	part->number = number;
	part->size = n;
	return job->note(job, UPLOAD_NOTE_PART, part);
}

static int do_end(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = job->key,
				 .upload_id = job->state.upload_id,
				 .parts = job->state.parts,
				 .part_count = job->state.part_count,
				 .size = job->state.size,
				 .expect_crc64 = upload_whole_crc64(&job->state),
				 .has_expect_crc64 = true};
	int r;

	kill_point("multi.end.before");
	r = call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.end.acked");
	return verify(w, job, &req.attr, req.expect_crc64);
}

static int do_abort(struct worker *w, struct upload_job *job, const char *upload_id)
{
	struct origin_req req = {
		.op = ORIGIN_MULTI_ABORT, .key = job->key, .upload_id = upload_id};

	return call(w, &req);
}

static void do_action(struct worker *w, struct upload_job *job, enum upload_action action,
		      uint32_t number)
{
	struct uploader *u = w->uploader;
	char upload_id[ORIGIN_UPLOAD_ID_MAX] = "";
	struct origin_part part = {.number = number};
	int r;

	switch (action) {
	case UPLOAD_PUT:
		r = do_put(w, job);
		break;
	case UPLOAD_BEGIN:
		r = do_begin(w, job, upload_id);
		break;
	case UPLOAD_PART:
		r = do_part(w, job, number, &part);
		break;
	case UPLOAD_END:
		r = do_end(w, job);
		break;
	case UPLOAD_CHECK:
		r = check_stored(w, job, upload_whole_crc64(&job->state));
		break;
	default:
		r = do_abort(w, job, job->state.upload_id);
		break;
	}
	log_debug(LOG_UPLOAD, "%s key=%s part=%u result=%d", upload_action_name(action),
		  job->key, number, r);
	lock_take(&u->lock);
	part.number = number;
	upload_landed(&job->state, action, r, upload_id, &part);
	lock_drop(&u->lock);
}

/* ---- the kinds that are one request --------------------------------------------------- */

struct fetch {
	struct upload_job *job;
	uint64_t crc;
	uint64_t size;
};

static int fetch_sink(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fetch *f = arg;

	f->crc = crc64(f->crc, data, n);
	f->size += n;
	return err_trace(io_pwrite(content_fd(f->job->content), data, n, off));
}

static int do_fetch(struct worker *w, struct upload_job *job)
{
	struct fetch f = {.job = job};
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = job->key,
				 .len = ORIGIN_TO_END,
				 .if_match = job->if_match,
				 .sink = fetch_sink,
				 .sink_arg = &f};
	int r = call(w, &req);

	if (r < 0)
		return r;
	if (f.size != req.attr.size || (req.attr.has_crc64 && req.attr.crc64 != f.crc))
		return mismatch(job, f.crc, req.attr.crc64);
	job->attr = req.attr;
	job->attr.crc64 = f.crc;
	return 0;
}

struct forgotten {
	struct upload_job *job;
	size_t count;
	char ids[ABANDON_MAX][ORIGIN_UPLOAD_ID_MAX];
};

static int note_forgotten(void *arg, const char *key, size_t key_len,
			  const struct origin_attr *attr)
{
	struct forgotten *f = arg;

	/* The clock of the store may differ by a little; a second is also its grain. */
	if (strlen(f->job->key) != key_len || memcmp(f->job->key, key, key_len) != 0 ||
	    attr->mtime_ns + 60000000000ll < f->job->since_ns || f->count == ABANDON_MAX)
		return 0;
	memccpy(f->ids[f->count++], attr->etag, '\0', ORIGIN_ETAG_MAX);
	return 0;
}

/* The crash came between asking for an upload id and writing it down. */
static int abandon_forgotten(struct worker *w, struct upload_job *job)
{
	struct forgotten *f = calloc(1, sizeof(*f));
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = job->key};
	int r;

	if (!f)
		return err_origin(-ENOMEM);
	f->job = job;
	req.list.entry = note_forgotten;
	req.list.entry_arg = f;
	r = call(w, &req);
	for (size_t i = 0; r == 0 && i < f->count; i++)
		r = do_abort(w, job, f->ids[i]);
	free(f);
	return r == -ENOTSUP ? 0 : r;
}

static int do_request(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_DELETE, .key = job->key};
	int r;

	switch (job->kind) {
	case UPLOAD_COPY:
		req.op = ORIGIN_COPY;
		req.source = job->source;
		req.if_match = job->if_match;
		req.meta = job->meta;
		kill_point("copy.before");
		r = call(w, &req);
		kill_point("copy.acked");
		job->attr = req.attr;
		return r;
	case UPLOAD_FETCH:
		return do_fetch(w, job);
	case UPLOAD_ABANDON:
		return job->state.upload_id[0] ? do_abort(w, job, job->state.upload_id)
					       : abandon_forgotten(w, job);
	default:
		kill_point("delete.before");
		r = call(w, &req);
		kill_point("delete.acked");
		return r;
	}
}

/* ---- workers --------------------------------------------------------------------------- */

/* The oldest job with something to do, and what. NULL: nothing now. */
static struct upload_job *take_locked(struct uploader *u, enum upload_action *action,
				      uint32_t *part)
{
	struct list *it;

	list_for_each (it, &u->jobs) {
		struct upload_job *job = container_of(it, struct upload_job, queued);

		if (job->kind != UPLOAD_CONTENT) {
			if (job->working > 0)
				continue;
			*action = UPLOAD_WAIT;
		} else {
			*action = upload_next(&job->state, part);
			if (*action == UPLOAD_WAIT ||
			    (*action == UPLOAD_DONE && job->working > 0))
				continue;
		}
		job->working++;
		return job;
	}
	return NULL;
}

/* Drops the lock around the owner's callback. */
static void finish_locked(struct uploader *u, struct upload_job *job, int result)
{
	list_remove(&job->queued);
	job->result = result;
	lock_drop(&u->lock);
	job->done(job);
	lock_take(&u->lock);
}

static void work_locked(struct worker *w, struct upload_job *job,
			enum upload_action action, uint32_t part)
{
	struct uploader *u = w->uploader;
	bool many = job->state.part_count > 0;
	int r = 0;

	w->job = job;
	if (action == UPLOAD_DONE) {
		job->working--;
		check(job->working == 0);
		finish_locked(u, job, job->state.result);
		return;
	}
	if (many && action == UPLOAD_PART)
		pthread_cond_signal(&u->cond);
	lock_drop(&u->lock);
	if (job->kind == UPLOAD_CONTENT)
		do_action(w, job, action, part);
	else
		r = do_request(w, job);
	lock_take(&u->lock);
	job->working--;
	if (job->kind != UPLOAD_CONTENT)
		finish_locked(u, job, r);
	/* Landing may have set free what the others wait for. */
	if (u->stopping || many)
		pthread_cond_broadcast(&u->cond);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct uploader *u = w->uploader;

	pthread_setname_np(pthread_self(), "upload");
	lock_take(&u->lock);
	for (;;) {
		enum upload_action action;
		uint32_t part = 0;
		struct upload_job *job = take_locked(u, &action, &part);

		if (job) {
			work_locked(w, job, action, part);
			continue;
		}
		if (u->stopping && list_empty(&u->jobs))
			break;
		lock_wait(&u->lock, &u->cond, UINT64_MAX);
	}
	pthread_cond_broadcast(&u->cond);
	lock_drop(&u->lock);
	return NULL;
}

static int start_workers(struct uploader *u, uint32_t count)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (u->worker_count < count && r == 0) {
		struct worker *w = &u->workers[u->worker_count];

		w->uploader = u;
		r = -pthread_create(&w->thread, NULL, worker_main, w);
		if (r == 0)
			u->worker_count++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r < 0 ? err_origin(r) : 0;
}

int uploader_new(const struct uploader_config *config, struct uploader **out)
{
	uint32_t count = config->parallel < WORKERS_MAX ? config->parallel : WORKERS_MAX;
	struct uploader *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return err_origin(-ENOMEM);
	u->origin = config->origin;
	u->workers = calloc(count, sizeof(*u->workers));
	if (!u->workers) {
		free(u);
		return err_origin(-ENOMEM);
	}
	lock_init(&u->lock);
	lock_cond_init(&u->cond);
	list_init(&u->jobs);
	r = start_workers(u, count);
	if (r < 0) {
		uploader_free(u);
		return err_trace(r);
	}
	*out = u;
	return 0;
}

struct uploader *uploader_free(struct uploader *u)
{
	struct list *it;

	if (!u)
		return NULL;
	lock_take(&u->lock);
	u->stopping = true;
	for (uint32_t i = 0; i < u->worker_count; i++) {
		if (u->workers[i].req)
			origin_cancel(u->origin, u->workers[i].req);
	}
	list_for_each (it, &u->jobs)
		container_of(it, struct upload_job, queued)->cancelled = true;
	pthread_cond_broadcast(&u->cond);
	lock_drop(&u->lock);
	for (uint32_t i = 0; i < u->worker_count; i++)
		pthread_join(u->workers[i].thread, NULL);
	pthread_cond_destroy(&u->cond);
	lock_fini(&u->lock);
	free(u->workers);
	free(u);
	return NULL;
}

void uploader_submit(struct uploader *u, struct upload_job *job)
{
	lock_scope(&u->lock);
	job->working = 0;
	job->cancelled = false;
	job->why.text[0] = '\0';
	list_push_back(&u->jobs, &job->queued);
	/* One worker; the first to find more to do than it can do itself wakes the next. */
	pthread_cond_signal(&u->cond);
}

void uploader_cancel(struct uploader *u, struct upload_job *job)
{
	lock_scope(&u->lock);
	job->cancelled = true;
	if (job->kind == UPLOAD_CONTENT)
		upload_cancel(&job->state);
	for (uint32_t i = 0; i < u->worker_count; i++) {
		struct worker *w = &u->workers[i];

		/* An END may have happened already: its answer decides. */
		if (w->req && w->job == job && w->req->op != ORIGIN_MULTI_END)
			origin_cancel(u->origin, w->req);
	}
	pthread_cond_broadcast(&u->cond);
}

uint64_t uploader_bytes_flying(struct uploader *u)
{
	return atomic_load(&u->bytes_flying);
}
