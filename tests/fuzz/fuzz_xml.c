/* SPDX-License-Identifier: Apache-2.0 */
/* What a store answers. A page that was accepted must be usable: every text inside the
 * page's own bytes and terminated there. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_xml.h"

static void check_text(const struct oss_page *page, uint32_t offset)
{
	if (offset >= page->text.len ||
	    !memchr(page->text.data + offset, '\0', page->text.len + 1 - offset))
		abort();
}

static void check_page(struct oss_page *page)
{
	if (page->count > OSS_XML_ITEMS_MAX)
		abort();
	check_text(page, page->next);
	check_text(page, page->next_upload_id);
	for (size_t i = 0; i < page->count; i++) {
		const struct oss_item *item = &page->items[i];

		check_text(page, item->key);
		check_text(page, item->etag);
		check_text(page, item->upload_id);
		if ((size_t)item->key + item->key_len >= page->text.len + 1)
			abort();
	}
	oss_page_fini(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const parsers[])(const char *, size_t, struct oss_page *,
				      struct why *) = {
		oss_xml_parse_list, oss_xml_parse_uploads, oss_xml_parse_parts,
		oss_xml_parse_deleted};
	const char *xml = (const char *)data;
	struct oss_outcome outcome;
	struct oss_error error;
	struct why why = {""};

	for (size_t i = 0; i < sizeof(parsers) / sizeof(*parsers); i++) {
		struct oss_page page = {0};
		int r = parsers[i](xml, size, &page, &why);

		if (r == 0)
			check_page(&page);
		else if (!*why.text)
			abort();
	}
	(void)oss_xml_parse_error(xml, size, &error, &why);
	(void)oss_xml_parse_outcome(xml, size, &outcome, &why);
	return 0;
}
