/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "fs/backend/backend.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "tests/unit/lib_origin.h"

static struct backend_source parsed(const char *source)
{
	struct backend_source s;
	struct why why = {0};

	if (backend_parse(source, &s, &why) != 0)
		fail_msg("%s: %s", source, why.text);
	return s;
}

static void assert_refused(const char *source, const char *part)
{
	struct backend_source s;
	struct why why = {0};

	assert_int_equal(backend_parse(source, &s, &why), -EINVAL);
	if (!strstr(why.text, part))
		fail_msg("\"%s\" does not say \"%s\"", why.text, part);
}

static void test_sources_are_taken_apart(void **state)
{
	(void)state;
	assert_int_equal(parsed("oss://my-bucket").kind, BACKEND_OSS);
	assert_string_equal(parsed("oss://my-bucket").bucket, "my-bucket");
	assert_string_equal(parsed("oss://my-bucket").prefix, "");
	assert_string_equal(parsed("oss://my-bucket/").prefix, "");
	assert_string_equal(parsed("oss://my-bucket/a/b").prefix, "a/b/");
	assert_string_equal(parsed("oss://my-bucket/a/b/").prefix, "a/b/");
	assert_string_equal(parsed("oss://my-bucket/%41 b").prefix, "%41 b/");
	assert_int_equal(parsed("file:///data/x").kind, BACKEND_FILE);
	assert_string_equal(parsed("file:///data/x").prefix, "/data/x");
	assert_int_equal(parsed("nfs://nas/export/sub").kind, BACKEND_NFS);
	assert_string_equal(parsed("nfs://nas/export/sub").bucket, "nas");
	assert_string_equal(parsed("nfs://nas/export/sub").prefix, "/export/sub");
	assert_int_equal(parsed("mem:").kind, BACKEND_MEM);
}

static void test_wrong_sources_are_refused_with_a_sentence(void **state)
{
	char long_prefix[1100] = "oss://bucket/";

	(void)state;
	memset(long_prefix + 13, 'p', 1050);
	assert_refused("oss://", "no bucket");
	assert_refused("oss:///prefix", "no bucket");
	assert_refused("oss://Upper", "3 to 63");
	assert_refused("oss://bucket//a", "does not start");
	assert_refused(long_prefix, "longer");
	assert_refused("file://relative", "absolute");
	assert_refused("/data", "file:///data");
	assert_refused("os://bucket", "did you mean oss://");
	assert_refused("nfs://server", "no export");
	assert_refused("", "a source is");
	assert_refused("bucket", "a source is");
}

static void test_a_read_only_source_refuses_writes(void **state)
{
	struct backend_config config = {.source = "mem:", .read_only = true};
	struct why why;
	struct origin *o;

	(void)state;
	assert_int_equal(backend_open(&config, &o, &why), 0);
	assert_int_equal(lib_put(o, "a", "x"), -EROFS);
	assert_int_equal(lib_delete(o, "a"), -EROFS);
	assert_int_equal(lib_append(o, "a", 0, "x"), -EROFS);
	assert_int_equal(lib_stat(o, "a", NULL), -ENOENT);
	lib_assert_listed(o, "", true, "");
	origin_free(o);
}

static void test_a_directory_that_is_not_there_is_refused(void **state)
{
	struct backend_config config = {.source = "file:///no/such/directory"};
	struct why why = {0};
	struct origin *o;

	(void)state;
	assert_int_equal(backend_open(&config, &o, &why), -ENOENT);
	assert_non_null(strstr(why.text, "/no/such/directory does not exist"));
}

static void assert_not_opened(struct backend_config config, int r, const char *part)
{
	struct origin *o;
	struct why why = {0};

	assert_int_equal(backend_open(&config, &o, &why), r);
	if (!strstr(why.text, part))
		fail_msg("\"%s\" does not say \"%s\"", why.text, part);
}

static void test_what_a_bucket_needs_is_asked_for(void **state)
{
	struct backend_config config = {.source = "oss://bucket", .credentials = "env"};

	(void)state;
	unsetenv("OSS_ENDPOINT");
	unsetenv("OSS_REGION");
	setenv("OSS_ACCESS_KEY_ID", "test-id", 1);
	setenv("OSS_ACCESS_KEY_SECRET", "test-secret", 1);
	assert_not_opened(config, -EINVAL, "add --region");
	config.endpoint = "127.0.0.1:1";
	assert_not_opened(config, -EINVAL, "gives no region: add --region");
	config.region = "cn-hangzhou";
	unsetenv("OSS_ACCESS_KEY_SECRET");
	assert_not_opened(config, -EINVAL, "OSS_ACCESS_KEY_SECRET is not");
	unsetenv("OSS_ACCESS_KEY_ID");
	assert_not_opened(config, -ENOENT, "set OSS_ACCESS_KEY_ID");
}

static void test_a_bucket_that_does_not_answer_says_so_soon(void **state)
{
	struct backend_config config = {.source = "oss://bucket/some/where",
					.endpoint = "http://127.0.0.1:1",
					.credentials = "anonymous"};
	struct origin_req req = {.op = ORIGIN_PROBE};
	struct why why = {0};
	struct origin *o;

	(void)state;
	if (backend_open(&config, &o, &why) != 0)
		fail_msg("%s", why.text);
	assert_non_null(strstr(o->name, "oss://bucket/some/where"));
	req.deadline_ms = clock_mono_ms() + 500;
	assert_int_equal(origin_call(o, &req), -ECONNREFUSED);
	assert_non_null(strstr(req.why.text, "127.0.0.1:1"));
	origin_free(o);
}

TEST_MAIN(cmocka_unit_test(test_what_a_bucket_needs_is_asked_for),
	  cmocka_unit_test(test_a_bucket_that_does_not_answer_says_so_soon),
	  cmocka_unit_test(test_sources_are_taken_apart),
	  cmocka_unit_test(test_wrong_sources_are_refused_with_a_sentence),
	  cmocka_unit_test(test_a_read_only_source_refuses_writes),
	  cmocka_unit_test(test_a_directory_that_is_not_there_is_refused))
