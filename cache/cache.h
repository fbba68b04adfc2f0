/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The read cache's door: one directory on local disk, shared by every mount of this user
 * on the host, and one memory budget for this process. Format, states, crash rules and
 * lock order: cache/README.md.
 *
 * A cache never makes a read fail: a disk that is full, slow, read-only or broken is gone
 * around (`bypassed` in the statistics), and what it holds is checked before it is shown.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/err.h"

struct budget;
struct buf;
struct cache;

struct cache_config {
	const char *dir;     /* made with mode 0700 when missing; NULL: memory only */
	uint64_t size_max;   /* bytes on disk, of all mounts together; 0: 10 GiB */
	uint64_t free_min;   /* bytes always left free on that disk */
	uint64_t memory_max; /* hard limit of this process' data buffers; 0: 256 MiB */
};

/* -EPERM with a sentence for a directory that belongs to someone else, -EBUSY when this
 * process has it open already (share the handle), -EINVAL. A directory that cannot be
 * written is no error: the cache then works in memory and says so in the log. */
int cache_open(const struct cache_config *config, struct cache **out, struct why *why);

/* All objects have been put. Waits for requests under way (they are cancelled) and for
 * data on its way to the disk. Takes NULL, returns NULL. */
struct cache *cache_close(struct cache *c);

/* For others who hold data buffers on behalf of the same mount. */
struct budget *cache_budget(struct cache *c);

/* Bytes the cache may take on its disk now; 0: it has none that can be used. */
uint64_t cache_disk_limit(struct cache *c);

struct cache_stats {
	uint64_t size_max, size_used; /* on disk, all mounts */
	uint64_t memory_max, memory_used, memory_peak;
	uint64_t hits, misses;          /* reads answered without and with the store */
	uint64_t bytes_hit, bytes_read; /* of these, and in all */
	uint64_t bytes_fetched, requests, requests_failed;
	uint64_t bytes_prefetched; /* of bytes_fetched: asked for ahead of a reader */
	uint64_t damaged;          /* pages found damaged and dropped */
	uint64_t crc_mismatches;   /* whole objects that failed the store's CRC-64 */
	uint64_t wrong_shown; /* of these, such as a reader had seen wrong bytes of */
	uint64_t evicted, bytes_evicted;
	uint64_t bypassed; /* pieces not kept because the disk would not take them */
	bool disk;         /* false: working in memory now */
};
void cache_stats(struct cache *c, struct cache_stats *stats);
void cache_status_json(struct cache *c, struct buf *b); /* members of an open object */
