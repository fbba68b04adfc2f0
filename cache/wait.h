/* SPDX-License-Identifier: Apache-2.0 */
/* How long a caller is ready to block, and how it is called back: a deadline and a flag
 * that another thread raises. Every wait of the read path goes through here, so that no
 * reader stays in the kernel's uninterruptible sleep because of a store. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock;

#define WAIT_SLICE_MS 50 /* an interrupt is noticed after at most this long */

struct wait {
	uint64_t deadline_ms;           /* clock_mono_ms() units; UINT64_MAX: none */
	const atomic_bool *interrupted; /* borrowed; NULL: cannot be interrupted */
};

/* Sleeps on the condition, lock held, for at most a slice. 0: look again; -EINTR;
 * -ETIMEDOUT: the deadline has passed. `w` NULL never gives up. */
int wait_on(const struct wait *w, struct lock *l, pthread_cond_t *c);

/* The same two verdicts without sleeping. */
int wait_check(const struct wait *w);
