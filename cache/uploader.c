/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each worker: find the oldest job that has something to do, do it without any lock, say
 * how it went, look again. What a content needs next is upload_step's decision; the other
 * kinds are one request.
 *
 * On stop: what flies is cancelled. An upload id that is journaled stays good.
 */
#include "cache/uploader_impl.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/check.h"

#define WORKERS_MAX 256

static const char *const kind_names[] = {
	"content", "copy", "delete", "fetch", "fill", "abandon",
};
static_assert(sizeof(kind_names) / sizeof(*kind_names) == UPLOAD_KIND_N, "upload kinds");

const char *upload_kind_name(enum upload_kind kind)
{
	return kind < UPLOAD_KIND_N ? kind_names[kind] : "unknown";
}

int upload_call(struct worker *w, struct origin_req *req)
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
		} else if (job->state.ahead && u->ahead >= u->ahead_max) {
			break;
		} else {
			*action = upload_next(&job->state, part);
			if (*action == UPLOAD_WAIT ||
			    (*action == UPLOAD_DONE && job->working > 0))
				continue;
		}
		job->working++;
		u->ahead += job->state.ahead;
		return job;
	}
	return NULL;
}

/* The deletes that wait behind this one come along. */
static void gather_locked(struct uploader *u, struct upload_job *job)
{
	struct list *it = &job->queued;
	size_t count = 1;

	while (!job->alone && count < ORIGIN_KEY_COUNT_MAX &&
	       (it = it->next) != &u->jobs) {
		struct upload_job *other = container_of(it, struct upload_job, queued);

		if (other->kind != UPLOAD_DELETE || other->working > 0 || other->alone ||
		    other->cancelled)
			continue;
		other->working++;
		other->next = job->next;
		job->next = other;
		count++;
	}
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

static void delete_locked(struct worker *w, struct upload_job *jobs)
{
	struct uploader *u = w->uploader;

	w->job = jobs;
	gather_locked(u, jobs);
	lock_drop(&u->lock);
	upload_do_deletes(w, jobs);
	lock_take(&u->lock);
	while (jobs) {
		struct upload_job *job = jobs;

		jobs = job->next;
		job->working--;
		finish_locked(u, job, job->result);
	}
	if (u->stopping)
		pthread_cond_broadcast(&u->cond);
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
		u->ahead -= job->state.ahead;
		check(job->working == 0);
		finish_locked(u, job, job->state.result);
		return;
	}
	if (many && action == UPLOAD_PART)
		pthread_cond_signal(&u->cond);
	lock_drop(&u->lock);
	if (job->kind == UPLOAD_CONTENT)
		upload_do_action(w, job, action, part);
	else
		r = upload_do_request(w, job);
	lock_take(&u->lock);
	job->working--;
	u->ahead -= job->state.ahead;
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

		if (job && job->kind == UPLOAD_DELETE)
			delete_locked(w, job);
		else if (job)
			work_locked(w, job, action, part);
		if (job)
			continue;
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

/* Some are left to what is pending, and half of the cores to who writes the file. */
static uint32_t ahead_max(uint32_t count)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	count -= count / 4;
	if (cores < 1)
		cores = 1;
	return (unsigned long)cores < count ? (uint32_t)cores : count;
}

int uploader_new(const struct uploader_config *config, struct uploader **out)
{
	uint32_t count = config->parallel < WORKERS_MAX ? config->parallel : WORKERS_MAX;
	struct uploader *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return err_origin(-ENOMEM);
	u->origin = config->origin;
	u->ahead_max = ahead_max(count);
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

/* What the job comes behind. */
static struct list *place_of(struct uploader *u, const struct upload_job *job)
{
	struct list *it;

	for (it = u->jobs.prev; it != &u->jobs; it = it->prev) {
		const struct upload_job *other =
			container_of(it, struct upload_job, queued);

		if (!other->state.ahead || (job->state.ahead && other->rank < job->rank))
			break;
	}
	return it;
}

void uploader_submit(struct uploader *u, struct upload_job *jobs)
{
	lock_scope(&u->lock);
	while (jobs) {
		struct upload_job *job = jobs;

		jobs = job->next;
		job->next = NULL;
		job->working = 0;
		job->cancelled = false;
		job->why.text[0] = '\0';
		list_insert(place_of(u, job), &job->queued);
		/* One worker each; the first to find more to do than it can do itself wakes
		 * the next. */
		pthread_cond_signal(&u->cond);
	}
}

/* What was sent may be carried out although nobody waits for the answer, behind whatever
 * is sent next for the key, or looked for: the answer decides. */
static bool may_land_late(const struct origin_req *req)
{
	return req->op == ORIGIN_PUT || req->op == ORIGIN_APPEND ||
	       req->op == ORIGIN_COPY || req->op == ORIGIN_MULTI_BEGIN ||
	       req->op == ORIGIN_MULTI_END;
}

void uploader_cancel(struct uploader *u, struct upload_job *job)
{
	lock_scope(&u->lock);
	job->cancelled = true;
	if (job->kind == UPLOAD_CONTENT)
		upload_cancel(&job->state);
	for (uint32_t i = 0; i < u->worker_count; i++) {
		struct worker *w = &u->workers[i];

		if (w->req && w->job == job && !may_land_late(w->req))
			origin_cancel(u->origin, w->req);
	}
	pthread_cond_broadcast(&u->cond);
}

void uploader_stop(struct uploader *u, struct upload_job *job)
{
	lock_scope(&u->lock);
	upload_stop(&job->state);
	pthread_cond_broadcast(&u->cond);
}

uint64_t uploader_sent(struct uploader *u, const struct upload_job *job)
{
	lock_scope(&u->lock);
	return upload_sent_bytes(&job->state);
}

uint64_t uploader_bytes_flying(struct uploader *u)
{
	return atomic_load(&u->bytes_flying);
}
