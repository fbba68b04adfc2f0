/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free buffers are kept in one list per size. mapped = in use + free <= max always: taking
 * first reuses a free buffer of the right size, then maps a new one, then unmaps free ones
 * of other sizes to make room, then asks the owner of reclaimable buffers, then waits.
 *
 * Waiters are served in the order in which they came, so that a 1 MiB request is not
 * starved by a stream of 4 KiB ones.
 */
#include "cache/budget.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/wait.h"
#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

enum {
	CLASS_N = 9
}; /* 4 KiB << 0..8 */

struct free_buffer {
	struct free_buffer *next;
};

struct budget {
	struct lock lock; /* everything below */
	pthread_cond_t freed;
	uint64_t max;
	uint64_t mapped;
	uint64_t in_use;
	uint64_t peak;
	struct list line; /* those who wait, in the order they came */
	struct free_buffer *free[CLASS_N];
	budget_reclaim_fn reclaim;
	void *reclaim_arg;
};

static size_t class_size(int class)
{
	return (size_t)BUDGET_BUFFER_MIN << class;
}

static int class_of(size_t n)
{
	int class = 0;

	check(n <= BUDGET_BUFFER_MAX);
	while (class_size(class) < n)
		class ++;
	return class;
}

int budget_new(struct budget **out, uint64_t bytes_max)
{
	struct budget *b = calloc(1, sizeof(*b));

	if (!b)
		return err_origin(-ENOMEM);
	lock_init(&b->lock);
	lock_cond_init(&b->freed);
	list_init(&b->line);
	b->max = bytes_max < BUDGET_SIZE_MIN ? BUDGET_SIZE_MIN : bytes_max;
	*out = b;
	return 0;
}

static void unmap_free_locked(struct budget *b, int class)
{
	struct free_buffer *f = b->free[class];

	b->free[class] = f->next;
	munmap(f, class_size(class));
	b->mapped -= class_size(class);
}

struct budget *budget_free(struct budget *b)
{
	if (!b)
		return NULL;
	check(b->in_use == 0);
	for (int class = 0; class < CLASS_N; class ++)
		while (b->free[class])
			unmap_free_locked(b, class);
	pthread_cond_destroy(&b->freed);
	lock_fini(&b->lock);
	free(b);
	return NULL;
}

void budget_set_reclaim(struct budget *b, budget_reclaim_fn fn, void *arg)
{
	lock_scope(&b->lock);
	b->reclaim = fn;
	b->reclaim_arg = arg;
}

/* Unmaps free buffers, largest first, until `size` more fit. */
static bool make_room_locked(struct budget *b, size_t size)
{
	for (int class = CLASS_N - 1; class >= 0; class --)
		while (b->mapped + size > b->max && b->free[class])
			unmap_free_locked(b, class);
	return b->mapped + size <= b->max;
}

static void *take_locked(struct budget *b, int class)
{
	size_t size = class_size(class);
	void *p;

	if (b->free[class]) {
		p = b->free[class];
		b->free[class] = b->free[class]->next;
	} else {
		if (!make_room_locked(b, size))
			return NULL;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (p == MAP_FAILED)
			return NULL;
		b->mapped += size;
		if (b->mapped > b->peak)
			b->peak = b->mapped;
	}
	b->in_use += size;
	return p;
}

void *budget_try(struct budget *b, size_t n, uint64_t leave)
{
	int class = class_of(n);

	lock_scope(&b->lock);
	/* Those who wait come first. */
	if (!list_empty(&b->line))
		return NULL;
	if (b->in_use + class_size(class) + leave > b->max)
		return NULL;
	return take_locked(b, class);
}

/* At the head of the line: what is free, else what the owner can let go. */
static void *take_first_locked(struct budget *b, int class)
{
	void *p = take_locked(b, class);

	if (p || !b->reclaim)
		return p;
	lock_drop(&b->lock);
	b->reclaim(b->reclaim_arg, class_size(class));
	lock_take(&b->lock);
	return take_locked(b, class);
}

int budget_take(struct budget *b, size_t n, const struct wait *w, void **out)
{
	int class = class_of(n), r = 0;
	struct list self;
	void *p = NULL;

	lock_scope(&b->lock);
	list_push_back(&b->line, &self);
	while (r == 0) {
		if (b->line.next == &self)
			p = take_first_locked(b, class);
		if (p)
			break;
		r = wait_on(w, &b->lock, &b->freed);
	}
	list_remove(&self);
	if (!list_empty(&b->line))
		pthread_cond_broadcast(&b->freed);
	if (r < 0)
		return err_trace(r);
	*out = p;
	return 0;
}

void budget_give(struct budget *b, void *p, size_t n)
{
	int class = class_of(n);
	struct free_buffer *f = p;

	if (!p)
		return;
	lock_scope(&b->lock);
	f->next = b->free[class];
	b->free[class] = f;
	b->in_use -= class_size(class);
	pthread_cond_broadcast(&b->freed);
}

uint64_t budget_max(const struct budget *b)
{
	return b->max;
}

uint64_t budget_in_use(struct budget *b)
{
	lock_scope(&b->lock);
	return b->in_use;
}

uint64_t budget_peak(struct budget *b)
{
	lock_scope(&b->lock);
	return b->peak;
}
