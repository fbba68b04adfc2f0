/* SPDX-License-Identifier: Apache-2.0 */
/* Building an exchange: what a verb says of it, before it is signed and sent. */
#include <errno.h>
#include <string.h>

#include "fs/backend/oss_op.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"

static void begin(struct oss_op *op, enum http_method method)
{
	arena_fini(&op->arena);
	op->method = method;
	op->key = NULL;
	op->query_count = op->header_count = 0;
	op->body_out = (struct http_body){.data = "", .fd = -1};
	op->stall_ms = op->oss->stall_ms;
	op->build_error = 0;
}

void oss_op_on_bucket(struct oss_op *op, enum http_method method)
{
	begin(op, method);
}

const char *oss_op_whole_key(struct oss_op *op, const char *key)
{
	return oss_op_text(op, "%s%s", op->oss->prefix, key);
}

void oss_op_on_key(struct oss_op *op, enum http_method method, const char *key)
{
	begin(op, method);
	op->key = oss_op_whole_key(op, key);
}

const char *oss_op_text(struct oss_op *op, const char *format, ...)
{
	va_list args;
	const char *text;

	va_start(args, format);
	text = arena_vprintf(&op->arena, format, args);
	va_end(args);
	return text;
}

void oss_op_query(struct oss_op *op, const char *name, const char *value)
{
	check(op->query_count < OSS_QUERY_MAX);
	op->query[op->query_count++] = (struct oss_pair){name, value};
}

void oss_op_header(struct oss_op *op, const char *name, const char *value)
{
	check(op->header_count < HTTP_HEADERS_MAX);
	op->headers[op->header_count++] = (struct http_header){name, value};
}

void oss_op_meta(struct oss_op *op, const char *key)
{
	const struct origin_meta *meta = op->req->meta;
	const char *type = meta ? meta->content_type : NULL;

	if (!type)
		type = oss_content_type(key);
	if (type)
		oss_op_header(op, "Content-Type", type);
	if (!meta)
		return;
	if (meta->count > OSS_META_MAX) {
		op->build_error = oss_op_why(op, -EINVAL, "more than 100 metadata");
		return;
	}
	for (size_t i = 0; i < meta->count; i++)
		oss_op_header(op, oss_op_text(op, "x-oss-meta-%s", meta->pairs[i][0]),
			      meta->pairs[i][1]);
}

void oss_op_copy_source(struct oss_op *op)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	struct oss_sign_request source = {.bucket = op->oss->bucket};

	source.key = oss_op_whole_key(op, op->req->source);
	source.key_len = strlen(source.key);
	oss_canonical_uri(&path, &source);
	if (buf_error(&path) < 0)
		op->build_error = err_origin(-ENOMEM);
	else
		oss_op_header(op, "x-oss-copy-source", oss_op_text(op, "%s", path.data));
	if (op->req->if_match)
		oss_op_header(op, "x-oss-copy-source-if-match",
			      oss_op_text(op, "\"%s\"", op->req->if_match));
}

void oss_op_send_body(struct oss_op *op, const struct origin_body *body)
{
	op->body_out = (struct http_body){body->data, body->fd, body->fd_off, body->len};
	if (!body->data && !body->len)
		op->body_out.data = "";
}

void oss_op_send_xml(struct oss_op *op)
{
	if (buf_error(&op->payload) < 0)
		op->build_error = err_origin(-ENOMEM);
	op->body_out = (struct http_body){op->payload.data, -1, 0, op->payload.len};
	oss_op_header(op, "Content-Type", "application/xml");
}
