/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "fs/backend/oss_xml.h"

#define PROLOG "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define ENTRY(key)                                                                       \
	"<Contents><Key>" key "</Key><LastModified>2012-02-24T08:42:32.000Z"             \
	"</LastModified><ETag>\"5B3C\"</ETag><Type>Normal</Type><Size>7</Size>"          \
	"</Contents>"

static int list(const char *xml, struct oss_page *page, struct why *why)
{
	return oss_xml_parse_list(xml, strlen(xml), page, why);
}

static const char *key(const struct oss_page *page, size_t i)
{
	return oss_page_text(page, page->items[i].key);
}

static void test_listing_with_everything(void **state)
{
	static const char xml[] = PROLOG
		"<ListBucketResult xmlns=\"http://doc.oss-cn-hangzhou.aliyuncs.com\">"
		"<Name>b</Name><Prefix>fun%2F</Prefix><MaxKeys>100</MaxKeys>"
		"<IsTruncated>true</IsTruncated>"
		"<NextContinuationToken>CgJiYw--</NextContinuationToken>"
		"<Contents><Key>fun%2Fa%20b%2Bc%0A%E4%B8%AD</Key><Size>344606</Size>"
		"<LastModified>2012-02-24T08:42:32.250Z</LastModified>"
		"<Owner><ID>1</ID><DisplayName><Deep><Key>no</Key></Deep></DisplayName>"
		"</Owner><Unknown>x</Unknown><ETag>\"5B3C1A2E\"</ETag>"
		"<Type>Symlink</Type></Contents>"
		"<Contents><Size>0</Size><Key>fun%2Fd</Key></Contents>"
		"<CommonPrefixes><Prefix>fun%2Fm%2F</Prefix><Prefix>fun%2Fn%2F</Prefix>"
		"</CommonPrefixes><CommonPrefixes><Prefix>fun%2Fo%2F</Prefix>"
		"</CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>";
	struct oss_page page;

	(void)state;
	assert_int_equal(list(xml, &page, NULL), 0);
	assert_int_equal(page.count, 5);
	assert_true(page.truncated);
	assert_string_equal(oss_page_text(&page, page.next), "CgJiYw--");
	assert_string_equal(key(&page, 0), "fun/a b+c\n\xe4\xb8\xad");
	assert_int_equal(page.items[0].key_len, 13);
	assert_int_equal(page.items[0].size, 344606);
	assert_int_equal(page.items[0].mtime_ns, 1330072952250000000);
	assert_string_equal(oss_page_text(&page, page.items[0].etag), "5B3C1A2E");
	assert_string_equal(key(&page, 1), "fun/d");
	assert_string_equal(oss_page_text(&page, page.items[1].etag), "");
	assert_false(page.items[1].is_prefix);
	for (size_t i = 2; i < 5; i++)
		assert_true(page.items[i].is_prefix);
	assert_string_equal(key(&page, 4), "fun/o/");
	oss_page_fini(&page);
}

static void test_listing_without_encoding_keeps_percent_signs(void **state)
{
	struct oss_page page;

	(void)state;
	assert_int_equal(
		list("<ListBucketResult>" ENTRY(
			     "a%2Fb&amp;&#x41;<![CDATA[<c>]]>") "</ListBucketResult>",
		     &page, NULL),
		0);
	assert_string_equal(key(&page, 0), "a%2Fb&A<c>");
	assert_false(page.truncated);
	oss_page_fini(&page);
}

static void test_key_with_nul_keeps_its_length(void **state)
{
	struct oss_page page;

	(void)state;
	assert_int_equal(list("<ListBucketResult><EncodingType>url</EncodingType>" ENTRY(
				      "a%00b") "</ListBucketResult>",
			      &page, NULL),
			 0);
	assert_int_equal(page.items[0].key_len, 3);
	assert_memory_equal(key(&page, 0), "a\0b", 4);
	oss_page_fini(&page);
}

static void refused(const char *xml)
{
	struct oss_page page = {.count = 77};
	struct why why = {""};

	assert_int_equal(list(xml, &page, &why), -EBADMSG);
	assert_int_equal(page.count, 77);
	assert_true(why.text[0]);
	assert_null(strstr(why.text, "root:"));
}

static void test_what_is_no_listing_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"<html><body>Gateway</body></html>",
		"<Error><Code>x</Code></Error>",
		"<ListBucketResult>",
		"<ListBucketResult><Contents></ListBucketResult>",
		"<ListBucketResult/><ListBucketResult/>",
		"<ListBucketResult>\x01</ListBucketResult>",
		"<ListBucketResult>\xff\xfe</ListBucketResult>",
		"<ListBucketResult>&nothing;</ListBucketResult>",
		"<ListBucketResult><Contents><Size>-1</Size></Contents></"
		"ListBucketResult>",
		"<ListBucketResult><Contents><Size>99999999999999999999</Size></Contents>"
		"</ListBucketResult>",
		"<ListBucketResult><Contents><Size/></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><LastModified>yesterday</LastModified>"
		"</Contents></ListBucketResult>",
		"<ListBucketResult><EncodingType>url</EncodingType>" ENTRY(
			"a%2") "</ListBucketResult>",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refused(bad[i]);
}

static void test_entities_are_neither_declared_nor_loaded(void **state)
{
	(void)state;
	refused("<!DOCTYPE r [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">"
		"<!ENTITY c \"&b;&b;&b;&b;\">]><ListBucketResult><Name>&c;</Name>"
		"</ListBucketResult>");
	refused("<!DOCTYPE r [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>"
		"<ListBucketResult>" ENTRY("&x;") "</ListBucketResult>");
	refused("<!DOCTYPE ListBucketResult SYSTEM \"http://127.0.0.1:9/x.dtd\">"
		"<ListBucketResult/>");
	refused("<!DOCTYPE ListBucketResult><ListBucketResult/>");
}

static char *repeated(const char *head, const char *body, size_t n, const char *tail)
{
	struct buf b = BUF_INIT;

	buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, body);
	buf_puts(&b, tail);
	return buf_steal(&b);
}

static void test_limits_hold(void **state)
{
	char *deep = repeated("<ListBucketResult>", "<a>", 100000, "");
	char *many = repeated("<ListBucketResult>", "<Contents/>", OSS_XML_ITEMS_MAX + 1,
			      "</ListBucketResult>");
	char *full = repeated("<ListBucketResult>", "<Contents/>", OSS_XML_ITEMS_MAX,
			      "</ListBucketResult>");
	char *wide = repeated("<ListBucketResult><Name>", "abcdefgh",
			      OSS_XML_TEXT_MAX / 8 + 1, "</Name></ListBucketResult>");
	char *large = repeated("<ListBucketResult>", "<x>12345678</x>",
			       OSS_XML_SIZE_MAX / 15, "</ListBucketResult>");
	struct oss_page page;

	(void)state;
	refused(deep);
	refused(many);
	refused(wide);
	refused(large);
	assert_int_equal(list(full, &page, NULL), 0);
	assert_int_equal(page.count, OSS_XML_ITEMS_MAX);
	oss_page_fini(&page);
	free(deep);
	free(many);
	free(full);
	free(wide);
	free(large);
}

static void test_error_document(void **state)
{
	static const char xml[] = PROLOG
		"<Error>\n  <Code>AccessDenied</Code>\n <Message>The bucket you are "
		"attempting to access must be addressed using the specified "
		"endpoint.</Message><RequestId>66C2FF09FDF07830343C72EC</RequestId>"
		"<HostId>h</HostId><Bucket>b</Bucket>"
		"<Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint>"
		"<EC>0003-00001403</EC><A><B><Code>no</Code></B></A></Error>";
	struct oss_error e;

	(void)state;
	assert_int_equal(oss_xml_parse_error(xml, strlen(xml), &e, NULL), 0);
	assert_string_equal(e.code, "AccessDenied");
	assert_string_equal(e.request_id, "66C2FF09FDF07830343C72EC");
	assert_string_equal(e.endpoint, "oss-cn-beijing.aliyuncs.com");
	assert_string_equal(e.ec, "0003-00001403");
	assert_int_equal(oss_xml_parse_error("<html/>", 7, &e, NULL), -EBADMSG);
}

static void test_multipart_answers(void **state)
{
	static const char begun[] =
		"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
		"<UploadId>0004B9894A22E5B1888A1E29F8236E2D</UploadId>"
		"</InitiateMultipartUploadResult>";
	static const char ended[] =
		"<CompleteMultipartUploadResult><Location>l</Location>"
		"<ETag>\"B864DB6A936D376F9F8D3ED3BBE540DD-3\"</ETag>"
		"</CompleteMultipartUploadResult>";
	static const char copied[] =
		"<CopyObjectResult><LastModified>2015-02-27T09:20:28.000Z</LastModified>"
		"<ETag>\"AB\"</ETag></CopyObjectResult>";
	struct oss_outcome o;

	(void)state;
	assert_int_equal(oss_xml_parse_outcome(begun, strlen(begun), &o, NULL), 0);
	assert_string_equal(o.upload_id, "0004B9894A22E5B1888A1E29F8236E2D");
	assert_int_equal(oss_xml_parse_outcome(ended, strlen(ended), &o, NULL), 0);
	assert_string_equal(o.etag, "B864DB6A936D376F9F8D3ED3BBE540DD-3");
	assert_string_equal(o.upload_id, "");
	assert_int_equal(oss_xml_parse_outcome(copied, strlen(copied), &o, NULL), 0);
	assert_string_equal(o.etag, "AB");
	assert_int_equal(o.mtime_ns, 1425028828000000000);
}

static void test_uploads_and_parts(void **state)
{
	static const char uploads[] =
		"<ListMultipartUploadsResult><EncodingType>url</EncodingType>"
		"<IsTruncated>true</IsTruncated><NextKeyMarker>a%2Fb</NextKeyMarker>"
		"<NextUploadIdMarker>U%32</NextUploadIdMarker>"
		"<Upload><Key>a%2Fb</Key><UploadId>U1</UploadId>"
		"<Initiated>2012-02-23T04:18:23.000Z</Initiated></Upload>"
		"</ListMultipartUploadsResult>";
	static const char parts[] =
		"<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>3"
		"</PartNumber><ETag>\"33\"</ETag><Size>6291456</Size>"
		"<HashCrc64ecma>18446744073709551615</HashCrc64ecma></Part>"
		"<Part><PartNumber>4</PartNumber></Part></ListPartsResult>";
	struct oss_page page;

	(void)state;
	assert_int_equal(oss_xml_parse_uploads(uploads, strlen(uploads), &page, NULL), 0);
	assert_string_equal(key(&page, 0), "a/b");
	assert_string_equal(oss_page_text(&page, page.items[0].upload_id), "U1");
	assert_int_equal(page.items[0].mtime_ns, 1329970703000000000);
	assert_string_equal(oss_page_text(&page, page.next), "a/b");
	assert_string_equal(oss_page_text(&page, page.next_upload_id), "U%32");
	oss_page_fini(&page);
	assert_int_equal(oss_xml_parse_parts(parts, strlen(parts), &page, NULL), 0);
	assert_int_equal(page.count, 2);
	assert_int_equal(page.items[0].number, 3);
	assert_true(page.items[0].has_crc64);
	assert_true(page.items[0].crc64 == UINT64_MAX);
	assert_false(page.items[1].has_crc64);
	oss_page_fini(&page);
}

static void test_written_keys_come_back(void **state)
{
	static const char *const keys[] = {"a&b<c>\"d'", "%41+%", "\xe4\xb8\xad", "]]>",
					   " blanks "};
	struct buf xml = BUF_INIT;
	struct oss_page page;

	(void)state;
	buf_puts(&xml, "<DeleteResult>");
	for (size_t i = 0; i < 5; i++) {
		struct buf one = BUF_INIT;
		char *begin, *end;

		oss_xml_write_delete(&one, &keys[i], 1);
		begin = strstr(one.data, "<Key>");
		end = strstr(begin, "</Key>");
		buf_puts(&xml, "<Deleted>");
		buf_append(&xml, begin, (size_t)(end - begin) + 6);
		buf_puts(&xml, "</Deleted>");
		buf_fini(&one);
	}
	buf_puts(&xml, "</DeleteResult>");
	assert_int_equal(oss_xml_parse_deleted(xml.data, xml.len, &page, NULL), 0);
	assert_int_equal(page.count, 5);
	for (size_t i = 0; i < 5; i++)
		assert_string_equal(key(&page, i), keys[i]);
	oss_page_fini(&page);
	buf_fini(&xml);
}

static void test_what_xml_does_not_keep(void **state)
{
	(void)state;
	assert_true(oss_xml_keeps("a&<>b\x7f\xc3\xa9"));
	assert_false(oss_xml_keeps("a\tb"));
	assert_false(oss_xml_keeps("a\n"));
	assert_false(oss_xml_keeps("a\r"));
	assert_false(oss_xml_keeps("a\x01"));
	assert_false(oss_xml_keeps("a\x1f"));
	assert_false(oss_xml_keeps("\xff"));
	assert_false(oss_xml_keeps("\xef\xbf\xbf"));
}

static void test_completion_body(void **state)
{
	struct buf xml = BUF_INIT;

	(void)state;
	oss_xml_write_complete_begin(&xml);
	oss_xml_write_complete_part(&xml, 1, "AB");
	oss_xml_write_complete_part(&xml, 10000, "CD");
	oss_xml_write_complete_end(&xml);
	assert_string_equal(xml.data, PROLOG
			    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
			    "<ETag>&quot;AB&quot;</ETag></Part><Part><PartNumber>10000"
			    "</PartNumber><ETag>&quot;CD&quot;</ETag></Part>"
			    "</CompleteMultipartUpload>");
	buf_fini(&xml);
}

TEST_MAIN(cmocka_unit_test(test_listing_with_everything),
	  cmocka_unit_test(test_listing_without_encoding_keeps_percent_signs),
	  cmocka_unit_test(test_key_with_nul_keeps_its_length),
	  cmocka_unit_test(test_what_is_no_listing_is_refused),
	  cmocka_unit_test(test_entities_are_neither_declared_nor_loaded),
	  cmocka_unit_test(test_limits_hold), cmocka_unit_test(test_error_document),
	  cmocka_unit_test(test_multipart_answers),
	  cmocka_unit_test(test_uploads_and_parts),
	  cmocka_unit_test(test_written_keys_come_back),
	  cmocka_unit_test(test_what_xml_does_not_keep),
	  cmocka_unit_test(test_completion_body))
