/* SPDX-License-Identifier: Apache-2.0 */
/* trace: while the area is off, requests pass by without a job of their own. */
#include "fs/backend/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin.h"
#include "fs/base/clock.h"
#include "fs/base/list.h"
#include "fs/base/log.h"

struct trace {
	struct origin origin;
	struct origin *below;
};

struct job {
	origin_done_fn done;
	uint64_t start_ns;
	uint64_t off; /* as asked: APPEND changes it */
};

static const char *result_name(int r)
{
	const char *name = r < 0 ? strerrorname_np(-r) : "ok";

	return name ? name : "error";
}

static void write_line(const struct origin_req *req, const struct job *job)
{
	uint64_t us = (clock_mono_ns() - job->start_ns) / 1000;
	char key[256], len[24] = "";

	if (req->op == ORIGIN_GET && req->len != ORIGIN_TO_END)
		snprintf(len, sizeof(len), "%" PRIu64, req->len);
	log_debug(LOG_ORIGIN,
		  "%s key=\"%s\" off=%" PRIu64 " len=%s body=%" PRIu64
		  " received=%" PRIu64 " result=%s ms=%" PRIu64 ".%03" PRIu64
		  " request_id=%s",
		  origin_op_name(req->op),
		  log_escape(key, sizeof(key), req->key ? req->key : ""), job->off, len,
		  req->body.len, req->received, result_name(req->result), us / 1000,
		  us % 1000, req->request_id[0] ? req->request_id : "-");
}

static void trace_done(struct origin_req *req)
{
	struct job *job = req->layer[ORIGIN_LAYER_TRACE];

	write_line(req, job);
	req->layer[ORIGIN_LAYER_TRACE] = NULL;
	req->done = job->done;
	free(job);
	req->done(req);
}

static void trace_submit(struct origin *o, struct origin_req *req)
{
	struct trace *t = container_of(o, struct trace, origin);
	struct job *job = log_debug_on(LOG_ORIGIN) ? malloc(sizeof(*job)) : NULL;

	if (job) {
		*job = (struct job){req->done, clock_mono_ns(), req->off};
		req->layer[ORIGIN_LAYER_TRACE] = job;
		req->done = trace_done;
	}
	origin_submit(t->below, req);
}

static void trace_cancel(struct origin *o, struct origin_req *req)
{
	origin_cancel(container_of(o, struct trace, origin)->below, req);
}

static void trace_stats(struct origin *o, struct origin_stats *stats)
{
	struct trace *t = container_of(o, struct trace, origin);

	t->below->ops->stats(t->below, stats);
}

static void trace_free(struct origin *o)
{
	struct trace *t = container_of(o, struct trace, origin);

	origin_free(t->below);
	free(t);
}

static const struct origin_ops trace_ops = {
	.name = "trace",
	.submit = trace_submit,
	.cancel = trace_cancel,
	.stats = trace_stats,
	.free = trace_free,
};

int trace_origin_new(struct origin *below, struct origin **out)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t) {
		origin_free(below);
		return err_origin(-ENOMEM);
	}
	t->origin = *below;
	t->origin.ops = &trace_ops;
	t->below = below;
	*out = &t->origin;
	return 0;
}
