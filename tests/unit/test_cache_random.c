/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many readers at random places of many objects, which are replaced under them, over a
 * store with faults, through a cache that is far too small. Whatever a read returns must be
 * bytes of the one version it was opened as; how often it may fail depends on the faults.
 *
 * CHECK_SECONDS in the environment makes it longer than the few seconds of a test run.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "cache/budget.h"
#include "cache/cache.h"
#include "cache/object.h"
#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "tests/unit/lib_scripted.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

enum {
	KEYS = 24,
	READERS = 10
};

struct world {
	char dir[64];
	struct scripted *store;
	struct cache *cache;
	pthread_rwlock_t versions_lock; /* the two below belong together */
	unsigned int versions[KEYS];
	struct origin_attr attrs[KEYS];
	atomic_bool stop;
	_Atomic uint64_t reads, failures, bytes;
};

static void name_of(char key[32], int i)
{
	/* The small ones may be damaged on the way: their checksum tells before they are
	 * shown. */
	snprintf(key, 32, "%c%02d", i % 3 ? 'l' : 's', i);
}

static uint64_t size_of(int i, unsigned int version)
{
	uint64_t base = i % 3 ? 300 * KIB + (uint64_t)i * 217 * KIB : (uint64_t)i * 9999;

	return base + version % 5 * 1234;
}

static void replace(struct world *w, int i)
{
	char key[32];

	name_of(key, i);
	pthread_rwlock_wrlock(&w->versions_lock);
	w->versions[i]++;
	scripted_put(w->store, key, w->versions[i], size_of(i, w->versions[i]));
	w->attrs[i] = scripted_attr(w->store, key);
	pthread_rwlock_unlock(&w->versions_lock);
}

struct reader {
	struct world *w;
	unsigned int seed;
	unsigned char *p, *expected;
};

static void check_read(struct reader *r, struct object *o, struct object_reader *reader,
		       const char *key, unsigned int version, uint64_t off, size_t n)
{
	struct wait wait = {.deadline_ms = patience()};
	uint64_t size = o->size;
	size_t got = 0, want;
	int result = OBJECT_E_WAIT;

	if (rand_r(&r->seed) % 2)
		result = object_read(o, reader, off, r->p, n, OBJECT_NOWAIT, NULL, &got);
	if (result == OBJECT_E_WAIT)
		result = object_read(o, reader, off, r->p, n, 0, &wait, &got);
	atomic_fetch_add(&r->w->reads, 1);
	if (result < 0) {
		atomic_fetch_add(&r->w->failures, 1);
		return;
	}
	want = off >= size ? 0 : size - off < n ? size - off : n;
	assert_int_equal(got, want);
	scripted_fill(key, version, off, r->expected, got);
	if (memcmp(r->p, r->expected, got) != 0) {
		log_error("wrong bytes key=%s version=%u off=%llu n=%zu", key, version,
			  (unsigned long long)off, got);
		abort();
	}
	atomic_fetch_add(&r->w->bytes, got);
}

static void *read_on(void *arg)
{
	struct reader *r = arg;
	struct world *w = r->w;

	while (!atomic_load(&w->stop)) {
		int i = rand_r(&r->seed) % KEYS, count = rand_r(&r->seed) % 12;
		struct object_reader reader;
		struct origin_attr attr;
		unsigned int version;
		struct object *o;
		uint64_t at = 0;
		char key[32];

		name_of(key, i);
		pthread_rwlock_rdlock(&w->versions_lock);
		version = w->versions[i];
		attr = w->attrs[i];
		pthread_rwlock_unlock(&w->versions_lock);
		if (object_get(w->cache, &w->store->origin, key, &attr, &o) < 0)
			abort();
		object_reader_init(&reader, o, OBJECT_VERIFY_END, NULL, NULL);
		for (int k = 0; k < count; k++) {
			size_t n = 1 + (size_t)rand_r(&r->seed) % (300 * KIB);

			if (rand_r(&r->seed) % 3 == 0)
				at = (uint64_t)rand_r(&r->seed) % (attr.size + 100);
			check_read(r, o, &reader, key, version, at, n);
			at += n;
		}
		object_reader_fini(&reader);
		object_put(o);
	}
	return NULL;
}

static void stir(struct world *w, uint64_t until_ms)
{
	unsigned int seed = 99;

	while (clock_mono_ms() < until_ms) {
		replace(w, rand_r(&seed) % KEYS);
		switch (rand_r(&seed) % 6) {
		case 0:
			atomic_store(&w->store->cut_count, 3);
			break;
		case 1:
			atomic_store(&w->store->flip_count, 2);
			break;
		case 2:
			atomic_store(&w->store->fail, -ECONNRESET);
			atomic_store(&w->store->fail_count, 2);
			break;
		case 3:
			atomic_store(&w->store->latency_ms, rand_r(&seed) % 8);
			break;
		default:
			break;
		}
		clock_sleep_ms(10);
	}
}

static void run(struct world *w, const struct cache_config *config)
{
	const char *seconds = getenv("CHECK_SECONDS");
	struct reader readers[READERS];
	pthread_t threads[READERS];
	struct cache_stats stats;
	struct why why = {0};

	w->store = scripted_new("test://random");
	atomic_store(&w->store->flip_first, 's');
	assert_int_equal(cache_open(config, &w->cache, &why), 0);
	pthread_rwlock_init(&w->versions_lock, NULL);
	for (int i = 0; i < KEYS; i++)
		replace(w, i);
	for (unsigned int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){w, i, malloc(MIB), malloc(MIB)};
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]),
				 0);
	}
	stir(w, clock_mono_ms() + (seconds ? strtoull(seconds, NULL, 10) * 1000 : 1500));
	atomic_store(&w->stop, true);
	for (int i = 0; i < READERS; i++) {
		pthread_join(threads[i], NULL);
		free(readers[i].p);
		free(readers[i].expected);
	}
	cache_stats(w->cache, &stats);
	assert_true(stats.memory_peak <= stats.memory_max);
	assert_true(stats.size_used <= stats.size_max);
	assert_int_equal(stats.damaged, 0);
	assert_true(atomic_load(&w->bytes) > MIB);
	assert_true(atomic_load(&w->failures) < atomic_load(&w->reads));
	print_message("reads %llu failed %llu fetched %llu evicted %llu bypassed %llu\n",
		      (unsigned long long)atomic_load(&w->reads),
		      (unsigned long long)atomic_load(&w->failures),
		      (unsigned long long)stats.bytes_fetched,
		      (unsigned long long)stats.evicted,
		      (unsigned long long)stats.bypassed);
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	origin_free(&w->store->origin);
	pthread_rwlock_destroy(&w->versions_lock);
}

static void test_every_read_is_bytes_of_the_version_opened(void **state)
{
	struct world w = {.dir = "/tmp/test_random.XXXXXX"};
	struct cache_config config = {
		.dir = w.dir, .size_max = 16 * MIB, .memory_max = 8 * MIB};

	(void)state;
	assert_non_null(mkdtemp(w.dir));
	run(&w, &config);
	io_remove_tree(AT_FDCWD, w.dir);
}

static void test_the_same_without_a_disk(void **state)
{
	struct world w = {.dir = ""};
	struct cache_config config = {.memory_max = 8 * MIB};

	(void)state;
	run(&w, &config);
}

static int quiet(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR); /* the faults are meant */
	return 0;
}

TEST_MAIN(cmocka_unit_test_setup(test_every_read_is_bytes_of_the_version_opened, quiet),
	  cmocka_unit_test_setup(test_the_same_without_a_disk, quiet))
