/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "fs/base/buf.h"
#include "tools/ossd_key.h"

static void test_bucket_names_are_judged(void **state)
{
	(void)state;
	assert_true(ossd_bucket_name_valid("abc"));
	assert_true(ossd_bucket_name_valid("a-1-b"));
	assert_false(ossd_bucket_name_valid("ab"));
	assert_false(ossd_bucket_name_valid("-abc"));
	assert_false(ossd_bucket_name_valid("abc-"));
	assert_false(ossd_bucket_name_valid("Abc"));
	assert_false(ossd_bucket_name_valid("a.c"));
	assert_false(ossd_bucket_name_valid(".."));
	assert_false(ossd_bucket_name_valid(
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static bool valid(const char *key)
{
	return ossd_key_valid(key, strlen(key));
}

static void test_keys_are_utf8_of_1_to_1023_bytes(void **state)
{
	char longest[1025];

	(void)state;
	memset(longest, 'k', sizeof(longest));
	assert_true(ossd_key_valid(longest, 1023));
	assert_false(ossd_key_valid(longest, 1024));
	assert_false(valid(""));
	assert_true(valid("a/../b"));
	assert_true(valid("a//b/"));
	assert_true(valid("tab\tand\nnewline"));
	assert_false(valid("/a"));
	assert_false(valid("\\a"));
	assert_true(valid("\xc3\xbc\xe4\xb8\xad\xf0\x9f\x98\x80"));
	assert_false(valid("\xff"));
	assert_false(valid("a\xc3"));
	assert_false(valid("\xc0\xaf"));         /* '/' in two bytes */
	assert_false(valid("\xed\xa0\x80"));     /* a surrogate */
	assert_false(valid("\xf4\x90\x80\x80")); /* above U+10FFFF */
	assert_false(ossd_key_valid("a\0b", 3));
}

static void assert_path(const char *key, bool odd, const char *path)
{
	struct buf b = BUF_INIT;

	ossd_key_path(&b, "bkt", key, strlen(key), odd);
	assert_string_equal(b.data, path);
	buf_fini(&b);
}

static void test_an_ordinary_key_is_its_own_path(void **state)
{
	(void)state;
	assert_true(ossd_key_plain("a/b c/\xc3\xbc%41.txt", 14));
	assert_path("a/b c/%41.txt", false, "bkt/a/b c/%41.txt");
}

static void test_what_cannot_be_a_path_is_odd(void **state)
{
	static const char *const odd[] = {"a/",     "a//b", ".",  "..",
					  "a/../b", "./a",  "a/."};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
		assert_false(ossd_key_plain(odd[i], strlen(odd[i])));
}

static void test_odd_names_stay_below_their_folder(void **state)
{
	(void)state;
	assert_path("a/", true, ".ossd/odd/bkt/a%2F");
	assert_path("..", true, ".ossd/odd/bkt/%2E.");
	assert_path("../../x", true, ".ossd/odd/bkt/%2E.%2F..%2Fx");
	assert_path("a+b", true, ".ossd/odd/bkt/a%2Bb");
}

static void test_odd_names_lead_back_to_their_keys(void **state)
{
	char longest[OSSD_KEY_MAX];

	(void)state;
	for (size_t n = 1; n <= sizeof(longest); n++) {
		struct buf path = BUF_INIT, key = BUF_INIT;

		for (size_t i = 0; i < n; i++)
			longest[i] = "a/.%+ z"[(i * 5 + n) % 7];
		if (!ossd_key_valid(longest, n))
			continue;
		ossd_key_path(&path, "bkt", longest, n, true);
		for (const char *part = path.data; part;
		     part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
			assert_true(strcspn(part, "/") <= 255);
		assert_int_equal(
			ossd_key_from_odd(&key, path.data + strlen(".ossd/odd/bkt/")), 0);
		assert_int_equal(key.len, n);
		assert_memory_equal(key.data, longest, n);
		buf_fini(&path);
		buf_fini(&key);
	}
}

static void test_names_that_are_no_encoding_are_refused(void **state)
{
	static const char *const names[] = {"",    "a b",  "a%2f", "%41",
					    "a/b", "%2Fa", "a%ZZ"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct buf key = BUF_INIT;

		assert_true(ossd_key_from_odd(&key, names[i]) < 0);
		buf_fini(&key);
	}
}

TEST_MAIN(cmocka_unit_test(test_bucket_names_are_judged),
	  cmocka_unit_test(test_keys_are_utf8_of_1_to_1023_bytes),
	  cmocka_unit_test(test_an_ordinary_key_is_its_own_path),
	  cmocka_unit_test(test_what_cannot_be_a_path_is_odd),
	  cmocka_unit_test(test_odd_names_stay_below_their_folder),
	  cmocka_unit_test(test_odd_names_lead_back_to_their_keys),
	  cmocka_unit_test(test_names_that_are_no_encoding_are_refused))
