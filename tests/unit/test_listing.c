/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "cache/listing.h"
#include "cache/wait.h"
#include "fs/base/clock.h"

static void add(struct listing_range *range, const char *key, uint64_t size)
{
	struct origin_attr attr = {.size = size};
	size_t n = strlen(key);

	attr.is_dir = n && key[n - 1] == '/';
	snprintf(attr.etag, sizeof(attr.etag), "E%llu", (unsigned long long)size);
	assert_int_equal(listing_add(range, key, n, &attr), 0);
}

static struct listing_range *begin(const char *dir, struct listing **l)
{
	assert_int_equal(listing_new(dir, 0, NULL, l), 0);
	return listing_first_range(*l);
}

static void test_entries_come_back_as_they_were_given(void **state)
{
	struct listing_entry e;
	struct listing_range *range;
	struct listing *l;
	char key[40];

	(void)state;
	range = begin("d/", &l);
	add(range, "d/", 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "d/n%06d", i);
		add(range, key, (uint64_t)i);
	}
	listing_range_done(range);
	listing_done(l, 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "n%06d", i);
		assert_int_equal(listing_at(l, (uint64_t)i, true, NULL, &e), 0);
		assert_string_equal(e.name, key);
		assert_int_equal(listing_find(l, key, true, &e), 0);
		assert_int_equal(e.attr.size, i);
		snprintf(key, sizeof(key), "E%d", i);
		assert_string_equal(e.attr.etag, key);
	}
	assert_int_equal(listing_at(l, 5000, true, NULL, &e), LISTING_E_END);
	assert_int_equal(listing_find(l, "n", true, &e), LISTING_E_END);
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
	struct listing_range *range;
	struct listing *l;
	char key[40];

	(void)state;
	range = begin("d/", &l);
	assert_int_equal(listing_each(l, 0, true, NULL, see, &seen), LISTING_E_WAIT);
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "d/n%06d", i);
		add(range, key, (uint64_t)i);
	}
	assert_int_equal(listing_each(l, 0, true, NULL, see, &seen), 7);
	assert_int_equal(listing_each(l, seen.next, false, NULL, see, &seen),
			 LISTING_E_WAIT);
	assert_int_equal(seen.count, 3000);
	listing_range_done(range);
	listing_done(l, 0);
	assert_int_equal(listing_each(l, seen.next, false, NULL, see, &seen),
			 LISTING_E_END);
	listing_put(l);
}

static void test_byte_order_decides_before_the_end(void **state)
{
	struct listing_entry e;
	struct listing_range *range;
	struct listing *l;

	(void)state;
	range = begin("", &l);
	add(range, "a", 1);
	assert_int_equal(listing_find(l, "a", true, &e),
			 LISTING_E_WAIT); /* "a/" may come */
	add(range, "a-b", 2);
	assert_int_equal(listing_find(l, "a", true, &e), LISTING_E_WAIT);
	add(range, "a/", 0);
	assert_int_equal(listing_find(l, "a", true, &e), 0);
	assert_true(e.attr.is_dir);
	assert_int_equal(listing_find(l, "a0", true, &e), LISTING_E_WAIT);
	add(range, "b", 3);
	assert_int_equal(listing_find(l, "a0", true, &e), LISTING_E_END);
	assert_int_equal(listing_find(l, "a-b", true, &e), 0);
	assert_int_equal(listing_find(l, "b", true, &e), LISTING_E_WAIT);
	assert_int_equal(listing_facts(l).shadowed, 1);
	listing_range_done(range);
	listing_done(l, 0);
	assert_int_equal(listing_find(l, "b", true, &e), 0);
	listing_put(l);
}

static void test_a_store_without_order_is_refused(void **state)
{
	struct origin_attr attr = {0};
	struct listing_range *range;
	struct listing *l;

	(void)state;
	range = begin("", &l);
	add(range, "c", 1);
	add(range, "m", 1);
	add(range, "m", 1); /* twice: shown once */
	assert_int_equal(listing_add(range, "d", 1, &attr), -EBADMSG);
	assert_int_equal(listing_facts(l).count, 2);
	listing_put(l);
}

static void test_a_failed_listing_says_so_after_what_it_has(void **state)
{
	struct listing_entry e;
	struct listing_range *range;
	struct listing *l;

	(void)state;
	range = begin("", &l);
	add(range, "a", 1);
	listing_done(l, -ECONNRESET);
	assert_int_equal(listing_at(l, 0, true, NULL, &e), 0);
	assert_int_equal(listing_at(l, 1, true, NULL, &e), -ECONNRESET);
	assert_int_equal(listing_find(l, "zzz", true, &e), LISTING_E_WAIT);
	listing_put(l);
}

static void test_waiting_for_more_ends_by_the_deadline(void **state)
{
	struct wait w = {.deadline_ms = clock_mono_ms() + 60};
	struct listing_entry e;
	struct listing *l;

	(void)state;
	begin("", &l);
	assert_int_equal(listing_at(l, 0, true, NULL, &e), LISTING_E_WAIT);
	assert_int_equal(listing_at(l, 0, false, &w, &e), -ETIMEDOUT);
	listing_put(l);
}

TEST_MAIN(cmocka_unit_test(test_entries_come_back_as_they_were_given),
	  cmocka_unit_test(test_each_goes_on_where_it_stopped),
	  cmocka_unit_test(test_byte_order_decides_before_the_end),
	  cmocka_unit_test(test_a_store_without_order_is_refused),
	  cmocka_unit_test(test_a_failed_listing_says_so_after_what_it_has),
	  cmocka_unit_test(test_waiting_for_more_ends_by_the_deadline))
