/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of equal items in memory that may outlive the process. Which of them are in use
 * is in the items themselves, so that a process that dies anywhere leaves nothing but
 * items; the list of the free ones is each process's own. Thread-safe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/lock.h"

#define SLOTS_NONE UINT32_MAX

struct slots {
	struct lock lock; /* free */
	char *base;
	size_t item;
	uint32_t max;
	_Atomic uint32_t
		*limit; /* items below it may be in use; outlives the process too */
	uint32_t *free; /* a stack */
	uint32_t free_count, free_size;
};

/* Items [0, *limit) for which `used` says no are free. -ENOMEM. */
int slots_attach(struct slots *s, void *base, size_t item, uint32_t max,
		 _Atomic uint32_t *limit, bool (*used)(void *arg, uint32_t i), void *arg);
void slots_detach(struct slots *s);

/* SLOTS_NONE: all are in use, or no memory. What is in the item is the last user's. */
uint32_t slots_take(struct slots *s);
void slots_give(struct slots *s, uint32_t i);

static inline void *slots_at(const struct slots *s, uint32_t i)
{
	return s->base + (size_t)i * s->item;
}
