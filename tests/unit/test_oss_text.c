/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/stat.h>

#include "cache/origin.h"
#include "fs/backend/oss_text.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void test_times_come_back(void **state)
{
	static const int64_t times[] = {0, 1330072987, 951826554, 4102444799, 1735689600};
	char text[OSS_TIME_SIZE];
	int64_t ns;

	(void)state;
	for (size_t i = 0; i < COUNT(times); i++) {
		oss_time_format_http(text, times[i] * 1000000000);
		assert_int_equal(oss_time_parse_http(text, strlen(text), &ns), 0);
		assert_int_equal(ns, times[i] * 1000000000);
	}
	oss_time_format_http(text, 1330072987000000000);
	assert_string_equal(text, "Fri, 24 Feb 2012 08:43:07 GMT");
	oss_time_format_basic(text, 1330072987999999999);
	assert_string_equal(text, "20120224T084307Z");
	assert_int_equal(oss_time_parse_iso("2012-02-24T08:43:07.5Z", 22, &ns), 0);
	assert_int_equal(ns, 1330072987500000000);
	assert_int_equal(oss_time_parse_iso("2012-02-24T08:43:07Z", 20, &ns), 0);
}

static void test_what_is_no_time_is_refused(void **state)
{
	static const char *const iso[] = {"",
					  "2012-02-24",
					  "2012-02-24T08:43:07",
					  "2012-13-24T08:43:07Z",
					  "2012-02-00T08:43:07Z",
					  "2012-02-24T25:43:07Z",
					  "2012-02-24T08:43:07ZZ",
					  "-012-02-24T08:43:07Z",
					  "2012-02-24T08:43:-7Z",
					  "2012/02/24T08:43:07Z"};
	static const char *const http[] = {"",
					   "Fri",
					   "Fri, 24 Feb 2012 08:43:07",
					   "Fri, 24 Feb 2012 08:43:07 CET",
					   "Fri, 4 Feb 2012 08:43:07 GMT",
					   "Fri, 24 Fub 2012 08:43:07 GMT",
					   "1330072987"};
	int64_t ns = 5;

	(void)state;
	for (size_t i = 0; i < COUNT(iso); i++)
		assert_int_equal(oss_time_parse_iso(iso[i], strlen(iso[i]), &ns),
				 -EINVAL);
	for (size_t i = 0; i < COUNT(http); i++)
		assert_int_equal(oss_time_parse_http(http[i], strlen(http[i]), &ns),
				 -EINVAL);
	assert_int_equal(ns, 5);
}

static void test_numbers(void **state)
{
	uint64_t v;

	(void)state;
	assert_int_equal(oss_number_parse("18446744073709551615", 20, &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(oss_number_parse("18446744073709551616", 20, &v), -ERANGE);
	assert_int_equal(oss_number_parse("-1", 2, &v), -EINVAL);
	assert_int_equal(oss_number_parse(" 1", 2, &v), -EINVAL);
	assert_int_equal(oss_number_parse("", 0, &v), -EINVAL);
}

static void test_etags_lose_their_quotes(void **state)
{
	char etag[8];

	(void)state;
	oss_etag_copy(etag, sizeof(etag), "\"abc\"", 5);
	assert_string_equal(etag, "abc");
	oss_etag_copy(etag, sizeof(etag), "W/\"abc\"", 7);
	assert_string_equal(etag, "abc");
	oss_etag_copy(etag, sizeof(etag), "abc", 3);
	assert_string_equal(etag, "abc");
	oss_etag_copy(etag, sizeof(etag), "\"", 1);
	assert_string_equal(etag, "\"");
	oss_etag_copy(etag, sizeof(etag), "\"1234567\"", 9);
	assert_string_equal(etag, "1234567");
	oss_etag_copy(etag, sizeof(etag), "\"12345678\"", 10);
	assert_string_equal(etag, "");
	assert_true(oss_etag_equal("AbC", "aBc"));
	assert_false(oss_etag_equal("abc", "abd"));
}

static void test_content_ranges(void **state)
{
	static const char *const bad[] = {"",
					  "bytes",
					  "bytes ",
					  "bytes 0-9",
					  "bytes 9-0/10",
					  "bytes 0-10/10",
					  "bytes -9/10",
					  "bytes 0-/10",
					  "items 0-9/10",
					  "bytes 0-9/*",
					  "bytes /10",
					  "bytes 0 - 9/10",
					  "/bytes 0-9"};
	struct oss_range range;

	(void)state;
	assert_int_equal(oss_range_parse("bytes 500-999/1000", 18, &range), 0);
	assert_int_equal(range.first, 500);
	assert_int_equal(range.last, 999);
	assert_int_equal(range.size, 1000);
	assert_false(range.unsatisfied);
	assert_int_equal(oss_range_parse("bytes */1000", 12, &range), 0);
	assert_true(range.unsatisfied);
	assert_int_equal(range.size, 1000);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(oss_range_parse(bad[i], strlen(bad[i]), &range),
				 -EINVAL);
}

static struct origin_attr applied(const char *const (*pairs)[2], size_t n, bool is_dir)
{
	struct origin_attr attr = {.mtime_ns = 42};
	struct oss_posix posix = {0};

	for (size_t i = 0; i < n; i++)
		oss_posix_take(&posix, pairs[i][0], strlen(pairs[i][0]), pairs[i][1],
			       strlen(pairs[i][1]));
	oss_posix_apply(&posix, is_dir, &attr);
	return attr;
}

static void test_posix_metadata_of_ossfs(void **state)
{
	static const char *const all[][2] = {{"mode", "33188"},
					     {"uid", "1000"},
					     {"gid", "1001"},
					     {"mtime", "1330072987.000000005"}};
	static const char *const octal[][2] = {{"mode", "0100600"}, {"owner", "7"}};
	static const char *const link[][2] = {{"Mode", "41471"}, {"mtime", "-1.5"}};
	static const char *const google[][2] = {{"goog-reserved-posix-mode", "750"},
						{"goog-reserved-posix-gid", "9"},
						{"goog-reserved-file-mtime", "12"}};
	static const char *const junk[][2] = {{"mode", "rw-r--r--"},
					      {"uid", "-1"},
					      {"gid", "4294967296"},
					      {"mtime", "12.x"},
					      {"author", "alice"}};
	struct origin_attr attr = applied(all, COUNT(all), false);

	(void)state;
	assert_true(attr.has_posix);
	assert_int_equal(attr.mode, 0100644);
	assert_int_equal(attr.uid, 1000);
	assert_int_equal(attr.gid, 1001);
	assert_int_equal(attr.mtime_ns, 1330072987000000005);
	attr = applied(octal, COUNT(octal), false);
	assert_int_equal(attr.mode, 0100600);
	assert_int_equal(attr.uid, 7);
	assert_int_equal(attr.mtime_ns, 42);
	attr = applied(link, COUNT(link), false);
	assert_true(attr.is_symlink);
	assert_int_equal(attr.mtime_ns, -1500000000);
	attr = applied(google, COUNT(google), true);
	assert_int_equal(attr.mode, S_IFDIR | 0750);
	assert_int_equal(attr.gid, 9);
	assert_int_equal(attr.mtime_ns, 12000000000);
	attr = applied(junk, COUNT(junk), false);
	assert_false(attr.has_posix);
	assert_int_equal(attr.mtime_ns, 42);
}

static void test_content_types(void **state)
{
	(void)state;
	assert_string_equal(oss_content_type("a/b.JPG"), "image/jpeg");
	assert_string_equal(oss_content_type("x.css"), "text/css");
	assert_string_equal(oss_content_type("x.zst"), "application/zstd");
	assert_string_equal(oss_content_type("a.png/"), "application/x-directory");
	assert_null(oss_content_type("a.png/b"));
	assert_null(oss_content_type("events.out.tfevents.1"));
	assert_null(oss_content_type("plain"));
}

TEST_MAIN(cmocka_unit_test(test_times_come_back),
	  cmocka_unit_test(test_what_is_no_time_is_refused),
	  cmocka_unit_test(test_numbers), cmocka_unit_test(test_etags_lose_their_quotes),
	  cmocka_unit_test(test_content_ranges),
	  cmocka_unit_test(test_posix_metadata_of_ossfs),
	  cmocka_unit_test(test_content_types))
