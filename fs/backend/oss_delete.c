/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deleting many keys: DeleteMultipleObjects in its verbose form, which lists what is gone.
 * What is not listed is sent again (protocol.md §3.13). Keys that do not survive XML are
 * deleted one by one; the others need no encoding-type, of which stores and clients
 * disagree whether it is said of the keys in the request too.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_op.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"

#define BODY_MAX (2000u << 10) /* 2 MB, less a margin */
#define ROUNDS_MAX 3           /* without any key gone */

static const struct oss_verb one_verb;

static const char *left_key(const struct oss_op *op, size_t i)
{
	return op->req->keys[op->remove.left[i]];
}

static void note_gone(struct oss_op *op, size_t i)
{
	if (op->req->keys_gone)
		op->req->keys_gone[op->remove.left[i]] = true;
}

static int content_md5(struct oss_op *op)
{
	unsigned char digest[16];
	char text[25];

	if (buf_error(&op->payload) < 0 ||
	    !EVP_Digest(op->payload.data, op->payload.len, digest, NULL, EVP_md5(), NULL))
		return err_origin(-ENOMEM);
	EVP_EncodeBlock((unsigned char *)text, digest, sizeof(digest));
	oss_op_header(op, "Content-MD5", oss_op_text(op, "%s", text));
	return 0;
}

/* How many keys from the front fit into one body. An escaped byte takes six at most. */
static size_t batch_size(const struct oss_op *op)
{
	size_t bytes = 0, n = 0;

	while (n < op->remove.count && oss_xml_keeps(left_key(op, n))) {
		bytes += 6 * strlen(left_key(op, n)) + 64;
		if (n && bytes > BODY_MAX)
			break;
		n++;
	}
	return n;
}

/* Those that do not survive XML stand at the end of what is left. */
static int build_next(struct oss_op *op)
{
	const char **keys;

	if (!op->remove.count)
		return OSS_E_DONE;
	op->remove.batch = batch_size(op);
	if (!op->remove.batch) {
		op->verb = &one_verb;
		oss_op_on_key(op, HTTP_DELETE, left_key(op, op->remove.count - 1));
		return 0;
	}
	oss_op_on_bucket(op, HTTP_POST);
	oss_op_query(op, "delete", NULL);
	keys = arena_alloc(&op->arena, op->remove.batch * sizeof(*keys));
	if (!keys)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < op->remove.batch; i++)
		keys[i] = oss_op_whole_key(op, left_key(op, i));
	buf_reset(&op->payload);
	oss_xml_write_delete(&op->payload, keys, op->remove.batch);
	oss_op_send_xml(op);
	return err_trace(content_md5(op));
}

static int build(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	size_t front = 0;

	if (!req->key_count)
		return OSS_E_DONE;
	op->remove.left = calloc(req->key_count, sizeof(*op->remove.left));
	if (!op->remove.left)
		return err_origin(-ENOMEM);
	op->remove.count = req->key_count;
	for (size_t i = 0, back = req->key_count; i < req->key_count; i++)
		op->remove.left[oss_xml_keeps(req->keys[i]) ? front++ : --back] = i;
	return err_trace(build_next(op));
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Takes what the page lists out of what is left. Returns how many that were. */
static int take_gone(struct oss_op *op, const struct oss_page *page, size_t *gone)
{
	_cleanup_(freep) const char **listed = calloc(page->count + 1, sizeof(*listed));
	const size_t skip = strlen(op->oss->prefix);
	size_t n = 0, kept = 0;

	if (!listed)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < page->count; i++)
		if (page->items[i].key_len > skip)
			listed[n++] = oss_page_text(page, page->items[i].key) + skip;
	qsort(listed, n, sizeof(*listed), by_text);
	for (size_t i = 0; i < op->remove.count; i++) {
		const char *key = left_key(op, i);

		if (i >= op->remove.batch ||
		    !bsearch(&key, listed, n, sizeof(*listed), by_text))
			op->remove.left[kept++] = op->remove.left[i];
		else
			note_gone(op, i);
	}
	*gone = op->remove.count - kept;
	op->remove.count = kept;
	return 0;
}

static int go_on(struct oss_op *op)
{
	int r = build_next(op);

	if (r == OSS_E_DONE)
		return 0;
	return r < 0 ? err_trace(r) : OSS_E_AGAIN;
}

static int finish(struct oss_op *op)
{
	_cleanup_(oss_page_fini) struct oss_page page = {0};
	struct why why;
	char text[80];
	size_t gone = 0;
	int r;

	if (oss_xml_parse_deleted(op->body.data ? op->body.data : "", op->body.len, &page,
				  &why) < 0)
		return oss_op_why(op, -EBADMSG, why.text);
	r = take_gone(op, &page, &gone);
	if (r < 0)
		return err_trace(r);
	op->remove.rounds = gone ? 0 : op->remove.rounds + 1;
	if (op->remove.rounds >= ROUNDS_MAX) {
		snprintf(text, sizeof(text), "the store left %zu of %zu keys",
			 op->remove.count, op->req->key_count);
		return oss_op_why(op, -EAGAIN, text);
	}
	return go_on(op);
}

const struct oss_verb oss_verb_delete_many = {.build = build, .finish = finish};

static int finish_one(struct oss_op *op)
{
	note_gone(op, --op->remove.count);
	op->verb = &oss_verb_delete_many;
	return go_on(op);
}

static int failed_one(struct oss_op *op, int r)
{
	return strcmp(op->error.code, "NoSuchKey") == 0 ? finish_one(op) : r;
}

static const struct oss_verb one_verb = {
	.build = build_next, .finish = finish_one, .failed = failed_one};
