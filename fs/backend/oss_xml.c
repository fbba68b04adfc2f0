/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_xml.h"

#include <errno.h>
#include <inttypes.h>
#include <libxml/xmlstring.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_sax.h"
#include "fs/backend/oss_sign.h"
#include "fs/backend/oss_text.h"
#include "fs/base/cleanup.h"

/* ---- texts and items ----------------------------------------------------------------- */

static void take_encoding(struct oss_sax *p, const char *text, size_t n)
{
	p->encoded = n == 3 && memcmp(text, "url", 3) == 0;
}

static uint32_t keep_text(struct oss_sax *p, const char *text, size_t n)
{
	uint32_t offset = (uint32_t)p->page.text.len;

	buf_append(&p->page.text, text, n);
	buf_append(&p->page.text, "", 1);
	return offset;
}

static void take_truncated(struct oss_sax *p, const char *text, size_t n)
{
	p->page.truncated = n == 4 && memcmp(text, "true", 4) == 0;
}

static void take_next(struct oss_sax *p, const char *text, size_t n)
{
	if (n)
		p->page.next = keep_text(p, text, n);
}

static void take_next_upload(struct oss_sax *p, const char *text, size_t n)
{
	if (n)
		p->page.next_upload_id = keep_text(p, text, n);
}

/* The item that on_start() opened for the parent of this text. */
static struct oss_item *current(struct oss_sax *p)
{
	static struct oss_item
		none; /* never read: oss_sax_push() has refused the document */

	return p->page.count ? &p->page.items[p->page.count - 1] : &none;
}

static void take_key(struct oss_sax *p, const char *text, size_t n)
{
	struct oss_item *item = current(p);

	item->key = keep_text(p, text, n);
	item->key_len = (uint32_t)n;
}

static void take_prefix(struct oss_sax *p, const char *text, size_t n)
{
	struct oss_item *item = oss_sax_push(p);

	if (!item)
		return;
	item->is_prefix = true;
	take_key(p, text, n);
}

static void take_etag(struct oss_sax *p, const char *text, size_t n)
{
	char etag[128];

	oss_etag_copy(etag, sizeof(etag), text, n);
	current(p)->etag = keep_text(p, etag, strlen(etag));
}

static void take_upload_id(struct oss_sax *p, const char *text, size_t n)
{
	current(p)->upload_id = keep_text(p, text, n);
}

static void take_size(struct oss_sax *p, const char *text, size_t n)
{
	if (oss_number_parse(text, n, &current(p)->size) < 0)
		oss_sax_refuse(p, -EBADMSG, "a size is not a number");
}

static void take_number(struct oss_sax *p, const char *text, size_t n)
{
	uint64_t number;

	if (oss_number_parse(text, n, &number) < 0 || number > UINT32_MAX)
		oss_sax_refuse(p, -EBADMSG, "a part number is not a number");
	else
		current(p)->number = (uint32_t)number;
}

static void take_crc(struct oss_sax *p, const char *text, size_t n)
{
	struct oss_item *item = current(p);

	item->has_crc64 = oss_number_parse(text, n, &item->crc64) == 0;
}

static void take_time(struct oss_sax *p, const char *text, size_t n)
{
	if (oss_time_parse_iso(text, n, &current(p)->mtime_ns) < 0)
		oss_sax_refuse(p, -EBADMSG, "a time is not a time");
}

/* ---- listings ------------------------------------------------------------------------ */

void oss_page_fini(struct oss_page *page)
{
	buf_fini(&page->text);
	free(page->items);
	*page = (struct oss_page){0};
}

const char *oss_page_text(const struct oss_page *page, uint32_t offset)
{
	return page->text.data + offset;
}

static int decode_text(struct oss_page *page, struct buf *scratch, uint32_t offset,
		       uint32_t *len)
{
	char *text = page->text.data + offset;

	buf_reset(scratch);
	if (oss_decode(scratch, text, *len) < 0)
		return err_origin(-EBADMSG);
	/* Decoding never makes a text longer. */
	if (scratch->len)
		memcpy(text, scratch->data, scratch->len);
	text[scratch->len] = '\0';
	*len = (uint32_t)scratch->len;
	return 0;
}

/* Only now is it known whether the reply is encoded: the element that says so may come
 * last. */
static int decode_page(struct oss_page *page)
{
	_cleanup_(buf_fini) struct buf scratch = BUF_INIT;
	uint32_t n = (uint32_t)strlen(page->text.data + page->next);
	int r = decode_text(page, &scratch, page->next, &n);

	for (size_t i = 0; r == 0 && i < page->count; i++)
		if (page->items[i].key_len)
			r = decode_text(page, &scratch, page->items[i].key,
					&page->items[i].key_len);
	return err_trace(r);
}

static int parse_page(const struct oss_sax_document *document, const char *what,
		      const char *xml, size_t n, struct oss_page *out, struct why *why)
{
	struct oss_sax p = {.document = document};
	int r;

	buf_append(&p.page.text, "", 1);
	r = oss_sax_run(&p, xml, n);
	if (r == 0 && p.encoded) {
		r = decode_page(&p.page);
		p.complaint = "a key is not well encoded";
	}
	if (r < 0) {
		oss_page_fini(&p.page);
		return why_set(why, err_trace(r), "%s cannot be read: %s", what,
			       p.complaint ? p.complaint : "no memory");
	}
	*out = p.page;
	return 0;
}

static const struct oss_sax_rule list_rules[] = {
	{"Contents", "Key", take_key},
	{"Contents", "LastModified", take_time},
	{"Contents", "ETag", take_etag},
	{"Contents", "Size", take_size},
	{"CommonPrefixes", "Prefix", take_prefix},
	{NULL, "IsTruncated", take_truncated},
	{NULL, "NextMarker", take_next},
	{NULL, "NextContinuationToken", take_next},
	{NULL, "EncodingType", take_encoding},
	{0},
};

int oss_xml_parse_list(const char *xml, size_t n, struct oss_page *out, struct why *why)
{
	static const char *const roots[] = {"ListBucketResult", NULL};
	static const struct oss_sax_document document = {roots, "Contents", list_rules};

	return parse_page(&document, "the listing", xml, n, out, why);
}

static const struct oss_sax_rule upload_rules[] = {
	{"Upload", "Key", take_key},
	{"Upload", "UploadId", take_upload_id},
	{"Upload", "Initiated", take_time},
	{NULL, "IsTruncated", take_truncated},
	{NULL, "NextKeyMarker", take_next},
	{NULL, "NextUploadIdMarker", take_next_upload},
	{NULL, "EncodingType", take_encoding},
	{0},
};

int oss_xml_parse_uploads(const char *xml, size_t n, struct oss_page *out,
			  struct why *why)
{
	static const char *const roots[] = {"ListMultipartUploadsResult", NULL};
	static const struct oss_sax_document document = {roots, "Upload", upload_rules};

	return parse_page(&document, "the list of uploads", xml, n, out, why);
}

static const struct oss_sax_rule part_rules[] = {
	{"Part", "PartNumber", take_number},
	{"Part", "LastModified", take_time},
	{"Part", "ETag", take_etag},
	{"Part", "HashCrc64ecma", take_crc},
	{"Part", "Size", take_size},
	{NULL, "IsTruncated", take_truncated},
	{NULL, "NextPartNumberMarker", take_next},
	{0},
};

int oss_xml_parse_parts(const char *xml, size_t n, struct oss_page *out, struct why *why)
{
	static const char *const roots[] = {"ListPartsResult", NULL};
	static const struct oss_sax_document document = {roots, "Part", part_rules};

	return parse_page(&document, "the list of parts", xml, n, out, why);
}

static const struct oss_sax_rule deleted_rules[] = {
	{"Deleted", "Key", take_key},
	{NULL, "EncodingType", take_encoding},
	{0},
};

int oss_xml_parse_deleted(const char *xml, size_t n, struct oss_page *out,
			  struct why *why)
{
	static const char *const roots[] = {"DeleteResult", NULL};
	static const struct oss_sax_document document = {roots, "Deleted", deleted_rules};

	return parse_page(&document, "the list of what was deleted", xml, n, out, why);
}

/* ---- single answers ------------------------------------------------------------------ */

/* Cut when too long: these texts are for people. */
static void take_cut(char *out, size_t out_size, const char *text, size_t n)
{
	if (n >= out_size)
		n = out_size - 1;
	memcpy(out, text, n);
	out[n] = '\0';
}

static void take_code(struct oss_sax *p, const char *text, size_t n)
{
	take_cut(p->error.code, sizeof(p->error.code), text, n);
}

static void take_message(struct oss_sax *p, const char *text, size_t n)
{
	take_cut(p->error.message, sizeof(p->error.message), text, n);
}

static void take_request_id(struct oss_sax *p, const char *text, size_t n)
{
	take_cut(p->error.request_id, sizeof(p->error.request_id), text, n);
}

static void take_endpoint(struct oss_sax *p, const char *text, size_t n)
{
	take_cut(p->error.endpoint, sizeof(p->error.endpoint), text, n);
}

static void take_ec(struct oss_sax *p, const char *text, size_t n)
{
	take_cut(p->error.ec, sizeof(p->error.ec), text, n);
}

static const struct oss_sax_rule error_rules[] = {
	{NULL, "Code", take_code},
	{NULL, "Message", take_message},
	{NULL, "RequestId", take_request_id},
	{NULL, "Endpoint", take_endpoint},
	{NULL, "EC", take_ec},
	{0},
};

int oss_xml_parse_error(const char *xml, size_t n, struct oss_error *out, struct why *why)
{
	static const char *const roots[] = {"Error", NULL};
	static const struct oss_sax_document document = {roots, NULL, error_rules};
	struct oss_sax p = {.document = &document};
	int r = oss_sax_run(&p, xml, n);

	if (r < 0)
		return why_set(why, err_trace(r), "the error cannot be read: %s",
			       p.complaint ? p.complaint : "no memory");
	*out = p.error;
	return 0;
}

static void take_outcome_id(struct oss_sax *p, const char *text, size_t n)
{
	if (n >= sizeof(p->outcome.upload_id))
		oss_sax_refuse(p, -EBADMSG, "the upload id is too long");
	else
		take_cut(p->outcome.upload_id, sizeof(p->outcome.upload_id), text, n);
}

static void take_outcome_etag(struct oss_sax *p, const char *text, size_t n)
{
	oss_etag_copy(p->outcome.etag, sizeof(p->outcome.etag), text, n);
}

static void take_outcome_time(struct oss_sax *p, const char *text, size_t n)
{
	if (oss_time_parse_iso(text, n, &p->outcome.mtime_ns) < 0)
		oss_sax_refuse(p, -EBADMSG, "a time is not a time");
}

static const struct oss_sax_rule outcome_rules[] = {
	{NULL, "UploadId", take_outcome_id},
	{NULL, "ETag", take_outcome_etag},
	{NULL, "LastModified", take_outcome_time},
	{0},
};

int oss_xml_parse_outcome(const char *xml, size_t n, struct oss_outcome *out,
			  struct why *why)
{
	static const char *const roots[] = {"InitiateMultipartUploadResult",
					    "CompleteMultipartUploadResult",
					    "CopyObjectResult", "CopyPartResult", NULL};
	static const struct oss_sax_document document = {roots, NULL, outcome_rules};
	struct oss_sax p = {.document = &document};
	int r = oss_sax_run(&p, xml, n);

	if (r < 0)
		return why_set(why, err_trace(r), "the answer cannot be read: %s",
			       p.complaint ? p.complaint : "no memory");
	*out = p.outcome;
	return 0;
}

/* ---- writing ------------------------------------------------------------------------- */

bool oss_xml_keeps(const char *key)
{
	for (const char *c = key; *c; c++)
		if ((unsigned char)*c < 0x20)
			return false;
	/* U+FFFE and U+FFFF are well-formed UTF-8 but no characters of XML. */
	if (strstr(key, "\xef\xbf\xbe") || strstr(key, "\xef\xbf\xbf"))
		return false;
	return xmlCheckUTF8((const unsigned char *)key) != 0;
}

static void write_text(struct buf *out, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '&':
			buf_puts(out, "&amp;");
			break;
		case '<':
			buf_puts(out, "&lt;");
			break;
		case '>':
			buf_puts(out, "&gt;");
			break;
		case '"':
			buf_puts(out, "&quot;");
			break;
		case '\'':
			buf_puts(out, "&apos;");
			break;
		default:
			buf_putc(out, *s);
		}
	}
}

void oss_xml_write_delete(struct buf *out, const char *const *keys, size_t count)
{
	buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		      "<Delete><Quiet>false</Quiet>");
	for (size_t i = 0; i < count; i++) {
		buf_puts(out, "<Object><Key>");
		write_text(out, keys[i]);
		buf_puts(out, "</Key></Object>");
	}
	buf_puts(out, "</Delete>");
}

void oss_xml_write_complete_begin(struct buf *out)
{
	buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		      "<CompleteMultipartUpload>");
}

void oss_xml_write_complete_part(struct buf *out, uint32_t number, const char *etag)
{
	buf_printf(out, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>&quot;", number);
	write_text(out, etag);
	buf_puts(out, "&quot;</ETag></Part>");
}

void oss_xml_write_complete_end(struct buf *out)
{
	buf_puts(out, "</CompleteMultipartUpload>");
}
