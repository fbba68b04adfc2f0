/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/news.h"

void news_init(struct news *n)
{
	lock_init(&n->lock);
	lock_cond_init(&n->told);
	atomic_store(&n->count, 0);
	atomic_store(&n->sleepers, 0);
}

void news_fini(struct news *n)
{
	pthread_cond_destroy(&n->told);
	lock_fini(&n->lock);
}

/* Counting before looking for sleepers, and there announcing the sleep before looking at
 * the count: one of the two sees the other. */
void news_tell(struct news *n)
{
	atomic_fetch_add(&n->count, 1);
	if (!atomic_load(&n->sleepers))
		return;
	lock_take(&n->lock);
	pthread_cond_broadcast(&n->told);
	lock_drop(&n->lock);
}

uint64_t news_count(struct news *n)
{
	return atomic_load(&n->count);
}

void news_wait(struct news *n, uint64_t seen, uint64_t deadline_ms)
{
	lock_scope(&n->lock);
	atomic_fetch_add(&n->sleepers, 1);
	while (atomic_load(&n->count) == seen &&
	       lock_wait(&n->lock, &n->told, deadline_ms) != LOCK_E_TIMEOUT)
		;
	atomic_fetch_sub(&n->sleepers, 1);
}
