/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of OSS in the words of S3. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "tools/ossd_op.h"
#include "tools/ossd_request.h"
#include "tools/ossd_s3.h"

#define NAMESPACE " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

static const struct {
	const char *s3, *oss;
} classes[] = {
	{"STANDARD", "Standard"},
	{"STANDARD_IA", "IA"},
	{"ONEZONE_IA", "IA"},
	{"GLACIER", "Archive"},
	{"GLACIER_IR", "Archive"},
	{"GLACIER", "ColdArchive"},
	{"DEEP_ARCHIVE", "DeepColdArchive"},
};

const char *ossd_s3_class_in(const char *name)
{
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (!strcmp(classes[i].s3, name))
			return classes[i].oss;
	return classes[0].oss;
}

const char *ossd_s3_class_out(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (strlen(classes[i].oss) == n && !memcmp(classes[i].oss, name, n))
			return classes[i].s3;
	return classes[0].s3;
}

static void put_lower(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_putc(out, (char)tolower((unsigned char)s[i]));
}

/* ---- documents ------------------------------------------------------------------------- */

static bool named(const char *tag, size_t n, const char *name)
{
	return strlen(name) == n && !memcmp(tag, name, n);
}

/* The text of an element that S3 writes otherwise; false: as it is. */
static bool put_text(struct buf *out, const char *tag, size_t tag_len, const char *text,
		     size_t n)
{
	if (named(tag, tag_len, "ETag")) {
		put_lower(out, text, n);
		return true;
	}
	if (named(tag, tag_len, "StorageClass")) {
		buf_puts(out, ossd_s3_class_out(text, n));
		return true;
	}
	if (named(tag, tag_len, "LocationConstraint") && n > 4 &&
	    !memcmp(text, "oss-", 4)) {
		buf_append(out, text + 4, n - 4);
		return true;
	}
	return false;
}

/* Text in a document is escaped: every '<' begins a tag. */
void ossd_s3_document(struct buf *out, const char *xml, size_t n)
{
	const char *end = xml + n;
	bool root = true;

	while (xml < end) {
		const char *tag = memchr(xml, '<', (size_t)(end - xml)), *close, *next;
		size_t len;

		close = tag ? memchr(tag, '>', (size_t)(end - tag)) : NULL;
		if (!close) {
			buf_append(out, xml, (size_t)(end - xml));
			return;
		}
		buf_append(out, xml, (size_t)(close - xml));
		tag++;
		len = (size_t)(close - tag);
		if (root && *tag != '?') {
			if (!named(tag, len, "Error"))
				buf_puts(out, NAMESPACE);
			root = false;
		}
		buf_putc(out, '>');
		xml = close + 1;
		next = memchr(xml, '<', (size_t)(end - xml));
		if (next && put_text(out, tag, len, xml, (size_t)(next - xml)))
			xml = next;
	}
}

/* ---- headers --------------------------------------------------------------------------- */

static void put(struct buf *out, const char *name, const char *value)
{
	buf_append(out, name, strlen(name) + 1);
	buf_append(out, value, strlen(value) + 1);
}

static void put_header(struct buf *out, const char *name, const char *value)
{
	static const char *const kept[] = {"request-id", "restore",
					   "server-side-encryption", "tagging-count"};

	if (!strcasecmp(name, "Server"))
		value = "AmazonS3";
	if (!strcasecmp(name, "Content-MD5"))
		return;
	if (!strcasecmp(name, "ETag")) {
		buf_append(out, name, strlen(name) + 1);
		put_lower(out, value, strlen(value) + 1);
		return;
	}
	if (strncasecmp(name, "x-oss-", 6) != 0) {
		put(out, name, value);
		return;
	}
	name += 6;
	if (!strcmp(name, "storage-class") && strcmp(value, "Standard") != 0)
		put(out, "x-amz-storage-class", ossd_s3_class_out(value, strlen(value)));
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept) + 1; i++) {
		bool meta = i == sizeof(kept) / sizeof(*kept);

		if (meta ? strncmp(name, "meta-", 5) != 0 : strcmp(name, kept[i]) != 0)
			continue;
		buf_puts(out, "x-amz-");
		put(out, name, value);
	}
}

void ossd_s3_reply(struct ossd_request *req)
{
	struct buf headers = BUF_INIT, body = BUF_INIT;
	const char *at = req->reply.headers.data, *end = at + req->reply.headers.len;

	while (at < end) {
		const char *value = at + strlen(at) + 1;

		put_header(&headers, at, value);
		at = value + strlen(value) + 1;
	}
	if (!req->target.key.len && !strcmp(req->method, "HEAD"))
		put(&headers, "x-amz-bucket-region", req->context->region);
	buf_fini(&req->reply.headers);
	req->reply.headers = headers;
	/* A quiet deletion has a document all the same. */
	if (req->op && req->op->run == ossd_op_delete_objects && !req->reply.body.len)
		buf_puts(&req->reply.body, "<DeleteResult></DeleteResult>");
	if (req->reply.fd >= 0 || !req->reply.body.len)
		return;
	ossd_s3_document(&body, req->reply.body.data, req->reply.body.len);
	buf_fini(&req->reply.body);
	req->reply.body = body;
}
