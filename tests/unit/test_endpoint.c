/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "fs/backend/endpoint.h"
#include "fs/base/err.h"

static struct endpoint resolved(const char *endpoint, const char *region)
{
	struct endpoint e;
	struct why why = {0};

	assert_int_equal(endpoint_resolve(endpoint, region, ADDRESSING_AUTO, &e, &why),
			 0);
	return e;
}

static void test_region_is_inferred_from_every_documented_form(void **state)
{
	static const char *const hosts[][2] = {
		{"oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"},
		{"oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"},
		{"cn-hangzhou.oss.aliyuncs.com", "cn-hangzhou"},
		{"s3.oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"},
		{"s3.oss-ap-southeast-1-internal.aliyuncs.com", "ap-southeast-1"},
		{"https://OSS-CN-Hangzhou.aliyuncs.com/", "cn-hangzhou"},
		{"oss-cn-zhengzhou-jva.aliyuncs.com:443", "cn-zhengzhou-jva"},
		{"oss-accelerate.aliyuncs.com", ""},
		{"oss-accelerate-overseas.aliyuncs.com", ""},
		{"data.example.com", ""},
		{"oss-cn-hangzhou.aliyuncs.com.example.com", ""},
		{"127.0.0.1:9000", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++)
		assert_string_equal(resolved(hosts[i][0], NULL).region, hosts[i][1]);
}

static void test_region_alone_gives_the_public_endpoint(void **state)
{
	struct endpoint e = resolved(NULL, "oss-cn-beijing");

	(void)state;
	assert_string_equal(e.host, "oss-cn-beijing.aliyuncs.com");
	assert_string_equal(e.region, "cn-beijing");
	assert_true(e.tls);
	assert_int_equal(e.addressing, ADDRESSING_VIRTUAL);
}

static void test_explicit_region_wins(void **state)
{
	(void)state;
	assert_string_equal(resolved("oss-accelerate.aliyuncs.com", "us-west-1").region,
			    "us-west-1");
	assert_string_equal(resolved("oss-cn-beijing.aliyuncs.com", "cn-x").region,
			    "cn-x");
}

static void test_addresses_and_plain_names_get_path_style(void **state)
{
	(void)state;
	assert_int_equal(resolved("127.0.0.1:9000", "r").addressing, ADDRESSING_PATH);
	assert_int_equal(resolved("http://[::1]:9000", "r").addressing, ADDRESSING_PATH);
	assert_int_equal(resolved("[::1]", "r").addressing, ADDRESSING_PATH);
	assert_int_equal(resolved("localhost:80", "r").addressing, ADDRESSING_PATH);
	assert_int_equal(resolved("store.lan:80", "r").addressing, ADDRESSING_VIRTUAL);
}

static void test_scheme_decides_tls_and_defaults_to_it(void **state)
{
	(void)state;
	assert_false(resolved("http://127.0.0.1:9000/", "r").tls);
	assert_string_equal(resolved("http://127.0.0.1:9000/", "r").host,
			    "127.0.0.1:9000");
	assert_true(resolved("https://a.b", "r").tls);
	assert_true(resolved("a.b", "r").tls);
}

static void assert_refused(const char *endpoint, const char *region, const char *part)
{
	struct endpoint e;
	struct why why = {0};

	assert_int_equal(endpoint_resolve(endpoint, region, ADDRESSING_AUTO, &e, &why),
			 -EINVAL);
	if (!strstr(why.text, part))
		fail_msg("\"%s\" does not say \"%s\"", why.text, part);
}

static void test_nonsense_is_refused_with_a_sentence(void **state)
{
	(void)state;
	assert_refused(NULL, NULL, "--region");
	assert_refused("ftp://a.b", NULL, "http://");
	assert_refused("https://", NULL, "no host");
	assert_refused("https://a.b/bucket", NULL, "without a path");
	assert_refused("user:secret@a.b", NULL, "host:port");
	assert_refused("a.b:0", NULL, "host:port");
	assert_refused("a.b:99999", NULL, "host:port");
	assert_refused("a.b:", NULL, "host:port");
	assert_refused("a.b\r\nX-Evil: 1", NULL, "host:port");
	assert_refused(NULL, "Hangzhou!", "cn-hangzhou");
}

static void test_bucket_names(void **state)
{
	(void)state;
	assert_true(endpoint_bucket_ok("abc"));
	assert_true(endpoint_bucket_ok("my-bucket-01"));
	assert_false(endpoint_bucket_ok("ab"));
	assert_false(endpoint_bucket_ok("Abc"));
	assert_false(endpoint_bucket_ok("-abc"));
	assert_false(endpoint_bucket_ok("abc-"));
	assert_false(endpoint_bucket_ok("a.bc"));
	assert_false(endpoint_bucket_ok(
		"0123456789012345678901234567890123456789012345678901234567890123"));
}

TEST_MAIN(cmocka_unit_test(test_region_is_inferred_from_every_documented_form),
	  cmocka_unit_test(test_region_alone_gives_the_public_endpoint),
	  cmocka_unit_test(test_explicit_region_wins),
	  cmocka_unit_test(test_addresses_and_plain_names_get_path_style),
	  cmocka_unit_test(test_scheme_decides_tls_and_defaults_to_it),
	  cmocka_unit_test(test_nonsense_is_refused_with_a_sentence),
	  cmocka_unit_test(test_bucket_names))
