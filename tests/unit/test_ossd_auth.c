/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of the signatures; that the signatures themselves are right is
 * test_oss_sign's business. */
#include "tests/unit/test.h"

#include "fs/base/err.h"
#include "tools/ossd_auth.h"
#include "tools/ossd_code.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_target.h"

#define NOW_MS 1702743657000ll /* 20231216T162057Z */
#define HEADERS_MAX 8

static struct ossd_accounts accounts;

/* A request in the making. */
struct fixture {
	struct ossd_target target;
	struct oss_pair headers[HEADERS_MAX];
	struct ossd_auth auth;
	struct buf authorization;
};

static void begin(struct fixture *f, const char *method, const char *raw)
{
	memset(f, 0, sizeof(*f));
	assert_int_equal(ossd_target_parse(&f->target, raw, "127.0.0.1:80", NULL, 0), 0);
	f->auth = (struct ossd_auth){
		.accounts = &accounts,
		.clock_check = true,
		.now_ms = NOW_MS,
		.method = method,
		.target = &f->target,
		.headers = f->headers,
	};
}

static void add_header(struct fixture *f, const char *name, const char *value)
{
	f->headers[f->auth.header_count++] = (struct oss_pair){name, value};
}

static struct oss_sign_request request(struct fixture *f)
{
	return (struct oss_sign_request){
		.method = f->auth.method,
		.bucket = f->target.bucket[0] ? f->target.bucket : NULL,
		.key = f->target.key.data,
		.key_len = f->target.key.len,
		.query = f->target.query,
		.query_count = f->target.query_count,
		.headers = f->headers,
		.header_count = f->auth.header_count,
	};
}

static void sign_v4(struct fixture *f, const char *id, const char *secret,
		    const char *region)
{
	struct oss_scope scope = {
		.region = region, .product = "oss", .date = "20231216T162057Z"};
	struct oss_credentials credentials = {id, secret, NULL};
	struct oss_sign_request req;

	add_header(f, "x-oss-date", scope.date);
	add_header(f, "x-oss-content-sha256", "UNSIGNED-PAYLOAD");
	req = request(f);
	assert_int_equal(
		oss_v4_authorization(&f->authorization, &req, &credentials, &scope), 0);
	add_header(f, "Authorization", f->authorization.data);
}

static void sign_v1(struct fixture *f, const char *id, const char *secret)
{
	struct oss_credentials credentials = {id, secret, NULL};
	struct oss_sign_request req;

	add_header(f, "Date", "Sat, 16 Dec 2023 16:20:57 GMT");
	req = request(f);
	assert_int_equal(oss_v1_authorization(&f->authorization, &req, &credentials,
					      "Sat, 16 Dec 2023 16:20:57 GMT"),
			 0);
	add_header(f, "Authorization", f->authorization.data);
}

/* The verdict; on 0 the id of who signed must be `id` (NULL: nobody). Ends the fixture. */
static void expect(struct fixture *f, int code, const char *id)
{
	const struct ossd_account *who = NULL;
	const char *message = NULL;
	struct buf extra = BUF_INIT;

	assert_int_equal(ossd_auth_check(&f->auth, &who, &message, &extra), code);
	if (code == 0 && id)
		assert_string_equal(who->id, id);
	if (code == 0 && !id)
		assert_null(who);
	if (extra.data)
		assert_null(strstr(extra.data, "sec-ret"));
	buf_fini(&extra);
	buf_fini(&f->authorization);
	ossd_target_fini(&f->target);
}

static void test_good_signatures_name_their_account(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, "GET", "/bkt/a%20b?list-type=2&prefix=x%2Fy&acl");
	sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
	expect(&f, 0, "ak");
	begin(&f, "PUT", "/bkt/a+b?uploadId=1&partNumber=2");
	sign_v1(&f, "ak", "sec-ret");
	expect(&f, 0, "ak");
	begin(&f, "GET", "/");
	sign_v4(&f, "ak", "sec-ret", "elsewhere");
	expect(&f, 0, "ak");
	begin(&f, "GET", "/bkt");
	expect(&f, 0, NULL);
}

static void test_a_changed_request_does_not_match(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, "GET", "/bkt/key?acl");
	sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
	f.auth.method = "PUT";
	expect(&f, OSSD_E_SIGNATURE, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
	add_header(&f, "x-oss-meta-a", "added");
	expect(&f, OSSD_E_SIGNATURE, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v1(&f, "ak", "sec-ret");
	f.target.key.data[0] = 'K';
	expect(&f, OSSD_E_SIGNATURE, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v4(&f, "ak", "wrong", "cn-hangzhou");
	expect(&f, OSSD_E_SIGNATURE, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v4(&f, "nobody", "sec-ret", "cn-hangzhou");
	expect(&f, OSSD_E_INVALID_KEY_ID, NULL);
}

static void test_the_clock_may_be_15_minutes_off(void **state)
{
	struct fixture f;

	(void)state;
	for (int side = -1; side <= 1; side += 2) {
		begin(&f, "GET", "/bkt/key");
		sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
		f.auth.now_ms = NOW_MS + side * 900000;
		expect(&f, 0, "ak");
		begin(&f, "GET", "/bkt/key");
		sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
		f.auth.now_ms = NOW_MS + side * 901000;
		expect(&f, OSSD_E_TIME_SKEWED, NULL);
		begin(&f, "GET", "/bkt/key");
		sign_v1(&f, "ak", "sec-ret");
		f.auth.now_ms = NOW_MS + side * 901000;
		expect(&f, OSSD_E_TIME_SKEWED, NULL);
		begin(&f, "GET", "/bkt/key");
		sign_v1(&f, "ak", "sec-ret");
		f.auth.now_ms = NOW_MS + side * 901000;
		f.auth.clock_check = false;
		expect(&f, 0, "ak");
	}
}

static void test_a_region_that_is_required_is_checked(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, "GET", "/bkt/key");
	sign_v4(&f, "ak", "sec-ret", "cn-beijing");
	f.auth.region = "cn-hangzhou";
	expect(&f, OSSD_E_WRONG_REGION, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v4(&f, "ak", "sec-ret", "cn-hangzhou");
	f.auth.region = "cn-hangzhou";
	expect(&f, 0, "ak");
}

static void test_a_session_key_needs_its_token(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, "GET", "/bkt/key");
	add_header(&f, "x-oss-security-token", "to:ken");
	sign_v4(&f, "STS.x", "session", "cn-hangzhou");
	expect(&f, 0, "STS.x");
	begin(&f, "GET", "/bkt/key");
	add_header(&f, "x-oss-security-token", "other");
	sign_v4(&f, "STS.x", "session", "cn-hangzhou");
	expect(&f, OSSD_E_INVALID_TOKEN, NULL);
	begin(&f, "GET", "/bkt/key");
	sign_v1(&f, "STS.x", "session");
	expect(&f, OSSD_E_INVALID_KEY_ID, NULL);
	begin(&f, "GET", "/bkt/key");
	add_header(&f, "x-oss-security-token", "to:ken");
	sign_v1(&f, "ak", "sec-ret");
	expect(&f, OSSD_E_INVALID_TOKEN, NULL);
}

static void expect_header(const char *authorization, int code)
{
	struct fixture f;

	begin(&f, "GET", "/bkt/key");
	add_header(&f, "x-oss-date", "20231216T162057Z");
	add_header(&f, "authorization", authorization);
	expect(&f, code, NULL);
}

static void test_malformed_authorizations_are_refused(void **state)
{
	(void)state;
	expect_header("Basic abc", OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS4-HMAC-SHA256 ", OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS4-HMAC-SHA256 Credential=ak,Signature=x",
		      OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/aliyun_v4_request",
		      OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/aliyun_v4_request,"
		      "AdditionalHeaders=,Signature=x",
		      OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS4-HMAC-SHA256 Credential=ak/20231215/r/oss/aliyun_v4_request,"
		      "Signature=x",
		      OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS nocolon", OSSD_E_INVALID_ARGUMENT);
	expect_header("OSS ak:x", OSSD_E_ACCESS_DENIED); /* x-oss-date is no V1 date */
}

static void expect_url(const char *raw, int code)
{
	struct fixture f;

	begin(&f, "GET", raw);
	expect(&f, code, NULL);
}

static void test_signed_urls_are_checked_for_age_and_wholeness(void **state)
{
	(void)state;
	expect_url("/bkt/k?OSSAccessKeyId=ak&Expires=1702743656&Signature=x",
		   OSSD_E_URL_EXPIRED);
	expect_url("/bkt/k?OSSAccessKeyId=ak&Expires=soon&Signature=x",
		   OSSD_E_ACCESS_DENIED);
	expect_url("/bkt/k?OSSAccessKeyId=ak&Signature=x", OSSD_E_ACCESS_DENIED);
	expect_url("/bkt/k?OSSAccessKeyId=ak&Expires=1702743700&Signature=x",
		   OSSD_E_SIGNATURE);
	expect_url("/bkt/k?x-oss-signature-version=OSS4-HMAC-SHA256",
		   OSSD_E_INVALID_ARGUMENT);
	expect_url("/bkt/k?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=ak/"
		   "20231216/"
		   "r/oss/"
		   "aliyun_v4_request&x-oss-date=20231216T162057Z&x-oss-expires=604801&"
		   "x-oss-signature=x",
		   OSSD_E_INVALID_ARGUMENT);
	expect_url("/bkt/k?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=ak/"
		   "20231216/"
		   "r/oss/aliyun_v4_request&x-oss-date=20231216T162000Z&x-oss-expires=10&"
		   "x-oss-signature=x",
		   OSSD_E_URL_EXPIRED);
	expect_url("/bkt/k?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=ak/"
		   "20231216/"
		   "r/oss/aliyun_v4_request&x-oss-date=20231216T162057Z&x-oss-expires=10&"
		   "x-oss-signature=x",
		   OSSD_E_SIGNATURE);
}

static void test_a_signature_in_header_and_url_is_one_too_many(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, "GET", "/bkt/k?OSSAccessKeyId=ak&Expires=1&Signature=x");
	sign_v1(&f, "ak", "sec-ret");
	expect(&f, OSSD_E_INVALID_ARGUMENT, NULL);
}

static void test_key_files_are_read_line_by_line(void **state)
{
	struct ossd_accounts a;
	struct why why = {""};

	(void)state;
	assert_int_equal(
		ossd_accounts_parse(&a, "# c\n\nid:secret\r\ni2:s2:t:o\n", "f", &why), 0);
	assert_int_equal(a.count, 2);
	assert_string_equal(a.items[0].secret, "secret");
	assert_null(a.items[0].token);
	assert_string_equal(a.items[1].token, "t:o");
	ossd_accounts_fini(&a);
	assert_true(ossd_accounts_parse(&a, "id:secret\nnonsense\n", "f", &why) < 0);
	assert_non_null(strstr(why.text, "f:2"));
	assert_null(strstr(why.text, "nonsense"));
	ossd_accounts_fini(&a);
	assert_true(ossd_accounts_parse(&a, "\n", "f", &why) < 0);
	ossd_accounts_fini(&a);
}

static int load(void **state)
{
	struct why why = {""};

	(void)state;
	return ossd_accounts_parse(&accounts, "ak:sec-ret\nSTS.x:session:to:ken\n",
				   "keys", &why);
}

static int unload(void **state)
{
	(void)state;
	ossd_accounts_fini(&accounts);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_signatures_name_their_account),
		cmocka_unit_test(test_a_changed_request_does_not_match),
		cmocka_unit_test(test_the_clock_may_be_15_minutes_off),
		cmocka_unit_test(test_a_region_that_is_required_is_checked),
		cmocka_unit_test(test_a_session_key_needs_its_token),
		cmocka_unit_test(test_malformed_authorizations_are_refused),
		cmocka_unit_test(test_signed_urls_are_checked_for_age_and_wholeness),
		cmocka_unit_test(test_a_signature_in_header_and_url_is_one_too_many),
		cmocka_unit_test(test_key_files_are_read_line_by_line),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, load, unload);
}
