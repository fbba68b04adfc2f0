/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"

void lib_cache_open(struct world *w)
{
	struct why why = {0};

	assert_int_equal(cache_open(&w->config, &w->cache, &why), 0);
}

void lib_cache_reopen(struct world *w)
{
	object_forget_origin(w->cache, &w->store->origin);
	w->cache = cache_close(w->cache);
	lib_cache_open(w);
}

int lib_cache_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	strcpy(w->dir, "/tmp/test_cache.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->store = scripted_new("test://bucket");
	w->config = (struct cache_config){.dir = w->dir, .memory_max = 16 * MIB};
	lib_cache_open(w);
	*state = w;
	return 0;
}

int lib_cache_teardown(void **state)
{
	struct world *w = *state;

	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	origin_free(&w->store->origin);
	io_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

struct object *lib_cache_get(struct world *w, const char *key)
{
	struct origin_attr attr = scripted_attr(w->store, key);
	struct object *o = NULL;

	assert_int_equal(object_get(w->cache, &w->store->origin, key, &attr, &o), 0);
	return o;
}

int lib_cache_read_at(struct object *o, struct object_reader *reader, uint64_t off,
		      void *p, size_t n, size_t *got)
{
	struct wait w = {.deadline_ms = patience()};

	return object_read(o, reader, off, p, n, 0, &w, got);
}

void lib_cache_assert_bytes(const char *key, unsigned int version, uint64_t off,
			    const unsigned char *p, size_t n)
{
	unsigned char *expected = malloc(n);

	scripted_fill(key, version, off, expected, n);
	if (memcmp(p, expected, n) != 0)
		fail_msg("%s: wrong bytes at %llu", key, (unsigned long long)off);
	free(expected);
}

/* One read with no one to notice a sequence. */
void lib_cache_read_alone(struct world *w, const char *key, unsigned int version,
			  uint64_t off, size_t n)
{
	struct object *o = lib_cache_get(w, key);
	unsigned char *p = malloc(n);
	size_t got = 0;

	assert_int_equal(lib_cache_read_at(o, NULL, off, p, n, &got), 0);
	assert_int_equal(got, n);
	lib_cache_assert_bytes(key, version, off, p, n);
	free(p);
	object_put(o);
}

/* Reads [off, off + n) in steps and compares. */
void lib_cache_read(struct world *w, const char *key, unsigned int version, uint64_t off,
		    uint64_t n, size_t step)
{
	struct object *o = lib_cache_get(w, key);
	struct object_reader reader;
	unsigned char *p = malloc(step);

	object_reader_init(&reader, o, OBJECT_VERIFY_END, NULL, NULL);
	for (uint64_t at = off; at < off + n;) {
		size_t got = 0, want = off + n - at < step ? off + n - at : step;

		assert_int_equal(lib_cache_read_at(o, &reader, at, p, want, &got), 0);
		assert_int_equal(got, want);
		lib_cache_assert_bytes(key, version, at, p, got);
		at += got;
	}
	object_reader_fini(&reader);
	free(p);
	object_put(o);
}

struct cache_stats lib_cache_stats(struct world *w)
{
	struct cache_stats s;

	cache_stats(w->cache, &s);
	return s;
}

/* Until what is on its way to the disk is there. */
void lib_cache_settle(struct world *w)
{
	eventually(lib_cache_stats(w).memory_used == 0);
}

/* For a cache that is too small for what was read: some of it may stay in memory because
 * no room could be made, so only wait until nothing moves any more. */
void lib_cache_calm(struct world *w)
{
	uint64_t before = UINT64_MAX;

	for (int still = 0, i = 0; still < 50 && i < 4000; i++) {
		uint64_t used = lib_cache_stats(w).memory_used;

		still = used == before ? still + 1 : 0;
		before = used;
		clock_sleep_ms(2);
	}
}
