/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs on one object: stat, get, put, append, copy, delete. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fs/backend/oss_confirm.h"
#include "fs/backend/oss_op.h"
#include "fs/base/check.h"
#include "fs/base/crc.h"

static void if_match(struct oss_op *op)
{
	if (op->req->if_match)
		oss_op_header(op, "If-Match",
			      oss_op_text(op, "\"%s\"", op->req->if_match));
}

/* A store that ignores If-Match must not get another version past us. */
static int check_version(struct oss_op *op)
{
	const char *expected = op->req->if_match;

	if (!expected || oss_etag_equal(expected, op->reply.etag))
		return 0;
	return oss_op_why(op, -ESTALE, "the object has changed");
}

/* ---- stat ---------------------------------------------------------------------------- */

static int build_stat(struct oss_op *op)
{
	oss_op_on_key(op, HTTP_HEAD, op->req->key);
	if_match(op);
	return 0;
}

static int finish_stat(struct oss_op *op)
{
	struct origin_req *req = op->req;
	int r = check_version(op);

	if (r < 0)
		return err_trace(r);
	if (!op->reply.has_length)
		return oss_op_why(op, -EBADMSG, "the store does not say how large it is");
	oss_reply_attr(&op->reply, req->key, op->reply.length, &req->attr);
	if (req->want_meta)
		oss_posix_apply(&op->reply.posix, req->attr.is_dir, &req->attr);
	return 0;
}

const struct oss_verb oss_verb_stat = {.build = build_stat, .finish = finish_stat};

/* ---- get ----------------------------------------------------------------------------- */

static int build_get(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	oss_op_on_key(op, HTTP_GET, req->key);
	if_match(op);
	if (!req->off && req->len == ORIGIN_TO_END)
		return 0;
	if (req->len == ORIGIN_TO_END)
		oss_op_header(op, "Range",
			      oss_op_text(op, "bytes=%" PRIu64 "-", req->off));
	else
		oss_op_header(op, "Range",
			      oss_op_text(op, "bytes=%" PRIu64 "-%" PRIu64, req->off,
					  req->off + req->len - 1));
	/* Without it a range past the end is answered with the whole object (§3.9). */
	oss_op_header(op, "x-oss-range-behavior", "standard");
	return 0;
}

/* Where the answer's bytes belong; *size is the object's. */
static int check_range(struct oss_op *op, uint64_t *size)
{
	const struct origin_req *req = op->req;
	const struct oss_range *range = &op->reply.range;
	uint64_t last = req->len == ORIGIN_TO_END ? UINT64_MAX : req->off + req->len - 1;

	if (op->x.status == 206) {
		if (!op->reply.has_range || range->unsatisfied ||
		    range->first != req->off || range->last > last ||
		    (range->last < last && range->last != range->size - 1))
			return oss_op_why(op, -EBADMSG, "another range than asked for");
		*size = range->size;
		op->expected = range->last - range->first + 1;
	} else {
		/* The whole object: good enough where that is what we want. */
		if (!op->reply.has_length)
			return oss_op_why(op, -EBADMSG, "an answer without a length");
		if (req->off || op->reply.length > req->len)
			return oss_op_why(op, -EBADMSG, "the range was ignored");
		*size = op->expected = op->reply.length;
	}
	if (op->reply.has_length && op->reply.length != op->expected)
		return oss_op_why(op, -EBADMSG, "length and range contradict each other");
	return 0;
}

/* Before the first byte: nothing of a wrong answer reaches the sink. */
static int accept_answer(struct oss_op *op)
{
	struct origin_req *req = op->req;
	uint64_t size = 0;
	int r = check_version(op);

	if (r >= 0)
		r = check_range(op, &size);
	if (r < 0)
		return err_trace(r);
	oss_reply_attr(&op->reply, req->key, size, &req->attr);
	op->accepted = true;
	return 0;
}

static bool is_whole(const struct oss_op *op)
{
	return !op->req->off && op->expected == op->req->attr.size;
}

static int receive_get(struct oss_op *op, const void *data, size_t n)
{
	struct origin_req *req = op->req;
	int r = op->accepted ? 0 : accept_answer(op);

	if (r < 0)
		return err_trace(r);
	if (n > op->expected - op->got)
		return oss_op_why(op, -EBADMSG, "more bytes than announced");
	if (op->reply.has_crc64 && is_whole(op))
		op->crc_received = crc64(op->crc_received, data, n);
	r = req->sink(req->sink_arg, req->off + op->got, data, n);
	if (r < 0)
		return err_trace(r);
	op->got += n;
	req->received += n;
	return 0;
}

static int finish_get(struct oss_op *op)
{
	int r = op->accepted ? 0 : accept_answer(op);

	if (r < 0)
		return err_trace(r);
	if (op->got != op->expected)
		return oss_op_why(op, -EBADMSG, "fewer bytes than announced");
	return is_whole(op) ? oss_op_check_crc(op, op->crc_received) : 0;
}

/* A range that starts at or past the end brings nothing, and that is no failure. */
static int failed_get(struct oss_op *op, int r)
{
	struct origin_req *req = op->req;
	const struct oss_range *range = &op->reply.range;
	int stale;

	if (op->x.result < 0 || op->x.status != 416 || op->got)
		return r;
	stale = *op->reply.etag ? check_version(op) : 0;
	if (stale < 0)
		return err_trace(stale);
	if (op->reply.has_range && range->size > req->off)
		return oss_op_why(op, -EBADMSG, "a range inside the object was refused");
	req->why.text[0] = '\0';
	if (op->reply.has_range)
		oss_reply_attr(&op->reply, req->key, range->size, &req->attr);
	else
		req->attr = (struct origin_attr){0};
	return 0;
}

const struct oss_verb oss_verb_get = {build_get, receive_get, finish_get, failed_get};

/* ---- put ----------------------------------------------------------------------------- */

static int build_put(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	oss_op_on_key(op, HTTP_PUT, req->key);
	oss_op_meta(op, req->key);
	if (req->if_none_match)
		oss_op_header(op, "x-oss-forbid-overwrite", "true");
	if (req->has_expect_crc64)
		oss_op_header(op, "x-oss-hash-crc64ecma",
			      oss_op_text(op, "%" PRIu64, req->expect_crc64));
	oss_op_send_body(op, &req->body);
	return 0;
}

/* See what is there, and call it success only when it is what was sent. */
static int confirm_put(struct oss_op *op, int original)
{
	op->confirm.has_crc64 = true;
	op->confirm.crc64 = op->crc_sent;
	op->confirm.size = op->req->body.len;
	memcpy(op->confirm.etag, op->reply.etag, sizeof(op->confirm.etag));
	return oss_confirm(op, original);
}

static int finish_put(struct oss_op *op)
{
	struct origin_req *req = op->req;
	int r;

	if (req->has_expect_crc64 && req->expect_crc64 != op->crc_sent)
		return oss_op_why(op, -EBADMSG,
				  "the body has another checksum than it should");
	oss_reply_attr(&op->reply, req->key, req->body.len, &req->attr);
	r = oss_op_check_crc(op, op->crc_sent);
	if (r < 0 || op->reply.has_crc64)
		return err_trace(r);
	return confirm_put(op,
			   oss_op_why(op, -EBADMSG,
				      "the store gives no checksum, and does not have "
				      "what was sent"));
}

/* What stands in the way may be ourselves. */
static int failed_put(struct oss_op *op, int r)
{
	return r == -EEXIST && op->sent_twice ? confirm_put(op, r) : r;
}

const struct oss_verb oss_verb_put = {
	.build = build_put, .finish = finish_put, .failed = failed_put};

/* ---- append -------------------------------------------------------------------------- */

static int build_append(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	oss_op_on_key(op, HTTP_POST, req->key);
	oss_op_query(op, "append", NULL);
	oss_op_query(op, "position", oss_op_text(op, "%" PRIu64, req->off));
	if (!req->off)
		oss_op_meta(op, req->key);
	oss_op_send_body(op, &req->body);
	return 0;
}

static int finish_append(struct oss_op *op)
{
	struct origin_req *req = op->req;
	uint64_t length = req->off + req->body.len;
	int r = 0;

	if (op->reply.has_next_position && op->reply.next_position != length)
		return oss_op_why(op, -EBADMSG, "the store counts another length");
	/* The answer's checksum is of all that was ever appended. */
	if (!req->off)
		r = oss_op_check_crc(op, op->crc_sent);
	else if (req->has_expect_crc64)
		r = oss_op_check_crc(op, req->expect_crc64);
	if (r < 0)
		return err_trace(r);
	oss_reply_attr(&op->reply, req->key, length, &req->attr);
	req->off = length;
	return 0;
}

static int failed_append(struct oss_op *op, int r)
{
	if (strcmp(op->error.code, "PositionNotEqualToLength") == 0 &&
	    op->reply.has_next_position)
		op->req->off = op->reply.next_position;
	return r;
}

const struct oss_verb oss_verb_append = {
	.build = build_append, .finish = finish_append, .failed = failed_append};

/* ---- copy ---------------------------------------------------------------------------- */

static int build_copy(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	/* Onto itself the store would take the request's metadata, of which there is none
	 * (§3.12): a copy that changes nothing is only looked up. */
	if (!req->meta && strcmp(req->key, req->source) == 0) {
		op->verb = &oss_verb_stat;
		return build_stat(op);
	}
	oss_op_on_key(op, HTTP_PUT, req->key);
	oss_op_copy_source(op);
	if (req->meta) {
		oss_op_header(op, "x-oss-metadata-directive", "REPLACE");
		oss_op_meta(op, req->key);
	}
	op->stall_ms = OSS_SLOW_ANSWER_MS;
	return 0;
}

static int finish_copy(struct oss_op *op)
{
	struct origin_req *req = op->req;
	struct oss_outcome outcome;
	int r = oss_op_outcome(op, &outcome);

	if (r < 0)
		return err_trace(r);
	oss_reply_attr(&op->reply, req->key, 0, &req->attr);
	if (*outcome.etag)
		memcpy(req->attr.etag, outcome.etag, sizeof(req->attr.etag));
	if (outcome.mtime_ns)
		req->attr.mtime_ns = outcome.mtime_ns;
	return 0;
}

const struct oss_verb oss_verb_copy = {.build = build_copy, .finish = finish_copy};

/* ---- delete -------------------------------------------------------------------------- */

static int build_delete(struct oss_op *op)
{
	oss_op_on_key(op, HTTP_DELETE, op->req->key);
	return 0;
}

static int finish_nothing(struct oss_op *op)
{
	(void)op;
	return 0;
}

static int failed_delete(struct oss_op *op, int r)
{
	if (strcmp(op->error.code, "NoSuchKey") != 0)
		return r;
	op->req->why.text[0] = '\0';
	return 0;
}

const struct oss_verb oss_verb_delete = {
	.build = build_delete, .finish = finish_nothing, .failed = failed_delete};

/* ---- a bucket ------------------------------------------------------------------------ */

static int build_make_bucket(struct oss_op *op)
{
	oss_op_on_bucket(op, HTTP_PUT);
	return 0;
}

const struct oss_verb oss_verb_make_bucket = {.build = build_make_bucket,
					      .finish = finish_nothing};
