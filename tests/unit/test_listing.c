/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "cache/listing.h"
#include "cache/wait.h"
#include "fs/base/clock.h"

static void add(struct listing *l, const char *key, uint64_t size)
{
	struct origin_attr attr = {.size = size};
	size_t n = strlen(key);

	attr.is_dir = n && key[n - 1] == '/';
	snprintf(attr.etag, sizeof(attr.etag), "E%llu", (unsigned long long)size);
	assert_int_equal(listing_add(l, key, n, &attr), 0);
}

static void test_entries_come_back_as_they_were_given(void **state)
{
	struct listing_entry e;
	struct listing *l;
	char key[40];

	(void)state;
	assert_int_equal(listing_new("d/", 0, &l), 0);
	add(l, "d/", 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "d/n%06d", i);
		add(l, key, (uint64_t)i);
	}
	listing_done(l, 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "n%06d", i);
		assert_int_equal(listing_at(l, (uint64_t)i, true, NULL, &e), 0);
		assert_string_equal(e.name, key);
		assert_int_equal(listing_find(l, key, &e), 0);
		assert_int_equal(e.attr.size, i);
		snprintf(key, sizeof(key), "E%d", i);
		assert_string_equal(e.attr.etag, key);
	}
	assert_int_equal(listing_at(l, 5000, true, NULL, &e), LISTING_E_END);
	assert_int_equal(listing_find(l, "n", &e), LISTING_E_END);
	listing_put(l);
}

struct seen {
	uint64_t next;
	int count, stop_after;
};

static int see(void *arg, const struct listing_entry *e, uint64_t next)
{
	struct seen *seen = arg;
	char name[40];

	snprintf(name, sizeof(name), "n%06d", (int)seen->count);
	assert_string_equal(e->name, name);
	seen->next = next;
	return ++seen->count == seen->stop_after ? 7 : 0;
}

static void test_each_goes_on_where_it_stopped(void **state)
{
	struct seen seen = {.stop_after = 700};
	struct listing *l;
	char key[40];

	(void)state;
	assert_int_equal(listing_new("d/", 0, &l), 0);
	assert_int_equal(listing_each(l, 0, true, NULL, see, &seen), LISTING_E_WAIT);
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "d/n%06d", i);
		add(l, key, (uint64_t)i);
	}
	assert_int_equal(listing_each(l, 0, true, NULL, see, &seen), 7);
	assert_int_equal(listing_each(l, seen.next, false, NULL, see, &seen),
			 LISTING_E_WAIT);
	assert_int_equal(seen.count, 3000);
	listing_done(l, 0);
	assert_int_equal(listing_each(l, seen.next, false, NULL, see, &seen),
			 LISTING_E_END);
	listing_put(l);
}

static void test_byte_order_decides_before_the_end(void **state)
{
	struct listing_entry e;
	struct listing *l;

	(void)state;
	assert_int_equal(listing_new("", 0, &l), 0);
	add(l, "a", 1);
	assert_int_equal(listing_find(l, "a", &e), LISTING_E_WAIT); /* "a/" may come */
	add(l, "a-b", 2);
	assert_int_equal(listing_find(l, "a", &e), LISTING_E_WAIT);
	add(l, "a/", 0);
	assert_int_equal(listing_find(l, "a", &e), 0);
	assert_true(e.attr.is_dir);
	assert_int_equal(listing_find(l, "a0", &e), LISTING_E_WAIT);
	add(l, "b", 3);
	assert_int_equal(listing_find(l, "a0", &e), LISTING_E_END);
	assert_int_equal(listing_find(l, "a-b", &e), 0);
	assert_int_equal(listing_find(l, "b", &e), LISTING_E_WAIT);
	assert_int_equal(listing_facts(l).shadowed, 1);
	listing_done(l, 0);
	assert_int_equal(listing_find(l, "b", &e), 0);
	listing_put(l);
}

static void test_a_store_without_order_decides_nothing_early(void **state)
{
	struct listing_entry e;
	struct listing *l;

	(void)state;
	assert_int_equal(listing_new("", 0, &l), 0);
	add(l, "m", 1);
	add(l, "c", 2);
	add(l, "x", 3);
	assert_int_equal(listing_find(l, "d", &e), LISTING_E_WAIT);
	add(l, "d", 4);
	add(l, "m", 1); /* twice: shown once */
	listing_done(l, 0);
	assert_int_equal(listing_find(l, "d", &e), 0);
	assert_int_equal(listing_facts(l).count, 4);
	listing_put(l);
}

static void test_a_failed_listing_says_so_after_what_it_has(void **state)
{
	struct listing_entry e;
	struct listing *l;

	(void)state;
	assert_int_equal(listing_new("", 0, &l), 0);
	add(l, "a", 1);
	listing_done(l, -ECONNRESET);
	assert_int_equal(listing_at(l, 0, true, NULL, &e), 0);
	assert_int_equal(listing_at(l, 1, true, NULL, &e), -ECONNRESET);
	assert_int_equal(listing_find(l, "zzz", &e), LISTING_E_WAIT);
	listing_put(l);
}

static void test_waiting_for_more_ends_by_the_deadline(void **state)
{
	struct wait w = {.deadline_ms = clock_mono_ms() + 60};
	struct listing_entry e;
	struct listing *l;

	(void)state;
	assert_int_equal(listing_new("", 0, &l), 0);
	assert_int_equal(listing_at(l, 0, true, NULL, &e), LISTING_E_WAIT);
	assert_int_equal(listing_at(l, 0, false, &w, &e), -ETIMEDOUT);
	listing_put(l);
}

TEST_MAIN(cmocka_unit_test(test_entries_come_back_as_they_were_given),
	  cmocka_unit_test(test_each_goes_on_where_it_stopped),
	  cmocka_unit_test(test_byte_order_decides_before_the_end),
	  cmocka_unit_test(test_a_store_without_order_decides_nothing_early),
	  cmocka_unit_test(test_a_failed_listing_says_so_after_what_it_has),
	  cmocka_unit_test(test_waiting_for_more_ends_by_the_deadline))
