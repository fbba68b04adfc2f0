/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/read_only.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/origin.h"
#include "fs/base/list.h"

struct read_only {
	struct origin origin;
	struct origin *below;
};

static bool reads(enum origin_op op)
{
	return op == ORIGIN_PROBE || op == ORIGIN_STAT || op == ORIGIN_GET ||
	       op == ORIGIN_LIST || op == ORIGIN_MULTI_LIST;
}

static void read_only_submit(struct origin *o, struct origin_req *req)
{
	struct read_only *l = container_of(o, struct read_only, origin);

	if (reads(req->op))
		origin_submit(l->below, req);
	else
		origin_done(req,
			    why_set(&req->why, err_origin(-EROFS),
				    "%s %s: %s is read-only", origin_op_name(req->op),
				    req->key ? req->key : "", o->name));
}

static void read_only_cancel(struct origin *o, struct origin_req *req)
{
	origin_cancel(container_of(o, struct read_only, origin)->below, req);
}

static void read_only_stats(struct origin *o, struct origin_stats *stats)
{
	struct read_only *l = container_of(o, struct read_only, origin);

	l->below->ops->stats(l->below, stats);
}

static void read_only_free(struct origin *o)
{
	struct read_only *l = container_of(o, struct read_only, origin);

	origin_free(l->below);
	free(l);
}

static const struct origin_ops read_only_ops = {
	.name = "read-only",
	.submit = read_only_submit,
	.cancel = read_only_cancel,
	.stats = read_only_stats,
	.free = read_only_free,
};

int read_only_origin_new(struct origin *below, struct origin **out)
{
	struct read_only *l = calloc(1, sizeof(*l));

	if (!l) {
		origin_free(below);
		return err_origin(-ENOMEM);
	}
	l->origin = *below;
	l->origin.ops = &read_only_ops;
	l->below = below;
	*out = &l->origin;
	return 0;
}
