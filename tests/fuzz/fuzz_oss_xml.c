/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of a store, taken for each kind of document in turn. What a listing gives must be
 * inside its text. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_xml.h"

static void touch(const struct oss_page *page, uint32_t offset, size_t n)
{
	if (offset > page->text.len || n >= page->text.len - offset ||
	    oss_page_text(page, offset)[n])
		abort();
}

static void check_page(struct oss_page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct oss_item *item = &page->items[i];

		touch(page, item->key, item->key_len);
		touch(page, item->etag, strlen(oss_page_text(page, item->etag)));
		touch(page, item->upload_id,
		      strlen(oss_page_text(page, item->upload_id)));
	}
	touch(page, page->next, strlen(oss_page_text(page, page->next)));
	oss_page_fini(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *xml = (const char *)data;
	struct oss_page page;
	struct oss_error error;
	struct oss_outcome outcome;

	if (oss_xml_parse_list(xml, size, &page, NULL) == 0)
		check_page(&page);
	if (oss_xml_parse_uploads(xml, size, &page, NULL) == 0)
		check_page(&page);
	if (oss_xml_parse_parts(xml, size, &page, NULL) == 0)
		check_page(&page);
	if (oss_xml_parse_deleted(xml, size, &page, NULL) == 0)
		check_page(&page);
	if (oss_xml_parse_error(xml, size, &error, NULL) == 0 &&
	    strlen(error.code) >= sizeof(error.code))
		abort();
	if (oss_xml_parse_outcome(xml, size, &outcome, NULL) == 0 &&
	    strlen(outcome.etag) >= sizeof(outcome.etag))
		abort();
	return 0;
}
