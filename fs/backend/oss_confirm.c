/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_confirm.h"

#include <errno.h>
#include <string.h>

#include "fs/backend/oss_op.h"

static int give_up(struct oss_op *op)
{
	op->req->why = op->confirm.why;
	return err_trace(op->confirm.original);
}

static int build(struct oss_op *op)
{
	oss_op_on_key(op, HTTP_HEAD, op->req->key);
	return 0;
}

/* Size and checksum decide; the ETag where the store has no checksum. */
static bool is_ours(const struct oss_op *op)
{
	const struct oss_reply *reply = &op->reply;

	if (!reply->has_length || reply->length != op->confirm.size)
		return false;
	if (reply->has_crc64 && op->confirm.has_crc64)
		return reply->crc64 == op->confirm.crc64;
	return *op->confirm.etag && oss_etag_equal(reply->etag, op->confirm.etag);
}

static int finish(struct oss_op *op)
{
	if (!is_ours(op))
		return give_up(op);
	oss_reply_attr(&op->reply, op->req->key, op->reply.length, &op->req->attr);
	op->req->retry_after_ms = 0;
	return 0;
}

static int failed(struct oss_op *op, int r)
{
	if (r == -EACCES || r == -EKEYEXPIRED)
		return r;
	return give_up(op);
}

static const struct oss_verb verb = {.build = build, .finish = finish, .failed = failed};

int oss_confirm(struct oss_op *op, int original)
{
	op->confirm.original = original;
	op->confirm.why = op->req->why;
	op->verb = &verb;
	build(op);
	return OSS_E_AGAIN;
}
