/* SPDX-License-Identifier: Apache-2.0 */
/* close and fsync: the acknowledgement, for who waits and who does not. */
#include <errno.h>
#include <stdlib.h>

#include "cache/kill_point.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

/* With durability remote: until the store has this version. */
static int wait_stored(struct output *o, struct node *n)
{
	uint64_t version;

	lock_scope(&o->lock);
	version = n->version;
	while (n->parent && n->stored.version < version) {
		if (o->stopping)
			return err_origin(-ESHUTDOWN);
		/* Refused for good as far as anyone can tell: the program must know. */
		if (n->attempts >= 3 && n->refused)
			return err_origin(-EACCES);
		lock_wait(&o->lock, &o->changed, UINT64_MAX);
	}
	return 0;
}

static int acknowledge(struct output_file *file)
{
	struct output *o = file->output;
	struct node *n = file->node;
	int r;

	if (!may_write(file->flags))
		return 0;
	if (o->config.durability != OUTPUT_REMOTE)
		return err_trace(content_ack(o, n));
	r = content_publish(o, n, false);
	return r < 0 ? err_trace(r) : err_trace(wait_stored(o, n));
}

struct output_waiter {
	struct journal_waiter journal; /* first */
	output_done_fn done;
	void *arg;
};

static void flushed(struct journal_waiter *w, int result)
{
	struct output_waiter *waiter = container_of(w, struct output_waiter, journal);

	kill_point("flush.reply.before");
	waiter->done(waiter->arg, result);
	free(waiter);
}

int output_flush_later(struct output_file *file, output_done_fn done, void *arg)
{
	struct output *o = file->output;
	struct output_waiter *w;
	int r;

	if (!may_write(file->flags))
		return 0;
	if (o->config.durability == OUTPUT_REMOTE)
		return TREE_E_WAIT;
	w = calloc(1, sizeof(*w));
	if (!w)
		return TREE_E_WAIT;
	r = content_carry(o, file->node, &w->journal.seq);
	w->journal.done = flushed;
	w->done = done;
	w->arg = arg;
	kill_point("flush.sync.before");
	if (r == 0 && journal_sync_later(o->journal, &w->journal))
		return OUTPUT_E_LATER;
	free(w);
	return r < 0 ? err_trace(r) : r;
}

int output_flush(struct output_file *file)
{
	return err_trace(acknowledge(file));
}

int output_fsync(struct output_file *file, bool data_only)
{
	(void)data_only;
	if (!may_write(file->flags)) {
		struct output *o = file->output;

		/* What others wrote to it, and its name. */
		return err_trace(content_ack(o, file->node));
	}
	return err_trace(acknowledge(file));
}
