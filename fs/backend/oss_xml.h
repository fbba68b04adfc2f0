/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The XML of OSS: replies taken apart, requests written (protocol.md §3, §6.1). Pure.
 *
 * What comes from the network is hostile: no DTD (a DOCTYPE is refused), no entities but
 * the predefined ones, nothing is ever loaded, at most OSS_XML_SIZE_MAX bytes,
 * OSS_XML_DEPTH_MAX elements deep, OSS_XML_TEXT_MAX bytes in one element, OSS_XML_ITEMS_MAX
 * entries. Names are compared without their name space; unknown elements are skipped;
 * elements may come in any order. Percent-encoding is undone when the reply says
 * EncodingType url.
 *
 * All parse functions: 0, -EBADMSG with a sentence (not such a document, or over a limit),
 * -ENOMEM. `out` is untouched on failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"

#define OSS_XML_SIZE_MAX (8u << 20)
#define OSS_XML_DEPTH_MAX 16
#define OSS_XML_TEXT_MAX 16384
#define OSS_XML_ITEMS_MAX 10000

struct oss_error {
	char code[64]; /* "NoSuchKey" */
	char message[160];
	char request_id[64];
	char endpoint[256]; /* the right one, when the request went to a wrong one */
	char ec[32];
};
int oss_xml_parse_error(const char *xml, size_t n, struct oss_error *out,
			struct why *why);

/* One entry of a listing. Texts are offsets into the page's text, NUL-terminated there;
 * 0 is the empty text. */
struct oss_item {
	uint32_t key, key_len; /* bytes; may hold NUL */
	uint32_t etag;         /* without quotes */
	uint32_t upload_id;
	uint32_t number; /* of a part */
	uint64_t size;
	uint64_t crc64; /* of a part, when has_crc64 */
	int64_t mtime_ns;
	bool has_crc64;
	bool is_prefix; /* a common prefix */
};

struct oss_page {
	struct buf text; /* begins with a NUL */
	struct oss_item *items;
	size_t count;
	bool truncated;
	uint32_t next; /* continuation token, next marker, next key marker, next part */
	uint32_t next_upload_id;
};
void oss_page_fini(struct oss_page *page);
const char *oss_page_text(const struct oss_page *page, uint32_t offset);

/* ListObjects and ListObjectsV2; objects and common prefixes in the order of the reply. */
int oss_xml_parse_list(const char *xml, size_t n, struct oss_page *out, struct why *why);
int oss_xml_parse_uploads(const char *xml, size_t n, struct oss_page *out,
			  struct why *why);
int oss_xml_parse_parts(const char *xml, size_t n, struct oss_page *out, struct why *why);
/* DeleteMultipleObjects: the keys that are gone. */
int oss_xml_parse_deleted(const char *xml, size_t n, struct oss_page *out,
			  struct why *why);

/* What InitiateMultipartUpload, CompleteMultipartUpload, CopyObject and UploadPartCopy
 * answer. Missing elements are empty. */
struct oss_outcome {
	char upload_id[256];
	char etag[128]; /* without quotes */
	int64_t mtime_ns;
};
int oss_xml_parse_outcome(const char *xml, size_t n, struct oss_outcome *out,
			  struct why *why);

/* Whether a key comes through XML unharmed. Control characters cannot be written in XML 1.0,
 * or are taken for blanks by the one or the other parser; broken UTF-8 cannot be written. */
bool oss_xml_keeps(const char *key);

/* Request bodies. Errors show in buf_error(). */
void oss_xml_write_delete(struct buf *out, const char *const *keys, size_t count);
void oss_xml_write_complete_begin(struct buf *out);
void oss_xml_write_complete_part(struct buf *out, uint32_t number, const char *etag);
void oss_xml_write_complete_end(struct buf *out);
