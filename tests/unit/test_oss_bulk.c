/* SPDX-License-Identifier: Apache-2.0 */
/* What the client does with answers that are wrong or lost: listings, multi-delete,
 * multipart uploads. */
#include "tests/unit/test.h"

#include <errno.h>

#include "fs/base/crc.h"
#include "tests/unit/lib_oss.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define ENTRY(key) "<Contents><Key>" key "</Key><Size>1</Size></Contents>"
#define PREFIX(key) "<CommonPrefixes><Prefix>" key "</Prefix></CommonPrefixes>"
#define MORE(token)                                                                      \
	"<IsTruncated>true</IsTruncated><NextContinuationToken>" token                   \
	"</NextContinuationToken>"
#define PAGE(inside) "<ListBucketResult>" inside "</ListBucketResult>"

static void page(struct lib_oss *o, const char *expect, const char *xml)
{
	httpd_reply(o->server, expect, "200 OK", NULL, xml, strlen(xml));
}

/* ---- listings ------------------------------------------------------------------------ */

static void test_entries_are_sorted_and_single(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "GET /b/?",
	     PAGE(ENTRY("c") ENTRY("a") ENTRY("a") ENTRY("e") PREFIX("d/") PREFIX("b/")
			  PREFIX("b/")));
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, false), 0);
	assert_string_equal(o.got.data, "a b/ c d/ e ");
	assert_false(o.req.list.truncated);
	lib_oss_finish(&o);
}

static void test_page_goes_on_after_its_last_entry(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o,
	     "GET "
	     "/b/?delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=d%2F "
	     "HTTP",
	     PAGE(ENTRY("d/a") PREFIX("d/m/") MORE("T")));
	page(&o,
	     "GET "
	     "/b/?delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=d%2F"
	     "&start-after=d%2Fm%2F%F4%8F%BF%BF HTTP",
	     PAGE(PREFIX("d/m/") ENTRY("d/z")));
	assert_int_equal(lib_oss_list(&o, "d/", NULL, NULL, false), 0);
	assert_string_equal(o.got.data, "d/a d/m/ ");
	assert_true(o.req.list.truncated);
	assert_string_equal(o.req.list.next, "d/m/");
	/* A store that repeats the prefix all the same does not get it past us. */
	assert_int_equal(lib_oss_list(&o, "d/", "d/m/", NULL, false), 0);
	assert_string_equal(o.got.data, "d/z ");
	lib_oss_finish(&o);
}

static void test_listing_stops_before_until(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "GET /b/?", PAGE(ENTRY("a") ENTRY("b") ENTRY("c") MORE("T")));
	assert_int_equal(lib_oss_list(&o, "", NULL, "b", true), 0);
	assert_string_equal(o.got.data, "a ");
	assert_false(o.req.list.truncated);
	lib_oss_finish(&o);
}

static void test_empty_pages_are_followed(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "GET /b/?encoding-type=url&list-type=2", PAGE(MORE("T1")));
	page(&o, "GET /b/?continuation-token=T1&", PAGE(MORE("T2")));
	page(&o, "GET /b/?continuation-token=T2&", PAGE(ENTRY("a")));
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), 0);
	assert_string_equal(o.got.data, "a ");
	lib_oss_finish(&o);
}

static void test_endless_empty_pages_are_given_up(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	for (int i = 0; i < 17; i++)
		page(&o, "GET /b/?", PAGE(MORE("T")));
	page(&o, "GET /b/?", PAGE("<IsTruncated>true</IsTruncated>"));
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), -EBADMSG);
	assert_int_equal(httpd_count(o.server), 17);
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), -EBADMSG);
	lib_oss_finish(&o);
}

static void test_what_is_no_listing_is_bad_message(void **state)
{
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "GET /b/?", "<html>");
	page(&o, "GET /b/?", "");
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), -EBADMSG);
	assert_int_equal(lib_oss_list(&o, "", NULL, NULL, true), -EBADMSG);
	lib_oss_finish(&o);
}

static int count_entries(void *arg, const char *key, size_t key_len,
			 const struct origin_attr *attr)
{
	struct lib_oss *o = arg;

	buf_append(&o->got, key, key_len);
	buf_putc(&o->got, '=');
	buf_puts(&o->got, attr->etag);
	buf_putc(&o->got, ' ');
	return 0;
}

static void test_uploads_of_one_key_survive_the_end_of_a_page(void **state)
{
	struct lib_oss o;
	struct origin_req req = {.op = ORIGIN_MULTI_LIST,
				 .key = "",
				 .list = {.entry = count_entries, .entry_arg = &o}};

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "GET /b/?encoding-type=url&max-uploads=1000&prefix&uploads HTTP",
	     "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
	     "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>"
	     "<Upload><Key>k</Key><UploadId>1</UploadId></Upload>"
	     "</ListMultipartUploadsResult>");
	page(&o,
	     "GET "
	     "/b/"
	     "?encoding-type=url&key-marker=k&max-uploads=1000&prefix&upload-id-marker=1"
	     "&uploads HTTP",
	     "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>2</UploadId></"
	     "Upload>"
	     "<Upload><Key>l</Key><UploadId>3</UploadId></Upload>"
	     "</ListMultipartUploadsResult>");
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_string_equal(o.got.data, "k=1 k=2 l=3 ");
	assert_false(req.list.truncated);
	lib_oss_finish(&o);
}

/* ---- multi-delete -------------------------------------------------------------------- */

static int remove_keys(struct lib_oss *o, const char *const *keys, size_t count)
{
	o->req = (struct origin_req){
		.op = ORIGIN_DELETE_MANY, .keys = keys, .key_count = count};
	return origin_call(o->origin, &o->req);
}

static void test_keys_that_were_left_are_sent_again(void **state)
{
	static const char *const keys[] = {"a", "b&c", "d"};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "POST /b/?delete HTTP",
	     "<DeleteResult><EncodingType>url</EncodingType><Deleted><Key>b%26c</Key>"
	     "</Deleted></DeleteResult>");
	page(&o, "POST /b/?delete HTTP",
	     "<DeleteResult><Deleted><Key>d</Key></Deleted><Deleted><Key>a</Key></"
	     "Deleted>"
	     "</DeleteResult>");
	assert_int_equal(remove_keys(&o, keys, 3), 0);
	assert_non_null(strstr(httpd_get(o.server, 0)->body.data, "<Key>b&amp;c</Key>"));
	assert_null(strstr(httpd_get(o.server, 1)->body.data, "<Key>b&amp;c</Key>"));
	assert_non_null(lib_oss_header(&o, 0, "content-md5"));
	assert_string_equal(lib_oss_header(&o, 0, "content-type"), "application/xml");
	lib_oss_finish(&o);
}

static void test_keys_that_stay_are_a_failure(void **state)
{
	static const char *const keys[] = {"a", "b"};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	for (int i = 0; i < 3; i++)
		page(&o, "POST /b/?delete", "<DeleteResult></DeleteResult>");
	assert_int_equal(remove_keys(&o, keys, 2), -EAGAIN);
	assert_non_null(strstr(o.req.why.text, "2 of 2"));
	lib_oss_finish(&o);
}

static void test_keys_xml_does_not_keep_go_one_by_one(void **state)
{
	static const char *const keys[] = {"\x01", "plain", "line\n/x"};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	page(&o, "POST /b/?delete",
	     "<DeleteResult><Deleted><Key>plain</Key></Deleted></DeleteResult>");
	httpd_reply(o.server, "DELETE /b/%01 HTTP", "204 Gone", NULL, NULL, 0);
	lib_oss_error(&o, "DELETE /b/line%0A/x HTTP", "404 Not", "NoSuchKey", NULL, NULL);
	assert_int_equal(remove_keys(&o, keys, 3), 0);
	lib_oss_finish(&o);
}

/* ---- completion ---------------------------------------------------------------------- */

static const char first[] = "first part ", second[] = "second part";

static void make_parts(struct origin_part parts[2])
{
	parts[0] = (struct origin_part){1, strlen(first), crc64(0, first, strlen(first)),
					"3349DC700140D7F86A078484278075A9"};
	parts[1] =
		(struct origin_part){2, strlen(second), crc64(0, second, strlen(second)),
				     "8EFDA8BE206636A695359836FE0A0E0A"};
}

static uint64_t whole_crc(void)
{
	return crc64(crc64(0, first, strlen(first)), second, strlen(second));
}

static const char *crc_header(uint64_t crc)
{
	static char line[64];

	snprintf(line, sizeof(line), "x-oss-hash-crc64ecma: %llu\r\n",
		 (unsigned long long)crc);
	return line;
}

static const char completed[] = "<CompleteMultipartUploadResult><ETag>\"AB-2\"</ETag></"
				"CompleteMultipartUploadResult>";
#define SIZE (sizeof(first) - 1 + sizeof(second) - 1)
#define COMPLETE "POST /b/k?encoding-type=url&uploadId=U HTTP"

static void test_completion_is_checked_by_the_combined_checksum(void **state)
{
	struct origin_part parts[2];
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, COMPLETE, "200 OK", crc_header(whole_crc()), completed,
		    strlen(completed));
	httpd_reply(o.server, COMPLETE, "200 OK", crc_header(whole_crc() + 1), completed,
		    strlen(completed));
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), 0);
	assert_string_equal(o.req.attr.etag, "AB-2");
	assert_int_equal(o.req.attr.size, SIZE);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -EBADMSG);
	lib_oss_finish(&o);
}

static void test_completion_without_checksum_is_looked_up(void **state)
{
	struct origin_part parts[2];
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, COMPLETE, "200 OK", NULL, completed, strlen(completed));
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc());
	httpd_reply(o.server, COMPLETE, "200 OK", NULL, completed, strlen(completed));
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc() + 1);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), 0);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -EBADMSG);
	lib_oss_finish(&o);
}

static void test_lost_completion_that_happened_is_success(void **state)
{
	/* Not before the first byte: curl itself repeats a request on a kept connection
	 * that died without a word. */
	static const struct httpd_action cut[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n<"), DO_STALL(50),
		DO_RESET};
	struct origin_part parts[2];
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, COMPLETE, "500 Broken", "InternalError", NULL, NULL);
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc());
	lib_oss_error(&o, COMPLETE, "404 Not", "NoSuchUpload", NULL, NULL);
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc());
	httpd_script(o.server, COMPLETE, cut, COUNT(cut));
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc());
	for (int i = 0; i < 3; i++) {
		assert_int_equal(lib_oss_end(&o, "k", parts, 2), 0);
		assert_string_equal(o.req.why.text, "");
		assert_string_equal(o.req.attr.etag, "E");
	}
	lib_oss_finish(&o);
}

static void test_lost_completion_that_did_not_happen_is_what_it_was(void **state)
{
	/* Not before the first byte: curl itself repeats a request on a kept connection
	 * that died without a word. */
	static const struct httpd_action cut[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n<"), DO_STALL(50),
		DO_RESET};
	struct origin_part parts[2];
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, COMPLETE, "500 Broken", "InternalError", NULL, NULL);
	lib_oss_head(&o, "HEAD /b/k", SIZE, whole_crc() + 1); /* an older object */
	lib_oss_error(&o, COMPLETE, "404 Not", "NoSuchUpload", NULL, NULL);
	httpd_reply(o.server, "HEAD /b/k", "404 Not", NULL, NULL, 0);
	httpd_script(o.server, COMPLETE, cut, COUNT(cut));
	httpd_reply(o.server, "HEAD /b/k", "503 Busy", NULL, NULL, 0);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -EAGAIN);
	assert_non_null(strstr(o.req.why.text, "InternalError"));
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -ENOENT);
	assert_non_null(strstr(o.req.why.text, "NoSuchUpload"));
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -ECONNRESET);
	lib_oss_finish(&o);
}

static void test_clear_refusal_is_not_looked_up(void **state)
{
	struct origin_part parts[2];
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	lib_oss_error(&o, COMPLETE, "400 Bad", "InvalidPart", NULL, NULL);
	lib_oss_error(&o, COMPLETE, "503 Busy", "QpsLimitExceeded", NULL, NULL);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -EINVAL);
	assert_int_equal(lib_oss_end(&o, "k", parts, 2), -EAGAIN);
	lib_oss_finish(&o);
}

static void test_parts_of_another_object_are_not_completed(void **state)
{
	struct origin_part parts[2];
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = "k",
				 .upload_id = "U",
				 .parts = parts,
				 .part_count = 2,
				 .size = SIZE,
				 .has_expect_crc64 = true,
				 .expect_crc64 = whole_crc() + 1};
	struct lib_oss o;

	(void)state;
	make_parts(parts);
	lib_oss_start(&o, NULL);
	assert_int_equal(origin_call(o.origin, &req), -EBADMSG);
	assert_int_equal(httpd_count(o.server), 0);
	lib_oss_finish(&o);
}

static void test_part_is_checked_by_the_answer(void **state)
{
	struct origin_req req = {.op = ORIGIN_MULTI_PART,
				 .key = "k",
				 .upload_id = "U",
				 .part = 3,
				 .body = {.data = first, .len = sizeof(first) - 1}};
	char lines[128];
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	snprintf(lines, sizeof(lines), "ETag: \"P\"\r\n%s",
		 crc_header(crc64(0, first, strlen(first))));
	httpd_reply(o.server, "PUT /b/k?partNumber=3&uploadId=U", "200 OK", lines, NULL,
		    0);
	snprintf(lines, sizeof(lines), "ETag: \"P\"\r\n%s", crc_header(1));
	httpd_reply(o.server, "PUT /b/k?partNumber=3&uploadId=U", "200 OK", lines, NULL,
		    0);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_int_equal(req.part_result.number, 3);
	assert_string_equal(req.part_result.etag, "P");
	assert_int_equal(req.part_result.crc64, crc64(0, first, strlen(first)));
	assert_int_equal(origin_call(o.origin, &req), -EBADMSG);
	lib_oss_finish(&o);
}

static void test_upload_that_is_gone_is_aborted(void **state)
{
	struct origin_req req = {.op = ORIGIN_MULTI_ABORT, .key = "k", .upload_id = "U"};
	struct lib_oss o;

	(void)state;
	lib_oss_start(&o, NULL);
	httpd_reply(o.server, "DELETE /b/k?uploadId=U", "204 Gone", NULL, NULL, 0);
	lib_oss_error(&o, "DELETE /b/k?uploadId=U", "404 Not", "NoSuchUpload", NULL,
		      NULL);
	lib_oss_error(&o, "DELETE /b/k?uploadId=U", "404 Not", "NoSuchBucket", NULL,
		      NULL);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_int_equal(origin_call(o.origin, &req), 0);
	assert_int_equal(origin_call(o.origin, &req), -ENOENT);
	lib_oss_finish(&o);
}

TEST_MAIN(cmocka_unit_test(test_entries_are_sorted_and_single),
	  cmocka_unit_test(test_page_goes_on_after_its_last_entry),
	  cmocka_unit_test(test_listing_stops_before_until),
	  cmocka_unit_test(test_empty_pages_are_followed),
	  cmocka_unit_test(test_endless_empty_pages_are_given_up),
	  cmocka_unit_test(test_what_is_no_listing_is_bad_message),
	  cmocka_unit_test(test_uploads_of_one_key_survive_the_end_of_a_page),
	  cmocka_unit_test(test_keys_that_were_left_are_sent_again),
	  cmocka_unit_test(test_keys_that_stay_are_a_failure),
	  cmocka_unit_test(test_keys_xml_does_not_keep_go_one_by_one),
	  cmocka_unit_test(test_completion_is_checked_by_the_combined_checksum),
	  cmocka_unit_test(test_completion_without_checksum_is_looked_up),
	  cmocka_unit_test(test_lost_completion_that_happened_is_success),
	  cmocka_unit_test(test_lost_completion_that_did_not_happen_is_what_it_was),
	  cmocka_unit_test(test_clear_refusal_is_not_looked_up),
	  cmocka_unit_test(test_parts_of_another_object_are_not_completed),
	  cmocka_unit_test(test_part_is_checked_by_the_answer),
	  cmocka_unit_test(test_upload_that_is_gone_is_aborted))
