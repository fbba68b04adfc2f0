/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retry: a layer that tries again.
 *
 * A request is a job, in one of these states (under the lock):
 *   IN_FLIGHT  the layer below has it
 *   WAITING    in `timers`, sorted by due_ms
 *   PARKED     in `parked`: for a renewal of the credentials, at most until due_ms
 *   MOVING     the thread has it
 *   LOOKING    a request of our own is under way below, to see whose success it was
 *   ENDED      the caller's `done` runs or has run
 * Happy path: IN_FLIGHT, ENDED, in whatever thread the layer below is in.
 * Failure modes: retry_step.h decides. A cancelled job ends at its next step.
 * On close: no request is under way; the thread is joined.
 * Threads: one, which moves what is due. Nobody sleeps while a request waits.
 * Locks: ours is held while the layer below is told to cancel, never while it is given a
 * request or while somebody's `done` runs.
 */
#include "fs/backend/retry.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cache/origin.h"
#include "fs/backend/creds.h"
#include "fs/backend/retry_args.h"
#include "fs/backend/retry_step.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/units.h"

struct retry {
	struct origin origin;
	struct origin *below;
	struct creds *creds; /* borrowed; NULL: refused credentials are final */
	struct retry_policy policy;

	struct lock lock; /* everything below, and the jobs' state */
	pthread_cond_t cond;
	struct list timers; /* struct job, soonest first */
	struct list parked; /* struct job */
	uint64_t retries;
	bool renewed; /* credentials may have changed: look at `parked` */
	bool stopping;
	bool has_thread;
	pthread_t thread;
};

enum job_state {
	IN_FLIGHT,
	WAITING,
	PARKED,
	MOVING,
	LOOKING,
	ENDED
};

struct job {
	struct list link; /* timers, parked, or the thread's own list */
	struct retry *retry;
	struct origin_req *req;
	enum job_state state;
	unsigned int refs; /* the state machine's, and submit()'s */
	bool cancelled;
	bool for_credentials; /* WAITING or PARKED last */
	uint64_t due_ms;
	uint64_t first_ms;
	unsigned int tries;
	struct retry_state step;
	struct retry_args args; /* the caller's arguments, and what is done of them */
	struct origin_req look; /* LOOKING */
	struct retry_tail tail;
};

static void submit(struct job *job);
static void look(struct job *job);

static void job_put_locked(struct job *job)
{
	if (--job->refs == 0)
		free(job);
}

/* ---- the end -------------------------------------------------------------------------- */

static void finish(struct job *job, int result)
{
	struct origin_req *req = job->req;
	struct retry *t = job->retry;
	char took[24];

	retry_args_restore(&job->args, req, result);
	if (result < 0 && job->tries > 1 && result != -ECANCELED)
		why_wrap(&req->why, "after %u tries in %s", job->tries,
			 units_format_duration(took, sizeof(took),
					       clock_mono_ms() - job->first_ms));
	lock_take(&t->lock);
	req->layer[ORIGIN_LAYER_RETRY] = NULL;
	job->state = ENDED;
	job_put_locked(job);
	lock_drop(&t->lock);
	origin_done(req, result);
}

/* ---- waiting -------------------------------------------------------------------------- */

static void insert_timer_locked(struct retry *t, struct job *job)
{
	struct list *it = &t->timers;

	while (it->prev != &t->timers &&
	       container_of(it->prev, struct job, link)->due_ms > job->due_ms)
		it = it->prev;
	list_push_back(it, &job->link);
	job->state = WAITING;
}

/* Returns false when the job was cancelled meanwhile. */
static bool wait_for(struct job *job, enum retry_action action, uint64_t due_ms)
{
	struct retry *t = job->retry;

	lock_scope(&t->lock);
	if (job->cancelled)
		return false;
	t->retries++;
	job->due_ms = due_ms;
	job->for_credentials = action == RETRY_CREDENTIALS;
	if (action == RETRY_AT) {
		insert_timer_locked(t, job);
	} else {
		list_push_back(&t->parked, &job->link);
		job->state = PARKED;
		t->renewed = true; /* they may be good again already */
	}
	pthread_cond_signal(&t->cond);
	return true;
}

/* A try, or a look, has ended with req->result. */
static void decide(struct job *job, bool progressed)
{
	struct origin_req *req = job->req;
	enum retry_action action = RETRY_END;
	uint64_t now = clock_mono_ms(), due_ms = now;

	if (req->result < 0 && retry_args_can_go_on(&job->args, req))
		action = retry_decide(&job->retry->policy, &job->step, req, progressed,
				      now, &due_ms);
	if (action == RETRY_CREDENTIALS && !job->retry->creds)
		action = RETRY_END;
	if (action != RETRY_END)
		log_debug(LOG_ORIGIN,
			  "retry op=%s try=%u result=%s action=%s within_ms=%" PRIu64,
			  origin_op_name(req->op), job->tries,
			  strerrorname_np(-req->result), retry_action_name(action),
			  due_ms - now);
	if (action == RETRY_END)
		finish(job, req->result);
	else if (action == RETRY_VERIFY)
		look(job);
	else if (!wait_for(job, action, due_ms))
		finish(job, -ECANCELED);
}

static void try_done(struct origin_req *req)
{
	struct job *job = req->layer[ORIGIN_LAYER_RETRY];

	decide(job, retry_args_progress(&job->args, req));
}

static void submit(struct job *job)
{
	struct retry *t = job->retry;
	struct origin_req *req = job->req;

	retry_args_prepare(&job->args, req);
	req->done = try_done;
	lock_take(&t->lock);
	job->state = IN_FLIGHT;
	job->tries++;
	job->refs++;
	lock_drop(&t->lock);
	origin_submit(t->below, req);

	lock_scope(&t->lock);
	/* The cancel came between the two, when there was nothing to cancel below. */
	if (job->cancelled && job->state == IN_FLIGHT)
		origin_cancel(t->below, req);
	job_put_locked(job);
}

/* ---- looking whose success it was ----------------------------------------------------- */

static void look_done(struct origin_req *look_req)
{
	struct job *job = look_req->user;
	struct origin_req *req = job->req;

	if (look_req->result == 0 &&
	    retry_args_judge(&job->args, req, look_req, &job->tail)) {
		req->attr = look_req->attr;
		finish(job, 0);
	} else if (look_req->result == 0 || look_req->result == -ENOENT) {
		finish(job, req->result);
	} else {
		/* Not known yet: the next try meets the same refusal and looks again. */
		req->result = look_req->result;
		req->why = look_req->why;
		decide(job, false);
	}
}

static void look(struct job *job)
{
	struct retry *t = job->retry;
	bool cancelled;

	lock_take(&t->lock);
	cancelled = job->cancelled;
	job->state = LOOKING;
	retry_args_prepare_look(&job->args, job->req, &job->look, &job->tail);
	job->look.done = look_done;
	job->look.user = job;
	lock_drop(&t->lock);
	if (cancelled)
		finish(job, -ECANCELED);
	else
		origin_submit(t->below, &job->look);
}

/* ---- the thread ----------------------------------------------------------------------- */

/* Moves what is due now to `out`; returns when the next one is. */
static uint64_t collect_locked(struct retry *t, struct list *out)
{
	uint64_t now = clock_mono_ms(), next = UINT64_MAX;
	int ready = t->renewed ? creds_ready(t->creds) : -EKEYEXPIRED;
	struct list *it, *after;

	t->renewed = false;
	while (!list_empty(&t->timers)) {
		struct job *job = list_first(&t->timers, struct job, link);

		if (job->due_ms > now) {
			next = job->due_ms;
			break;
		}
		list_remove(&job->link);
		list_push_back(out, &job->link);
		job->state = MOVING;
	}
	list_for_each_safe (it, after, &t->parked) {
		struct job *job = container_of(it, struct job, link);

		if (ready == -EKEYEXPIRED && job->due_ms > now) {
			next = job->due_ms < next ? job->due_ms : next;
			continue;
		}
		list_remove(&job->link);
		list_push_back(out, &job->link);
		job->state = MOVING;
	}
	return next;
}

/* A parked job whose time is over, or whose credentials are still refused after a renewal,
 * ends; every other one is tried again. */
static void move_on(struct job *job)
{
	int ready = job->for_credentials ? creds_ready(job->retry->creds) : 0;
	bool cancelled;

	lock_take(&job->retry->lock);
	cancelled = job->cancelled;
	lock_drop(&job->retry->lock);
	if (cancelled)
		finish(job, -ECANCELED);
	else if (ready < 0)
		finish(job, ready);
	else
		submit(job);
}

static void *timer_thread(void *arg)
{
	struct retry *t = arg;

	prctl(PR_SET_NAME, "retry");
	lock_take(&t->lock);
	while (!t->stopping) {
		struct list due = LIST_INIT(due);
		uint64_t next = collect_locked(t, &due);

		if (list_empty(&due)) {
			lock_wait(&t->lock, &t->cond, next);
			continue;
		}
		lock_drop(&t->lock);
		while (!list_empty(&due)) {
			struct job *job = list_first(&due, struct job, link);

			list_remove(&job->link);
			move_on(job);
		}
		lock_take(&t->lock);
	}
	lock_drop(&t->lock);
	return NULL;
}

static void credentials_changed(void *arg)
{
	struct retry *t = arg;

	lock_scope(&t->lock);
	t->renewed = true;
	pthread_cond_signal(&t->cond);
}

/* ---- the table ------------------------------------------------------------------------ */

static void retry_submit(struct origin *o, struct origin_req *req)
{
	struct retry *t = container_of(o, struct retry, origin);
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		origin_done(req, err_origin(-ENOMEM));
		return;
	}
	job->retry = t;
	job->req = req;
	job->refs = 1;
	job->first_ms = job->step.started_ms = clock_mono_ms();
	list_init(&job->link);
	retry_args_init(&job->args, req);
	lock_take(&t->lock);
	req->layer[ORIGIN_LAYER_RETRY] = job;
	lock_drop(&t->lock);
	submit(job);
}

static void retry_cancel(struct origin *o, struct origin_req *req)
{
	struct retry *t = container_of(o, struct retry, origin);
	struct job *job;

	lock_scope(&t->lock);
	job = req->layer[ORIGIN_LAYER_RETRY];
	if (!job)
		return;
	job->cancelled = true;
	switch (job->state) {
	case IN_FLIGHT:
		origin_cancel(t->below, req);
		break;
	case LOOKING:
		origin_cancel(t->below, &job->look);
		break;
	case WAITING:
	case PARKED:
		/* The thread ends it. */
		list_remove(&job->link);
		job->due_ms = 0;
		list_push_front(&t->timers, &job->link);
		pthread_cond_signal(&t->cond);
		break;
	case MOVING:
	case ENDED:
		break;
	}
}

static void retry_stats(struct origin *o, struct origin_stats *stats)
{
	struct retry *t = container_of(o, struct retry, origin);

	t->below->ops->stats(t->below, stats);
	lock_scope(&t->lock);
	stats->retries += t->retries;
}

static void retry_free(struct origin *o)
{
	struct retry *t = container_of(o, struct retry, origin);

	if (t->creds)
		creds_watch(t->creds, NULL, NULL);
	if (t->has_thread) {
		lock_take(&t->lock);
		check(list_empty(&t->timers));
		check(list_empty(&t->parked));
		t->stopping = true;
		pthread_cond_signal(&t->cond);
		lock_drop(&t->lock);
		pthread_join(t->thread, NULL);
	}
	origin_free(t->below);
	pthread_cond_destroy(&t->cond);
	lock_fini(&t->lock);
	free(t);
}

static const struct origin_ops retry_ops = {
	.name = "retry",
	.submit = retry_submit,
	.cancel = retry_cancel,
	.stats = retry_stats,
	.free = retry_free,
};

static int start(struct retry *t)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t->thread, NULL, timer_thread, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	t->has_thread = r == 0;
	return r ? err_origin(-r) : 0;
}

int retry_origin_new(struct origin *below, struct creds *creds,
		     const struct retry_policy *policy, struct origin **out)
{
	struct retry *t = calloc(1, sizeof(*t));
	int r;

	if (!t) {
		origin_free(below);
		return err_origin(-ENOMEM);
	}
	t->origin = *below;
	t->origin.ops = &retry_ops;
	t->below = below;
	t->creds = creds;
	t->policy = *policy;
	lock_init(&t->lock);
	lock_cond_init(&t->cond);
	list_init(&t->timers);
	list_init(&t->parked);
	r = start(t);
	if (r < 0) {
		retry_free(&t->origin);
		return err_trace(r);
	}
	if (creds)
		creds_watch(creds, credentials_changed, t);
	*out = &t->origin;
	return 0;
}
