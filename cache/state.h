/* SPDX-License-Identifier: Apache-2.0 */
/* What the modules of the read cache share: struct cache itself. Lock order: README.md. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/news.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

struct budget;
struct disk;
struct index;
struct object;
struct packs;
struct worker_pool;

struct cache_counters {
	_Atomic uint64_t hits, misses, bytes_hit, bytes_read;
	_Atomic uint64_t bytes_fetched, requests, requests_failed, bytes_prefetched;
	_Atomic uint64_t damaged, crc_mismatches, wrong_shown, evicted, bytes_evicted,
		bypassed;
};

struct cache {
	struct disk *disk; /* NULL, with the two below: memory only */
	struct index *index;
	struct packs *packs;
	uint64_t size_max;
	struct budget *budget;
	struct worker_pool *writers;  /* fills to disk */
	struct worker_pool *checkers; /* whole objects */
	struct cache_counters count;
	uint64_t dir_dev, dir_ino; /* of the directory, while it is registered */

	struct lock lock; /* the block below */
	struct object *objects;
	struct object *current; /* of each name the one that object_current() saw last */
	struct list gone;       /* objects to be taken off the disk (evict.c) */
	uint64_t gone_count;
	struct list idle; /* objects with no reference, least recently used first */
	uint64_t idle_count, idle_blocks;
	struct list open; /* objects with an open file, opened first first */
	uint64_t open_count, open_max;
	struct list memory;  /* fills that lie in memory only, oldest first */
	struct list queued;  /* those that wait for a writer, or are in its hands */
	struct list fetches; /* requests under way */
	uint64_t fetch_count;
	pthread_cond_t fetch_gone;
	bool closing;

	_Atomic uint64_t sum_pieces; /* of unfinished blocks, in all objects */
	struct news news;            /* a request has ended, a fill has left memory */
	_Atomic uint64_t demand;     /* requests under way that a reader waits for */
	_Atomic uint64_t demand_ms;  /* when the last one ended */
	_Atomic uint64_t read_on;    /* bytes that objects are read on from their start */

	struct lock
		evict_lock; /* one eviction at a time; taken with no other lock held */

	struct lock whole_lock; /* of the next; an object's lock may be taken under it */
	pthread_cond_t whole_settled; /* someone has found out about an object */

	struct lock janitor_lock; /* the three below */
	pthread_cond_t janitor_wake;
	bool janitor_stop;
	bool janitor_runs;
	pthread_t janitor;
};

static inline void cache_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
