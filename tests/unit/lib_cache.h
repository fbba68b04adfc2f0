/* SPDX-License-Identifier: Apache-2.0 */
/* A read cache in a directory of its own over a scripted store, and reads that compare what
 * they get with what was put. */
#pragma once

#include "tests/unit/test.h"

#include "cache/cache.h"
#include "cache/object.h"
#include "tests/unit/lib_scripted.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

struct world {
	char dir[64];
	struct scripted *store;
	struct cache *cache;
	struct cache_config config; /* changes take effect when it is opened again */
};

int lib_cache_setup(void **state); /* for cmocka: *state is a struct world */
int lib_cache_teardown(void **state);
void lib_cache_open(struct world *w);
void lib_cache_reopen(struct world *w);

struct object *lib_cache_get(struct world *w, const char *key);
int lib_cache_read_at(struct object *o, struct object_reader *reader, uint64_t off,
		      void *p, size_t n, size_t *got);
void lib_cache_assert_bytes(const char *key, unsigned int version, uint64_t off,
			    const unsigned char *p, size_t n);
/* One read with no one to notice a sequence. */
void lib_cache_read_alone(struct world *w, const char *key, unsigned int version,
			  uint64_t off, size_t n);
/* Reads [off, off + n) in steps. */
void lib_cache_read(struct world *w, const char *key, unsigned int version, uint64_t off,
		    uint64_t n, size_t step);
struct cache_stats lib_cache_stats(struct world *w);
/* Until what is on its way to the disk is there. */
void lib_cache_settle(struct world *w);
void lib_cache_calm(struct world *w);
