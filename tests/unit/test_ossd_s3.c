/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 dialect: signatures against Amazon's published examples and test suite, what must
 * be refused, and replies in the words of S3. */
#include "tests/unit/test.h"

#include "fs/base/err.h"
#include "tools/ossd_auth.h"
#include "tools/ossd_code.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_s3.h"
#include "tools/ossd_s3_sign.h"
#include "tools/ossd_target.h"

#define HEADERS_MAX 12
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define SUITE_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define ID "AKIAIOSFODNN7EXAMPLE"

static const char *const suffixes[] = {"s3.amazonaws.com"};
static struct ossd_accounts accounts;

/* ---- the test suite of Signature Version 4 --------------------------------------------- */

static struct s3_sign_request sign_request(const char *method,
					   const struct ossd_target *target,
					   const struct oss_pair *headers)
{
	struct s3_sign_request req = {
		.method = method,
		.path = target->path,
		.path_len = target->path_len,
		.query = target->query,
		.query_count = target->query_count,
		.headers = headers,
	};

	while (headers[req.header_count].name)
		req.header_count++;
	return req;
}

static const struct {
	const char *name, *method, *target, *signed_headers, *payload, *signature;
	struct oss_pair headers[HEADERS_MAX];
} suite[] = {
#define HOST                                                                             \
	{                                                                                \
		"Host", "example.amazonaws.com"                                          \
	}
#define DATE                                                                             \
	{                                                                                \
		"X-Amz-Date", "20150830T123600Z"                                         \
	}
	{"get-vanilla",
	 "GET",
	 "/",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
	 {HOST, DATE}},
	{"get-vanilla-empty-query-key",
	 "GET",
	 "/?Param1=value1",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
	 {HOST, DATE}},
	{"get-vanilla-query-order-key-case",
	 "GET",
	 "/?Param2=value2&Param1=value1",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
	 {HOST, DATE}},
	{"get-vanilla-utf8-query",
	 "GET",
	 "/?%E1%88%B4=bar",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
	 {HOST, DATE}},
	{"get-unreserved",
	 "GET",
	 "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
	 {HOST, DATE}},
	{"get-utf8",
	 "GET",
	 "/\xe1\x88\xb4",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
	 {HOST, DATE}},
	{"get-header-key-duplicate",
	 "GET",
	 "/",
	 "host;my-header1;x-amz-date",
	 S3_EMPTY_SHA256,
	 "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
	 {HOST,
	  {"My-Header1", "value2"},
	  {"My-Header1", "value2"},
	  {"My-Header1", "value1"},
	  DATE}},
	{"get-header-value-trim",
	 "GET",
	 "/",
	 "host;my-header1;my-header2;x-amz-date",
	 S3_EMPTY_SHA256,
	 "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
	 {HOST, {"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}, DATE}},
	{"post-vanilla",
	 "POST",
	 "/",
	 "host;x-amz-date",
	 S3_EMPTY_SHA256,
	 "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
	 {HOST, DATE}},
	{"post-header-key-sort",
	 "POST",
	 "/",
	 "host;my-header1;x-amz-date",
	 S3_EMPTY_SHA256,
	 "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
	 {HOST, {"My-Header1", "value1"}, DATE}},
	{"post-x-www-form-urlencoded",
	 "POST",
	 "/",
	 "content-type;host;x-amz-date",
	 "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e",
	 "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
	 {{"Content-Type", "application/x-www-form-urlencoded"}, HOST, DATE}},
};

static void test_the_published_test_suite_of_v4(void **state)
{
	struct oss_scope scope = {"us-east-1", "service", "20150830T123600Z",
				  OSS_DIALECT_AWS};

	(void)state;
	for (size_t i = 0; i < sizeof(suite) / sizeof(*suite); i++) {
		struct buf canonical = BUF_INIT, string = BUF_INIT;
		struct s3_sign_request req;
		struct ossd_target target;
		char signature[65];

		/* Not all of these paths have a bucket in them that S3 would take. */
		ossd_target_parse(&target, suite[i].target, NULL, NULL, 0);
		if (!target.query_count && strchr(suite[i].target, '?'))
			fail_msg("%s: no query", suite[i].name);
		req = sign_request(suite[i].method, &target, suite[i].headers);
		assert_int_equal(s3_v4_canonical(&canonical, &req,
						 suite[i].signed_headers,
						 suite[i].payload),
				 0);
		assert_int_equal(oss_v4_string_to_sign(&string, &scope, canonical.data,
						       canonical.len),
				 0);
		assert_int_equal(oss_v4_signature(signature, SUITE_SECRET, &scope,
						  string.data, string.len),
				 0);
		if (strcmp(signature, suite[i].signature) != 0)
			fail_msg("%s:\n%s", suite[i].name, canonical.data);
		buf_fini(&canonical);
		buf_fini(&string);
		ossd_target_fini(&target);
	}
}

/* ---- the examples of the S3 documentation ---------------------------------------------- */

#define V4(signed_headers, signature)                                                    \
	"AWS4-HMAC-SHA256 Credential=" ID                                                \
	"/20130524/us-east-1/s3/aws4_request, SignedHeaders=" signed_headers             \
	",Signature=" signature
#define BUCKET_HOST                                                                      \
	{                                                                                \
		"Host", "examplebucket.s3.amazonaws.com"                                 \
	}
#define EMPTY                                                                            \
	{                                                                                \
		"x-amz-content-sha256", S3_EMPTY_SHA256                                  \
	}
#define DATE_2013                                                                        \
	{                                                                                \
		"x-amz-date", "20130524T000000Z"                                         \
	}
#define NOW_2013_MS 1369353600000ll /* 20130524T000000Z */
#define NOW_2007_MS 1175024202000ll /* Tue, 27 Mar 2007 19:36:42 GMT */

struct example {
	const char *name, *method, *target;
	int64_t now_ms;
	struct oss_pair headers[HEADERS_MAX];
};

static const struct example examples[] = {
	{"V4 GetObject",
	 "GET",
	 "/test.txt",
	 NOW_2013_MS,
	 {BUCKET_HOST,
	  {"Range", "bytes=0-9"},
	  EMPTY,
	  DATE_2013,
	  {"Authorization",
	   V4("host;range;x-amz-content-sha256;x-amz-date",
	      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")}}},
	{"V4 PutObject",
	 "PUT",
	 "/test%24file.text",
	 NOW_2013_MS,
	 {BUCKET_HOST,
	  {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
	  DATE_2013,
	  {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	  {"x-amz-content-sha256",
	   "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
	  {"Authorization",
	   V4("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")}}},
	{"V4 GetBucketLifecycle",
	 "GET",
	 "/?lifecycle",
	 NOW_2013_MS,
	 {BUCKET_HOST,
	  EMPTY,
	  DATE_2013,
	  {"Authorization",
	   V4("host;x-amz-content-sha256;x-amz-date",
	      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")}}},
	{"V4 ListObjects",
	 "GET",
	 "/?max-keys=2&prefix=J",
	 NOW_2013_MS,
	 {BUCKET_HOST,
	  EMPTY,
	  DATE_2013,
	  {"Authorization",
	   V4("host;x-amz-content-sha256;x-amz-date",
	      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")}}},
	{"V4 URL",
	 "GET",
	 "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" ID
	 "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
	 "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
	 "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
	 NOW_2013_MS + 3600 * 1000,
	 {BUCKET_HOST}},
	{"V2 GetObject",
	 "GET",
	 "/photos/puppy.jpg",
	 NOW_2007_MS,
	 {{"Host", "johnsmith.s3.amazonaws.com"},
	  {"Date", "Tue, 27 Mar 2007 19:36:42 +0000"},
	  {"Authorization", "AWS " ID ":bWq2s1WEIj+Ydj0vQ697zp+IXMU="}}},
	{"V2 PutObject",
	 "PUT",
	 "/photos/puppy.jpg",
	 NOW_2007_MS,
	 {{"Content-Type", "image/jpeg"},
	  {"Content-Length", "94328"},
	  {"Host", "johnsmith.s3.amazonaws.com"},
	  {"Date", "Tue, 27 Mar 2007 21:15:45 +0000"},
	  {"Authorization", "AWS " ID ":MyyxeRY7whkBe+bq8fHCL/2kKUg="}}},
	{"V2 ListObjects",
	 "GET",
	 "/?prefix=photos&max-keys=50&marker=puppy",
	 NOW_2007_MS,
	 {{"User-Agent", "Mozilla/5.0"},
	  {"Host", "johnsmith.s3.amazonaws.com"},
	  {"Date", "Tue, 27 Mar 2007 19:42:41 +0000"},
	  {"Authorization", "AWS " ID ":htDYFYduRNen8P9ZfE/s9SuKy0U="}}},
	{"V2 GetBucketAcl",
	 "GET",
	 "/?acl",
	 NOW_2007_MS,
	 {{"Host", "johnsmith.s3.amazonaws.com"},
	  {"Date", "Tue, 27 Mar 2007 19:44:46 +0000"},
	  {"Authorization", "AWS " ID ":c2WLPFtWHVgbEmeEG93a4cG37dM="}}},
	{"V2 ListBuckets",
	 "GET",
	 "/",
	 NOW_2007_MS,
	 {{"Host", "s3.amazonaws.com"},
	  {"Date", "Wed, 28 Mar 2007 01:29:59 +0000"},
	  {"Authorization", "AWS " ID ":qGdzdERIC03wnaRNKh6OqZehG9s="}}},
};

/* The verdict on an example with `change` (NULL: nothing) in place of a header of its name,
 * or beside the others. */
static int verdict(const struct example *e, const struct oss_pair *change,
		   const char *region, bool clock_check)
{
	struct oss_pair headers[HEADERS_MAX + 1];
	const struct ossd_account *who = NULL;
	const char *message = NULL, *host = NULL;
	struct buf extra = BUF_INIT;
	struct ossd_target target;
	struct ossd_auth auth = {.accounts = &accounts,
				 .region = region,
				 .clock_check = clock_check,
				 .now_ms = e->now_ms,
				 .method = e->method,
				 .target = &target,
				 .headers = headers};
	bool changed = !change;
	int r;

	for (size_t i = 0; e->headers[i].name; i++) {
		bool here = change && !strcmp(change->name, e->headers[i].name);

		headers[auth.header_count++] = here ? *change : e->headers[i];
		changed |= here;
		if (!strcmp(e->headers[i].name, "Host"))
			host = e->headers[i].value;
	}
	if (!changed)
		headers[auth.header_count++] = *change;
	assert_int_equal(ossd_target_parse(&target, e->target, host, suffixes, 1), 0);
	r = ossd_auth_check(&auth, &who, &message, &extra);
	if (r == 0)
		assert_string_equal(who->id, ID);
	if (extra.data)
		assert_null(strstr(extra.data, SECRET));
	buf_fini(&extra);
	ossd_target_fini(&target);
	return r;
}

static void test_the_examples_of_the_documentation(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++)
		if (verdict(&examples[i], NULL, NULL, false) != 0)
			fail_msg("%s", examples[i].name);
	/* Same key, host without the bucket: the path then says it. */
	assert_int_equal(
		verdict(&(struct example){"path style",
					  "GET",
					  "/johnsmith/photos/puppy.jpg",
					  NOW_2007_MS,
					  {{"Host", "127.0.0.1:80"},
					   {"Date", "Tue, 27 Mar 2007 19:36:42 GMT"},
					   {"Authorization", "AWS " ID ":nothing"}}},
			NULL, NULL, true),
		OSSD_E_SIGNATURE);
}

static void test_what_was_changed_does_not_match(void **state)
{
	struct oss_pair range = {"Range", "bytes=0-10"};
	struct oss_pair meta = {"x-amz-meta-a", "added"};
	struct oss_pair type = {"Content-Type", "text/plain"};
	struct oss_pair host = {"Host", "examplebucket2.s3.amazonaws.com"};

	(void)state;
	assert_int_equal(verdict(&examples[0], &range, NULL, true), OSSD_E_SIGNATURE);
	assert_int_equal(verdict(&examples[0], &host, NULL, true), OSSD_E_SIGNATURE);
	/* A header that nobody signed may not steer the request. */
	assert_int_equal(verdict(&examples[0], &meta, NULL, true), OSSD_E_ACCESS_DENIED);
	assert_int_equal(verdict(&examples[4], &meta, NULL, true), OSSD_E_ACCESS_DENIED);
	assert_int_equal(verdict(&examples[5], &meta, NULL, true), OSSD_E_SIGNATURE);
	assert_int_equal(verdict(&examples[6], &type, NULL, false), OSSD_E_SIGNATURE);
}

static void test_region_clock_and_expiry(void **state)
{
	struct example late = examples[0], url = examples[4];

	(void)state;
	assert_int_equal(verdict(&late, NULL, "us-east-1", true), 0);
	assert_int_equal(verdict(&late, NULL, "cn-hangzhou", true), OSSD_E_WRONG_REGION);
	late.now_ms += 16 * 60 * 1000;
	assert_int_equal(verdict(&late, NULL, NULL, true), OSSD_E_TIME_SKEWED);
	url.now_ms = NOW_2013_MS + 86401 * 1000ll;
	assert_int_equal(verdict(&url, NULL, NULL, true), OSSD_E_URL_EXPIRED);
}

static void test_malformed_headers_are_refused(void **state)
{
	static const char *const values[] = {
		"AWS4-HMAC-SHA256 ",
		"AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,Signature=1",
		"AWS4-HMAC-SHA256 Credential=a/b,SignedHeaders=host,Signature=1",
		"AWS ",
		"AWS :x",
		"AWS abc",
	};
	struct example e = examples[0];

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		struct oss_pair change = {"Authorization", values[i]};

		assert_int_equal(verdict(&e, &change, NULL, true), OSSD_E_MALFORMED_AUTH);
	}
}

/* ---- replies --------------------------------------------------------------------------- */

static void expect_document(const char *from, const char *to)
{
	struct buf out = BUF_INIT;

	ossd_s3_document(&out, from, strlen(from));
	assert_string_equal(out.data, to);
	buf_fini(&out);
}

#define XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define NS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

static void test_documents_are_those_of_s3(void **state)
{
	(void)state;
	expect_document(XML "<R><ETag>&quot;AB12&quot;</ETag><Key>ETag AB</Key></R>", XML
			"<R" NS "><ETag>&quot;ab12&quot;</ETag><Key>ETag AB</Key></R>");
	expect_document(XML "<R><StorageClass>IA</StorageClass></R>",
			XML "<R" NS "><StorageClass>STANDARD_IA</StorageClass></R>");
	expect_document(XML "<LocationConstraint>oss-cn-hangzhou</LocationConstraint>",
			XML "<LocationConstraint" NS ">cn-hangzhou</LocationConstraint>");
	expect_document(XML "<Error><Code>X</Code></Error>",
			XML "<Error><Code>X</Code></Error>");
	expect_document("<R>", "<R" NS ">");
	expect_document("no markup <", "no markup <");
}

static void test_storage_classes_both_ways(void **state)
{
	(void)state;
	assert_string_equal(ossd_s3_class_in("STANDARD_IA"), "IA");
	assert_string_equal(ossd_s3_class_in("REDUCED_REDUNDANCY"), "Standard");
	assert_string_equal(ossd_s3_class_out("DeepColdArchive", 15), "DEEP_ARCHIVE");
	assert_string_equal(ossd_s3_class_out("Standard", 8), "STANDARD");
}

static int load_accounts(void **state)
{
	struct why why = {""};

	(void)state;
	return ossd_accounts_parse(&accounts, ID ":" SECRET "\n", "keys", &why);
}

static int free_accounts(void **state)
{
	(void)state;
	ossd_accounts_fini(&accounts);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_published_test_suite_of_v4),
		cmocka_unit_test(test_the_examples_of_the_documentation),
		cmocka_unit_test(test_what_was_changed_does_not_match),
		cmocka_unit_test(test_region_clock_and_expiry),
		cmocka_unit_test(test_malformed_headers_are_refused),
		cmocka_unit_test(test_documents_are_those_of_s3),
		cmocka_unit_test(test_storage_classes_both_ways),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, load_accounts, free_accounts);
}
