/* SPDX-License-Identifier: Apache-2.0 */
/* XML out: escaping is its business. XML in: the four documents clients send. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/buf.h"

void ossd_xml_document(struct buf *b,
		       const char *root); /* declaration and root element */
void ossd_xml_begin(struct buf *b, const char *name);
void ossd_xml_end(struct buf *b, const char *name);
void ossd_xml_text(struct buf *b, const char *name, const char *text);
void ossd_xml_uint(struct buf *b, const char *name, uint64_t value);
void ossd_xml_bool(struct buf *b, const char *name, bool value);
void ossd_xml_time(struct buf *b, const char *name, int64_t ms);       /* ISO 8601 */
void ossd_xml_etag(struct buf *b, const char *name, const char *etag); /* quoted */

/* Bytes of a key or a prefix; with `encode` as encoding-type=url wants them. */
void ossd_xml_key(struct buf *b, const char *name, const char *key, size_t n,
		  bool encode);

/* ---- what clients send; all return 0 or OSSD_E_MALFORMED_XML --------------------------- */

#define OSSD_XML_MAX (2u << 20) /* bytes of a request document (protocol.md §3.13) */
#define OSSD_DELETE_MAX 1000    /* keys in one DeleteMultipleObjects */
#define OSSD_PARTS_MAX 10000    /* parts of one upload */

struct ossd_keys {
	char **items;
	size_t count;
	bool quiet;
};
/* encoding-type=url is about the answer: here keys are as they are. */
int ossd_xml_parse_delete(struct ossd_keys *out, const char *xml, size_t n);
void ossd_keys_fini(struct ossd_keys *keys);

struct ossd_part_ref {
	uint64_t number;
	char etag[48]; /* without quotes */
};
/* *parts is the caller's to free(). Order and numbers are not checked here. */
int ossd_xml_parse_complete(struct ossd_part_ref **parts, size_t *count, const char *xml,
			    size_t n);

/* CreateBucketConfiguration's StorageClass into `out` ("" when absent). */
int ossd_xml_parse_bucket(char *out, size_t out_size, const char *xml, size_t n);

/* A Tagging document as the text of an x-oss-tagging header: "k1=v1&k2=v2", encoded. Also
 * OSSD_E_INVALID_TAG when there are more than ten or one is too long. */
int ossd_xml_parse_tagging(struct buf *out, const char *xml, size_t n);
/* And back, as a whole document. */
void ossd_xml_format_tagging(struct buf *out, const char *header);
