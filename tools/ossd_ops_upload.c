/* SPDX-License-Identifier: Apache-2.0 */
/* Multipart uploads (protocol.md §3.14). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_attr.h"
#include "tools/ossd_body.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_range.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

#define PAGE_MAX 1000

static const char *parameter(const struct ossd_request *req, const char *name)
{
	const char *value = ossd_request_query(req, name);

	return value ? value : "";
}

static bool encoded(const struct ossd_request *req)
{
	return !strcmp(parameter(req, "encoding-type"), "url");
}

static void put_key(struct ossd_request *req, struct buf *xml)
{
	if (encoded(req))
		ossd_xml_text(xml, "EncodingType", "url");
	ossd_xml_text(xml, "Bucket", req->target.bucket);
	ossd_xml_key(xml, "Key", req->target.key.data, req->target.key.len, encoded(req));
}

int ossd_op_initiate_upload(struct ossd_request *req)
{
	struct ossd_upload *upload = xcalloc(1, sizeof(*upload));
	struct buf *xml = &req->reply.body;
	struct ossd_bucket bucket;
	int r = ossd_store_bucket(req->context->store, req->target.bucket, &bucket);

	snprintf(upload->bucket, sizeof(upload->bucket), "%s", req->target.bucket);
	snprintf(upload->key, sizeof(upload->key), "%s", req->target.key.data);
	if (r == 0)
		r = ossd_attrs_take(req, &bucket, &upload->object);
	ossd_object_set_attr(&upload->object, "x-oss-object-acl", NULL); /* Complete's */
	if (r == 0)
		r = ossd_store_upload_create(req->context->store, upload);
	if (r == 0) {
		ossd_xml_document(xml, "InitiateMultipartUploadResult");
		put_key(req, xml);
		ossd_xml_text(xml, "UploadId", upload->id);
		ossd_xml_end(xml, "InitiateMultipartUploadResult");
		ossd_reply_header(req, "Content-Type", "application/xml");
	}
	ossd_object_fini(&upload->object);
	free(upload);
	return r;
}

/* ---- parts ----------------------------------------------------------------------------- */

static void format_etag(char out[33], const unsigned char md5[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(out + (ptrdiff_t)2 * i, 3, "%02X", md5[i]);
}

static int part_number(struct ossd_request *req, struct ossd_part *part)
{
	uint64_t number;
	int r;

	if (!ossd_request_query(req, "partNumber"))
		return OSSD_E_MISSING_ARGUMENT;
	r = ossd_request_number(req, "partNumber", 0, 1, OSSD_PARTS_MAX, &number);
	if (r == 0)
		part->number = (uint32_t)number;
	return r;
}

int ossd_op_upload_part(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_part part = {0};
	char etag[33];
	int r = part_number(req, &part);

	if (r == 0)
		r = ossd_body_verify(req);
	if (r == 0)
		r = ossd_store_part_put(req->context->store, &ref,
					parameter(req, "uploadId"), &req->spool, &part);
	if (r)
		return r;
	format_etag(etag, part.md5);
	ossd_reply_etag(req, etag);
	ossd_reply_md5(req, part.md5);
	ossd_reply_crc(req, part.crc);
	return 0;
}

/* The source's bytes that x-oss-copy-source-range names; all without it. */
static int spool_source(struct ossd_request *req, struct ossd_spool *spool)
{
	const char *range = ossd_request_header(req, "x-oss-copy-source-range");
	_cleanup_(buf_fini) struct buf key = BUF_INIT;
	char bucket[OSSD_BUCKET_SIZE], text[96];
	_cleanup_(close_fdp) int fd = -1;
	struct ossd_object o = {0};
	uint64_t start, length;
	int r = ossd_source_open(req, bucket, &key, &o, &fd);

	if (r == 0 &&
	    ossd_range_parse(range, o.size, true, &start, &length) == OSSD_RANGE_INVALID)
		r = OSSD_E_INVALID_RANGE;
	if (r == 0)
		r = ossd_spool_copy(spool, fd, start, length, true);
	if (r == 0)
		r = ossd_spool_finish(spool);
	if (r == 0 && length) {
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
			 start, start + length - 1, o.size);
		ossd_reply_header(req, "Content-Range", text);
	}
	ossd_object_fini(&o);
	return r;
}

int ossd_op_upload_part_copy(struct ossd_request *req)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_ref ref = ossd_request_ref(req);
	struct buf *xml = &req->reply.body;
	struct ossd_part part = {0};
	char etag[33];
	int r = part_number(req, &part);

	if (r == 0)
		r = ossd_store_spool(req->context->store, &spool);
	if (r == 0)
		r = spool_source(req, &spool);
	if (r == 0)
		r = ossd_store_part_put(req->context->store, &ref,
					parameter(req, "uploadId"), &spool, &part);
	if (r)
		return r;
	format_etag(etag, part.md5);
	ossd_reply_etag(req, etag);
	ossd_reply_crc(req, part.crc);
	ossd_reply_header(req, "Content-Type", "application/xml");
	ossd_xml_document(xml, "CopyPartResult");
	ossd_xml_time(xml, "LastModified", part.modified_ms);
	ossd_xml_etag(xml, "ETag", etag);
	ossd_xml_end(xml, "CopyPartResult");
	return 0;
}

/* ---- end ------------------------------------------------------------------------------- */

static void put_complete(struct ossd_request *req, const struct ossd_object *o)
{
	const char *host = ossd_request_header(req, "host");
	struct buf *xml = &req->reply.body, location = BUF_INIT;

	buf_printf(&location, "http://%s%s%s/", host ? host : "",
		   req->target.path_style ? "/" : "",
		   req->target.path_style ? req->target.bucket : "");
	oss_encode(&location, req->target.key.data, req->target.key.len, true);
	ossd_xml_document(xml, "CompleteMultipartUploadResult");
	if (location.data)
		ossd_xml_text(xml, "Location", location.data);
	put_key(req, xml);
	ossd_xml_etag(xml, "ETag", o->etag);
	ossd_xml_end(xml, "CompleteMultipartUploadResult");
	buf_fini(&location);
	ossd_reply_header(req, "Content-Type", "application/xml");
	ossd_reply_etag(req, o->etag);
	ossd_reply_crc(req, o->crc);
}

int ossd_op_complete_upload(struct ossd_request *req)
{
	const char *all = ossd_request_header(req, "x-oss-complete-all");
	_cleanup_(freep) struct ossd_part_ref *parts = NULL;
	struct ossd_complete complete = {
		.ref = ossd_request_ref(req),
		.id = parameter(req, "uploadId"),
		.forbid_overwrite = ossd_attrs_forbid_overwrite(req),
		.acl = ossd_request_header(req, "x-oss-object-acl"),
		.s3_etag = req->s3 != NULL,
	};
	struct ossd_object o = {0};
	enum ossd_acl acl;
	int r = ossd_body_verify(req);

	if (r == 0 && complete.acl && ossd_acl_parse(complete.acl, &acl) < 0)
		r = OSSD_E_INVALID_ARGUMENT;
	if (r == 0 && (!all || strcasecmp(all, "yes") != 0))
		r = ossd_xml_parse_complete(&parts, &complete.count, req->body.data,
					    req->body.len);
	else if (r == 0 && req->body.len)
		r = OSSD_E_INVALID_ARGUMENT;
	complete.parts = parts;
	if (r == 0)
		r = ossd_store_upload_complete(req->context->store, &complete, &o);
	if (r == 0)
		put_complete(req, &o);
	ossd_object_fini(&o);
	return r;
}

int ossd_op_abort_upload(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);

	req->reply.status = 204;
	return ossd_store_upload_abort(req->context->store, &ref,
				       parameter(req, "uploadId"));
}

/* ---- listings -------------------------------------------------------------------------- */

struct part_page {
	uint64_t marker, max, count, last;
	bool truncated;
	struct buf xml;
};

static int collect_parts(struct ossd_request *req, const char *id, struct part_page *page)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_part part;
	char etag[33];
	int r = ossd_txn_begin(ossd_store_index(req->context->store), false, &txn);

	page->last = page->marker;
	while (r == 0) {
		r = ossd_index_part_next(&txn, id, (uint32_t)page->last, &part);
		if (r)
			break;
		if (page->count == page->max) {
			page->truncated = true;
			break;
		}
		page->count++;
		page->last = part.number;
		format_etag(etag, part.md5);
		ossd_xml_begin(&page->xml, "Part");
		ossd_xml_uint(&page->xml, "PartNumber", part.number);
		ossd_xml_time(&page->xml, "LastModified", part.modified_ms);
		ossd_xml_etag(&page->xml, "ETag", etag);
		ossd_xml_uint(&page->xml, "HashCrc64ecma", part.crc);
		ossd_xml_uint(&page->xml, "Size", part.size);
		ossd_xml_end(&page->xml, "Part");
	}
	return r == OSSD_E_INVALID_PART ? 0 : r;
}

static void put_parts(struct ossd_request *req, const char *id,
		      enum ossd_class storage_class, const struct part_page *page)
{
	struct buf *xml = &req->reply.body;

	ossd_xml_document(xml, "ListPartsResult");
	put_key(req, xml);
	ossd_xml_text(xml, "UploadId", id);
	ossd_xml_text(xml, "StorageClass", ossd_class_name(storage_class));
	ossd_xml_uint(xml, "PartNumberMarker", page->marker);
	if (page->count)
		ossd_xml_uint(xml, "NextPartNumberMarker", page->last);
	ossd_xml_uint(xml, "MaxParts", page->max);
	ossd_xml_bool(xml, "IsTruncated", page->truncated);
	buf_append(xml, page->xml.data, page->xml.len);
	ossd_xml_end(xml, "ListPartsResult");
	ossd_reply_header(req, "Content-Type", "application/xml");
}

int ossd_op_list_parts(struct ossd_request *req)
{
	struct ossd_upload *upload = xcalloc(1, sizeof(*upload));
	struct ossd_ref ref = ossd_request_ref(req);
	struct part_page page = {0};
	int r = ossd_store_upload(req->context->store, &ref, parameter(req, "uploadId"),
				  upload);

	if (r == 0)
		r = ossd_request_number(req, "max-parts", PAGE_MAX, 1, PAGE_MAX,
					&page.max);
	if (r == 0)
		r = ossd_request_number(req, "part-number-marker", 0, 0, OSSD_PARTS_MAX,
					&page.marker);
	if (r == 0)
		r = collect_parts(req, upload->id, &page);
	if (r == 0)
		put_parts(req, upload->id, upload->object.storage_class, &page);
	buf_fini(&page.xml);
	ossd_object_fini(&upload->object);
	free(upload);
	return r;
}
