/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_xml.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <string.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/cleanup.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_target.h"
#include "tools/ossd_time.h"

#define TAGS_MAX 10
#define TAG_KEY_MAX 128
#define TAG_VALUE_MAX 256

/* ---- out ------------------------------------------------------------------------------- */

/* How a byte is written; NULL: as it is. */
static const char *escape_of(unsigned char c, char numeric[8])
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	default:
		break;
	}
	if (c >= 0x20)
		return NULL;
	snprintf(numeric, 8, "&#x%X;", c);
	return numeric;
}

static void put_escaped(struct buf *b, const char *s, size_t n)
{
	size_t start = 0;
	char numeric[8];

	for (size_t i = 0; i < n; i++) {
		const char *escape = escape_of((unsigned char)s[i], numeric);

		if (!escape)
			continue;
		buf_append(b, s + start, i - start);
		buf_puts(b, escape);
		start = i + 1;
	}
	buf_append(b, s + start, n - start);
}

void ossd_xml_document(struct buf *b, const char *name)
{
	buf_puts(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	ossd_xml_begin(b, name);
}

void ossd_xml_begin(struct buf *b, const char *name)
{
	buf_putc(b, '<');
	buf_puts(b, name);
	buf_putc(b, '>');
}

void ossd_xml_end(struct buf *b, const char *name)
{
	buf_puts(b, "</");
	buf_puts(b, name);
	buf_putc(b, '>');
}

static void put_element(struct buf *b, const char *name, const char *text, size_t n)
{
	ossd_xml_begin(b, name);
	put_escaped(b, text, n);
	ossd_xml_end(b, name);
}

void ossd_xml_text(struct buf *b, const char *name, const char *text)
{
	put_element(b, name, text, strlen(text));
}

void ossd_xml_uint(struct buf *b, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	ossd_xml_text(b, name, text);
}

void ossd_xml_bool(struct buf *b, const char *name, bool value)
{
	ossd_xml_text(b, name, value ? "true" : "false");
}

void ossd_xml_time(struct buf *b, const char *name, int64_t ms)
{
	char text[OSSD_TIME_SIZE];

	ossd_xml_text(b, name, ossd_time_iso(text, ms));
}

void ossd_xml_etag(struct buf *b, const char *name, const char *etag)
{
	char quoted[64];

	snprintf(quoted, sizeof(quoted), "\"%s\"", etag);
	ossd_xml_text(b, name, quoted);
}

void ossd_xml_key(struct buf *b, const char *name, const char *key, size_t n, bool encode)
{
	struct buf encoded = BUF_INIT;

	if (!encode) {
		put_element(b, name, key, n);
		return;
	}
	oss_encode(&encoded, key, n, false);
	put_element(b, name, encoded.data ? encoded.data : "", encoded.len);
	buf_fini(&encoded);
}

/* ---- in -------------------------------------------------------------------------------- */

static void xml_doc_freep(xmlDocPtr *doc)
{
	if (*doc)
		xmlFreeDoc(*doc);
}

static bool named(const xmlNode *node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !strcmp((const char *)node->name, name);
}

/* The document when its root has that name. A document type declaration is refused: none of
 * the protocol's documents has one, and entities are the only way to make them large. */
static xmlDocPtr parse(const char *xml, size_t n, const char *root)
{
	xmlDocPtr doc;

	if (n == 0 || n > OSSD_XML_MAX)
		return NULL;
	doc = xmlReadMemory(xml, (int)n, "request", NULL,
			    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
				    XML_PARSE_NOCDATA);
	if (!doc)
		return NULL;
	if (doc->intSubset || !xmlDocGetRootElement(doc) ||
	    !named(xmlDocGetRootElement(doc), root)) {
		xmlFreeDoc(doc);
		return NULL;
	}
	return doc;
}

static const xmlNode *child(const xmlNode *parent, const char *name)
{
	for (const xmlNode *node = parent->children; node; node = node->next)
		if (named(node, name))
			return node;
	return NULL;
}

/* Text of a child element, the caller's to free(); NULL when there is no such child. */
static char *child_text(const xmlNode *parent, const char *name)
{
	const xmlNode *node = child(parent, name);
	xmlChar *text;
	char *copy;

	if (!node)
		return NULL;
	text = xmlNodeGetContent(node);
	copy = xstrdup(text ? (const char *)text : "");
	xmlFree(text);
	return copy;
}

int ossd_xml_parse_delete(struct ossd_keys *out, const char *xml, size_t n)
{
	_cleanup_(xml_doc_freep) xmlDocPtr doc = parse(xml, n, "Delete");
	_cleanup_(freep) char *quiet = NULL;
	struct ossd_keys keys = {0};
	const xmlNode *root;

	if (!doc)
		return OSSD_E_MALFORMED_XML;
	root = xmlDocGetRootElement(doc);
	quiet = child_text(root, "Quiet");
	keys.quiet = quiet && !strcmp(quiet, "true");
	keys.items = xcalloc(OSSD_DELETE_MAX, sizeof(*keys.items));
	for (const xmlNode *node = root->children; node; node = node->next) {
		char *text;

		if (!named(node, "Object"))
			continue;
		text = child_text(node, "Key");
		if (!text || !*text || keys.count == OSSD_DELETE_MAX) {
			free(text);
			ossd_keys_fini(&keys);
			return OSSD_E_MALFORMED_XML;
		}
		keys.items[keys.count++] = text;
	}
	if (keys.count == 0) {
		ossd_keys_fini(&keys);
		return OSSD_E_MALFORMED_XML;
	}
	*out = keys;
	return 0;
}

void ossd_keys_fini(struct ossd_keys *keys)
{
	for (size_t i = 0; i < keys->count; i++)
		free(keys->items[i]);
	free(keys->items);
	*keys = (struct ossd_keys){0};
}

static int parse_part(struct ossd_part_ref *part, const xmlNode *node)
{
	_cleanup_(freep) char *number = child_text(node, "PartNumber");
	_cleanup_(freep) char *etag = child_text(node, "ETag");
	char *end;
	size_t n;

	if (!number || !*number || !etag)
		return OSSD_E_MALFORMED_XML;
	part->number = strtoull(number, &end, 10);
	if (*end || *number == '-')
		return OSSD_E_MALFORMED_XML;
	n = strlen(etag);
	if (n >= 2 && etag[0] == '"' && etag[n - 1] == '"')
		snprintf(part->etag, sizeof(part->etag), "%.*s", (int)(n - 2), etag + 1);
	else
		snprintf(part->etag, sizeof(part->etag), "%s", etag);
	return 0;
}

int ossd_xml_parse_complete(struct ossd_part_ref **parts, size_t *count, const char *xml,
			    size_t n)
{
	_cleanup_(xml_doc_freep) xmlDocPtr doc = parse(xml, n, "CompleteMultipartUpload");
	_cleanup_(freep) struct ossd_part_ref *found = NULL;
	size_t used = 0;

	if (!doc)
		return OSSD_E_MALFORMED_XML;
	found = xcalloc(OSSD_PARTS_MAX, sizeof(*found));
	for (const xmlNode *node = xmlDocGetRootElement(doc)->children; node;
	     node = node->next) {
		if (!named(node, "Part"))
			continue;
		if (used == OSSD_PARTS_MAX || parse_part(&found[used], node))
			return OSSD_E_MALFORMED_XML;
		used++;
	}
	if (used == 0)
		return OSSD_E_MALFORMED_XML;
	*parts = steal(found);
	*count = used;
	return 0;
}

int ossd_xml_parse_bucket(char *out, size_t out_size, const char *xml, size_t n)
{
	_cleanup_(xml_doc_freep) xmlDocPtr doc =
		parse(xml, n, "CreateBucketConfiguration");
	_cleanup_(freep) char *text = NULL;

	if (!doc)
		return OSSD_E_MALFORMED_XML;
	text = child_text(xmlDocGetRootElement(doc), "StorageClass");
	snprintf(out, out_size, "%s", text ? text : "");
	return 0;
}

static int put_tag(struct buf *out, const xmlNode *node)
{
	_cleanup_(freep) char *key = child_text(node, "Key");
	_cleanup_(freep) char *value = child_text(node, "Value");

	if (!key || !value)
		return OSSD_E_MALFORMED_XML;
	if (!*key || strlen(key) > TAG_KEY_MAX || strlen(value) > TAG_VALUE_MAX)
		return OSSD_E_INVALID_TAG;
	if (out->len)
		buf_putc(out, '&');
	oss_encode(out, key, strlen(key), false);
	buf_putc(out, '=');
	oss_encode(out, value, strlen(value), false);
	return 0;
}

int ossd_xml_parse_tagging(struct buf *out, const char *xml, size_t n)
{
	_cleanup_(xml_doc_freep) xmlDocPtr doc = parse(xml, n, "Tagging");
	const xmlNode *set = doc ? child(xmlDocGetRootElement(doc), "TagSet") : NULL;
	int tags = 0;

	if (!set)
		return OSSD_E_MALFORMED_XML;
	for (const xmlNode *node = set->children; node; node = node->next) {
		int r;

		if (!named(node, "Tag"))
			continue;
		if (++tags > TAGS_MAX)
			return OSSD_E_INVALID_TAG;
		r = put_tag(out, node);
		if (r)
			return r;
	}
	return 0;
}

void ossd_xml_format_tagging(struct buf *out, const char *header)
{
	ossd_xml_document(out, "Tagging");
	ossd_xml_begin(out, "TagSet");
	while (*header) {
		size_t n = strcspn(header, "&");
		size_t name = strcspn(header, "&=");
		struct buf key = BUF_INIT, value = BUF_INIT;

		if (ossd_decode(&key, header, name) == 0 &&
		    (name == n ||
		     ossd_decode(&value, header + name + 1, n - name - 1) == 0)) {
			ossd_xml_begin(out, "Tag");
			ossd_xml_text(out, "Key", key.data ? key.data : "");
			ossd_xml_text(out, "Value", value.data ? value.data : "");
			ossd_xml_end(out, "Tag");
		}
		buf_fini(&key);
		buf_fini(&value);
		header += n;
		header += *header == '&';
	}
	ossd_xml_end(out, "TagSet");
	ossd_xml_end(out, "Tagging");
}
