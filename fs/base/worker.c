/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"

struct job {
	worker_fn fn;
	void *arg;
};

struct worker_pool {
	struct lock lock; /* everything below */
	pthread_cond_t not_empty;
	pthread_cond_t not_full;
	pthread_cond_t idle;
	const char *name;
	struct job *ring; /* queue_max jobs */
	int queue_max;
	int head; /* next to run */
	int queued;
	int running;
	bool stopping;
	int thread_count;
	pthread_t threads[];
};

static void *work(void *arg)
{
	struct worker_pool *p = arg;

	prctl(PR_SET_NAME, p->name);
	lock_take(&p->lock);
	for (;;) {
		struct job job;

		while (!p->queued && !p->stopping)
			lock_wait(&p->lock, &p->not_empty, UINT64_MAX);
		if (!p->queued)
			break;
		job = p->ring[p->head];
		p->head = (p->head + 1) % p->queue_max;
		p->queued--;
		p->running++;
		pthread_cond_signal(&p->not_full);
		lock_drop(&p->lock);
		job.fn(job.arg);
		lock_take(&p->lock);
		p->running--;
		if (!p->running && !p->queued)
			pthread_cond_broadcast(&p->idle);
	}
	lock_drop(&p->lock);
	return NULL;
}

int worker_pool_new(struct worker_pool **out, const char *name, int thread_count,
		    int queue_max)
{
	struct worker_pool *p;
	sigset_t all, old;

	check(thread_count > 0 && queue_max > 0);
	p = calloc(1, sizeof(*p) + (size_t)thread_count * sizeof(pthread_t));
	if (!p)
		return err_origin(-ENOMEM);
	p->ring = calloc((size_t)queue_max, sizeof(*p->ring));
	if (!p->ring) {
		free(p);
		return err_origin(-ENOMEM);
	}
	lock_init(&p->lock);
	lock_cond_init(&p->not_empty);
	lock_cond_init(&p->not_full);
	lock_cond_init(&p->idle);
	p->name = name;
	p->queue_max = queue_max;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (p->thread_count < thread_count &&
	       pthread_create(&p->threads[p->thread_count], NULL, work, p) == 0)
		p->thread_count++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (p->thread_count < thread_count) {
		worker_pool_free(p);
		return err_origin(-EAGAIN);
	}
	*out = p;
	return 0;
}

static void push_locked(struct worker_pool *p, worker_fn fn, void *arg)
{
	check(!p->stopping);
	p->ring[(p->head + p->queued) % p->queue_max] = (struct job){fn, arg};
	p->queued++;
	pthread_cond_signal(&p->not_empty);
}

void worker_submit(struct worker_pool *p, worker_fn fn, void *arg)
{
	lock_scope(&p->lock);
	while (p->queued == p->queue_max)
		lock_wait(&p->lock, &p->not_full, UINT64_MAX);
	push_locked(p, fn, arg);
}

bool worker_try_submit(struct worker_pool *p, worker_fn fn, void *arg)
{
	lock_scope(&p->lock);
	if (p->queued == p->queue_max)
		return false;
	push_locked(p, fn, arg);
	return true;
}

void worker_drain(struct worker_pool *p)
{
	lock_scope(&p->lock);
	while (p->queued || p->running)
		lock_wait(&p->lock, &p->idle, UINT64_MAX);
}

struct worker_pool *worker_pool_free(struct worker_pool *p)
{
	if (!p)
		return NULL;
	lock_take(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->not_empty);
	lock_drop(&p->lock);
	for (int i = 0; i < p->thread_count; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->not_empty);
	pthread_cond_destroy(&p->not_full);
	pthread_cond_destroy(&p->idle);
	lock_fini(&p->lock);
	free(p->ring);
	free(p);
	return NULL;
}
