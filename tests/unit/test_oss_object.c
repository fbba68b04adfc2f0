/* SPDX-License-Identifier: Apache-2.0 */
/* What the client does with answers that are wrong, cut, late or not the ones it asked for:
 * requests on single objects. */
#include "tests/unit/test.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fs/backend/creds.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "tests/unit/lib_oss.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define TEXT "0123456789"
#define ETAG "ETag: \"E\"\r\n"

static const char *crc_line(const char *text, uint64_t wrong)
{
	static char line[128];

	snprintf(line, sizeof(line), ETAG "x-oss-hash-crc64ecma: %" PRIu64 "\r\n",
		 crc64(0, text, strlen(text)) ^ wrong);
	return line;
}

static uint64_t mismatches(struct lib_oss *o)
{
	struct origin_stats stats = {0};

	o->origin->ops->stats(o->origin, &stats);
	return stats.crc_mismatches;
}

/* ---- get ----------------------------------------------------------------------------- */

static void test_range_is_asked_for_in_the_standard_way(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/dir/k HTTP", "206 Partial",
		    ETAG "Content-Range: bytes 2-5/10\r\nx-oss-hash-crc64ecma: 7\r\n"
			 "Last-Modified: Fri, 24 Feb 2012 08:43:07 GMT\r\n",
		    "2345", 4);
	assert_int_equal(lib_oss_get(&o, "dir/k", 2, 4, "e"), 0);
	assert_string_equal(o.got.data, "2345");
	assert_int_equal(o.req.received, 4);
	assert_int_equal(o.req.attr.size, 10);
	assert_int_equal(o.req.attr.mtime_ns, 1330072987000000000);
	assert_string_equal(o.req.attr.etag, "E");
	assert_true(o.req.attr.has_crc64);
	assert_string_equal(lib_oss_header(&o, 0, "range"), "bytes=2-5");
	assert_string_equal(lib_oss_header(&o, 0, "if-match"), "\"e\"");
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-range-behavior"), "standard");
	assert_null(lib_oss_header(&o, 0, "accept-encoding"));
	lib_oss_finish(&o);
}

static void test_whole_object_is_checked(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/k", "200 OK", crc_line(TEXT, 0), TEXT, 10);
	httpd_reply(o.server, "GET /b/k", "200 OK", crc_line(TEXT, 1), TEXT, 10);
	httpd_reply(o.server, "GET /b/k", "206 OK", crc_line(TEXT, 1), TEXT, 10);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), 0);
	assert_null(lib_oss_header(&o, 0, "range"));
	assert_int_equal(mismatches(&o), 0);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), -EBADMSG);
	assert_int_equal(o.req.received, 10);
	assert_int_equal(mismatches(&o), 1);
	/* A 206 without Content-Range is no answer to anything. */
	assert_int_equal(lib_oss_get(&o, "k", 0, 10, NULL), -EBADMSG);
	assert_int_equal(o.req.received, 0);
	lib_oss_finish(&o);
}

static void test_range_of_all_bytes_is_checked_too(void **state)
{
	struct lib_oss o;
	char lines[256];

	(void)state;
	lib_oss_start(&o, NULL);
	snprintf(lines, sizeof(lines), "%sContent-Range: bytes 0-9/10\r\n",
		 crc_line(TEXT, 4));
	httpd_reply(o.server, "GET /b/k", "206 Partial", lines, TEXT, 10);
	assert_int_equal(lib_oss_get(&o, "k", 0, 4096, NULL), -EBADMSG);
	assert_int_equal(mismatches(&o), 1);
	lib_oss_finish(&o);
}

static void test_another_range_never_reaches_the_sink(void **state)
{
	static const struct {
		const char *status, *header;
	} wrong[] = {
		{"200 OK", ETAG},
		{"206 Partial", ETAG "Content-Range: bytes 0-9/20\r\n"},
		{"206 Partial", ETAG "Content-Range: bytes 5-14/14\r\n"},
		{"206 Partial", ETAG "Content-Range: bytes 5-13/20\r\n"},
		{"206 Partial", ETAG "Content-Range: bytes 5-15/20\r\n"},
		{"206 Partial", ETAG "Content-Range: bytes */20\r\n"},
		{"206 Partial", ETAG "Content-Range: garbage\r\n"},
		{"206 Partial", ETAG},
	};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	for (size_t i = 0; i < COUNT(wrong); i++)
		httpd_reply(o.server, "GET /b/k", wrong[i].status, wrong[i].header, TEXT,
			    10);
	for (size_t i = 0; i < COUNT(wrong); i++) {
		assert_int_equal(lib_oss_get(&o, "k", 5, 10, NULL), -EBADMSG);
		assert_int_equal(o.got.len, 0);
		assert_int_equal(o.req.received, 0);
	}
	lib_oss_finish(&o);
}

static void test_ignored_range_from_the_start_is_taken_when_it_fits(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/k", "200 OK", ETAG, TEXT, 10);
	httpd_reply(o.server, "GET /b/k", "200 OK", ETAG, TEXT, 10);
	assert_int_equal(lib_oss_get(&o, "k", 0, 100, NULL), 0);
	assert_string_equal(o.got.data, TEXT);
	assert_int_equal(lib_oss_get(&o, "k", 0, 9, NULL), -EBADMSG);
	assert_int_equal(o.req.received, 0);
	lib_oss_finish(&o);
}

static void test_other_version_never_reaches_the_sink(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/k", "200 OK", "ETag: \"NEW\"\r\n", TEXT, 10);
	lib_oss_error(&o, "GET /b/k", "412 Precondition", "PreconditionFailed", NULL,
		      NULL);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, "OLD"), -ESTALE);
	assert_int_equal(o.req.received, 0);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, "OLD"), -ESTALE);
	lib_oss_finish(&o);
}

static void test_cut_body_tells_how_far_it_came(void **state)
{
	static const struct httpd_action cut[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nETag: \"E\"\r\nContent-Length: "
			"10\r\n\r\n01234"),
		DO_STALL(50), DO_CLOSE};
	static const struct httpd_action reset[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nETag: \"E\"\r\nContent-Length: "
			"10\r\n\r\n012"),
		DO_STALL(50), DO_RESET};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_script(o.server, "GET /b/k", cut, COUNT(cut));
	httpd_script(o.server, "GET /b/k", reset, COUNT(reset));
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), -EBADMSG);
	assert_int_equal(o.req.received, 5);
	assert_string_equal(o.req.attr.etag, "E");
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), -ECONNRESET);
	assert_int_equal(o.req.received, 3);
	lib_oss_finish(&o);
}

static void test_range_past_the_end_is_empty(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, "GET /b/k", "416 Range", "InvalidRange", NULL,
		      "Content-Range: bytes */10\r\n");
	lib_oss_error(&o, "GET /b/k", "416 Range", "InvalidRange", NULL, NULL);
	lib_oss_error(&o, "GET /b/k", "416 Range", "InvalidRange", NULL,
		      "Content-Range: bytes */11\r\n");
	assert_int_equal(lib_oss_get(&o, "k", 10, 5, NULL), 0);
	assert_int_equal(o.req.received, 0);
	assert_int_equal(o.req.attr.size, 10);
	assert_int_equal(lib_oss_get(&o, "k", 10, 5, NULL), 0);
	assert_int_equal(lib_oss_get(&o, "k", 10, 5, NULL), -EBADMSG);
	lib_oss_finish(&o);
}

/* ---- put ----------------------------------------------------------------------------- */

static void test_put_is_checked_by_the_answer(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "PUT /b/a.json", "200 OK", crc_line(TEXT, 0), NULL, 0);
	httpd_reply(o.server, "PUT /b/a.json", "200 OK", crc_line(TEXT, 8), NULL, 0);
	assert_int_equal(lib_oss_put(&o, "a.json", TEXT), 0);
	assert_string_equal(o.req.attr.etag, "E");
	assert_true(o.req.attr.has_crc64);
	assert_string_equal(lib_oss_header(&o, 0, "content-type"), "application/json");
	assert_string_equal(lib_oss_header(&o, 0, "content-length"), "10");
	assert_int_equal(lib_oss_put(&o, "a.json", TEXT), -EBADMSG);
	assert_int_equal(mismatches(&o), 1);
	lib_oss_finish(&o);
}

static void test_put_without_checksum_in_the_answer_is_looked_up(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "PUT /b/k", "200 OK", ETAG, NULL, 0);
	lib_oss_head(&o, "HEAD /b/k", 10, crc64(0, TEXT, 10));
	httpd_reply(o.server, "PUT /b/k", "200 OK", ETAG, NULL, 0);
	lib_oss_head(&o, "HEAD /b/k", 10, 1);
	httpd_reply(o.server, "PUT /b/k", "200 OK", ETAG, NULL, 0);
	lib_oss_head(&o, "HEAD /b/k", 9, crc64(0, TEXT, 10));
	assert_int_equal(lib_oss_put(&o, "k", TEXT), 0);
	assert_true(o.req.attr.has_crc64);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), -EBADMSG);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), -EBADMSG);
	lib_oss_finish(&o);
}

static void test_meta_travels_in_headers(void **state)
{
	static const char *const pairs[][2] = {{"mode", "33188"},
					       {"mtime", "12.000000005"}};
	static const char *const evil[][2] = {
		{"mode", "1\r\nx-oss-object-acl: public-read"}};
	struct origin_meta meta = {.pairs = pairs, .count = 2, .content_type = "x/y"};
	struct origin_req req = {
		.op = ORIGIN_PUT, .key = "k.png", .meta = &meta, .if_none_match = true};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "PUT /b/k", "200 OK", crc_line("", 0), NULL, 0);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-meta-mode"), "33188");
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-meta-mtime"), "12.000000005");
	assert_string_equal(lib_oss_header(&o, 0, "content-type"), "x/y");
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-forbid-overwrite"), "true");
	meta = (struct origin_meta){.pairs = evil, .count = 1};
	assert_int_equal(origin_call(o.origin, &req), -EINVAL);
	assert_int_equal(httpd_count(o.server), 1);
	lib_oss_finish(&o);
}

static void test_key_is_one_encoded_path(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/a/../%0D%0AX-Evil%3A%201%3Fx%23y%2B HTTP/1.1",
		    "200 OK", ETAG, "x", 1);
	assert_int_equal(
		lib_oss_get(&o, "a/../\r\nX-Evil: 1?x#y+", 0, ORIGIN_TO_END, NULL), 0);
	assert_null(lib_oss_header(&o, 0, "x-evil"));
	lib_oss_finish(&o);
}

static void test_put_in_its_own_way_is_success(void **state)
{
	static const struct httpd_action then_die[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")};
	static const struct httpd_action swallow[] = {DO_CLOSE};
	struct origin_req req = {.op = ORIGIN_PUT,
				 .key = "k",
				 .body = {.data = TEXT, .len = 10},
				 .if_none_match = true};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_script(o.server, "HEAD /b/k", then_die, COUNT(then_die));
	/* The store has taken the object when the connection dies; curl sends again. */
	httpd_script(o.server, "PUT /b/k", swallow, COUNT(swallow));
	lib_oss_error(&o, "PUT /b/k", "409 Conflict", "FileAlreadyExists", NULL, NULL);
	lib_oss_head(&o, "HEAD /b/k", 10, crc64(0, TEXT, 10));
	/* Nothing was sent twice: it is somebody else's, whatever it holds. */
	lib_oss_error(&o, "PUT /b/k", "409 Conflict", "FileAlreadyExists", NULL, NULL);
	assert_int_equal(lib_oss_stat(&o, "k"), 0);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_string_equal(req.attr.etag, "E");
	assert_int_equal(origin_call(o.origin, &req), -EEXIST);
	lib_oss_finish(&o);
}

/* ---- errors -------------------------------------------------------------------------- */

static void test_errors_become_errno_values_with_the_stores_words(void **state)
{
	static const struct {
		const char *status, *code;
		int r;
	} table[] = {
		{"404 Not Found", "NoSuchKey", -ENOENT},
		{"404 Not Found", "NoSuchBucket", -ENOENT},
		{"403 Forbidden", "AccessDenied", -EACCES},
		{"403 Forbidden", "SignatureDoesNotMatch", -EACCES},
		{"403 Forbidden", "InvalidAccessKeyId", -EACCES},
		{"409 Conflict", "FileAlreadyExists", -EEXIST},
		{"409 Conflict", "FileImmutable", -EROFS},
		{"400 Bad", "InvalidArgument", -EINVAL},
		{"400 Bad", "EntityTooLarge", -EFBIG},
		{"400 Bad", "RequestTimeout", -EAGAIN},
		{"400 Bad", "InvalidCRC64", -EBADMSG},
		{"500 Broken", "InternalError", -EAGAIN},
		{"502 Gateway", "", -EAGAIN},
		{"501 Not", "NotImplemented", -ENOTSUP},
		{"418 Teapot", "ImATeapot", -EIO},
	};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	for (size_t i = 0; i < COUNT(table); i++) {
		lib_oss_error(&o, "PUT /b/dir/k", table[i].status, table[i].code, NULL,
			      NULL);
		assert_int_equal(lib_oss_put(&o, "dir/k", TEXT), table[i].r);
		assert_non_null(strstr(o.req.why.text, "66C2FF09FDF07830343C72EC"));
		assert_non_null(strstr(o.req.why.text, "The words of the store."));
		assert_non_null(strstr(o.req.why.text, table[i].code));
		assert_non_null(strstr(o.req.why.text, "dir/k"));
		assert_null(strstr(o.req.why.text, "test-secret"));
		assert_string_equal(o.req.request_id, "66C2FF09FDF07830343C72EC");
	}
	lib_oss_finish(&o);
}

static void test_error_of_a_head_is_in_its_header(void **state)
{
	/* <Error><Code>NoSuchBucket</Code></Error> */
	static const char lines[] =
		"x-oss-err: PEVycm9yPjxDb2RlPk5vU3VjaEJ1Y2tldDwvQ29kZT48L0Vycm9yPg==\r\n"
		"x-oss-ec: 0015-00000101\r\n";
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "HEAD /b/k", "404 Not Found", lines, NULL, 0);
	httpd_reply(o.server, "HEAD /b/k", "404 Not Found", "x-oss-err: %%%\r\n", NULL,
		    0);
	assert_int_equal(lib_oss_stat(&o, "k"), -ENOENT);
	assert_non_null(strstr(o.req.why.text, "NoSuchBucket"));
	assert_non_null(strstr(o.req.why.text, "0015-00000101"));
	assert_int_equal(lib_oss_stat(&o, "k"), -ENOENT);
	lib_oss_finish(&o);
}

static void test_html_of_a_gateway_counts_by_its_status(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "GET /b/k", "504 Timeout", NULL, "<html><br>", 10);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), -EAGAIN);
	assert_int_equal(o.req.received, 0);
	lib_oss_finish(&o);
}

static void test_slow_down_says_how_long(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "HEAD /b/k", "503 Slow", "Retry-After: 7\r\n", NULL, 0);
	httpd_reply(o.server, "HEAD /b/k", "429 Slow", NULL, NULL, 0);
	httpd_reply(o.server, "HEAD /b/k", "500 Broken", NULL, NULL, 0);
	httpd_reply(o.server, "HEAD /b/k", "503 Slow", "Retry-After: 99999999\r\n", NULL,
		    0);
	assert_int_equal(lib_oss_stat(&o, "k"), -EAGAIN);
	assert_int_equal(o.req.retry_after_ms, 7000);
	assert_int_equal(lib_oss_stat(&o, "k"), -EAGAIN);
	assert_int_equal(o.req.retry_after_ms, 1000);
	assert_int_equal(lib_oss_stat(&o, "k"), -EAGAIN);
	assert_int_equal(o.req.retry_after_ms, 0);
	assert_int_equal(lib_oss_stat(&o, "k"), -EAGAIN);
	assert_int_equal(o.req.retry_after_ms, 3600000);
	lib_oss_finish(&o);
}

static void test_right_endpoint_is_named(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, "GET /b/", "403 Forbidden", "AccessDenied",
		      "<Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint>", NULL);
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), -EINVAL);
	assert_non_null(strstr(o.req.why.text, "oss-cn-beijing.aliyuncs.com"));
	assert_non_null(strstr(o.req.why.text, "66C2FF09FDF07830343C72EC"));
	lib_oss_finish(&o);
}

static void test_redirect_gets_no_second_request(void **state)
{
	struct httpd *elsewhere = httpd_start(NULL, NULL);
	char lines[128];
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	snprintf(lines, sizeof(lines), "Location: %s/b/k\r\n", httpd_url(elsewhere));
	httpd_reply(o.server, "GET /b/k", "307 There", lines, NULL, 0);
	assert_int_equal(lib_oss_get(&o, "k", 0, ORIGIN_TO_END, NULL), -EIO);
	assert_non_null(strstr(o.req.why.text, "redirect"));
	assert_int_equal(httpd_count(elsewhere), 0);
	lib_oss_finish(&o);
	assert_true(httpd_finish(elsewhere));
}

/* ---- clock --------------------------------------------------------------------------- */

static void test_clock_is_learned_from_the_store(void **state)
{
	static const char date[] = "Date: Fri, 24 Feb 2012 08:43:07 GMT\r\n";
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, "PUT /b/k", "403 Forbidden", "RequestTimeTooSkewed", NULL,
		      date);
	httpd_reply(o.server, "PUT /b/k", "200 OK", crc_line(TEXT, 0), NULL, 0);
	httpd_reply(o.server, "PUT /b/k", "200 OK", crc_line(TEXT, 0), NULL, 0);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), 0);
	assert_int_equal(httpd_get(o.server, 1)->body.len, 10);
	assert_int_equal(
		strncmp(lib_oss_header(&o, 1, "x-oss-date"), "20120224T0843", 13), 0);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), 0);
	assert_int_equal(
		strncmp(lib_oss_header(&o, 2, "x-oss-date"), "20120224T0843", 13), 0);
	lib_oss_finish(&o);
}

static void test_clock_is_corrected_once(void **state)
{
	static const char date[] = "Date: Fri, 24 Feb 2012 08:43:07 GMT\r\n";
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, "PUT /b/k", "403 Forbidden", "RequestTimeTooSkewed", NULL,
		      date);
	lib_oss_error(&o, "PUT /b/k", "403 Forbidden", "RequestTimeTooSkewed", NULL,
		      date);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), -EAGAIN);
	lib_oss_finish(&o);
}

/* ---- credentials --------------------------------------------------------------------- */

static void with_token(struct oss_config *config)
{
	(void)config;
	setenv("OSS_SESSION_TOKEN", "test-token", 1);
}

static void with_v1(struct oss_config *config)
{
	setenv("OSS_SESSION_TOKEN", "test-token", 1);
	config->signature = SIGNATURE_V1;
}

static void anonymously(struct oss_config *config)
{
	assert_int_equal(creds_open("anonymous", &config->creds, NULL), 0);
}

static void test_requests_are_signed(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, with_token);
	lib_oss_head(&o, "HEAD /b/k", 1, 1);
	assert_int_equal(lib_oss_stat(&o, "k"), 0);
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-security-token"), "test-token");
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-content-sha256"),
			    "UNSIGNED-PAYLOAD");
	assert_non_null(strstr(lib_oss_header(&o, 0, "authorization"),
			       "OSS4-HMAC-SHA256 Credential=test-id/"));
	lib_oss_finish(&o);
	lib_oss_start(&o, with_v1);
	lib_oss_head(&o, "HEAD /b/k", 1, 1);
	assert_int_equal(lib_oss_stat(&o, "k"), 0);
	assert_string_equal(lib_oss_header(&o, 0, "x-oss-security-token"), "test-token");
	assert_non_null(strstr(lib_oss_header(&o, 0, "date"), " GMT"));
	assert_non_null(strstr(lib_oss_header(&o, 0, "authorization"), "OSS test-id:"));
	lib_oss_finish(&o);
	lib_oss_start(&o, anonymously);
	lib_oss_head(&o, "HEAD /b/k", 1, 1);
	assert_int_equal(lib_oss_stat(&o, "k"), 0);
	assert_null(lib_oss_header(&o, 0, "authorization"));
	assert_null(lib_oss_header(&o, 0, "x-oss-date"));
	lib_oss_finish(&o);
}

/* ---- others -------------------------------------------------------------------------- */

static void read_only(struct oss_config *config)
{
	config->read_only = true;
}

static void test_reading_only_writes_nothing(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, read_only);
	assert_int_equal(lib_oss_put(&o, "k", TEXT), -EROFS);
	assert_int_equal(httpd_count(o.server), 0);
	lib_oss_finish(&o);
}

static void below_prefix(struct oss_config *config)
{
	config->prefix = "a b/";
}

static void test_keys_are_below_the_prefix(void **state)
{
	static const char xml[] =
		"<ListBucketResult><Contents><Key>a b/x</Key><Size>1</Size></Contents>"
		"<Contents><Key>elsewhere</Key><Size>1</Size></Contents></"
		"ListBucketResult>";
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, below_prefix);
	lib_oss_head(&o, "HEAD /b/a%20b/k", 1, 1);
	httpd_reply(
		o.server,
		"GET /b/?encoding-type=url&list-type=2&max-keys=1000&prefix=a%20b%2Fp "
		"HTTP",
		"200 OK", NULL, xml, sizeof(xml) - 1);
	assert_int_equal(lib_oss_stat(&o, "k"), 0);
	assert_int_equal(lib_oss_list(&o, "p", NULL, NULL, true), 0);
	assert_string_equal(o.got.data, "x ");
	lib_oss_finish(&o);
}

static void test_stat_tells_what_can_be_appended_to(void **state)
{
	static const char *const types[] = {"Appendable", "Normal"};
	struct origin_req req = {.op = ORIGIN_STAT, .key = "log"};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	for (int i = 0; i < 2; i++) {
		char headers[100];

		snprintf(headers, sizeof(headers), ETAG "x-oss-object-type: %s\r\n",
			 types[i]);
		httpd_reply(o.server, "HEAD /b/log HTTP", "200 OK", headers, "x", 1);
		assert_int_equal(origin_call(o.origin, &req), 0);
		assert_int_equal(req.attr.is_appendable, i == 0);
	}
	lib_oss_finish(&o);
}

static void test_append_at_the_wrong_length_gives_the_right_one(void **state)
{
	struct origin_req req = {.op = ORIGIN_APPEND,
				 .key = "log",
				 .off = 5,
				 .body = {.data = "x", .len = 1}};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, "POST /b/log?append&position=5 HTTP", "409 Conflict",
		      "PositionNotEqualToLength", NULL,
		      "x-oss-next-append-position: 77\r\n");
	httpd_reply(o.server, "POST /b/log?append&position=77", "200 OK",
		    ETAG "x-oss-next-append-position: 78\r\n", NULL, 0);
	assert_int_equal(origin_call(o.origin, &req), -ESTALE);
	assert_int_equal(req.off, 77);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_int_equal(req.off, 78);
	lib_oss_finish(&o);
}

static void note_done(struct origin_req *req)
{
	atomic_store((atomic_int *)req->user, 1);
}

static void test_cancelled_request_ends_at_once(void **state)
{
	static const struct httpd_action silent[] = {DO_HOLD};
	atomic_int done = 0;
	struct origin_req req = {
		.op = ORIGIN_STAT, .key = "k", .done = note_done, .user = &done};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_script(o.server, "HEAD /b/k", silent, COUNT(silent));
	origin_submit(o.origin, &req);
	eventually(httpd_count(o.server) > 0);
	origin_cancel(o.origin, &req);
	eventually(done);
	assert_int_equal(req.result, -ECANCELED);
	origin_cancel(o.origin, &req);
	lib_oss_finish(&o);
}

TEST_MAIN(cmocka_unit_test(test_range_is_asked_for_in_the_standard_way),
	  cmocka_unit_test(test_whole_object_is_checked),
	  cmocka_unit_test(test_range_of_all_bytes_is_checked_too),
	  cmocka_unit_test(test_another_range_never_reaches_the_sink),
	  cmocka_unit_test(test_ignored_range_from_the_start_is_taken_when_it_fits),
	  cmocka_unit_test(test_other_version_never_reaches_the_sink),
	  cmocka_unit_test(test_cut_body_tells_how_far_it_came),
	  cmocka_unit_test(test_range_past_the_end_is_empty),
	  cmocka_unit_test(test_put_is_checked_by_the_answer),
	  cmocka_unit_test(test_put_without_checksum_in_the_answer_is_looked_up),
	  cmocka_unit_test(test_put_in_its_own_way_is_success),
	  cmocka_unit_test(test_meta_travels_in_headers),
	  cmocka_unit_test(test_key_is_one_encoded_path),
	  cmocka_unit_test(test_errors_become_errno_values_with_the_stores_words),
	  cmocka_unit_test(test_error_of_a_head_is_in_its_header),
	  cmocka_unit_test(test_html_of_a_gateway_counts_by_its_status),
	  cmocka_unit_test(test_slow_down_says_how_long),
	  cmocka_unit_test(test_right_endpoint_is_named),
	  cmocka_unit_test(test_redirect_gets_no_second_request),
	  cmocka_unit_test(test_clock_is_learned_from_the_store),
	  cmocka_unit_test(test_clock_is_corrected_once),
	  cmocka_unit_test(test_requests_are_signed),
	  cmocka_unit_test(test_reading_only_writes_nothing),
	  cmocka_unit_test(test_keys_are_below_the_prefix),
	  cmocka_unit_test(test_stat_tells_what_can_be_appended_to),
	  cmocka_unit_test(test_append_at_the_wrong_length_gives_the_right_one),
	  cmocka_unit_test(test_cancelled_request_ends_at_once))
