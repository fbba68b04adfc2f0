/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin's door: opening, the table of verbs, counters.
 * Threads: one HTTP loop. On close: all requests are done, says the contract; the loop is
 * stopped and credentials are wiped.
 */
#include "fs/backend/oss.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/creds.h"
#include "fs/backend/oss_op.h"
#include "fs/base/check.h"
#include "fs/base/list.h"
#include "fs/base/path.h"

#define CONNECTIONS_MAX 32
#define STALL_MS 30000
#define PART_SIZE_MIN 102400 /* protocol.md §3.14 */

static const struct {
	const struct oss_verb *verb;
	bool writes;
} verbs[] = {
	[ORIGIN_PROBE] = {&oss_verb_probe, false},
	[ORIGIN_STAT] = {&oss_verb_stat, false},
	[ORIGIN_GET] = {&oss_verb_get, false},
	[ORIGIN_LIST] = {&oss_verb_list, false},
	[ORIGIN_PUT] = {&oss_verb_put, true},
	[ORIGIN_APPEND] = {&oss_verb_append, true},
	[ORIGIN_COPY] = {&oss_verb_copy, true},
	[ORIGIN_DELETE] = {&oss_verb_delete, true},
	[ORIGIN_DELETE_MANY] = {&oss_verb_delete_many, true},
	[ORIGIN_MULTI_BEGIN] = {&oss_verb_multi_begin, true},
	[ORIGIN_MULTI_PART] = {&oss_verb_multi_part, true},
	[ORIGIN_MULTI_COPY] = {&oss_verb_multi_copy, true},
	[ORIGIN_MULTI_END] = {&oss_verb_multi_end, true},
	[ORIGIN_MULTI_ABORT] = {&oss_verb_multi_abort, true},
	[ORIGIN_MULTI_LIST] = {&oss_verb_multi_list, false},
};
static_assert(sizeof(verbs) / sizeof(*verbs) == ORIGIN_OP_N, "verbs");

static struct oss *oss_of(struct origin *o)
{
	return container_of(o, struct oss, origin);
}

static void submit(struct origin *o, struct origin_req *req)
{
	struct oss *oss = oss_of(o);
	int r = origin_req_check(req, &req->why);

	atomic_fetch_add_explicit(&oss->requests[req->op], 1, memory_order_relaxed);
	if (r == 0 && verbs[req->op].writes && oss->read_only)
		r = why_set(&req->why, err_origin(-EROFS), "%s is open for reading only",
			    oss->origin.name);
	if (r < 0) {
		atomic_fetch_add_explicit(&oss->failures, 1, memory_order_relaxed);
		origin_done(req, r);
		return;
	}
	oss_op_start(oss, req, verbs[req->op].verb);
}

static void cancel(struct origin *o, struct origin_req *req)
{
	struct oss *oss = oss_of(o);
	struct oss_op *op;

	lock_scope(&oss->lock);
	op = req->layer[ORIGIN_LAYER_STORE];
	if (!op)
		return;
	op->cancelled = true;
	http_cancel(oss->http, &op->x);
}

static void add_stats(struct origin *o, struct origin_stats *to)
{
	struct oss *oss = oss_of(o);
	struct origin_stats own = {
		.failures = atomic_load(&oss->failures),
		.bytes_in = atomic_load(&oss->bytes_in),
		.bytes_out = atomic_load(&oss->bytes_out),
		.crc_mismatches = atomic_load(&oss->crc_mismatches),
	};

	for (size_t i = 0; i < ORIGIN_OP_N; i++)
		own.requests[i] = atomic_load(&oss->requests[i]);
	origin_stats_add(to, &own);
}

static void free_oss(struct oss *oss)
{
	http_stop(oss->http);
	oss_signer_free(oss->signer);
	creds_close(oss->creds);
	free(oss->base_url);
	lock_fini(&oss->lock);
	free(oss);
}

static void free_origin(struct origin *o)
{
	free_oss(oss_of(o));
}

static const struct origin_ops ops = {
	.name = "oss",
	.submit = submit,
	.cancel = cancel,
	.stats = add_stats,
	.free = free_origin,
};

/* ---- opening ------------------------------------------------------------------------- */

static int copy_text(char *out, size_t out_size, const char *s, const char *what,
		     struct why *why)
{
	if (strlen(s) >= out_size)
		return why_set(why, err_origin(-EINVAL), "%s is too long", what);
	memcpy(out, s, strlen(s) + 1);
	return 0;
}

static int name_things(struct oss *oss, const struct oss_config *config, struct why *why)
{
	const char *scheme = config->tls ? "https" : "http";
	int r = copy_text(oss->bucket, sizeof(oss->bucket), config->bucket,
			  "the bucket's name", why);

	if (r >= 0)
		r = copy_text(oss->prefix, sizeof(oss->prefix), config->prefix,
			      "the prefix", why);
	if (r >= 0)
		r = copy_text(oss->region, sizeof(oss->region), config->region,
			      "the region", why);
	if (r < 0)
		return err_trace(r);
	if (config->signature == SIGNATURE_V4 && !*config->region)
		return why_set(
			why, err_origin(-EINVAL),
			"no region: say one with --region, the endpoint %s names none",
			config->host);
	switch (config->addressing) {
	case ADDRESSING_PATH:
		r = asprintf(&oss->base_url, "%s://%s/%s/", scheme, config->host,
			     oss->bucket);
		break;
	case ADDRESSING_CNAME:
		r = asprintf(&oss->base_url, "%s://%s/", scheme, config->host);
		break;
	default:
		r = asprintf(&oss->base_url, "%s://%s.%s/", scheme, oss->bucket,
			     config->host);
	}
	if (r < 0) {
		oss->base_url = NULL;
		return err_origin(-ENOMEM);
	}
	snprintf(oss->host, sizeof(oss->host), "%s", config->host);
	/* Cut when too long: it is for messages, and long before that an identity. */
	snprintf(oss->origin.name, sizeof(oss->origin.name), "oss://%.63s/%.180s",
		 oss->bucket, oss->prefix);
	return 0;
}

static int open_oss(struct oss *oss, const struct oss_config *config, struct creds *creds,
		    struct why *why)
{
	struct http_config http = {
		.ca_file = config->ca_file,
		.connections_max = config->connections_max ? config->connections_max
							   : CONNECTIONS_MAX,
		.stall_ms = config->timeout_ms ? config->timeout_ms : STALL_MS,
	};
	int r = name_things(oss, config, why);

	oss->origin.ops = &ops;
	oss->origin.caps = ORIGIN_CAP_MULTI | ORIGIN_CAP_MULTI_COPY | ORIGIN_CAP_APPEND |
			   ORIGIN_CAP_META | ORIGIN_CAP_CRC64;
	oss->origin.part_size_min = PART_SIZE_MIN;
	/* protocol.md §5.2 */
	oss->origin.key_max = PATH_KEY_MAX - (uint32_t)strlen(oss->prefix);
	oss->origin.key_is_utf8 = true;
	oss->origin.key_not_first = *oss->prefix ? '\0' : '\\';
	oss->v1 = config->signature == SIGNATURE_V1;
	oss->read_only = config->read_only;
	oss->stall_ms = http.stall_ms;
	if (r >= 0)
		r = oss_signer_new(creds, oss->v1 ? NULL : oss->region, &oss->signer);
	if (r >= 0)
		r = http_start(&http, &oss->http, why);
	return err_trace(r);
}

int oss_origin_open(const struct oss_config *config, struct origin **out, struct why *why)
{
	struct oss *oss = calloc(1, sizeof(*oss));
	int r;

	check(config->addressing != ADDRESSING_AUTO);
	if (!oss)
		return err_origin(-ENOMEM);
	lock_init(&oss->lock);
	oss->creds = config->creds;
	r = open_oss(oss, config, config->creds, why);
	if (r < 0) {
		oss->creds = NULL; /* stays the caller's */
		free_oss(oss);
		return err_trace(r);
	}
	*out = &oss->origin;
	return 0;
}

/* ---- buckets ------------------------------------------------------------------------- */

static void submit_make_bucket(struct origin *o, struct origin_req *req)
{
	oss_op_start(oss_of(o), req, &oss_verb_make_bucket);
}

int oss_bucket_create(const struct oss_config *config, struct why *why)
{
	static const struct origin_ops make_ops = {.name = "oss",
						   .submit = submit_make_bucket};
	struct origin_req req = {.op = ORIGIN_PROBE, .key = "(make bucket)"};
	struct origin *o = NULL;
	struct oss *oss;
	int r = oss_origin_open(config, &o, why);

	if (r < 0)
		return err_trace(r);
	check(o);
	oss = oss_of(o);
	o->ops = &make_ops;
	r = origin_call(o, &req);
	if (r < 0)
		why_set(why, r, "%s", req.why.text);
	oss->creds = NULL;
	free_oss(oss);
	return err_trace(r);
}
