/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/slots.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/base/err.h"

#define FREE_FIRST 64u

static int push(struct slots *s, uint32_t i)
{
	if (s->free_count == s->free_size) {
		uint32_t size = s->free_size ? s->free_size * 2 : FREE_FIRST;
		uint32_t *grown = realloc(s->free, size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		s->free = grown;
		s->free_size = size;
	}
	s->free[s->free_count++] = i;
	return 0;
}

int slots_attach(struct slots *s, void *base, size_t item, uint32_t max,
		 _Atomic uint32_t *limit, bool (*used)(void *arg, uint32_t i), void *arg)
{
	uint32_t n = atomic_load(limit);
	int r = 0;

	*s = (struct slots){.base = base, .item = item, .max = max, .limit = limit};
	lock_init(&s->lock);
	/* Backwards: the lowest are taken first, and the table stays dense. */
	while (r == 0 && n-- > 0) {
		if (!used(arg, n))
			r = push(s, n);
	}
	if (r < 0)
		slots_detach(s);
	return err_trace(r);
}

void slots_detach(struct slots *s)
{
	free(s->free);
	s->free = NULL;
	lock_fini(&s->lock);
}

uint32_t slots_take(struct slots *s)
{
	uint32_t i;

	lock_scope(&s->lock);
	if (s->free_count > 0)
		return s->free[--s->free_count];
	i = atomic_load(s->limit);
	if (i >= s->max)
		return SLOTS_NONE;
	atomic_store(s->limit, i + 1);
	return i;
}

void slots_give(struct slots *s, uint32_t i)
{
	lock_scope(&s->lock);
	/* Without memory it is lost to this process; the next one finds it. */
	(void)push(s, i);
}
