/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call lives on the stack of the thread that took the request. When the tree says that it
 * would block, the call is copied to the heap and queued for a worker, which runs it again
 * from the start, without TREE_NOWAIT.
 *
 * Threads: the library's loop threads (classic), or one ring thread per core (io_uring),
 * and the workers. A ring thread runs calls under its ring's lock, which replies of workers
 * need too: so it must never wait for a worker. A full queue is therefore not waited for;
 * the call then runs where it is.
 *
 * Interrupts: a deferred call gets a token; the library calls on_interrupt() when the
 * kernel withdraws the request (over io_uring only as scripts/setup builds it), and the tree
 * lets the call end with -EINTR.
 */
#include "fs/ops.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/base/worker.h"
#include "fs/handover.h"
#include "fs/input.h"
#include "fs/ops_call.h"
#include "fs/output.h"
#include "fs/session.h"
#include "fs/standin.h"

#define QUEUE_MAX 4096        /* deferred calls that wait for a worker */
#define BUFFER_MAX (1u << 20) /* largest reply; the kernel's limit on one request */
#define STANDINS_MAX 1024     /* files kept for reads without an open */

/* ---- buffers --------------------------------------------------------------------------- */

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void make_buffer_key(void)
{
	check(pthread_key_create(&buffer_key, free) == 0);
}

char *call_buffer(fuse_req_t req, size_t size)
{
	char *data;

#if FUSE_HAS_URING
	size_t room = 0;

	if (fuse_req_is_uring(req) &&
	    fuse_req_get_payload(req, &data, &room, NULL) == 0 && room >= size)
		return data;
#else
	(void)req;
#endif
	if (size > BUFFER_MAX)
		return NULL;
	pthread_once(&buffer_once, make_buffer_key);
	data = pthread_getspecific(buffer_key);
	if (!data) {
		data = malloc(BUFFER_MAX);
		if (data && pthread_setspecific(buffer_key, data)) {
			free(data);
			data = NULL;
		}
	}
	return data;
}

/* ---- calls ----------------------------------------------------------------------------- */

static bool over_ring(const struct call *c)
{
#if FUSE_HAS_URING
	if (fuse_req_is_uring(c->req)) {
		session_saw_uring(c->ops->config.session);
		return true;
	}
#else
	(void)c;
#endif
	return false;
}

struct call call_make(fuse_req_t req, call_fn run, fuse_ino_t ino, const char *name,
		      const struct fuse_file_info *fi)
{
	struct call c = {
		.run = run,
		.ops = fuse_req_userdata(req),
		.req = req,
		.ino = ino,
		.name = name,
	};

	if (fi) {
		c.fi = *fi;
		c.has_fi = true;
	}
	if (c.ops->slots)
		c.request = handover_request(&c.again);
	return c;
}

void call_fail(fuse_req_t req, int r)
{
	if (r > 0 || r < -4095) {
		log_error("a request ended with an unknown condition value=%d", r);
		r = -EIO;
	}
	if (r == -EIO || r == -ESTALE || r == -ENOSPC) {
		struct ops *o = fuse_req_userdata(req);

		atomic_fetch_add_explicit(&o->errors, 1, memory_order_relaxed);
		atomic_store_explicit(&o->last_error, -r, memory_order_relaxed);
		atomic_store_explicit(&o->last_error_ns, clock_real_ns(),
				      memory_order_relaxed);
	}
	fuse_reply_err(req, -r);
}

static void finish(struct call *c, int r)
{
	if (r != 0)
		call_fail(c->req, r);
}

static void on_interrupt(fuse_req_t req, void *token)
{
	const struct ops *o = fuse_req_userdata(req);

	if (o->config.input)
		input_interrupt(o->config.input, (uint64_t)(uintptr_t)token);
}

/* What workers still wait for in the store is of no use to anyone. */
static void interrupt_all(struct ops *o)
{
	uint64_t last = atomic_load(&o->tokens);
	uint64_t first = last > QUEUE_MAX ? last - QUEUE_MAX : 0;

	for (uint64_t token = first + 1; o->config.input && token <= last; token++)
		input_interrupt(o->config.input, token);
}

/* Runs it; what it writes to the journal is known to be this request's. */
static int run(struct call *c, unsigned int flags)
{
	if (c->ops->slots && c->ops->config.output)
		output_set_request(c->request);
	return c->run(c, flags);
}

static void run_deferred(void *arg)
{
	struct call *c = arg;

	if (c->ops->config.input)
		input_set_token(c->token);
	if (atomic_load(&c->ops->stopping) || fuse_req_interrupted(c->req))
		finish(c, -EINTR);
	else
		finish(c, run(c, 0));
	if (c->ops->config.input)
		input_set_token(0);
	free(c);
}

/* A copy that outlives the request's buffer; over io_uring the data stays where it is until
 * the reply. */
static struct call *copy(const struct call *c)
{
	size_t name = c->name ? strlen(c->name) + 1 : 0;
	size_t new_name = c->new_name ? strlen(c->new_name) + 1 : 0;
	size_t data = c->data && !over_ring(c) ? c->size : 0;
	struct call *d = malloc(sizeof(*d) + name + new_name + data);
	char *strings = (char *)(d + 1);

	if (!d)
		return NULL;
	*d = *c;
	if (name)
		d->name = memcpy(strings, c->name, name);
	if (new_name)
		d->new_name = memcpy(strings + name, c->new_name, new_name);
	if (data)
		d->data = memcpy(strings + name + new_name, c->data, data);
	return d;
}

static void defer(struct call *c)
{
	struct ops *o = c->ops;
	struct call *d = copy(c);

	if (d) {
		d->token = atomic_fetch_add(&o->tokens, 1) + 1;
		fuse_req_interrupt_func(d->req, on_interrupt,
					(void *)(uintptr_t)d->token);
		if (worker_try_submit(o->workers, run_deferred, d)) {
			atomic_fetch_add_explicit(&o->deferred, 1, memory_order_relaxed);
			return;
		}
		free(d);
	}
	atomic_fetch_add_explicit(&o->inlined, 1, memory_order_relaxed);
	finish(c, run(c, 0));
}

void call_start(struct call *c)
{
	int r;

	over_ring(c);
	r = run(c, TREE_NOWAIT);
	if (r == TREE_E_WAIT)
		defer(c);
	else
		finish(c, r);
}

void call_start_blocking(struct call *c)
{
	if (over_ring(c))
		defer(c);
	else
		finish(c, run(c, 0));
}

void ops_reply_expected(struct ops *o)
{
	lock_scope(&o->lock);
	o->replies++;
}

void ops_reply_sent(struct ops *o)
{
	lock_scope(&o->lock);
	if (--o->replies == 0)
		pthread_cond_broadcast(&o->replied);
}

/* ---- the mount ------------------------------------------------------------------------- */

void ops_common_init(void *user, struct fuse_conn_info *conn)
{
	struct ops *o = user;

	session_negotiate(o->config.session, conn);
}

int ops_new(const struct ops_config *config, struct ops **out)
{
	static const struct backing_kernel kernel = {handle_kernel_open,
						     handle_kernel_close};
	struct ops *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return err_origin(-ENOMEM);
	check(!config->input != !config->output);
	o->config = *config;
	lock_init(&o->lock);
	lock_cond_init(&o->replied);
	list_init(&o->handles);
	list_init(&o->replaced);
	r = backing_new(&kernel, config->input != NULL, &o->backing);
	if (r == 0 && config->input)
		r = standins_new(STANDINS_MAX, &o->standins);
	if (r == 0 && config->handover) {
		o->slots = calloc(HANDOVER_FILES_MAX, sizeof(*o->slots));
		r = o->slots ? 0 : err_origin(-ENOMEM);
	}
	if (r == 0)
		r = worker_pool_new(&o->workers, "sluice-io", (int)config->thread_count,
				    QUEUE_MAX);
	if (r < 0) {
		ops_free(o);
		return err_trace(r);
	}
	if (config->input)
		input_on_wrong(config->input, ops_input_wrong, o);
	else
		output_on_over(config->output, ops_spare, o);
	*out = o;
	return 0;
}

void ops_set_session(struct ops *o, struct session *session)
{
	o->config.session = session;
}

struct ops *ops_free(struct ops *o)
{
	if (!o)
		return NULL;
	/* Under the lock: whoever may still queue something has done so. */
	lock_take(&o->lock);
	atomic_store(&o->stopping, true);
	lock_drop(&o->lock);
	if (o->config.output)
		output_on_over(o->config.output, NULL, NULL);
	interrupt_all(o);
	worker_pool_free(o->workers);
	lock_take(&o->lock);
	while (o->replies > 0)
		lock_wait(&o->lock, &o->replied, UINT64_MAX);
	lock_drop(&o->lock);
	handle_close_all(o);
	while (!list_empty(&o->replaced)) {
		struct replaced *name = list_first(&o->replaced, struct replaced, link);

		list_remove(&name->link);
		free(name);
	}
	standins_free(o->standins);
	backing_free(o->backing);
	pthread_cond_destroy(&o->replied);
	lock_fini(&o->lock);
	free(o->slots);
	free(o);
	return NULL;
}

static void put_requests(struct ops *o, struct buf *b)
{
	static const char *const names[] = {
		"lookup",     "getattr", "readlink", "opendir", "readdir",
		"releasedir", "open",    "read",     "release", "statfs"};
	uint64_t total = 0;

	static_assert(sizeof(names) / sizeof(*names) == OPS_REQUEST_N, "request names");
	json_begin_object(b, "requests");
	for (int i = 0; i < OPS_REQUEST_N; i++) {
		uint64_t n = atomic_load_explicit(&o->requests[i], memory_order_relaxed);

		total += n;
		json_put_uint(b, names[i], n);
	}
	json_put_uint(b, "total", total);
	json_end_object(b);
}

void ops_status_json(struct ops *o, struct buf *b)
{
	struct backing_stats stats;

	backing_stats(o->backing, &stats);
	json_begin_object(b, "opens");
	for (int i = 0; i < BACKING_MODE_N; i++)
		json_put_uint(b, backing_mode_name((enum backing_mode)i), stats.opens[i]);
	json_end_object(b);
	if (o->config.input) {
		put_requests(o, b);
		json_put_bool(b, "without_open", atomic_load(&o->skips_open));
		json_put_bool(b, "without_opendir", atomic_load(&o->skips_opendir));
	}
	if (stats.refused)
		json_put_string(b, "passthrough_error", strerror(-stats.last_error));
	json_put_uint(b, "errors", atomic_load(&o->errors));
	json_put_uint(b, "deferred", atomic_load(&o->deferred));
	json_put_uint(b, "inlined", atomic_load(&o->inlined));
}

void ops_last_error_json(struct ops *o, struct buf *b)
{
	int error = atomic_load(&o->last_error);

	if (!error)
		return;
	json_begin_object(b, "last_error");
	json_put_string(b, "message", strerror(error));
	json_put_int(b, "at", atomic_load(&o->last_error_ns) / 1000000000);
	json_end_object(b);
}
