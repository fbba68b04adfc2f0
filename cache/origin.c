/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/origin.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/crc.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"
#include "fs/base/utf8.h"

static const char *const op_names[] = {
	"probe",      "stat",       "get",       "list",        "put",
	"append",     "copy",       "delete",    "delete-many", "multi-begin",
	"multi-part", "multi-copy", "multi-end", "multi-abort", "multi-list",
};
static_assert(sizeof(op_names) / sizeof(*op_names) == ORIGIN_OP_N, "operation names");

const char *origin_op_name(enum origin_op op)
{
	return op < ORIGIN_OP_N ? op_names[op] : "unknown";
}

bool origin_is_transient(int r)
{
	switch (r) {
	case -EAGAIN:
	case -EBADMSG:
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

/* ---- requests ------------------------------------------------------------------------- */

static const char *key_fault(const char *key, bool may_be_empty)
{
	if (!key)
		return "no key";
	if (!*key)
		return may_be_empty ? NULL : "the key is empty";
	if (*key == '/')
		return "the key starts with '/'";
	return strlen(key) > PATH_KEY_MAX ? "the key is longer than 1023 bytes" : NULL;
}

int origin_key_check(const struct origin *o, const char *key)
{
	if (strlen(key) > (o->key_max ? o->key_max : PATH_KEY_MAX))
		return err_origin(-ENAMETOOLONG);
	if (o->key_is_utf8 && !utf8_is_valid(key))
		return err_origin(-EILSEQ);
	if (o->key_not_first && *key == o->key_not_first)
		return err_origin(-EINVAL);
	return 0;
}

static const char *keys_fault(const struct origin_req *req)
{
	if (req->key_count > ORIGIN_KEY_COUNT_MAX)
		return "more than 1000 keys";
	for (size_t i = 0; i < req->key_count; i++)
		if (key_fault(req->keys[i], false))
			return key_fault(req->keys[i], false);
	return NULL;
}

static const char *parts_fault(const struct origin_req *req)
{
	uint64_t size = 0;

	if (!req->part_count || req->part_count > ORIGIN_PART_COUNT_MAX)
		return "the number of parts is not 1 to 10000";
	for (size_t i = 0; i < req->part_count; i++) {
		if (i && req->parts[i].number <= req->parts[i - 1].number)
			return "the parts are not in order";
		size += req->parts[i].size;
	}
	return size != req->size ? "the parts do not add up to the size" : NULL;
}

static const char *argument_fault(const struct origin_req *req)
{
	switch (req->op) {
	case ORIGIN_GET:
		if (!req->len || !req->sink)
			return "no range or no sink";
		return req->len != ORIGIN_TO_END && req->off + req->len < req->off
			       ? "the range ends past 2^64"
			       : NULL;
	case ORIGIN_LIST:
	case ORIGIN_MULTI_LIST:
		if ((req->list.after && strlen(req->list.after) > PATH_KEY_MAX) ||
		    (req->list.until && strlen(req->list.until) > PATH_KEY_MAX))
			return "the window's end is longer than 1023 bytes";
		return req->list.entry ? NULL : "no function for the entries";
	case ORIGIN_DELETE_MANY:
		return keys_fault(req);
	case ORIGIN_COPY:
		return key_fault(req->source, false);
	case ORIGIN_MULTI_COPY:
		if (key_fault(req->source, false))
			return key_fault(req->source, false);
		if (!req->len || req->len == ORIGIN_TO_END)
			return "no range";
		/* fall through */
	case ORIGIN_MULTI_PART:
		if (!req->part || req->part > ORIGIN_PART_COUNT_MAX)
			return "the part number is not 1 to 10000";
		/* fall through */
	case ORIGIN_MULTI_ABORT:
		return req->upload_id && *req->upload_id ? NULL : "no upload id";
	case ORIGIN_MULTI_END:
		if (!req->upload_id || !*req->upload_id)
			return "no upload id";
		return parts_fault(req);
	default:
		return NULL;
	}
}

int origin_req_check(const struct origin_req *req, struct why *why)
{
	bool has_key = req->op != ORIGIN_PROBE && req->op != ORIGIN_DELETE_MANY;
	bool is_prefix = req->op == ORIGIN_LIST || req->op == ORIGIN_MULTI_LIST;
	const char *fault = has_key ? key_fault(req->key, is_prefix) : NULL;

	if (!fault)
		fault = argument_fault(req);
	return fault ? why_set(why, err_origin(-EINVAL), "%s: %s",
			       origin_op_name(req->op), fault)
		     : 0;
}

void origin_submit(struct origin *o, struct origin_req *req)
{
	check(req->op < ORIGIN_OP_N);
	check(req->done);
	req->why.text[0] = '\0';
	req->retry_after_ms = 0;
	o->ops->submit(o, req);
}

void origin_set_name(struct origin *o, const char *scheme, const char *rest)
{
	int n = snprintf(o->name, sizeof(o->name), "%s%s", scheme, rest);

	if (n >= (int)sizeof(o->name))
		snprintf(o->name + sizeof(o->name) - 18, 18, "~%016" PRIx64,
			 crc64(0, rest, strlen(rest)));
}

void origin_done(struct origin_req *req, int result)
{
	if (result >= 0)
		req->why.text[0] = '\0';
	else if (!req->why.text[0])
		why_set(&req->why, result, "%s %s: %s", origin_op_name(req->op),
			req->key ? req->key : "", strerror(-result));
	req->result = result;
	req->done(req);
}

void origin_cancel(struct origin *o, struct origin_req *req)
{
	if (o->ops->cancel)
		o->ops->cancel(o, req);
}

struct origin *origin_free(struct origin *o)
{
	if (o)
		o->ops->free(o);
	return NULL;
}

void origin_stats_add(struct origin_stats *to, const struct origin_stats *from)
{
	for (int i = 0; i < ORIGIN_OP_N; i++)
		to->requests[i] += from->requests[i];
	to->failures += from->failures;
	to->retries += from->retries;
	to->bytes_in += from->bytes_in;
	to->bytes_out += from->bytes_out;
	to->crc_mismatches += from->crc_mismatches;
}

struct waiter {
	struct lock lock; /* done */
	pthread_cond_t cond;
	bool done;
};

static void wake(struct origin_req *req)
{
	struct waiter *w = req->user;

	lock_scope(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->cond);
}

int origin_call(struct origin *o, struct origin_req *req)
{
	struct waiter w = {.done = false};

	lock_init(&w.lock);
	lock_cond_init(&w.cond);
	req->done = wake;
	req->user = &w;
	origin_submit(o, req);
	lock_take(&w.lock);
	while (!w.done)
		lock_wait(&w.lock, &w.cond, UINT64_MAX);
	lock_drop(&w.lock);
	pthread_cond_destroy(&w.cond);
	lock_fini(&w.lock);
	return req->result;
}

int origin_list_all(struct origin *o, struct origin_req *req)
{
	char after[sizeof(req->list.next)];

	for (;;) {
		int r = origin_call(o, req);

		if (r < 0 || !req->list.truncated)
			return r;
		/* A store whose pages do not advance must not hold us for ever. */
		if (req->list.after && strcmp(req->list.next, req->list.after) <= 0)
			return why_set(&req->why, err_origin(-EBADMSG),
				       "listing of %s does not advance", o->name);
		memcpy(after, req->list.next, sizeof(after));
		req->list.after = after;
	}
}
