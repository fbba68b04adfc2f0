/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multipart uploads. Every part is checked by its CRC-64 when it is sent; the whole by the
 * combination of all. A completion whose answer is lost, or whose upload is gone, may have
 * happened: the object decides (protocol.md §3.14).
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_confirm.h"
#include "fs/backend/oss_op.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"

/* ---- begin --------------------------------------------------------------------------- */

static int build_begin(struct oss_op *op)
{
	oss_op_on_key(op, HTTP_POST, op->req->key);
	oss_op_query(op, "uploads", NULL);
	oss_op_query(op, "encoding-type", "url");
	oss_op_meta(op, op->req->key);
	return 0;
}

static int finish_begin(struct oss_op *op)
{
	struct oss_outcome outcome;
	int r = oss_op_outcome(op, &outcome);

	if (r < 0)
		return err_trace(r);
	if (!*outcome.upload_id)
		return oss_op_why(op, -EBADMSG, "an answer without an upload id");
	memcpy(op->req->upload_id_result, outcome.upload_id, sizeof(outcome.upload_id));
	return 0;
}

static_assert(sizeof(((struct oss_outcome *)0)->upload_id) == ORIGIN_UPLOAD_ID_MAX,
	      "upload ids");

const struct oss_verb oss_verb_multi_begin = {.build = build_begin,
					      .finish = finish_begin};

/* ---- parts --------------------------------------------------------------------------- */

static void on_part(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	oss_op_on_key(op, HTTP_PUT, req->key);
	oss_op_query(op, "partNumber", oss_op_text(op, "%" PRIu32, req->part));
	oss_op_query(op, "uploadId", req->upload_id);
}

static int build_part(struct oss_op *op)
{
	on_part(op);
	oss_op_send_body(op, &op->req->body);
	return 0;
}

static void part_result(struct oss_op *op, uint64_t size, uint64_t crc64,
			const char *etag)
{
	struct origin_part *part = &op->req->part_result;

	*part = (struct origin_part){
		.number = op->req->part, .size = size, .crc64 = crc64};
	memcpy(part->etag, etag, sizeof(part->etag));
}

/* Without a checksum in the answer the one of the whole object, at the end, decides. */
static int finish_part(struct oss_op *op)
{
	int r = oss_op_check_crc(op, op->crc_sent);

	if (r < 0)
		return err_trace(r);
	if (!*op->reply.etag)
		return oss_op_why(op, -EBADMSG, "a part without an ETag");
	part_result(op, op->req->body.len, op->crc_sent, op->reply.etag);
	return 0;
}

const struct oss_verb oss_verb_multi_part = {.build = build_part, .finish = finish_part};

static int build_part_copy(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	on_part(op);
	oss_op_copy_source(op);
	oss_op_header(op, "x-oss-copy-source-range",
		      oss_op_text(op, "bytes=%" PRIu64 "-%" PRIu64, req->off,
				  req->off + req->len - 1));
	op->stall_ms = OSS_SLOW_ANSWER_MS;
	return 0;
}

/* The store alone has seen the bytes: a checksum is its word or none (0). */
static int finish_part_copy(struct oss_op *op)
{
	struct oss_outcome outcome;
	int r = oss_op_outcome(op, &outcome);

	if (r < 0)
		return err_trace(r);
	if (!*outcome.etag)
		memcpy(outcome.etag, op->reply.etag, sizeof(outcome.etag));
	if (!*outcome.etag)
		return oss_op_why(op, -EBADMSG, "a part without an ETag");
	part_result(op, op->req->len, op->reply.has_crc64 ? op->reply.crc64 : 0,
		    outcome.etag);
	return 0;
}

const struct oss_verb oss_verb_multi_copy = {.build = build_part_copy,
					     .finish = finish_part_copy};

/* ---- end ----------------------------------------------------------------------------- */

/* What the whole must have. A part of unknown checksum (0) leaves it to expect_crc64. */
static int expected_whole(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	bool known = true;
	uint64_t crc = 0;

	for (size_t i = 0; i < req->part_count; i++) {
		known &= req->parts[i].crc64 != 0 || !req->parts[i].size;
		crc = crc64_combine(crc, req->parts[i].crc64, req->parts[i].size);
	}
	if (known && req->has_expect_crc64 && crc != req->expect_crc64)
		return oss_op_why(op, -EBADMSG,
				  "the parts make another object than expected");
	op->confirm.has_crc64 = known || req->has_expect_crc64;
	op->confirm.crc64 = req->has_expect_crc64 ? req->expect_crc64 : crc;
	op->confirm.size = req->size;
	return 0;
}

static int expected_etag(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	_cleanup_(freep) const char **etags = calloc(req->part_count, sizeof(*etags));

	if (!etags)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->part_count; i++)
		etags[i] = req->parts[i].etag;
	return err_trace(oss_multipart_etag(op->confirm.etag, etags, req->part_count));
}

static int build_end(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	int r = expected_whole(op);

	if (r >= 0)
		r = expected_etag(op);
	if (r < 0)
		return err_trace(r);
	oss_op_on_key(op, HTTP_POST, req->key);
	oss_op_query(op, "uploadId", req->upload_id);
	oss_op_query(op, "encoding-type", "url");
	if (req->if_none_match)
		oss_op_header(op, "x-oss-forbid-overwrite", "true");
	buf_reset(&op->payload);
	oss_xml_write_complete_begin(&op->payload);
	for (size_t i = 0; i < req->part_count; i++)
		oss_xml_write_complete_part(&op->payload, req->parts[i].number,
					    req->parts[i].etag);
	oss_xml_write_complete_end(&op->payload);
	oss_op_send_xml(op);
	op->stall_ms = OSS_SLOW_ANSWER_MS;
	return 0;
}

static int finish_end(struct oss_op *op)
{
	struct origin_req *req = op->req;
	struct oss_outcome outcome;
	int r = oss_op_outcome(op, &outcome);

	if (r < 0)
		return err_trace(r);
	if (op->confirm.has_crc64 && op->reply.has_crc64) {
		r = oss_op_check_crc(op, op->confirm.crc64);
		if (r < 0)
			return err_trace(r);
		oss_reply_attr(&op->reply, req->key, req->size, &req->attr);
		if (*outcome.etag)
			memcpy(req->attr.etag, outcome.etag, sizeof(req->attr.etag));
		return 0;
	}
	/* The answer's own ETag: another front end may count otherwise than we do. */
	if (*outcome.etag)
		memcpy(op->confirm.etag, outcome.etag, sizeof(op->confirm.etag));
	return oss_confirm(op,
			   oss_op_why(op, -EBADMSG,
				      "completed without a checksum, and the object is "
				      "not what was sent"));
}

/* Whether the completion may have happened although we were told otherwise. */
static bool is_doubtful(const struct oss_op *op, int r)
{
	if (strcmp(op->error.code, "NoSuchUpload") == 0)
		return true;
	switch (r) {
	case -EEXIST:
		return op->sent_twice;
	case -EAGAIN:
		return op->x.status >= 500 && op->x.status != 503;
	case -EBADMSG: /* also: the answer cannot be read */
	case -ECONNRESET:
	case -ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

static int failed_end(struct oss_op *op, int r)
{
	/* A wrong checksum of the whole is no lost answer. */
	if (op->x.result == 0 && op->reply.has_crc64 && op->confirm.has_crc64 &&
	    op->reply.crc64 != op->confirm.crc64)
		return r;
	return is_doubtful(op, r) ? oss_confirm(op, r) : r;
}

const struct oss_verb oss_verb_multi_end = {
	.build = build_end, .finish = finish_end, .failed = failed_end};

/* ---- abort --------------------------------------------------------------------------- */

static int build_abort(struct oss_op *op)
{
	oss_op_on_key(op, HTTP_DELETE, op->req->key);
	oss_op_query(op, "uploadId", op->req->upload_id);
	return 0;
}

static int finish_abort(struct oss_op *op)
{
	(void)op;
	return 0;
}

static int failed_abort(struct oss_op *op, int r)
{
	if (strcmp(op->error.code, "NoSuchUpload") != 0)
		return r;
	op->req->why.text[0] = '\0';
	return 0;
}

const struct oss_verb oss_verb_multi_abort = {
	.build = build_abort, .finish = finish_abort, .failed = failed_abort};
