/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/retry_args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

static int pass_bytes(void *arg, uint64_t off, const void *data, size_t n)
{
	struct retry_args *args = arg;
	int r;

	/* A gap or a repetition would reach the reader as wrong data. */
	check(off == args->off + args->delivered);
	r = args->sink(args->sink_arg, off, data, n);
	if (r < 0)
		args->refused = true;
	else
		args->delivered += n;
	return r;
}

static int pass_entry(void *arg, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	struct retry_args *args = arg;
	int r = args->entry(args->entry_arg, key, key_len, attr);

	if (r < 0) {
		args->refused = true;
		return r;
	}
	args->entries++;
	check(key_len < sizeof(args->last));
	memcpy(args->last, key, key_len);
	args->last[key_len] = '\0';
	return 0;
}

void retry_args_init(struct retry_args *args, struct origin_req *req)
{
	*args = (struct retry_args){
		.done = req->done,
		.sink = req->sink,
		.sink_arg = req->sink_arg,
		.entry = req->list.entry,
		.entry_arg = req->list.entry_arg,
		.off = req->off,
		.len = req->len,
		.if_match = req->if_match,
		.after = req->list.after,
		.count_max = req->list.count_max,
	};
	if (req->sink) {
		req->sink = pass_bytes;
		req->sink_arg = args;
	}
	if (req->list.entry) {
		req->list.entry = pass_entry;
		req->list.entry_arg = args;
	}
}

void retry_args_prepare(struct retry_args *args, struct origin_req *req)
{
	req->off = args->off + args->delivered;
	if (args->len != ORIGIN_TO_END)
		req->len = args->len - args->delivered;
	if (args->delivered && !args->if_match)
		req->if_match = args->etag;
	if (args->entries) {
		req->list.after = args->last;
		if (args->count_max)
			req->list.count_max = args->count_max - args->entries;
	}
}

bool retry_args_progress(struct retry_args *args, const struct origin_req *req)
{
	uint64_t now = args->delivered + args->entries;
	bool progressed = now > args->noted;

	args->noted = now;
	if (req->op == ORIGIN_GET && !args->etag[0])
		memcpy(args->etag, req->attr.etag, sizeof(args->etag));
	return progressed;
}

bool retry_args_can_go_on(const struct retry_args *args, const struct origin_req *req)
{
	if (args->refused)
		return false;
	if (args->entries)
		return req->op == ORIGIN_LIST && args->entries != args->count_max;
	if (!args->delivered)
		return true;
	/* Without an ETag the rest may be another object's; with all delivered there is no
	 * rest, and what is wrong with it can only be mended by asking for all of it. */
	if (!args->if_match && !args->etag[0])
		return false;
	return args->delivered != args->len &&
	       args->off + args->delivered < req->attr.size;
}

void retry_args_restore(const struct retry_args *args, struct origin_req *req, int result)
{
	req->done = args->done;
	req->sink = args->sink;
	req->sink_arg = args->sink_arg;
	req->list.entry = args->entry;
	req->list.entry_arg = args->entry_arg;
	req->len = args->len;
	req->if_match = args->if_match;
	req->list.after = args->after;
	req->list.count_max = args->count_max;
	/* APPEND answers with the length that is there. */
	if (req->op != ORIGIN_APPEND || (result < 0 && result != -ESTALE))
		req->off = args->off;
}

/* ---- whose success -------------------------------------------------------------------- */

static bool body_crc(const struct origin_body *body, uint64_t *crc)
{
	enum {
		PIECE = 256 << 10
	};
	_cleanup_(freep) char *buffer = NULL;

	*crc = 0;
	if (body->data || !body->len) {
		*crc = crc64(0, body->data, body->len);
		return true;
	}
	buffer = malloc(PIECE);
	for (uint64_t off = 0; buffer && off < body->len; off += PIECE) {
		size_t n = body->len - off < PIECE ? body->len - off : PIECE;

		if (io_pread(body->fd, buffer, n, body->fd_off + off) != (ssize_t)n)
			return false;
		*crc = crc64(*crc, buffer, n);
	}
	return buffer != NULL;
}

static uint64_t parts_crc(const struct origin_req *req)
{
	uint64_t crc = 0;

	for (size_t i = 0; i < req->part_count; i++)
		crc = crc64_combine(crc, req->parts[i].crc64, req->parts[i].size);
	return crc;
}

static int sum_tail(void *arg, uint64_t off, const void *data, size_t n)
{
	struct retry_tail *tail = arg;

	(void)off;
	tail->crc = crc64(tail->crc, data, n);
	tail->len += n;
	return 0;
}

void retry_args_prepare_look(const struct retry_args *args, const struct origin_req *req,
			     struct origin_req *look, struct retry_tail *tail)
{
	*tail = (struct retry_tail){0};
	*look = (struct origin_req){
		.op = ORIGIN_STAT, .key = req->key, .deadline_ms = req->deadline_ms};
	/* The length alone may be that of somebody else's tail. */
	if (req->op == ORIGIN_APPEND && req->body.len) {
		look->op = ORIGIN_GET;
		look->off = args->off;
		look->len = req->body.len;
		look->sink = sum_tail;
		look->sink_arg = tail;
	}
}

bool retry_args_judge(const struct retry_args *args, const struct origin_req *req,
		      const struct origin_req *look, const struct retry_tail *tail)
{
	const struct origin_attr *attr = &look->attr;
	uint64_t crc;

	switch (req->op) {
	case ORIGIN_PUT:
		return attr->has_crc64 && attr->size == req->body.len &&
		       body_crc(&req->body, &crc) && crc == attr->crc64;
	case ORIGIN_MULTI_END:
		return attr->has_crc64 && attr->size == req->size &&
		       attr->crc64 == parts_crc(req);
	case ORIGIN_APPEND:
		return attr->size == args->off + req->body.len &&
		       attr->size == req->off && tail->len == req->body.len &&
		       body_crc(&req->body, &crc) && crc == tail->crc;
	default:
		return false;
	}
}
