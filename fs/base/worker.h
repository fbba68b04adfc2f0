/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of jobs and the threads that run them. */
#pragma once

#include <stdbool.h>

struct worker_pool;
typedef void (*worker_fn)(void *arg);

/* `name` (borrowed, at most 11 bytes are shown) names the threads. All signals are blocked
 * in them. -EAGAIN when threads cannot be started (none is left then). */
int worker_pool_new(struct worker_pool **pool, const char *name, int thread_count,
		    int queue_max);

/* Waits while the queue is full. Never call it from a worker of the same pool. */
void worker_submit(struct worker_pool *pool, worker_fn fn, void *arg);

/* Returns false instead of waiting when the queue is full. */
bool worker_try_submit(struct worker_pool *pool, worker_fn fn, void *arg);

/* Returns when the queue is empty and no job runs. */
void worker_drain(struct worker_pool *pool);

/* Finishes what is queued, joins the threads. Takes NULL, returns NULL. */
struct worker_pool *worker_pool_free(struct worker_pool *pool);
