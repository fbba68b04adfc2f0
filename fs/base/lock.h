/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex that knows its holder, so that *_locked() functions can assert it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct lock {
	pthread_mutex_t mutex;
	_Atomic(pthread_t) holder; /* meaningful only while held */
};

#define LOCK_INIT                                                                        \
	{                                                                                \
		PTHREAD_MUTEX_INITIALIZER, 0                                             \
	}

void lock_init(struct lock *l);
void lock_fini(struct lock *l);
void lock_take(struct lock *l);
void lock_drop(struct lock *l);
void lock_assert_held(struct lock *l);

/* A condition variable on CLOCK_MONOTONIC. */
void lock_cond_init(pthread_cond_t *c);

/* Waits until signalled or the deadline (clock_mono_ms() units; UINT64_MAX: for ever).
 * Returns 0, or LOCK_E_TIMEOUT. Spurious wake-ups happen: call it in a loop. */
enum {
	LOCK_E_TIMEOUT = 1
};
int lock_wait(struct lock *l, pthread_cond_t *c, uint64_t deadline_ms);

static inline void lock_dropp(struct lock **l)
{
	if (*l)
		lock_drop(*l);
}

/* Holds the lock to the end of the scope. */
#define lock_scope(l)                                                                    \
	__attribute__((cleanup(lock_dropp), unused)) struct lock *_scope_lock = (l);     \
	lock_take(_scope_lock)
