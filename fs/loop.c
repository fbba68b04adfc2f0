/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads are added while all that there are have something to do, up to the limit, or as
 * far as there is memory that can be locked for what they read; they stay. Whoever finds
 * the session at its end wakes the caller of loop_run(), which wakes the others where they
 * wait for a request.
 */
#include "fs/loop.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cache/kill_point.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/fuse_api.h"
#include "fs/handover.h"
#include "fs/receive.h"

#define WAKE_SIGNAL SIGUSR2
#define WAKE_MS 10
#define THREADS_WANTED 4 /* also with buffers that cannot be locked */

struct loop {
	struct fuse_session *fuse;
	struct handover *handover;
	size_t need;      /* bytes of a buffer that requests may fill */
	atomic_uint idle; /* threads that wait for a request, or soon will */
	atomic_bool full; /* no thread is added any more */
	struct lock lock; /* all below */
	pthread_cond_t ended;
	pthread_t *threads;
	unsigned int count, max;
	unsigned int running; /* of `count`; the others need only be joined */
	bool over;
	int error;
};

static void *serve(void *arg);

static int add_thread(struct loop *l)
{
	int r;

	lock_assert_held(&l->lock);
	if (!receive_ready(handover_buffer(l->handover, l->count), l->need)) {
		if (l->count >= THREADS_WANTED)
			return err_origin(-ENOMEM);
		atomic_store(&l->handover->unlocked, true);
	}
	atomic_fetch_add(&l->idle, 1);
	r = pthread_create(&l->threads[l->count], NULL, serve, l);
	if (r) {
		atomic_fetch_sub(&l->idle, 1);
		return err_origin(-r);
	}
	l->count++;
	l->running++;
	return 0;
}

/* All are busy. When there can be no other, it has to do with those that there are. */
static void grow(struct loop *l)
{
	lock_scope(&l->lock);
	if (atomic_load(&l->idle) > 0 || l->over)
		return;
	if (l->count == l->max || add_thread(l) < 0)
		atomic_store(&l->full, true);
}

/* Forgetting is done in no time: it is no reason for another thread. */
static bool is_forget(const struct fuse_in_header *in)
{
	return in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET;
}

static void process(struct loop *l, void *request, size_t size)
{
	const struct fuse_buf buf = {.size = size, .mem = request};

	handover_note(l->handover, request, size);
	kill_point("request.taken");
	if (atomic_fetch_sub(&l->idle, 1) == 1 &&
	    !atomic_load_explicit(&l->full, memory_order_relaxed) && !is_forget(request))
		grow(l);
	fuse_session_process_buf(l->fuse, &buf);
	kill_point("request.replied");
	atomic_fetch_add(&l->idle, 1);
}

/* What was read before the loop. */
static void process_waiting(struct loop *l)
{
	void *request;
	size_t size;

	while (handover_take(l->handover, &request, &size)) {
		process(l, request, size);
		free(request);
	}
}

/* The buffer of the thread that asks. */
static char *own_buffer(struct loop *l)
{
	unsigned int i = 0;

	lock_scope(&l->lock);
	while (i < l->count && !pthread_equal(l->threads[i], pthread_self()))
		i++;
	return handover_buffer(l->handover, i);
}

static void *serve(void *arg)
{
	struct loop *l = arg;
	char *buffer = own_buffer(l);
	sigset_t wake;
	size_t size;
	int r = 0;

	sigemptyset(&wake);
	sigaddset(&wake, WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
	while (r != RECEIVE_E_ENDED && r >= 0 && !fuse_session_exited(l->fuse)) {
		process_waiting(l);
		r = receive(fuse_session_fd(l->fuse), buffer, &size);
		if (r == 0)
			process(l, buffer, size);
	}
	lock_scope(&l->lock);
	if (r < 0 && l->error == 0)
		l->error = r;
	l->over = true;
	l->running--;
	pthread_cond_broadcast(&l->ended);
	return NULL;
}

int loop_new(struct fuse_session *fuse, struct handover *handover,
	     unsigned int threads_max, bool writes, struct loop **out)
{
	struct loop *l = calloc(1, sizeof(*l));

	check(threads_max <= HANDOVER_BUFFERS_MAX);
	if (!l)
		return err_origin(-ENOMEM);
	*l = (struct loop){.fuse = fuse, .handover = handover, .max = threads_max};
	atomic_store(&handover->unlocked, false);
	l->need = writes ? RECEIVE_SIZE : RECEIVE_SMALL;
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

static void woken(int signal)
{
	(void)signal;
}

/* Out of their reads, by a signal; one that comes just before a read is lost, so they are
 * sent until all have gone. Lock held. */
static void end_threads(struct loop *l)
{
	while (l->running > 0) {
		for (unsigned int i = 0; i < l->count; i++)
			pthread_kill(l->threads[i], WAKE_SIGNAL);
		lock_wait(&l->lock, &l->ended, clock_mono_ms() + WAKE_MS);
	}
}

int loop_run(struct loop *l)
{
	const struct sigaction wake = {.sa_handler = woken}; /* reads do not go on */
	int r;

	check(sigaction(WAKE_SIGNAL, &wake, NULL) == 0);
	replay_first(l);
	lock_take(&l->lock);
	r = add_thread(l);
	while (r == 0 && !l->over)
		lock_wait(&l->lock, &l->ended, UINT64_MAX);
	l->over = true; /* no thread is added any more */
	fuse_session_exit(l->fuse);
	end_threads(l);
	lock_drop(&l->lock);
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
