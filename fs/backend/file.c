/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: a directory tree as an origin.
 *
 * A request waits in the origin's queue, is carried out by one of WORKER_COUNT threads
 * (NAS latency is hidden by their number), and ends there. Nothing is kept between requests
 * but the root's descriptor and a few directories of listings under way.
 * Failure modes: whatever the file system says, in the words of origin.h; the root that was
 * deleted is -ENOENT for everything.
 * On close: no request is under way; what was acknowledged is on disk.
 * Threads: the pool. Locks: the origin's, never held across a system call that may wait.
 */
#include "fs/backend/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/worker.h"

#define WORKER_COUNT 16
/* One turn in the pool's queue stands for "look at our queue": more of them than workers
 * bring nothing. */
#define TURN_MAX (2 * WORKER_COUNT)

int file_interrupted(const struct origin_req *req)
{
	const struct file_job *job = req->layer[ORIGIN_LAYER_STORE];

	if (atomic_load_explicit(&job->cancelled, memory_order_relaxed))
		return -ECANCELED;
	if (req->deadline_ms && clock_mono_ms() >= req->deadline_ms)
		return -ETIMEDOUT;
	return 0;
}

static int probe(struct file_origin *f)
{
	int how = f->read_only ? R_OK | X_OK : R_OK | W_OK | X_OK;

	if (faccessat(f->root_fd, ".", how, AT_EACCESS) < 0)
		return err_origin(file_error(errno));
	return 0;
}

typedef int (*operation_fn)(struct file_origin *f, struct origin_req *req);

static const operation_fn operations[ORIGIN_OP_N] = {
	[ORIGIN_STAT] = file_stat,
	[ORIGIN_GET] = file_get,
	[ORIGIN_LIST] = file_list,
	[ORIGIN_PUT] = file_put,
	[ORIGIN_APPEND] = file_append,
	[ORIGIN_COPY] = file_copy,
	[ORIGIN_DELETE] = file_delete,
	[ORIGIN_DELETE_MANY] = file_delete_many,
	[ORIGIN_MULTI_BEGIN] = file_multi_begin,
	[ORIGIN_MULTI_PART] = file_multi_part,
	[ORIGIN_MULTI_COPY] = file_multi_copy,
	[ORIGIN_MULTI_END] = file_multi_end,
	[ORIGIN_MULTI_ABORT] = file_multi_abort,
	[ORIGIN_MULTI_LIST] = file_multi_list,
};

static bool has_plain_key(enum origin_op op)
{
	return op != ORIGIN_PROBE && op != ORIGIN_LIST && op != ORIGIN_DELETE_MANY &&
	       op != ORIGIN_MULTI_LIST;
}

/* A concurrent delete may prune the directory that the operation has just made for its
 * object: then it is -ENOENT, which is nobody's fault, and done again. */
static int operate(struct file_origin *f, struct origin_req *req)
{
	bool makes = req->op == ORIGIN_PUT || req->op == ORIGIN_COPY ||
		     req->op == ORIGIN_APPEND || req->op == ORIGIN_MULTI_BEGIN;
	int r = operations[req->op](f, req);

	for (int i = 0; r == -ENOENT && makes && i < FILE_RACES_MAX; i++)
		r = operations[req->op](f, req);
	return r;
}

static int execute(struct file_origin *f, struct origin_req *req)
{
	struct stat st;
	int r = file_interrupted(req);

	if (r == 0)
		r = origin_req_check(req, &req->why);
	if (r == 0 && has_plain_key(req->op))
		r = file_key_check(req->key, &req->why);
	if (r < 0)
		return r;
	if (fstat(f->root_fd, &st) < 0 || st.st_nlink == 0)
		return why_set(&req->why, err_origin(-ENOENT), "%s is gone",
			       f->origin.name);
	return req->op == ORIGIN_PROBE ? probe(f) : operate(f, req);
}

static void run(struct file_job *job)
{
	struct file_origin *f = job->f;
	struct origin_req *req = job->req;
	int r = execute(f, req);

	lock_take(&f->lock);
	f->stats.requests[req->op]++;
	f->stats.failures += r < 0;
	req->layer[ORIGIN_LAYER_STORE] = NULL;
	lock_drop(&f->lock);
	free(job);
	origin_done(req, r);
}

static void turn(void *arg)
{
	struct file_origin *f = arg;

	for (;;) {
		struct file_job *job = NULL;

		lock_take(&f->lock);
		if (!list_empty(&f->queue)) {
			job = list_first(&f->queue, struct file_job, link);
			list_remove(&job->link);
		}
		lock_drop(&f->lock);
		if (!job)
			return;
		run(job);
	}
}

static void file_submit(struct origin *o, struct origin_req *req)
{
	struct file_origin *f = container_of(o, struct file_origin, origin);
	struct file_job *job = calloc(1, sizeof(*job));

	if (!job) {
		origin_done(req, err_origin(-ENOMEM));
		return;
	}
	job->f = f;
	job->req = req;
	lock_take(&f->lock);
	req->layer[ORIGIN_LAYER_STORE] = job;
	list_push_back(&f->queue, &job->link);
	lock_drop(&f->lock);
	/* A full queue of turns means that enough of them are still to come. */
	worker_try_submit(f->pool, turn, f);
}

static void file_cancel(struct origin *o, struct origin_req *req)
{
	struct file_origin *f = container_of(o, struct file_origin, origin);
	struct file_job *job;

	lock_scope(&f->lock);
	job = req->layer[ORIGIN_LAYER_STORE];
	if (job)
		atomic_store(&job->cancelled, true);
}

static void file_stats(struct origin *o, struct origin_stats *stats)
{
	struct file_origin *f = container_of(o, struct file_origin, origin);

	lock_scope(&f->lock);
	origin_stats_add(stats, &f->stats);
}

static void file_free(struct origin *o)
{
	struct file_origin *f = container_of(o, struct file_origin, origin);

	worker_pool_free(f->pool);
	file_snapshots_drop(f, "");
	if (f->root_fd >= 0)
		close(f->root_fd);
	lock_fini(&f->lock);
	free(f);
}

static const struct origin_ops file_ops = {
	.name = "file",
	.submit = file_submit,
	.cancel = file_cancel,
	.stats = file_stats,
	.free = file_free,
};

static int open_root(struct file_origin *f, const char *root, struct why *why)
{
	int r;

	f->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->root_fd < 0) {
		r = err_origin(-errno);
		if (r == -ENOENT)
			return why_set(why, r,
				       "%s does not exist: make the directory first",
				       root);
		return why_set(why, r == -ENOTDIR || r == -EACCES ? r : file_error(-r),
			       "%s: %s", root, strerror(-r));
	}
	r = probe(f);
	if (r < 0)
		return why_set(why, r,
			       f->read_only ? "%s cannot be read by uid %u"
					    : "%s is not writable by uid %u",
			       root, geteuid());
	return 0;
}

int file_origin_open(const char *root, bool read_only, struct origin **out,
		     struct why *why)
{
	struct file_origin *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return err_origin(-ENOMEM);
	lock_init(&f->lock);
	list_init(&f->queue);
	f->origin.ops = &file_ops;
	f->origin.caps = ORIGIN_CAP_MULTI | ORIGIN_CAP_MULTI_COPY | ORIGIN_CAP_APPEND |
			 ORIGIN_CAP_META | ORIGIN_CAP_TREE;
	f->read_only = read_only;
	f->may_chown = geteuid() == 0;
	r = open_root(f, root, why);
	if (r == 0)
		r = worker_pool_new(&f->pool, "file", WORKER_COUNT, TURN_MAX);
	if (r < 0) {
		file_free(&f->origin);
		return err_trace(r);
	}
	origin_set_name(&f->origin, "file://", root);
	*out = &f->origin;
	return 0;
}
