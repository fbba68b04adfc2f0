/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "tools/ossd_code.h"
#include "tools/ossd_target.h"

static const char *const suffixes[] = {"localhost", "oss.example.com"};

static int parse(struct ossd_target *t, const char *raw, const char *host)
{
	return ossd_target_parse(t, raw, host, suffixes, 2);
}

static void assert_target(const char *raw, const char *host, const char *bucket,
			  const char *key)
{
	struct ossd_target t;

	assert_int_equal(parse(&t, raw, host), 0);
	assert_string_equal(t.bucket, bucket);
	assert_string_equal(t.key.data ? t.key.data : "", key);
	ossd_target_fini(&t);
}

static void test_the_bucket_is_in_the_path_or_in_the_host(void **state)
{
	(void)state;
	assert_target("/", "127.0.0.1:80", "", "");
	assert_target("/bkt", "127.0.0.1:80", "bkt", "");
	assert_target("/bkt/", "127.0.0.1", "bkt", "");
	assert_target("/bkt/a/b", "[::1]:80", "bkt", "a/b");
	assert_target("/bkt/a", NULL, "bkt", "a");
	assert_target("/bkt/a", "localhost:8000", "bkt", "a");
	assert_target("/", "bkt.localhost:8000", "bkt", "");
	assert_target("/a/b", "bkt.OSS.example.com", "bkt", "a/b");
	assert_target("/bkt/a", "other.example.com", "bkt", "a");
	assert_target("http://127.0.0.1:80/bkt/a?x=y", "127.0.0.1:80", "bkt", "a");
}

static void test_the_path_is_decoded_once_and_not_normalised(void **state)
{
	(void)state;
	assert_target("/bkt/a%2Fb%20c%2Bd", "1.1.1.1", "bkt", "a/b c+d");
	assert_target("/bkt/+a+", "1.1.1.1", "bkt", " a ");
	assert_target("/bkt/a%252F", "1.1.1.1", "bkt", "a%2F");
	assert_target("/bkt/a/../b//c/.", "1.1.1.1", "bkt", "a/../b//c/.");
	assert_target("/a//", "bkt.localhost", "bkt", "a//");
}

static void test_bad_names_are_refused(void **state)
{
	static const struct {
		const char *raw;
		int code;
	} bad[] = {
		{"/UPPER/key", OSSD_E_INVALID_BUCKET_NAME},
		{"//key", OSSD_E_INVALID_BUCKET_NAME},
		{"/../key", OSSD_E_INVALID_BUCKET_NAME},
		{"/bkt//key", OSSD_E_INVALID_OBJECT_NAME},
		{"/bkt/%FF", OSSD_E_INVALID_OBJECT_NAME},
		{"/bkt/a%00b", OSSD_E_INVALID_OBJECT_NAME},
		{"/bkt/a%2", OSSD_E_INVALID_OBJECT_NAME},
		{"/bkt/a?x=%zz", OSSD_E_INVALID_ARGUMENT},
		{"/bkt/a?x=%00", OSSD_E_INVALID_ARGUMENT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ossd_target t;

		assert_int_equal(parse(&t, bad[i].raw, "1.1.1.1"), bad[i].code);
		ossd_target_fini(&t);
	}
}

static void test_query_parameters_keep_order_and_emptiness(void **state)
{
	struct ossd_target t;

	(void)state;
	assert_int_equal(
		parse(&t, "/bkt?uploads&prefix=a%2Fb+c&&x=1=2&uploads=y", "1.1.1.1"), 0);
	assert_int_equal(t.query_count, 4);
	assert_string_equal(ossd_target_query(&t, "uploads"), "");
	assert_string_equal(ossd_target_query(&t, "prefix"), "a/b c");
	assert_string_equal(ossd_target_query(&t, "x"), "1=2");
	assert_null(ossd_target_query(&t, "y"));
	ossd_target_fini(&t);
}

static void test_too_many_parameters_are_refused(void **state)
{
	struct buf raw = BUF_INIT;
	struct ossd_target t;

	(void)state;
	buf_puts(&raw, "/bkt?a");
	for (int i = 1; i < OSSD_QUERY_MAX; i++)
		buf_puts(&raw, "&a");
	assert_int_equal(parse(&t, raw.data, "1.1.1.1"), 0);
	ossd_target_fini(&t);
	buf_puts(&raw, "&a");
	assert_int_equal(parse(&t, raw.data, "1.1.1.1"), OSSD_E_INVALID_ARGUMENT);
	ossd_target_fini(&t);
	buf_fini(&raw);
}

static void test_a_copy_source_names_bucket_and_key(void **state)
{
	char bucket[OSSD_BUCKET_SIZE];
	struct buf key = BUF_INIT;

	(void)state;
	assert_int_equal(
		ossd_target_parse_source("/bkt/a%20b/c?versionId=null", bucket, &key), 0);
	assert_string_equal(bucket, "bkt");
	assert_string_equal(key.data, "a b/c");
	buf_reset(&key);
	assert_int_equal(ossd_target_parse_source("bkt/a", bucket, &key), 0);
	assert_string_equal(key.data, "a");
	assert_int_not_equal(ossd_target_parse_source("/bkt", bucket, &key), 0);
	assert_int_not_equal(ossd_target_parse_source("/bkt/", bucket, &key), 0);
	assert_int_not_equal(ossd_target_parse_source("", bucket, &key), 0);
	buf_fini(&key);
}

TEST_MAIN(cmocka_unit_test(test_the_bucket_is_in_the_path_or_in_the_host),
	  cmocka_unit_test(test_the_path_is_decoded_once_and_not_normalised),
	  cmocka_unit_test(test_bad_names_are_refused),
	  cmocka_unit_test(test_query_parameters_keep_order_and_emptiness),
	  cmocka_unit_test(test_too_many_parameters_are_refused),
	  cmocka_unit_test(test_a_copy_source_names_bucket_and_key))
