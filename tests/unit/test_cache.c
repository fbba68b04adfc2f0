/* SPDX-License-Identifier: Apache-2.0 */
/* The read cache as its callers see it: objects, reads, the disk between two openings. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/budget.h"
#include "cache/cache.h"
#include "cache/object.h"
#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "tests/unit/lib_cache.h"

static int backing_fd(struct world *w, const char *key)
{
	struct object *o = lib_cache_get(w, key);
	int fd = -ENODATA;

	eventually(object_backing_fd(o, 0, &fd) != -ENODATA);
	object_put(o);
	return fd;
}

static void test_a_small_object_is_fetched_whole_and_once(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "small", 1, 100 * KIB + 7);
	scripted_reset(w->store);
	lib_cache_read(w, "small", 1, 0, 100 * KIB + 7, 4096);
	lib_cache_read(w, "small", 1, 50 * KIB, 1000, 33);
	lib_cache_settle(w);
	lib_cache_read(w, "small", 1, 0, 100 * KIB + 7, 128 * KIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 1);
	assert_int_equal(atomic_load(&w->store->bytes), 100 * KIB + 7);
}

static void test_a_large_object_is_read_in_sequence(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "large", 1, 9 * MIB + 12345);
	scripted_reset(w->store);
	lib_cache_read(w, "large", 1, 0, 9 * MIB + 12345, 128 * KIB);
	/* Each byte once, and with the read-ahead fewer requests than reads; how many depends
	 * on how much memory the writers have given back. The store counts behind the
	 * delivery. */
	eventually(atomic_load(&w->store->bytes) >= 9 * MIB + 12345);
	assert_int_equal(atomic_load(&w->store->bytes), 9 * MIB + 12345);
	assert_true(atomic_load(&w->store->count[ORIGIN_GET]) < 73);
	lib_cache_settle(w);
	lib_cache_read(w, "large", 1, 0, 9 * MIB + 12345, MIB);
	assert_int_equal(atomic_load(&w->store->bytes), 9 * MIB + 12345);
}

static void test_a_sequence_is_fetched_by_several_requests_at_once(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "large", 1, 32 * MIB);
	scripted_reset(w->store);
	atomic_store(&w->store->latency_ms, 20);
	lib_cache_read(w, "large", 1, 0, 32 * MIB, 128 * KIB);
	/* One after another counts two: the next begins before the last has ended. */
	assert_true(atomic_load(&w->store->in_flight_max) >= 4);
}

static void test_random_reads_fetch_what_is_read(void **state)
{
	struct world *w = *state;
	uint64_t size = 64 * MIB, read = 0;
	unsigned int seed = 7;

	scripted_put(w->store, "big", 1, size);
	scripted_reset(w->store);
	for (int i = 0; i < 60; i++) {
		uint64_t off = (uint64_t)rand_r(&seed) * 4099 % (size - 64 * KIB);

		lib_cache_read(w, "big", 1, off, 64 * KIB, 64 * KIB);
		read += 64 * KIB;
	}
	assert_true(atomic_load(&w->store->bytes) <= read * 12 / 10);
}

static void test_what_was_read_is_there_after_reopening(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "a", 1, 5 * MIB + 1);
	scripted_put(w->store, "b", 1, 70 * KIB);
	lib_cache_read(w, "a", 1, 0, 5 * MIB + 1, 256 * KIB);
	lib_cache_read(w, "b", 1, 0, 70 * KIB, 70 * KIB);
	lib_cache_settle(w);
	lib_cache_reopen(w);
	scripted_reset(w->store);
	lib_cache_read(w, "a", 1, 3 * MIB + 17, 99999, 5000);
	lib_cache_read(w, "a", 1, 0, 5 * MIB + 1, 256 * KIB);
	lib_cache_read(w, "b", 1, 10 * KIB, 9999, 9999);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	assert_int_equal(lib_cache_stats(w).damaged, 0);
}

static void test_a_whole_object_can_be_handed_to_the_kernel(void **state)
{
	struct world *w = *state;
	unsigned char p[4096];
	struct object *o;
	int fd;

	scripted_put(w->store, "shard", 1, 3 * MIB + 5);
	o = lib_cache_get(w, "shard");
	assert_int_equal(object_backing_fd(o, 0, &fd), -ENODATA);
	object_put(o);
	lib_cache_read(w, "shard", 1, 0, 3 * MIB + 5, MIB);
	fd = backing_fd(w, "shard");
	assert_true(fd >= 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), 3 * MIB + 5);
	assert_int_equal(pread(fd, p, sizeof(p), 2 * MIB), sizeof(p));
	lib_cache_assert_bytes("shard", 1, 2 * MIB, p, sizeof(p));
	close(fd);
	/* After reopening too, once every page has been looked at. */
	lib_cache_settle(w);
	lib_cache_reopen(w);
	fd = backing_fd(w, "shard");
	assert_true(fd >= 0);
	close(fd);
}

static void find_files(const char *dir, const char *suffix, char *out, size_t out_size)
{
	char command[256];
	FILE *f;

	snprintf(command, sizeof(command), "find %s -name '*%s' -size +0 | head -1", dir,
		 suffix);
	f = popen(command, "r");
	assert_non_null(f);
	assert_non_null(fgets(out, (int)out_size, f));
	out[strcspn(out, "\n")] = '\0';
	pclose(f);
}

static void flip(const char *path, off_t off)
{
	int fd = open(path, O_RDWR);
	unsigned char c;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, off), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, off), 1);
	close(fd);
}

static void
test_a_marked_object_is_handed_over_at_once_and_a_changed_one_checked(void **state)
{
	static const unsigned char none[24];
	struct world *w = *state;
	struct object *o;
	char path[160];
	int fd;

	scripted_put(w->store, "shard", 1, 3 * MIB + 5);
	lib_cache_read(w, "shard", 1, 0, 3 * MIB + 5, MIB);
	lib_cache_settle(w);
	lib_cache_reopen(w);
	o = lib_cache_get(w, "shard");
	assert_int_equal(object_backing_fd(o, OBJECT_NOWAIT, &fd), 0);
	close(fd);
	object_put(o);
	/* Without the mark, as an unclean end leaves it, it is looked at first. */
	find_files(w->dir, ".map", path, sizeof(path));
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, none, sizeof(none), 4056), sizeof(none));
	close(fd);
	lib_cache_reopen(w);
	o = lib_cache_get(w, "shard");
	assert_int_equal(object_backing_fd(o, OBJECT_NOWAIT, &fd), OBJECT_E_WAIT);
	assert_int_equal(object_backing_fd(o, 0, &fd), 0);
	close(fd);
	object_put(o);
	/* So it is when somebody has written to it, and what is wrong never shows. */
	lib_cache_reopen(w);
	find_files(w->dir, ".data", path, sizeof(path));
	flip(path, 2 * MIB + 77);
	o = lib_cache_get(w, "shard");
	assert_int_equal(object_backing_fd(o, OBJECT_NOWAIT, &fd), OBJECT_E_WAIT);
	assert_int_equal(object_backing_fd(o, 0, &fd), -ENODATA);
	object_put(o);
	assert_int_equal(lib_cache_stats(w).damaged, 1);
	lib_cache_read(w, "shard", 1, 0, 3 * MIB + 5, MIB);
}

static void test_a_damaged_page_is_fetched_again(void **state)
{
	struct world *w = *state;
	char path[200];

	scripted_put(w->store, "a", 1, 2 * MIB);
	lib_cache_read(w, "a", 1, 0, 2 * MIB, MIB);
	lib_cache_settle(w);
	find_files(w->dir, ".data", path, sizeof(path));
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	flip(path, MIB + 5000);
	lib_cache_open(w);
	scripted_reset(w->store);
	lib_cache_read(w, "a", 1, 0, 2 * MIB, MIB);
	assert_int_equal(lib_cache_stats(w).damaged, 1);
	assert_true(atomic_load(&w->store->count[ORIGIN_GET]) >= 1);
	/* And the mended page is good for the next time. */
	lib_cache_settle(w);
	lib_cache_reopen(w);
	scripted_reset(w->store);
	lib_cache_read(w, "a", 1, 0, 2 * MIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
}

static void test_a_damaged_pack_record_is_fetched_again(void **state)
{
	struct world *w = *state;
	char path[200];

	scripted_put(w->store, "s", 1, 30 * KIB);
	lib_cache_read(w, "s", 1, 0, 30 * KIB, MIB);
	lib_cache_settle(w);
	find_files(w->dir, ".pack", path, sizeof(path));
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	flip(path, 20000);
	lib_cache_open(w);
	scripted_reset(w->store);
	lib_cache_read(w, "s", 1, 0, 30 * KIB, 5000);
	assert_int_equal(lib_cache_stats(w).damaged, 1);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 1);
}

static void test_a_damaged_map_or_index_is_dropped(void **state)
{
	struct world *w = *state;
	char path[200];
	int fd;

	scripted_put(w->store, "a", 1, 2 * MIB);
	scripted_put(w->store, "s", 1, 2 * KIB);
	lib_cache_read(w, "a", 1, 0, 2 * MIB, MIB);
	lib_cache_read(w, "s", 1, 0, 2 * KIB, MIB);
	lib_cache_settle(w);
	find_files(w->dir, ".map", path, sizeof(path));
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	flip(path, 9);
	snprintf(path, sizeof(path), "%s/index/data.mdb", w->dir);
	fd = open(path, O_RDWR | O_TRUNC);
	assert_int_equal(write(fd, "this is no database at all", 26), 26);
	close(fd);
	lib_cache_open(w);
	assert_true(lib_cache_stats(w).disk);
	lib_cache_read(w, "a", 1, 0, 2 * MIB, MIB);
	lib_cache_read(w, "s", 1, 0, 2 * KIB, MIB);
}

static void test_replacement_is_estale_and_never_a_mixture(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	unsigned char *p = malloc(MIB);
	struct object *o;
	size_t got;

	scripted_put(w->store, "a", 1, 8 * MIB);
	o = lib_cache_get(w, "a");
	object_reader_init(&reader, o, OBJECT_VERIFY_END, NULL, NULL);
	assert_int_equal(lib_cache_read_at(o, &reader, 6 * MIB, p, 1000, &got), 0);
	scripted_put(w->store, "a", 2, 8 * MIB);
	assert_int_equal(lib_cache_read_at(o, &reader, 0, p, 1000, &got), -ESTALE);
	/* What is local stays readable, and stays what it was. */
	assert_int_equal(lib_cache_read_at(o, &reader, 6 * MIB, p, 1000, &got), 0);
	lib_cache_assert_bytes("a", 1, 6 * MIB, p, 1000);
	object_reader_fini(&reader);
	object_put(o);
	free(p);
	lib_cache_read(w, "a", 2, 0, 8 * MIB, MIB);
}

static void test_a_wrong_small_body_is_never_shown(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "s", 1, 10 * KIB);
	atomic_store(&w->store->flip_count, 2);
	lib_cache_read(w, "s", 1, 0, 10 * KIB, MIB);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, 2);
}

static void test_a_body_that_stays_wrong_ends_in_an_error(void **state)
{
	struct world *w = *state;
	struct object *o;
	unsigned char p[16];
	size_t got;

	scripted_put(w->store, "s", 1, 10 * KIB);
	atomic_store(&w->store->flip_count, -1);
	o = lib_cache_get(w, "s");
	assert_int_equal(lib_cache_read_at(o, NULL, 0, p, sizeof(p), &got), -EBADMSG);
	object_put(o);
}

static void test_a_wrong_large_body_is_dropped_when_whole(void **state)
{
	struct world *w = *state;
	struct object *o;
	unsigned char *p = malloc(2 * MIB);
	size_t got;

	scripted_put(w->store, "l", 1, 2 * MIB);
	atomic_store(&w->store->flip_count, 1);
	o = lib_cache_get(w, "l");
	/* No range says it is wrong: only the whole does. */
	assert_int_equal(lib_cache_read_at(o, NULL, 0, p, 2 * MIB, &got), 0);
	eventually(lib_cache_stats(w).crc_mismatches > 0);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, 1);
	object_put(o);
	lib_cache_settle(w);
	lib_cache_read(w, "l", 1, 0, 2 * MIB, MIB);
	assert_true(backing_fd(w, "l") >= 0);
	free(p);
}

static void test_a_cut_answer_is_repaired(void **state)
{
	struct world *w = *state;

	scripted_put(w->store, "l", 1, 3 * MIB);
	atomic_store(&w->store->cut_count, 2);
	lib_cache_read(w, "l", 1, 0, 3 * MIB, MIB);
}

static void test_a_silent_store_ends_by_the_deadline(void **state)
{
	struct world *w = *state;
	struct wait wait = {.deadline_ms = clock_mono_ms() + 100};
	uint64_t began = clock_mono_ms();
	struct object *o;
	unsigned char p[16];
	size_t got;

	scripted_put(w->store, "l", 1, 3 * MIB);
	atomic_store(&w->store->hang, true);
	o = lib_cache_get(w, "l");
	assert_int_equal(object_read(o, NULL, 0, p, sizeof(p), 0, &wait, &got),
			 -ETIMEDOUT);
	assert_true(clock_mono_ms() - began < PATIENCE_MS);
	object_put(o);
	/* Closing cancels what hangs: teardown must not. */
}

static void *raise_flag(void *arg)
{
	clock_sleep_ms(50);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void test_a_reader_can_be_interrupted(void **state)
{
	struct world *w = *state;
	atomic_bool flag = false;
	struct wait wait = {.deadline_ms = UINT64_MAX, .interrupted = &flag};
	struct object *o;
	unsigned char p[16];
	pthread_t thread;
	size_t got;

	scripted_put(w->store, "l", 1, 3 * MIB);
	atomic_store(&w->store->hang, true);
	o = lib_cache_get(w, "l");
	assert_int_equal(pthread_create(&thread, NULL, raise_flag, &flag), 0);
	assert_int_equal(object_read(o, NULL, 0, p, sizeof(p), 0, &wait, &got), -EINTR);
	pthread_join(thread, NULL);
	object_put(o);
}

static void test_nowait_answers_warm_reads_only(void **state)
{
	struct world *w = *state;
	unsigned char p[4096];
	struct object *o;
	size_t got;

	scripted_put(w->store, "l", 1, 3 * MIB);
	scripted_put(w->store, "s", 1, 3 * KIB);
	o = lib_cache_get(w, "l");
	assert_int_equal(object_read(o, NULL, 0, p, 4096, OBJECT_NOWAIT, NULL, &got),
			 OBJECT_E_WAIT);
	lib_cache_read(w, "l", 1, 0, 3 * MIB, MIB);
	lib_cache_settle(w);
	assert_int_equal(object_read(o, NULL, 5000, p, 4096, OBJECT_NOWAIT, NULL, &got),
			 0);
	lib_cache_assert_bytes("l", 1, 5000, p, 4096);
	object_put(o);
	o = lib_cache_get(w, "s");
	assert_int_equal(object_read(o, NULL, 0, p, 4096, OBJECT_NOWAIT, NULL, &got),
			 OBJECT_E_WAIT);
	lib_cache_read(w, "s", 1, 0, 3 * KIB, MIB);
	lib_cache_settle(w);
	assert_int_equal(object_read(o, NULL, 1, p, 4096, OBJECT_NOWAIT, NULL, &got), 0);
	assert_int_equal(got, 3 * KIB - 1);
	lib_cache_assert_bytes("s", 1, 1, p, got);
	object_put(o);
}

struct herd {
	struct world *w;
	int failures;
};

static void *one_of_many(void *arg)
{
	struct herd *h = arg;

	lib_cache_read(h->w, "l", 1, MIB, 300 * KIB, 100 * KIB);
	return NULL;
}

static void test_many_readers_of_one_place_make_one_request(void **state)
{
	struct world *w = *state;
	struct herd h = {w, 0};
	pthread_t threads[16];
	struct object *hold;

	scripted_put(w->store, "l", 1, 4 * MIB);
	scripted_reset(w->store);
	atomic_store(&w->store->latency_ms, 30);
	hold = lib_cache_get(w, "l");
	for (int i = 0; i < 16; i++)
		pthread_create(&threads[i], NULL, one_of_many, &h);
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	object_put(hold);
	/* The steps of each follow each other, so a little read-ahead is among them. */
	assert_true(atomic_load(&w->store->bytes) <= 3 * MIB);
	assert_true(atomic_load(&w->store->count[ORIGIN_GET]) <= 12);
}

static uint64_t used_by(const char *dir)
{
	char command[128];
	unsigned long long n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "du -s --block-size=1 %s", dir);
	f = popen(command, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu", &n), 1);
	pclose(f);
	return n;
}

static void test_the_size_limit_holds_and_the_oldest_go(void **state)
{
	struct world *w = *state;
	char key[32];

	w->config.size_max = 24 * MIB;
	lib_cache_reopen(w);
	for (int i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "f%d", i);
		scripted_put(w->store, key, 1, 4 * MIB);
		lib_cache_read(w, key, 1, 0, 4 * MIB, MIB);
		lib_cache_calm(w);
		/* 256 directories and the index come on top of what is counted. */
		assert_true(used_by(w->dir) <= 24 * MIB + 2 * MIB);
		assert_true(lib_cache_stats(w).size_used <= 24 * MIB);
	}
	assert_true(lib_cache_stats(w).evicted > 0);
	scripted_reset(w->store);
	lib_cache_read(w, "f11", 1, 0, 4 * MIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
}

static void test_what_was_read_again_outlives_what_came_after_it(void **state)
{
	struct world *w = *state;
	char key[32];

	w->config.size_max = 22 * MIB;
	lib_cache_reopen(w);
	for (int i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "f%d", i);
		scripted_put(w->store, key, 1, 4 * MIB);
		if (i == 5) {
			/* It does not fit beside the others. */
			assert_int_equal(lib_cache_stats(w).evicted, 0);
			lib_cache_read(w, "f0", 1, 0, 4 * MIB, MIB);
		}
		lib_cache_read(w, key, 1, 0, 4 * MIB, MIB);
		lib_cache_settle(w);
	}
	eventually(lib_cache_stats(w).evicted > 0);
	scripted_reset(w->store);
	lib_cache_read(w, "f0", 1, 0, 4 * MIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	lib_cache_read(w, "f1", 1, 0, 4 * MIB, MIB);
	assert_true(atomic_load(&w->store->count[ORIGIN_GET]) > 0);
}

static void test_packs_are_evicted_too(void **state)
{
	struct world *w = *state;
	char key[32];

	w->config.size_max = 16 * MIB;
	lib_cache_reopen(w);
	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "s%d", i);
		scripted_put(w->store, key, 1, 150 * KIB);
		lib_cache_read(w, key, 1, 0, 150 * KIB, MIB);
		assert_true(lib_cache_stats(w).size_used <= 16 * MIB);
	}
	lib_cache_calm(w);
	assert_true(lib_cache_stats(w).evicted > 0);
	scripted_reset(w->store);
	lib_cache_read(w, "s199", 1, 0, 150 * KIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	lib_cache_read(w, "s0", 1, 0, 150 * KIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 1);
}

static void test_an_object_larger_than_the_cache_can_be_read(void **state)
{
	struct world *w = *state;

	w->config.size_max = 8 * MIB;
	lib_cache_reopen(w);
	scripted_put(w->store, "huge", 1, 30 * MIB);
	lib_cache_read(w, "huge", 1, 0, 30 * MIB, MIB);
	lib_cache_calm(w);
	assert_true(lib_cache_stats(w).size_used <= 8 * MIB);
}

static void test_without_a_directory_it_works_in_memory(void **state)
{
	struct world *w = *state;

	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	w->config.dir = NULL;
	lib_cache_open(w);
	assert_false(lib_cache_stats(w).disk);
	scripted_put(w->store, "l", 1, 40 * MIB);
	scripted_put(w->store, "s", 1, 40 * KIB);
	/* Far more than the budget. */
	lib_cache_read(w, "l", 1, 0, 40 * MIB, MIB);
	lib_cache_read(w, "s", 1, 0, 40 * KIB, KIB);
	scripted_reset(w->store);
	lib_cache_read(w, "s", 1, 0, 40 * KIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	assert_true(lib_cache_stats(w).memory_peak <= 16 * MIB);
}

static void test_an_unusable_directory_is_gone_around(void **state)
{
	struct world *w = *state;
	char path[100];

	snprintf(path, sizeof(path), "%s/cache", "/proc/self");
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	w->config.dir = path;
	lib_cache_open(w);
	assert_false(lib_cache_stats(w).disk);
	scripted_put(w->store, "s", 1, 40 * KIB);
	lib_cache_read(w, "s", 1, 0, 40 * KIB, KIB);
}

static void test_opening_a_directory_twice_is_refused(void **state)
{
	struct world *w = *state;
	struct cache *second;
	struct why why = {0};

	assert_int_equal(cache_open(&w->config, &second, &why), -EBUSY);
	assert_non_null(strstr(why.text, "already"));
}

/* ---- two processes ---- */

/* Runs in a child, which has only itself: everything anew. */
static void in_child(struct world *w)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char self[4096];
		ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

		if (n < 0)
			_exit(1);
		self[n] = '\0';
		setenv("TEST_CACHE_DIR", w->dir, 1);
		execl(self, self, "as_the_other_process", (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Only does something when run by the case below, in a process of its own. */
static void test_as_the_other_process(void **state)
{
	struct world *w = *state;
	const char *dir = getenv("TEST_CACHE_DIR");

	if (!dir)
		return;
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	w->config.dir = dir;
	lib_cache_open(w);
	assert_true(lib_cache_stats(w).disk);
	scripted_put(w->store, "shared", 1, 3 * MIB);
	scripted_put(w->store, "tiny", 1, 3 * KIB);
	scripted_reset(w->store);
	/* The first MiB is the parent's; the rest is for the parent to find. */
	lib_cache_read_alone(w, "shared", 1, 0, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	lib_cache_read(w, "shared", 1, MIB, 2 * MIB, MIB);
	assert_true(atomic_load(&w->store->count[ORIGIN_GET]) > 0);
	lib_cache_read(w, "tiny", 1, 0, 3 * KIB, MIB);
	lib_cache_settle(w);
	/* No farewell: as if killed, but for the index. */
	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	_exit(0);
}

static void test_two_processes_share_one_cache(void **state)
{
	struct world *w = *state;
	struct object *hold;

	scripted_put(w->store, "shared", 1, 3 * MIB);
	scripted_put(w->store, "tiny", 1, 3 * KIB);
	hold = lib_cache_get(w, "shared");
	lib_cache_read_alone(w, "shared", 1, 0, MIB);
	lib_cache_settle(w);
	in_child(w);
	scripted_reset(w->store);
	lib_cache_read(w, "shared", 1, 0, 3 * MIB, 256 * KIB);
	lib_cache_read(w, "tiny", 1, 0, 3 * KIB, MIB);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	assert_int_equal(lib_cache_stats(w).damaged, 0);
	object_put(hold);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, lib_cache_setup, lib_cache_teardown)

TEST_MAIN(CASE(test_a_small_object_is_fetched_whole_and_once),
	  CASE(test_a_large_object_is_read_in_sequence),
	  CASE(test_a_sequence_is_fetched_by_several_requests_at_once),
	  CASE(test_random_reads_fetch_what_is_read),
	  CASE(test_what_was_read_is_there_after_reopening),
	  CASE(test_a_whole_object_can_be_handed_to_the_kernel),
	  CASE(test_a_marked_object_is_handed_over_at_once_and_a_changed_one_checked),
	  CASE(test_a_damaged_page_is_fetched_again),
	  CASE(test_a_damaged_pack_record_is_fetched_again),
	  CASE(test_a_damaged_map_or_index_is_dropped),
	  CASE(test_replacement_is_estale_and_never_a_mixture),
	  CASE(test_a_wrong_small_body_is_never_shown),
	  CASE(test_a_body_that_stays_wrong_ends_in_an_error),
	  CASE(test_a_wrong_large_body_is_dropped_when_whole),
	  CASE(test_a_cut_answer_is_repaired),
	  CASE(test_a_silent_store_ends_by_the_deadline),
	  CASE(test_a_reader_can_be_interrupted),
	  CASE(test_nowait_answers_warm_reads_only),
	  CASE(test_many_readers_of_one_place_make_one_request),
	  CASE(test_the_size_limit_holds_and_the_oldest_go),
	  CASE(test_what_was_read_again_outlives_what_came_after_it),
	  CASE(test_packs_are_evicted_too),
	  CASE(test_an_object_larger_than_the_cache_can_be_read),
	  CASE(test_without_a_directory_it_works_in_memory),
	  CASE(test_an_unusable_directory_is_gone_around),
	  CASE(test_opening_a_directory_twice_is_refused),
	  CASE(test_as_the_other_process), CASE(test_two_processes_share_one_cache))
