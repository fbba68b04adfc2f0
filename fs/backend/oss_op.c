/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame every request goes through.
 *
 * Happy path: oss_op_start() lets the verb build the exchange, send() signs it and gives it
 * to the HTTP loop; settle() gives the answer to the verb; end() hands the request back.
 * Building and signing of the first exchange run in the thread that submits, everything
 * after it in the loop's.
 *
 * Failure modes: every failure becomes an errno value of cache/origin.h with a sentence
 * that names the operation, the key, what the store said and its request id. A verb may
 * look at a failure once more (a lost answer may have been a success).
 *
 * Cancelling: layer[ORIGIN_LAYER_STORE] of the request leads to the op while there is one;
 * the origin's lock makes cancel, the next exchange and the end exclude each other.
 */
#include "fs/backend/oss_op.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_error.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/log.h"
#include "fs/base/path.h"

#define DEADLINE_MS 300000u         /* without one of the caller's */
#define SLOWEST_BYTES_PER_MS 128u   /* and this much time for the bytes */
#define BODY_KEPT_MAX 65536u        /* of an error's text */
#define BODY_SKIPPED_MAX (1u << 20) /* an error's text beyond that is an attack */
#define THROTTLE_MS 1000u           /* when the store names no time (protocol.md §6.3) */

static struct oss_op *op_of(struct http_exchange *x)
{
	return container_of(x, struct oss_op, x);
}

/* ---- sentences ----------------------------------------------------------------------- */

int oss_op_why(struct oss_op *op, int r, const char *what)
{
	struct origin_req *req = op->req;
	char status[96] = "";
	const char *id = op->reply.request_id;

	if (op->x.status)
		snprintf(status, sizeof(status), "%d%s%s", op->x.status,
			 op->error.code[0] ? " " : "", op->error.code);
	if (op->error.request_id[0] && !*id)
		id = op->error.request_id;
	if (!*status && !*id)
		return why_set(&req->why, err_origin(r), "%s %.80s: %.120s (%.60s)",
			       origin_op_name(req->op), req->key ? req->key : "", what,
			       op->oss->host);
	return why_set(
		&req->why, err_origin(r), "%s %.80s: %.80s (%.40s, request %.30s%s%s)",
		origin_op_name(req->op), req->key ? req->key : "", what, status,
		*id ? id : "without id", op->reply.ec[0] ? ", EC " : "", op->reply.ec);
}

int oss_op_check_crc(struct oss_op *op, uint64_t ours)
{
	char text[96];

	if (!op->reply.has_crc64 || op->reply.crc64 == ours)
		return 0;
	atomic_fetch_add(&op->oss->crc_mismatches, 1);
	snprintf(text, sizeof(text), "CRC-64 is %" PRIu64 ", the store says %" PRIu64,
		 ours, op->reply.crc64);
	return oss_op_why(op, -EBADMSG, text);
}

/* ---- signing and sending ------------------------------------------------------------- */

/* The same encoding on the wire and in the signature. */
static int put_url(struct oss_op *op, const struct oss_sign_request *s)
{
	_cleanup_(buf_fini) struct buf url = BUF_INIT;
	int r = 0;

	buf_puts(&url, op->oss->base_url);
	if (op->key)
		oss_encode(&url, op->key, s->key_len, true);
	if (s->query_count) {
		buf_putc(&url, '?');
		r = oss_canonical_query(&url, s);
	}
	if (r >= 0)
		r = buf_error(&url);
	if (r < 0)
		return err_trace(r);
	op->x.url = arena_copy(&op->arena, url.data, url.len);
	return err_trace(arena_error(&op->arena));
}

static int authorize(struct oss_op *op, const struct oss_sign_request *parts,
		     const char *date)
{
	_cleanup_(buf_fini) struct buf value = BUF_INIT;
	const struct creds_set *set = &op->grant->set;
	struct oss_scope scope = {op->oss->region, "oss", date, OSS_DIALECT_OSS};
	struct oss_credentials credentials = {set->id, set->secret, set->token};
	struct oss_pair pairs[HTTP_HEADERS_MAX];
	struct oss_sign_request s = *parts;
	int r;

	for (size_t i = 0; i < op->x.header_count; i++)
		pairs[i] = (struct oss_pair){op->headers[i].name, op->headers[i].value};
	s.headers = pairs;
	s.header_count = op->x.header_count;
	if (op->oss->v1)
		r = oss_v1_authorization(&value, &s, &credentials, date);
	else
		r = oss_v4_authorization_keyed(&value, &s, set->id, &op->grant->key,
					       &scope);
	if (r < 0)
		return err_trace(r);
	op->headers[op->x.header_count++] = (struct http_header){
		"Authorization", arena_copy(&op->arena, value.data, value.len)};
	return 0;
}

static int sign(struct oss_op *op, const struct oss_sign_request *s)
{
	struct oss *oss = op->oss;
	int64_t now = clock_real_ns() + atomic_load(&oss->clock_offset_ns);
	char basic[OSS_TIME_SIZE], http[OSS_TIME_SIZE];
	struct http_header *h = op->headers;
	const char *date;
	int r;

	oss_time_format_basic(basic, now);
	oss_time_format_http(http, now);
	oss_signer_put(oss->signer, op->grant);
	op->grant = NULL;
	r = oss_signer_get(oss->signer, basic, &op->grant);
	if (r < 0)
		return oss_op_why(
			op, r,
			r == -EKEYEXPIRED
				? "the credentials have expired and are being renewed"
				: "the store has refused the credentials");
	op->x.header_count = op->header_count;
	if (!op->grant->set.id[0])
		return 0;
	date = oss_op_text(op, "%s", oss->v1 ? http : basic);
	check(op->header_count + 4 <= HTTP_HEADERS_MAX);
	h[op->x.header_count++] =
		(struct http_header){oss->v1 ? "Date" : "x-oss-date", date};
	if (!oss->v1)
		h[op->x.header_count++] =
			(struct http_header){"x-oss-content-sha256", "UNSIGNED-PAYLOAD"};
	if (op->grant->set.token[0])
		h[op->x.header_count++] = (struct http_header){"x-oss-security-token",
							       op->grant->set.token};
	return err_trace(authorize(op, s, date));
}

static void forget_answer(struct oss_op *op)
{
	oss_reply_reset(&op->reply);
	op->error = (struct oss_error){0};
	buf_reset(&op->body);
	op->crc_sent = op->crc_received = 0;
	op->expected = op->got = 0;
	op->accepted = op->sent_twice = false;
	op->x.status = 0;
	op->req->why.text[0] = '\0';
	op->req->retry_after_ms = 0;
}

static void on_header(struct http_exchange *x, const char *name, size_t name_len,
		      const char *value, size_t value_len);
static int on_receive(struct http_exchange *x, const void *data, size_t n);
static void on_sending(struct http_exchange *x, const void *data, size_t n);
static void on_done(struct http_exchange *x);

static const struct http_hooks hooks = {on_header, on_receive, on_sending, on_done};

/* Once it returns 0 the op may be gone already. */
static int send_exchange(struct oss_op *op)
{
	struct oss_sign_request s = {.method = http_method_name(op->method),
				     .bucket = op->oss->bucket,
				     .key = op->key,
				     .key_len = op->key ? strlen(op->key) : 0,
				     .query = op->query,
				     .query_count = op->query_count};
	struct oss *oss = op->oss;
	int r = op->build_error;

	if (r < 0)
		return err_trace(r);
	forget_answer(op);
	if (s.key_len > PATH_KEY_MAX)
		return oss_op_why(op, -EINVAL, "the key is longer than 1023 bytes");
	r = put_url(op, &s);
	if (r >= 0)
		r = sign(op, &s);
	if (r >= 0)
		r = arena_error(&op->arena);
	if (r < 0)
		return err_trace(r);
	op->x.method = op->method;
	op->x.headers = op->headers;
	op->x.body = op->body_out;
	op->x.deadline_ms = op->deadline_ms;
	op->x.stall_ms = op->stall_ms;
	op->x.background = op->req->background;
	op->x.hooks = &hooks;
	lock_scope(&oss->lock);
	if (op->cancelled)
		return oss_op_why(op, -ECANCELED, "cancelled");
	http_submit(oss->http, &op->x);
	return 0;
}

/* ---- the answer ---------------------------------------------------------------------- */

static void on_header(struct http_exchange *x, const char *name, size_t name_len,
		      const char *value, size_t value_len)
{
	oss_reply_header(&op_of(x)->reply, name, name_len, value, value_len);
}

static int on_receive(struct http_exchange *x, const void *data, size_t n)
{
	struct oss_op *op = op_of(x);
	bool good = x->status / 100 == 2;

	atomic_fetch_add_explicit(&op->oss->bytes_in, n, memory_order_relaxed);
	if (good && op->verb->receive)
		return op->verb->receive(op, data, n);
	if (!good && x->received + n > BODY_SKIPPED_MAX)
		return oss_op_why(op, -EBADMSG, "the text of an error has no end");
	if (good && op->body.len + n > OSS_XML_SIZE_MAX)
		return oss_op_why(op, -EBADMSG, "the answer has no end");
	if (good || op->body.len + n <= BODY_KEPT_MAX)
		buf_append(&op->body, data, n);
	return err_trace(buf_error(&op->body));
}

static void on_sending(struct http_exchange *x, const void *data, size_t n)
{
	struct oss_op *op = op_of(x);

	op->crc_sent = data ? crc64(op->crc_sent, data, n) : 0;
	op->sent_twice |= !data;
	atomic_fetch_add_explicit(&op->oss->bytes_out, n, memory_order_relaxed);
}

static void correct_clock(struct oss_op *op)
{
	int64_t offset = op->reply.date_ns - clock_real_ns();

	op->clock_corrected = true;
	atomic_store(&op->oss->clock_offset_ns, offset);
	log_info("clock of the store differs from=%s seconds=%" PRId64, op->oss->host,
		 offset / 1000000000);
}

/* The body when it is XML; on HEAD the header that stands for it. */
static void read_error(struct oss_op *op)
{
	if (op->body.len)
		(void)!oss_xml_parse_error(op->body.data, op->body.len, &op->error, NULL);
	if (!op->error.code[0] && op->reply.error.len)
		(void)!oss_xml_parse_error(op->reply.error.data, op->reply.error.len,
					   &op->error, NULL);
	if (!op->reply.ec[0])
		memcpy(op->reply.ec, op->error.ec, sizeof(op->reply.ec));
}

static int refused_sentence(struct oss_op *op, int r)
{
	char text[192];

	if (op->error.endpoint[0] && strcmp(op->error.code, "AccessDenied") == 0) {
		snprintf(text, sizeof(text), "the bucket's endpoint is %.70s",
			 op->error.endpoint);
		return oss_op_why(op, -EINVAL, text);
	}
	if (op->x.status / 100 == 3)
		return oss_op_why(op, r, "a redirect, which is never followed");
	if (op->error.message[0])
		return oss_op_why(op, r, op->error.message);
	return oss_op_why(op, r, strerror(-r));
}

static int refused(struct oss_op *op)
{
	struct oss_error_meaning meaning;
	int r;

	read_error(op);
	meaning = oss_error_meaning(op->x.status, op->error.code);
	r = meaning.errno_value;
	op->req->retry_after_ms = op->reply.retry_after_ms;
	switch (meaning.kind) {
	case OSS_ERROR_SKEW:
		if (!op->clock_corrected && op->reply.date_ns) {
			correct_clock(op);
			return OSS_E_AGAIN;
		}
		break;
	case OSS_ERROR_CREDENTIALS:
		if (op->grant && op->grant->set.id[0])
			r = creds_invalidate(op->oss->creds, &op->grant->set);
		break;
	case OSS_ERROR_THROTTLED:
		if (!op->req->retry_after_ms)
			op->req->retry_after_ms = THROTTLE_MS;
		break;
	default:
		break;
	}
	return refused_sentence(op, r);
}

int oss_op_outcome(struct oss_op *op, struct oss_outcome *out)
{
	const char *xml = op->body.data ? op->body.data : "";
	struct why why;

	if (oss_xml_parse_outcome(xml, op->body.len, out, &why) == 0)
		return 0;
	read_error(op);
	if (op->error.code[0])
		return oss_op_why(op, oss_error_meaning(500, op->error.code).errno_value,
				  op->error.message);
	return oss_op_why(op, -EBADMSG, why.text);
}

static int settle(struct oss_op *op)
{
	int r;

	log_debug(LOG_OSS, "exchange op=%s method=%s status=%d result=%d request=%s",
		  origin_op_name(op->req->op), http_method_name(op->method), op->x.status,
		  op->x.result, op->reply.request_id);
	if (op->reply.request_id[0])
		memcpy(op->req->request_id, op->reply.request_id,
		       sizeof(op->req->request_id));
	if (op->x.result < 0) {
		r = op->x.result;
		if (!op->req->why.text[0])
			oss_op_why(op, r,
				   op->x.why.text[0] ? op->x.why.text : strerror(-r));
	} else if (op->x.status / 100 == 2) {
		r = op->verb->finish(op);
	} else {
		r = refused(op);
	}
	if (r < 0 && r != -ECANCELED && op->verb->failed)
		r = op->verb->failed(op, r);
	return r;
}

/* ---- from start to end --------------------------------------------------------------- */

static void end(struct oss_op *op, int r)
{
	struct origin_req *req = op->req;
	struct oss *oss = op->oss;

	lock_take(&oss->lock);
	req->layer[ORIGIN_LAYER_STORE] = NULL;
	lock_drop(&oss->lock);
	if (r < 0)
		atomic_fetch_add(&oss->failures, 1);
	oss_signer_put(oss->signer, op->grant);
	arena_fini(&op->arena);
	oss_reply_fini(&op->reply);
	buf_fini(&op->body);
	buf_fini(&op->payload);
	free(op->page.token);
	free(op->page.upload_id);
	free(op->remove.left);
	free(op);
	origin_done(req, r);
}

static void on_done(struct http_exchange *x)
{
	struct oss_op *op = op_of(x);
	int r = settle(op);

	if (r == OSS_E_AGAIN) {
		r = send_exchange(op);
		if (r == 0)
			return;
	}
	end(op, r > 0 ? 0 : r);
}

static uint64_t deadline_of(const struct origin_req *req)
{
	uint64_t bytes = req->body.len;

	if (req->deadline_ms)
		return req->deadline_ms;
	if (req->op == ORIGIN_GET && req->len != ORIGIN_TO_END)
		bytes += req->len;
	return clock_mono_ms() + DEADLINE_MS + bytes / SLOWEST_BYTES_PER_MS;
}

void oss_op_start(struct oss *oss, struct origin_req *req, const struct oss_verb *verb)
{
	struct oss_op *op = calloc(1, sizeof(*op));
	int r;

	if (!op) {
		origin_done(req, err_origin(-ENOMEM));
		return;
	}
	op->oss = oss;
	op->req = req;
	op->verb = verb;
	op->deadline_ms = deadline_of(req);
	arena_init(&op->arena);
	lock_take(&oss->lock);
	req->layer[ORIGIN_LAYER_STORE] = op;
	lock_drop(&oss->lock);
	r = verb->build(op);
	if (r == 0) {
		r = send_exchange(op);
		if (r == 0)
			return;
	}
	end(op, r > 0 ? 0 : r);
}
