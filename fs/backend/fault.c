/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: a layer that fails on purpose. Requests that no rule matches pass through; the
 * others get a job. Delayed ones sleep in one of a few threads, which is good enough for
 * tests; a cancel wakes them.
 */
#include "fs/backend/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/worker.h"

enum {
	DELAY_THREADS = 8,
	DELAY_QUEUE_MAX = 4096
};

struct fault {
	struct origin origin;
	struct origin *below;
	struct worker_pool *delays;
	struct lock lock; /* everything below, and the jobs' flags */
	pthread_cond_t cond;
	struct fault_rule rules[FAULT_RULE_MAX];
	unsigned int seen[FAULT_RULE_MAX], hits[FAULT_RULE_MAX];
	int rule_count;
	uint64_t jitter_us;
};

struct job {
	struct fault *fault;
	struct origin_req *req;
	struct fault_rule rule;
	origin_done_fn done;
	origin_sink_fn sink;
	void *sink_arg;
	origin_entry_fn entry;
	void *entry_arg;
	size_t key_count;
	uint64_t delivered; /* bytes or entries */
	bool cancelled;
	bool below; /* the layer below has it */
	uint64_t before_us, after_us;
};

static int spoil(void *arg, uint64_t off, const void *data, size_t n)
{
	struct job *job = arg;
	const struct fault_rule *rule = &job->rule;
	size_t pass = n;
	char *copy;
	int r;

	if (rule->cut && rule->cut_after - job->delivered < n)
		pass = rule->cut_after - job->delivered;
	copy = malloc(n);
	if (!copy)
		return err_origin(-ENOMEM);
	memcpy(copy, data, n);
	if (rule->flip && rule->flip_off >= off && rule->flip_off < off + n)
		copy[rule->flip_off - off] ^= 1;
	r = pass ? job->sink(job->sink_arg, off, copy, pass) : 0;
	free(copy);
	job->delivered += pass;
	if (r == 0 && pass < n) {
		/* The store counts what its sink took, and this piece it did not. */
		job->req->received += pass;
		r = err_origin(rule->error);
	}
	return r;
}

static int spoil_entry(void *arg, const char *key, size_t key_len,
		       const struct origin_attr *attr)
{
	struct job *job = arg;

	if (job->delivered++ == job->rule.cut_after)
		return err_origin(job->rule.error);
	return job->entry(job->entry_arg, key, key_len, attr);
}

static void finish(struct job *job, int result)
{
	struct origin_req *req = job->req;
	struct fault *f = job->fault;

	if (job->after_us)
		usleep((useconds_t)job->after_us);
	req->done = job->done;
	req->sink = job->sink;
	req->sink_arg = job->sink_arg;
	req->list.entry = job->entry;
	req->list.entry_arg = job->entry_arg;
	req->key_count = job->key_count;
	if (result < 0 && result == job->rule.error) {
		req->retry_after_ms = job->rule.retry_after_ms;
		why_set(&req->why, result, "fault injected: %s", strerror(-result));
	}
	lock_take(&f->lock);
	req->layer[ORIGIN_LAYER_FAULT] = NULL;
	lock_drop(&f->lock);
	free(job);
	origin_done(req, result);
}

static void below_done(struct origin_req *req)
{
	struct job *job = req->layer[ORIGIN_LAYER_FAULT];
	bool spoilt = job->rule.after || req->key_count < job->key_count;

	finish(job, spoilt && req->result == 0 ? job->rule.error : req->result);
}

static void pass_on(struct job *job)
{
	const struct fault_rule *rule = &job->rule;
	struct origin_req *req = job->req;
	bool cancelled;

	lock_take(&job->fault->lock);
	cancelled = job->cancelled;
	job->below = true;
	lock_drop(&job->fault->lock);
	if (cancelled) {
		finish(job, -ECANCELED);
		return;
	}
	if (rule->error && !rule->after && !rule->cut) {
		finish(job, rule->error);
		return;
	}
	if (req->sink && (rule->cut || rule->flip)) {
		req->sink = spoil;
		req->sink_arg = job;
	}
	if (req->list.entry && rule->cut) {
		req->list.entry = spoil_entry;
		req->list.entry_arg = job;
	}
	if (req->op == ORIGIN_DELETE_MANY && rule->cut &&
	    rule->cut_after < req->key_count)
		req->key_count = rule->cut_after;
	req->done = below_done;
	origin_submit(job->fault->below, req);
}

static void delay(void *arg)
{
	struct job *job = arg;
	uint64_t until = clock_mono_ms() + job->rule.delay_ms;

	lock_take(&job->fault->lock);
	while (!job->cancelled && clock_mono_ms() < until)
		lock_wait(&job->fault->lock, &job->fault->cond, until);
	lock_drop(&job->fault->lock);
	if (job->before_us)
		usleep((useconds_t)job->before_us);
	pass_on(job);
}

/* The rule for this request, counted; -1: none. */
static int choose_locked(struct fault *f, const struct origin_req *req)
{
	for (int i = 0; i < f->rule_count; i++) {
		const struct fault_rule *rule = &f->rules[i];

		if (rule->op != ORIGIN_OP_N && rule->op != req->op)
			continue;
		if (f->seen[i]++ < rule->skip)
			continue;
		if (rule->count && f->hits[i] >= rule->count)
			continue;
		f->hits[i]++;
		return i;
	}
	return -1;
}

static void fault_submit(struct origin *o, struct origin_req *req)
{
	struct fault *f = container_of(o, struct fault, origin);
	struct job *job = calloc(1, sizeof(*job));
	int chosen;
	bool waits;

	check(job);
	*job = (struct job){.fault = f,
			    .req = req,
			    .done = req->done,
			    .sink = req->sink,
			    .sink_arg = req->sink_arg,
			    .entry = req->list.entry,
			    .entry_arg = req->list.entry_arg,
			    .key_count = req->key_count};
	lock_take(&f->lock);
	chosen = choose_locked(f, req);
	if (chosen >= 0)
		job->rule = f->rules[chosen];
	if (f->jitter_us) {
		job->before_us = clock_random() % (f->jitter_us / 2 + 1);
		job->after_us = clock_random() % (f->jitter_us / 2 + 1);
	}
	waits = job->rule.delay_ms || f->jitter_us;
	if (chosen >= 0 || waits)
		req->layer[ORIGIN_LAYER_FAULT] = job;
	lock_drop(&f->lock);
	if (chosen < 0 && !waits) {
		free(job);
		origin_submit(f->below, req);
	} else if (waits) {
		worker_submit(f->delays, delay, job);
	} else {
		pass_on(job);
	}
}

static void fault_cancel(struct origin *o, struct origin_req *req)
{
	struct fault *f = container_of(o, struct fault, origin);
	struct job *job;

	lock_scope(&f->lock);
	job = req->layer[ORIGIN_LAYER_FAULT];
	if (job)
		job->cancelled = true;
	if (!job || job->below)
		origin_cancel(f->below, req);
	pthread_cond_broadcast(&f->cond);
}

static void fault_stats(struct origin *o, struct origin_stats *stats)
{
	struct fault *f = container_of(o, struct fault, origin);

	f->below->ops->stats(f->below, stats);
}

static void fault_free(struct origin *o)
{
	struct fault *f = container_of(o, struct fault, origin);

	worker_pool_free(f->delays);
	origin_free(f->below);
	pthread_cond_destroy(&f->cond);
	lock_fini(&f->lock);
	free(f);
}

static const struct origin_ops fault_ops = {
	.name = "fault",
	.submit = fault_submit,
	.cancel = fault_cancel,
	.stats = fault_stats,
	.free = fault_free,
};

int fault_origin_new(struct origin *below, struct origin **out)
{
	struct fault *f = calloc(1, sizeof(*f));
	int r = f ? 0 : err_origin(-ENOMEM);

	if (r == 0)
		r = worker_pool_new(&f->delays, "fault", DELAY_THREADS, DELAY_QUEUE_MAX);
	if (r < 0) {
		free(f);
		origin_free(below);
		return err_trace(r);
	}
	f->origin = *below;
	f->origin.ops = &fault_ops;
	f->below = below;
	lock_init(&f->lock);
	lock_cond_init(&f->cond);
	*out = &f->origin;
	return 0;
}

int fault_add(struct origin *o, const struct fault_rule *rule)
{
	struct fault *f = container_of(o, struct fault, origin);

	check(o->ops == &fault_ops);
	lock_scope(&f->lock);
	check(f->rule_count < FAULT_RULE_MAX);
	f->rules[f->rule_count] = *rule;
	f->seen[f->rule_count] = f->hits[f->rule_count] = 0;
	return f->rule_count++;
}

void fault_clear(struct origin *o)
{
	struct fault *f = container_of(o, struct fault, origin);

	check(o->ops == &fault_ops);
	lock_scope(&f->lock);
	f->rule_count = 0;
}

void fault_set_jitter(struct origin *o, uint64_t max_us)
{
	struct fault *f = container_of(o, struct fault, origin);

	check(o->ops == &fault_ops);
	lock_scope(&f->lock);
	f->jitter_us = max_us;
}

unsigned int fault_hits(struct origin *o, int rule)
{
	struct fault *f = container_of(o, struct fault, origin);

	check(o->ops == &fault_ops);
	lock_scope(&f->lock);
	check(rule >= 0 && rule < f->rule_count);
	return f->hits[rule];
}
