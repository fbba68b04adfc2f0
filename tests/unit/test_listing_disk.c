/* SPDX-License-Identifier: Apache-2.0 */
/* Listings that lie on disk: long ones while they grow, complete ones for later. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/listing.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "tests/unit/lib_cache.h"

#define LONG 20000
#define SOURCE "test://bucket"

static void add(struct listing_range *range, int i)
{
	struct origin_attr attr = {.size = (uint64_t)i, .mtime_ns = i * 1000};
	char key[64];
	int n = snprintf(key, sizeof(key), "d/name-of-a-file-%06d", i);

	snprintf(attr.etag, sizeof(attr.etag), "%032d", i);
	assert_int_equal(listing_add(range, key, (size_t)n, &attr), 0);
}

/* Two ranges that grow in turns, the upper one first. */
static struct listing *make(struct world *w, int count)
{
	struct listing_range *lower, *upper;
	struct listing *l;
	char key[64];

	assert_int_equal(listing_new("d/", clock_mono_ms(), w->cache, &l), 0);
	lower = listing_first_range(l);
	snprintf(key, sizeof(key), "d/name-of-a-file-%06d", count / 2 - 1);
	upper = listing_split(lower, key);
	for (int i = 0; i < count / 2; i++) {
		add(upper, count / 2 + i);
		add(lower, i);
		if (i % 500 == 499) {
			listing_page_done(lower);
			listing_page_done(upper);
		}
	}
	listing_page_done(upper);
	listing_range_done(upper);
	listing_page_done(lower);
	listing_range_done(lower);
	listing_done(l, 0);
	return l;
}

struct seen {
	int next;
};

static int see(void *arg, const struct listing_entry *e, uint64_t next)
{
	struct seen *seen = arg;
	char name[64];

	snprintf(name, sizeof(name), "name-of-a-file-%06d", seen->next);
	assert_string_equal(e->name, name);
	assert_int_equal(e->attr.size, seen->next);
	snprintf(name, sizeof(name), "%032d", seen->next);
	assert_string_equal(e->attr.etag, name);
	assert_int_equal(next, ++seen->next);
	return 0;
}

static void assert_whole(struct listing *l, int count)
{
	struct listing_entry e;
	struct seen seen = {0};
	char name[64];

	assert_int_equal(listing_each(l, 0, false, NULL, see, &seen), LISTING_E_END);
	assert_int_equal(seen.next, count);
	for (int i = 0; i < count; i += 97) {
		snprintf(name, sizeof(name), "name-of-a-file-%06d", i);
		assert_int_equal(listing_find(l, name, false, &e), 0);
		assert_int_equal(e.attr.size, i);
		name[5] = 'x';
		assert_int_equal(listing_find(l, name, false, &e), LISTING_E_END);
		seen.next = i;
		assert_int_equal(listing_each(l, (uint64_t)i, false, NULL, see, &seen),
				 LISTING_E_END);
		if (i > 1000)
			i += 2000;
	}
}

static struct listing *load(struct world *w, uint64_t ttl_ms, int *r)
{
	struct listing *l;

	assert_int_equal(listing_new("d/", 0, w->cache, &l), 0);
	*r = listing_load(l, SOURCE, ttl_ms);
	return l;
}

static int files(struct world *w)
{
	char path[128];
	struct dirent *e;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/lists", w->dir);
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void test_a_long_listing_takes_little_memory(void **state)
{
	struct world *w = *state;
	struct listing *l = make(w, LONG);

	assert_true(listing_facts(l).bytes < 512 << 10);
	assert_whole(l, LONG);
	assert_int_equal(files(w), 1);
	/* Nobody keeps it: it goes with its last reader, and so does its share. */
	assert_true(lib_cache_stats(w).size_used > 1 << 20);
	listing_put(l);
	assert_int_equal(files(w), 0);
	assert_int_equal(lib_cache_stats(w).size_used, 0);
}

static void test_listings_are_there_after_a_restart(void **state)
{
	static const int counts[] = {0, 10, 1000, LONG};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct listing *l = make(w, counts[i]);
		int r;

		listing_save(l, SOURCE);
		listing_put(l);
		lib_cache_reopen(w);
		l = load(w, UINT64_MAX, &r);
		assert_int_equal(r, 0);
		assert_true(listing_facts(l).complete);
		assert_whole(l, counts[i]);
		listing_put(l);
		/* Of another source or directory: nothing. */
		assert_int_equal(listing_new("e/", 0, w->cache, &l), 0);
		assert_int_equal(listing_load(l, SOURCE, UINT64_MAX), LISTING_E_END);
		listing_put(l);
	}
	assert_int_equal(files(w), 1);
}

static void test_what_is_too_old_is_not_used(void **state)
{
	struct world *w = *state;
	struct listing *l = make(w, 100);
	int r;

	listing_save(l, SOURCE);
	listing_put(l);
	clock_sleep_ms(20);
	listing_put(load(w, 10, &r));
	assert_int_equal(r, LISTING_E_END);
	l = load(w, 60000, &r);
	assert_int_equal(r, 0);
	/* Its age goes on. */
	assert_true(clock_mono_ms() - listing_facts(l).born_ms >= 20);
	listing_put(l);
}

/* Every byte of the file counts, wherever it is. */
static void test_a_damaged_listing_is_not_used(void **state)
{
	struct world *w = *state;
	char path[128], file[512] = "";
	struct dirent *e;
	DIR *dir;

	for (int round = 0; round < 12; round++) {
		struct listing *l = make(w, LONG);
		unsigned char byte;
		off_t at, end;
		int fd, r;

		listing_save(l, SOURCE);
		listing_put(l);
		snprintf(path, sizeof(path), "%s/lists", w->dir);
		dir = opendir(path);
		while ((e = readdir(dir)))
			if (e->d_name[0] != '.')
				snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		closedir(dir);
		fd = open(file, O_RDWR);
		assert_true(fd >= 0);
		end = lseek(fd, 0, SEEK_END);
		at = round == 0   ? 3
		     : round == 1 ? 60
		     : round == 2 ? end - 1
				  : 4096 + 9999 * round;
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		if (round == 11)
			assert_int_equal(ftruncate(fd, end / 2), 0);
		close(fd);
		listing_put(load(w, UINT64_MAX, &r));
		assert_int_equal(r, LISTING_E_END);
		assert_int_equal(files(w), 0);
	}
}

static void test_listings_are_evicted_like_objects(void **state)
{
	struct world *w = *state;
	struct listing *l = make(w, LONG);
	uint64_t until = patience();
	int r;

	listing_save(l, SOURCE);
	listing_put(l);
	assert_int_equal(files(w), 1);
	/* Objects that fill the cache are used later; one may have to make room for itself
	 * before the index knows which is the older one. */
	for (int i = 0; files(w) > 0 && clock_mono_ms() < until; i++) {
		char key[16];

		snprintf(key, sizeof(key), "big%d", i % 10);
		scripted_put(w->store, key, i + 1, 12 * MIB);
		lib_cache_read(w, key, i + 1, 0, 12 * MIB, 1 * MIB);
		lib_cache_settle(w);
	}
	assert_int_equal(files(w), 0);
	listing_put(load(w, UINT64_MAX, &r));
	assert_int_equal(r, LISTING_E_END);
}

static int small_cache(void **state)
{
	struct world *w;

	lib_cache_setup(state);
	w = *state;
	w->config.size_max = 8 * MIB;
	lib_cache_reopen(w);
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, lib_cache_setup, lib_cache_teardown)
TEST_MAIN(CASE(test_a_long_listing_takes_little_memory),
	  CASE(test_listings_are_there_after_a_restart),
	  CASE(test_what_is_too_old_is_not_used),
	  CASE(test_a_damaged_listing_is_not_used),
	  cmocka_unit_test_setup_teardown(test_listings_are_evicted_like_objects,
					  small_cache, lib_cache_teardown))
