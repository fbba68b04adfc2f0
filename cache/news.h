/* SPDX-License-Identifier: Apache-2.0 */
/* "Something has changed, look again": costs those who tell next to nothing while nobody
 * sleeps, and loses nothing between a look and the sleep that follows it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "fs/base/lock.h"

struct news {
	struct lock lock;
	pthread_cond_t told;
	_Atomic uint64_t count;
	atomic_uint sleepers;
};

void news_init(struct news *n);
void news_fini(struct news *n);
void news_tell(struct news *n);

/* Read it before looking, give it to news_wait() after. */
uint64_t news_count(struct news *n);

/* Until more than `seen` has been told, or the deadline (clock_mono_ms() units). */
void news_wait(struct news *n, uint64_t seen, uint64_t deadline_ms);
