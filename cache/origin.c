/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/origin.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/lock.h"

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

void origin_submit(struct origin *o, struct origin_req *req)
{
	check(req->op < ORIGIN_OP_N);
	check(req->done);
	o->ops->submit(o, req);
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
