/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of versions that the store has no more: their readers go on, and when the
 * last one has gone the disk is rid of them. */
#include "tests/unit/test.h"

#include <errno.h>

#include "cache/index.h"
#include "cache/object.h"
#include "cache/state.h"
#include "tests/unit/lib_cache.h"

/* Puts a version and reads all of it, as a new open does. */
static void replace(struct world *w, const char *key, unsigned int version, uint64_t size)
{
	struct object *o;

	scripted_put(w->store, key, version, size);
	o = lib_cache_get(w, key);
	object_current(o);
	lib_cache_read(w, key, version, 0, size, MIB);
	object_put(o);
	lib_cache_settle(w);
}

static void assert_byte(struct object *o, const char *key, unsigned int version,
			uint64_t off)
{
	unsigned char byte;
	size_t got;

	assert_int_equal(lib_cache_read_at(o, NULL, off, &byte, 1, &got), 0);
	lib_cache_assert_bytes(key, version, off, &byte, 1);
}

static void test_a_replaced_object_leaves_the_disk(void **state)
{
	struct world *w = *state;
	uint64_t one;

	replace(w, "k", 1, 8 * MIB);
	one = lib_cache_stats(w).size_used;
	assert_true(one > 8 * MIB);
	replace(w, "k", 2, 8 * MIB);
	eventually(lib_cache_stats(w).size_used == one);
	scripted_reset(w->store);
	lib_cache_read(w, "k", 2, 0, 8 * MIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	/* Back again: it is the other one's turn. */
	replace(w, "k", 1, 8 * MIB);
	eventually(lib_cache_stats(w).size_used == one);
	/* Also when there is no time for the janitor. */
	replace(w, "k", 3, 8 * MIB);
	lib_cache_reopen(w);
	assert_int_equal(lib_cache_stats(w).size_used, one);
	assert_int_equal(lib_cache_stats(w).evicted, 0);
}

static void test_a_reader_goes_on_with_the_version_it_has(void **state)
{
	struct world *w = *state;
	struct object *old;
	uint64_t one;

	replace(w, "k", 1, 8 * MIB);
	replace(w, "probe", 1, MIB);
	one = lib_cache_stats(w).size_used;
	old = lib_cache_get(w, "k");
	replace(w, "k", 2, 8 * MIB);
	replace(w, "probe", 2, MIB);
	/* When the probe's first version has gone, the held one has been passed over. */
	eventually(lib_cache_stats(w).size_used < one + 9 * MIB);
	assert_true(lib_cache_stats(w).size_used > one + 8 * MIB);
	for (uint64_t at = 0; at < 8 * MIB; at += MIB)
		assert_byte(old, "k", 1, at);
	object_put(old);
	eventually(lib_cache_stats(w).size_used == one);
}

static void test_a_version_that_a_read_finds_gone_leaves_the_disk(void **state)
{
	struct world *w = *state;
	uint64_t before = lib_cache_stats(w).size_used;
	struct object *old;
	unsigned char byte;
	size_t got;

	scripted_put(w->store, "k", 1, 8 * MIB);
	old = lib_cache_get(w, "k");
	assert_byte(old, "k", 1, 0);
	lib_cache_settle(w);
	assert_true(lib_cache_stats(w).size_used > before);
	scripted_put(w->store, "k", 2, 8 * MIB);
	assert_int_equal(lib_cache_read_at(old, NULL, 7 * MIB, &byte, 1, &got), -ESTALE);
	assert_byte(old, "k", 1, 0);
	object_put(old);
	eventually(lib_cache_stats(w).size_used == before);
}

static void test_a_read_that_only_failed_drops_nothing(void **state)
{
	struct world *w = *state;
	struct object *o;
	unsigned char byte;
	uint64_t before;
	size_t got;
	int r;

	scripted_put(w->store, "k", 1, 8 * MIB);
	o = lib_cache_get(w, "k");
	object_current(o);
	assert_byte(o, "k", 1, 0);
	lib_cache_settle(w);
	before = lib_cache_stats(w).size_used;
	atomic_store(&w->store->fail, -EACCES);
	atomic_store(&w->store->fail_count, -1);
	r = lib_cache_read_at(o, NULL, 7 * MIB, &byte, 1, &got);
	atomic_store(&w->store->fail_count, 0);
	object_put(o);
	assert_int_equal(r, -EACCES);
	replace(w, "probe", 1, MIB);
	replace(w, "probe", 2, MIB);
	eventually(lib_cache_stats(w).size_used < before + 2 * MIB);
	scripted_reset(w->store);
	lib_cache_read_alone(w, "k", 1, 0, 1);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
}

static void test_a_replaced_small_object_leaves_the_index(void **state)
{
	struct world *w = *state;
	unsigned char hash[IDENT_HASH_SIZE];
	struct object *old, *now;
	struct index_small where;

	replace(w, "k", 1, 3 * KIB);
	old = lib_cache_get(w, "k");
	memcpy(hash, old->ident->hash, sizeof(hash));
	replace(w, "k", 2, 3 * KIB);
	now = lib_cache_get(w, "k");
	assert_byte(old, "k", 1, 0);
	assert_int_equal(index_find_small(w->cache->index, hash, &where), 0);
	object_put(old);
	eventually(index_find_small(w->cache->index, hash, &where) == INDEX_E_NONE);
	assert_int_equal(index_find_small(w->cache->index, now->ident->hash, &where), 0);
	object_put(now);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, lib_cache_setup, lib_cache_teardown)

TEST_MAIN(CASE(test_a_replaced_object_leaves_the_disk),
	  CASE(test_a_reader_goes_on_with_the_version_it_has),
	  CASE(test_a_version_that_a_read_finds_gone_leaves_the_disk),
	  CASE(test_a_read_that_only_failed_drops_nothing),
	  CASE(test_a_replaced_small_object_leaves_the_index))
