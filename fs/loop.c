/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads are added while all that there are have something to do, up to the limit; they
 * stay. Whoever finds the session at its end wakes the caller of loop_run(), which cancels
 * the others where they wait for a request.
 */
#include "fs/loop.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/fuse_api.h"
#include "fs/handover.h"

struct loop {
	struct fuse_session *fuse;
	struct handover *handover;
	struct lock lock; /* all below */
	pthread_cond_t ended;
	pthread_t *threads;
	unsigned int count, max, idle;
	bool over;
	int error;
};

static void *serve(void *arg);

static int add_thread(struct loop *l)
{
	int r;

	lock_assert_held(&l->lock);
	r = pthread_create(&l->threads[l->count], NULL, serve, l);
	if (r)
		return err_origin(-r);
	l->count++;
	l->idle++;
	return 0;
}

static bool is_forget(const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;

	return in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET;
}

/* Around a request. Forgetting is done in no time: it is no reason for another thread. */
static void busy(struct loop *l, const struct fuse_buf *buf)
{
	lock_scope(&l->lock);
	l->idle--;
	if (l->idle == 0 && l->count < l->max && !l->over && !is_forget(buf) &&
	    add_thread(l) < 0)
		l->max = l->count; /* it has to do with those that there are */
}

static void unbusy(struct loop *l)
{
	lock_scope(&l->lock);
	l->idle++;
}

static void process(struct loop *l, struct fuse_buf *buf)
{
	handover_note(l->handover, buf->mem, buf->size);
	busy(l, buf);
	fuse_session_process_buf(l->fuse, buf);
	unbusy(l);
}

/* What was read before the loop. */
static void process_waiting(struct loop *l)
{
	struct fuse_buf buf = {0};

	while (handover_take(l->handover, &buf.mem, &buf.size)) {
		process(l, &buf);
		free(buf.mem);
	}
}

static int receive(struct loop *l, struct fuse_buf *buf)
{
	int r;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	r = fuse_session_receive_buf(l->fuse, buf);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return r;
}

static void free_buffer(void *arg)
{
	struct fuse_buf *buf = arg;

	free(buf->mem);
}

static void *serve(void *arg)
{
	struct fuse_buf buf = {0};
	struct loop *l = arg;
	int r = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_push(free_buffer, &buf);
	while (!fuse_session_exited(l->fuse)) {
		process_waiting(l);
		r = receive(l, &buf);
		if (r > 0)
			process(l, &buf);
		else if (r != -EINTR)
			break;
	}
	lock_take(&l->lock);
	if (r < 0 && r != -EINTR && l->error == 0)
		l->error = r;
	l->over = true;
	pthread_cond_broadcast(&l->ended);
	lock_drop(&l->lock);
	pthread_cleanup_pop(1);
	return NULL;
}

int loop_new(struct fuse_session *fuse, struct handover *handover,
	     unsigned int threads_max, struct loop **out)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return err_origin(-ENOMEM);
	*l = (struct loop){.fuse = fuse, .handover = handover, .max = threads_max};
	l->threads = calloc(threads_max, sizeof(*l->threads));
	if (!l->threads) {
		free(l);
		return err_origin(-ENOMEM);
	}
	lock_init(&l->lock);
	lock_cond_init(&l->ended);
	*out = l;
	return 0;
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	pthread_cond_destroy(&l->ended);
	lock_fini(&l->lock);
	free(l->threads);
	free(l);
	return NULL;
}

/* Before anything else the library has to know what was agreed on with the kernel. */
static void replay_first(struct loop *l)
{
	struct fuse_buf buf = {0};

	if (!handover_take(l->handover, &buf.mem, &buf.size))
		return;
	fuse_session_process_buf(l->fuse, &buf);
	free(buf.mem);
}

int loop_run(struct loop *l)
{
	int r;

	replay_first(l);
	lock_take(&l->lock);
	r = add_thread(l);
	while (r == 0 && !l->over)
		lock_wait(&l->lock, &l->ended, UINT64_MAX);
	l->over = true; /* no thread is added any more */
	lock_drop(&l->lock);
	fuse_session_exit(l->fuse);
	for (unsigned int i = 0; i < l->count; i++)
		pthread_cancel(l->threads[i]);
	for (unsigned int i = 0; i < l->count; i++)
		pthread_join(l->threads[i], NULL);
	return r < 0 ? err_trace(r) : l->error;
}

void loop_wake(struct loop *l)
{
	lock_scope(&l->lock);
	l->over = true;
	pthread_cond_broadcast(&l->ended);
}
