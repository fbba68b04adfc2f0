/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <sys/stat.h>

#include "cache/origin_posix.h"

static struct origin_attr parsed(const char *name, const char *value, bool good)
{
	struct origin_attr attr = {0};

	assert_int_equal(origin_posix_parse(&attr, name, value), good);
	return attr;
}

static void test_mode_is_decimal_unless_it_starts_with_zero(void **state)
{
	(void)state;
	assert_int_equal(parsed("mode", "33188", true).mode, S_IFREG | 0644);
	assert_int_equal(parsed("mode", "0100644", true).mode, S_IFREG | 0644);
	assert_int_equal(parsed("goog-reserved-posix-mode", "755", true).mode,
			 S_IFREG | 0755);
	assert_true(parsed("mode", "41471", true).is_symlink);
	assert_false(parsed("mode", "-1", false).has_posix);
	assert_false(parsed("mode", "99999999", false).has_posix);
	assert_false(parsed("mode", "", false).has_posix);
	assert_false(parsed("mode", "33188x", false).has_posix);
}

static void test_mtime_takes_a_decimal_fraction(void **state)
{
	(void)state;
	assert_int_equal(parsed("mtime", "1700000000", true).mtime_ns,
			 1700000000000000000);
	assert_int_equal(parsed("mtime", "1.25", true).mtime_ns, 1250000000);
	assert_int_equal(parsed("mtime", "1.000000001", true).mtime_ns, 1000000001);
	assert_int_equal(parsed("mtime", "-1.5", true).mtime_ns, -1500000000);
	parsed("mtime", "99999999999999", false);
	parsed("mtime", "1.5s", false);
	parsed("color", "red", false);
}

static void test_what_is_formatted_parses_back(void **state)
{
	struct origin_posix posix;
	struct origin_attr attr = {0};

	(void)state;
	origin_posix_format(&posix, S_IFDIR | 01777, 1000, 4294967294u,
			    1234567890123456789);
	assert_int_equal(posix.meta.count, 4);
	for (size_t i = 0; i < posix.meta.count; i++)
		assert_true(origin_posix_parse(&attr, posix.meta.pairs[i][0],
					       posix.meta.pairs[i][1]));
	assert_int_equal(attr.mode, S_IFDIR | 01777);
	assert_int_equal(attr.uid, 1000);
	assert_int_equal(attr.gid, 4294967294u);
	assert_int_equal(attr.mtime_ns, 1234567890123456789);
	assert_true(attr.has_posix);
}

TEST_MAIN(cmocka_unit_test(test_mode_is_decimal_unless_it_starts_with_zero),
	  cmocka_unit_test(test_mtime_takes_a_decimal_fraction),
	  cmocka_unit_test(test_what_is_formatted_parses_back))
