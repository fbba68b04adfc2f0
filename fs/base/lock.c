/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/lock.h"

#include <errno.h>
#include <time.h>

#include "fs/base/check.h"

void lock_init(struct lock *l)
{
	check(pthread_mutex_init(&l->mutex, NULL) == 0);
	atomic_store(&l->holder, 0);
}

void lock_fini(struct lock *l)
{
	check(pthread_mutex_destroy(&l->mutex) == 0);
}

void lock_take(struct lock *l)
{
	check(pthread_mutex_lock(&l->mutex) == 0);
	atomic_store_explicit(&l->holder, pthread_self(), memory_order_relaxed);
}

void lock_drop(struct lock *l)
{
	atomic_store_explicit(&l->holder, 0, memory_order_relaxed);
	check(pthread_mutex_unlock(&l->mutex) == 0);
}

void lock_assert_held(struct lock *l)
{
	check(atomic_load_explicit(&l->holder, memory_order_relaxed) == pthread_self());
}

void lock_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	check(pthread_condattr_init(&attr) == 0);
	check(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	check(pthread_cond_init(c, &attr) == 0);
	pthread_condattr_destroy(&attr);
}

int lock_wait(struct lock *l, pthread_cond_t *c, uint64_t deadline_ms)
{
	int r;

	lock_assert_held(l);
	if (deadline_ms == UINT64_MAX) {
		r = pthread_cond_wait(c, &l->mutex);
	} else {
		struct timespec t = {(time_t)(deadline_ms / 1000),
				     (long)(deadline_ms % 1000) * 1000000};

		r = pthread_cond_timedwait(c, &l->mutex, &t);
	}
	atomic_store_explicit(&l->holder, pthread_self(), memory_order_relaxed);
	check(r == 0 || r == ETIMEDOUT);
	return r == ETIMEDOUT ? LOCK_E_TIMEOUT : 0;
}
