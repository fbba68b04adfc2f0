/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_dispatch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/clock.h"
#include "tools/ossd_auth.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_request.h"
#include "tools/ossd_s3.h"
#include "tools/ossd_stats.h"
#include "tools/ossd_time.h"
#include "tools/ossd_xml.h"

#define TRAFFIC_MIN 819200 /* bits per second (protocol.md §3.8) */
#define TRAFFIC_MAX 838860800

static bool refuse(struct ossd_request *req, int code, const char *message)
{
	ossd_reply_error(req, code, message);
	return false;
}

/* ---- permission ------------------------------------------------------------------------ */

/* The ACL that counts for this request: the object's, unless it is "default". */
static int effective_acl(struct ossd_request *req, enum ossd_acl *acl)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	struct ossd_bucket bucket;
	const char *name;
	int r = ossd_store_bucket(req->context->store, req->target.bucket, &bucket);

	if (r)
		return r;
	*acl = bucket.acl;
	if (req->op->level != OSSD_OBJECT || req->op->access == OSSD_ACCESS_WRITE)
		return 0;
	r = ossd_store_head(req->context->store, &ref, &o);
	if (r)
		return r == OSSD_E_NO_SUCH_KEY ? 0 : r;
	name = ossd_object_attr(&o, "x-oss-object-acl");
	if (name && strcmp(name, "default") != 0)
		ossd_acl_parse(name, acl);
	ossd_object_fini(&o);
	return 0;
}

static int check_anonymous(struct ossd_request *req)
{
	enum ossd_acl acl = OSSD_ACL_PRIVATE;
	int r;

	if (req->op->access == OSSD_ACCESS_OWNER || !req->target.bucket[0])
		return OSSD_E_ANONYMOUS;
	r = effective_acl(req, &acl);
	if (r)
		return r;
	if (acl == OSSD_ACL_READ_WRITE ||
	    (acl == OSSD_ACL_READ && req->op->access == OSSD_ACCESS_READ))
		return 0;
	return OSSD_E_ANONYMOUS;
}

static int authenticate(struct ossd_request *req, const char **message)
{
	struct ossd_auth auth = {
		.accounts = req->context->accounts,
		.region = req->context->region_required,
		.clock_check = req->context->clock_check,
		.now_ms = ossd_request_now_ms(req),
		.method = req->method,
		.target = req->s3 ? &req->s3->target : &req->target,
		.headers = req->s3 ? req->s3->headers : req->headers,
		.header_count = req->s3 ? req->s3->header_count : req->header_count,
	};
	int r;

	if (!auth.accounts)
		return 0;
	r = ossd_auth_check(&auth, &req->account, message, &req->error_extra);
	if (r || req->account)
		return r;
	return check_anonymous(req);
}

/* ---- body ------------------------------------------------------------------------------ */

/* x-oss-traffic-limit, a header or a parameter: bits per second. It is a bandwidth fault
 * that the client asks for. */
static int limit_traffic(struct ossd_request *req)
{
	const char *text = ossd_request_header(req, "x-oss-traffic-limit");
	uint64_t bits;
	char *end;

	if (!text)
		text = ossd_request_query(req, "x-oss-traffic-limit");
	if (!text)
		return 0;
	bits = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || bits < TRAFFIC_MIN ||
	    bits > TRAFFIC_MAX)
		return OSSD_E_INVALID_ARGUMENT;
	if (!req->faults.rate || bits / 8 < req->faults.rate)
		req->faults.rate = bits / 8;
	req->faults.set |= 1ull << OSSD_FAULT_BANDWIDTH;
	return 0;
}

static int expect_body(struct ossd_request *req)
{
	struct ossd_bucket bucket;
	int r;

	const char *length = ossd_request_header(req, "content-length");
	uint64_t max = req->op->body == OSSD_BODY_SPOOL ? OSSD_OBJECT_MAX
							: (uint64_t)OSSD_XML_MAX;

	if (length && strtoull(length, NULL, 10) > max)
		return OSSD_E_ENTITY_TOO_LARGE;
	if (req->op->body != OSSD_BODY_SPOOL)
		return 0;
	if (!length && !ossd_request_header(req, "transfer-encoding"))
		return OSSD_E_MISSING_LENGTH;
	r = ossd_store_bucket(req->context->store, req->target.bucket, &bucket);
	return r ? r : ossd_store_spool(req->context->store, &req->spool);
}

bool ossd_dispatch_body(struct ossd_request *req, const char *data, size_t n)
{
	int r = ossd_s3_body(req->s3, data, n);

	req->received += n;
	if (r == 0 && req->op->body == OSSD_BODY_SPOOL) {
		if (req->received > OSSD_OBJECT_MAX)
			r = OSSD_E_ENTITY_TOO_LARGE;
		else
			r = ossd_spool_write(&req->spool, data, n);
	} else if (r == 0 && req->op->body == OSSD_BODY_MEMORY) {
		if (req->received > OSSD_XML_MAX)
			r = OSSD_E_ENTITY_TOO_LARGE;
		else
			buf_append(&req->body, data, n);
	}
	return r == 0 || refuse(req, r, NULL);
}

/* ---- the way of a request -------------------------------------------------------------- */

static void name_request(struct ossd_request *req)
{
	req->start_ns = clock_mono_ns();
	snprintf(req->id, sizeof(req->id), "%016" PRIX64 "%08" PRIX32, clock_random(),
		 (uint32_t)clock_random());
}

bool ossd_dispatch_begin(struct ossd_request *req, const char *raw_target)
{
	const char *message = NULL;
	int bad, r;

	name_request(req);
	bad = ossd_target_parse(&req->target, raw_target,
				ossd_request_header(req, "host"), req->context->suffixes,
				req->context->suffix_count);
	if (!bad)
		bad = ossd_s3_begin(req);
	r = bad ? bad : ossd_op_find(req, &req->op);
	if (r == 0)
		r = ossd_s3_check_op(req);
	ossd_stats_begin(req->context->stats,
			 req->op && !bad ? req->op->name : "Unknown");
	if (r) {
		req->op = NULL;
		return refuse(req, r, NULL);
	}
	ossd_fault_match(req->context->faults, req->op->name,
			 req->target.key.data ? req->target.key.data : "", &req->faults);
	if (ossd_faults_has(&req->faults, OSSD_FAULT_STATUS) ||
	    ossd_faults_has(&req->faults, OSSD_FAULT_EXPIRED_TOKEN)) {
		ossd_reply_fault(req, &req->faults);
		return false;
	}
	r = authenticate(req, &message);
	if (r == 0)
		r = limit_traffic(req);
	if (r == 0)
		r = expect_body(req);
	return r == 0 || refuse(req, r, message);
}

void ossd_dispatch_run(struct ossd_request *req)
{
	int r = ossd_s3_body_end(req->s3);

	req->reply.status = 200;
	if (r == 0 && req->spool.fd >= 0)
		r = ossd_spool_finish(&req->spool);
	if (r == 0)
		r = buf_error(&req->body);
	if (r == 0)
		r = req->op->run(req);
	if (r == 0)
		r = buf_error(&req->reply.body);
	if (r)
		ossd_reply_error(req, r, NULL);
	else if (ossd_faults_has(&req->faults, OSSD_FAULT_COMMIT_THEN_500))
		ossd_reply_fault(req, &req->faults);
}

void ossd_dispatch_finish(struct ossd_request *req)
{
	char date[OSSD_TIME_SIZE];

	ossd_reply_header(req, "Server", "AliyunOSS");
	ossd_reply_header(req, "x-oss-request-id", req->id);
	ossd_reply_header_uint(req, "x-oss-server-time",
			       (clock_mono_ns() - req->start_ns) / 1000000);
	ossd_reply_header(req, "Date", ossd_time_http(date, ossd_request_now_ms(req)));
	if (req->s3)
		ossd_s3_reply(req);
	for (int i = 0; i < req->faults.header_count; i++)
		ossd_reply_header(req, req->faults.header_names[i],
				  req->faults.header_values[i]);
}
