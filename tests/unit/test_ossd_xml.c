/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "tools/ossd_code.h"
#include "tools/ossd_xml.h"

static void test_text_is_escaped(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	ossd_xml_text(&b, "A", "<&>\"\n\x01");
	assert_string_equal(b.data, "<A>&lt;&amp;&gt;&quot;&#xA;&#x1;</A>");
	buf_fini(&b);
}

static void test_keys_are_encoded_with_percent_20_and_2B(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	ossd_xml_key(&b, "Key", "a b+c/\xc3\xbc", 8, true);
	assert_string_equal(b.data, "<Key>a%20b%2Bc%2F%C3%BC</Key>");
	buf_fini(&b);
}

static int parse_delete(struct ossd_keys *keys, const char *xml)
{
	return ossd_xml_parse_delete(keys, xml, strlen(xml));
}

static void test_delete_documents_give_their_keys(void **state)
{
	struct ossd_keys keys = {0};

	(void)state;
	assert_int_equal(
		parse_delete(&keys,
			     "<?xml version=\"1.0\"?>"
			     "<Delete xmlns=\"http://doc.oss-cn-hangzhou.aliyuncs.com\">"
			     "<Quiet>true</Quiet><Unknown/>"
			     "<Object><Key>a&amp;b&#xA;</Key></Object>"
			     "<Object><VersionId>x</VersionId><Key><![CDATA[<c>]]></Key>"
			     "</Object></Delete>"),
		0);
	assert_true(keys.quiet);
	assert_int_equal(keys.count, 2);
	assert_string_equal(keys.items[0], "a&b\n");
	assert_string_equal(keys.items[1], "<c>");
	ossd_keys_fini(&keys);
	assert_int_equal(
		parse_delete(&keys,
			     "<Delete><Object><Key>a%01%2F+</Key></Object></Delete>"),
		0);
	assert_string_equal(keys.items[0], "a%01%2F+");
	assert_false(keys.quiet);
	ossd_keys_fini(&keys);
}

static void test_bad_delete_documents_are_malformed(void **state)
{
	static const char *const bad[] = {
		"",
		"<Delete>",
		"<Delete></Delete>",
		"<Remove><Object><Key>a</Key></Object></Remove>",
		"<Delete><Object><Key></Key></Object></Delete>",
		"<Delete><Object><Name>a</Name></Object></Delete>",
		"<!DOCTYPE d [<!ENTITY x "
		"\"y\">]><Delete><Object><Key>&x;</Key></Object></Delete>",
	};
	struct ossd_keys keys = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(parse_delete(&keys, bad[i]), OSSD_E_MALFORMED_XML);
}

static void test_a_delete_document_has_at_most_1000_keys(void **state)
{
	for (int n = OSSD_DELETE_MAX; n <= OSSD_DELETE_MAX + 1; n++) {
		struct buf xml = BUF_INIT;
		struct ossd_keys keys = {0};

		(void)state;
		buf_puts(&xml, "<Delete>");
		for (int i = 0; i < n; i++)
			buf_printf(&xml, "<Object><Key>%d</Key></Object>", i);
		buf_puts(&xml, "</Delete>");
		assert_int_equal(ossd_xml_parse_delete(&keys, xml.data, xml.len),
				 n > OSSD_DELETE_MAX ? OSSD_E_MALFORMED_XML : 0);
		ossd_keys_fini(&keys);
		buf_fini(&xml);
	}
}

static void test_complete_documents_give_their_parts(void **state)
{
	static const char xml[] =
		"<CompleteMultipartUpload>"
		"<Part><ETag>\"AB\"</ETag><PartNumber>1</PartNumber></Part>"
		"<Part><PartNumber>7</PartNumber><ETag>CD</ETag></Part>"
		"</CompleteMultipartUpload>";
	static const char bad[] = "<CompleteMultipartUpload><Part><ETag>x</ETag></Part>"
				  "</CompleteMultipartUpload>";
	struct ossd_part_ref *parts = NULL;
	size_t count = 0;

	(void)state;
	assert_int_equal(ossd_xml_parse_complete(&parts, &count, xml, strlen(xml)), 0);
	assert_int_equal(count, 2);
	assert_int_equal(parts[0].number, 1);
	assert_string_equal(parts[0].etag, "AB");
	assert_int_equal(parts[1].number, 7);
	assert_string_equal(parts[1].etag, "CD");
	free(parts);
	assert_int_equal(ossd_xml_parse_complete(&parts, &count, bad, strlen(bad)),
			 OSSD_E_MALFORMED_XML);
}

static void test_tags_survive_the_way_to_a_header_and_back(void **state)
{
	static const char xml[] =
		"<Tagging><TagSet>"
		"<Tag><Key>a b</Key><Value>1/2</Value></Tag>"
		"<Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>";
	struct buf header = BUF_INIT, back = BUF_INIT;

	(void)state;
	assert_int_equal(ossd_xml_parse_tagging(&header, xml, strlen(xml)), 0);
	assert_string_equal(header.data, "a%20b=1%2F2&c=");
	ossd_xml_format_tagging(&back, header.data);
	assert_non_null(strstr(back.data, xml));
	buf_fini(&header);
	buf_fini(&back);
}

static void test_an_error_document_carries_code_and_request(void **state)
{
	struct ossd_error_doc doc = {.request_id = "ID", .extra = "<Key>k</Key>"};
	struct buf b = BUF_INIT;

	(void)state;
	ossd_error_format(&b, ossd_code_info(OSSD_E_NO_SUCH_KEY), &doc);
	assert_non_null(strstr(b.data, "<Code>NoSuchKey</Code>"));
	assert_non_null(strstr(b.data, "<RequestId>ID</RequestId>"));
	assert_non_null(strstr(b.data, "<Key>k</Key><EC>0026-00000001</EC></Error>"));
	buf_fini(&b);
}

TEST_MAIN(cmocka_unit_test(test_text_is_escaped),
	  cmocka_unit_test(test_keys_are_encoded_with_percent_20_and_2B),
	  cmocka_unit_test(test_delete_documents_give_their_keys),
	  cmocka_unit_test(test_bad_delete_documents_are_malformed),
	  cmocka_unit_test(test_a_delete_document_has_at_most_1000_keys),
	  cmocka_unit_test(test_complete_documents_give_their_parts),
	  cmocka_unit_test(test_tags_survive_the_way_to_a_header_and_back),
	  cmocka_unit_test(test_an_error_document_carries_code_and_request))
