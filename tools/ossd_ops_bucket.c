/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on buckets (protocol.md §3.2 to §3.4). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_owner.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

#define BUCKETS_MAX 1000

static void document_reply(struct ossd_request *req)
{
	ossd_reply_header(req, "Content-Type", "application/xml");
}

static int find(struct ossd_request *req, struct ossd_bucket *bucket)
{
	return ossd_store_bucket(req->context->store, req->target.bucket, bucket);
}

/* Elements that ListBuckets and GetBucketInfo share. */
static void put_bucket(struct ossd_request *req, struct buf *xml,
		       const struct ossd_bucket *bucket)
{
	const char *region = req->context->region;
	char text[128];

	ossd_xml_time(xml, "CreationDate", bucket->created_ms);
	snprintf(text, sizeof(text), "oss-%s.aliyuncs.com", region);
	ossd_xml_text(xml, "ExtranetEndpoint", text);
	snprintf(text, sizeof(text), "oss-%s-internal.aliyuncs.com", region);
	ossd_xml_text(xml, "IntranetEndpoint", text);
	snprintf(text, sizeof(text), "oss-%s", region);
	ossd_xml_text(xml, "Location", text);
	ossd_xml_text(xml, "Name", bucket->name);
	ossd_xml_text(xml, "Region", region);
	ossd_xml_text(xml, "StorageClass", ossd_class_name(bucket->storage_class));
}

struct bucket_page {
	const char *prefix, *marker;
	uint64_t max;
	bool truncated;
	char last[OSSD_BUCKET_SIZE];
	struct buf xml;
};

static int list_buckets(struct ossd_request *req, struct bucket_page *page)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_bucket bucket = {.name = ""};
	uint64_t count = 0;
	int r = ossd_txn_begin(ossd_store_index(req->context->store), false, &txn);

	snprintf(bucket.name, sizeof(bucket.name), "%s", page->marker);
	while (r == 0 && !page->truncated) {
		r = ossd_index_bucket_next(&txn, bucket.name, &bucket);
		if (r || strncmp(bucket.name, page->prefix, strlen(page->prefix)) != 0)
			continue;
		if (count++ == page->max) {
			page->truncated = true;
			break;
		}
		memcpy(page->last, bucket.name, sizeof(page->last));
		ossd_xml_begin(&page->xml, "Bucket");
		put_bucket(req, &page->xml, &bucket);
		ossd_xml_end(&page->xml, "Bucket");
	}
	return r == OSSD_E_NO_SUCH_BUCKET ? 0 : r;
}

int ossd_op_list_buckets(struct ossd_request *req)
{
	const char *prefix = ossd_request_query(req, "prefix");
	const char *marker = ossd_request_query(req, "marker");
	struct bucket_page page = {.prefix = prefix ? prefix : "",
				   .marker = marker ? marker : ""};
	struct buf *xml = &req->reply.body;
	int r = ossd_request_number(req, "max-keys", 100, 1, BUCKETS_MAX, &page.max);

	if (strspn(page.prefix, "abcdefghijklmnopqrstuvwxyz0123456789-") !=
	    strlen(page.prefix))
		r = OSSD_E_INVALID_ARGUMENT;

	if (r == 0)
		r = list_buckets(req, &page);
	if (r == 0) {
		ossd_xml_document(xml, "ListAllMyBucketsResult");
		if (page.truncated) {
			ossd_xml_text(xml, "Prefix", page.prefix);
			ossd_xml_text(xml, "Marker", page.marker);
			ossd_xml_uint(xml, "MaxKeys", page.max);
			ossd_xml_bool(xml, "IsTruncated", true);
			ossd_xml_text(xml, "NextMarker", page.last);
		}
		ossd_owner_put(xml);
		ossd_xml_begin(xml, "Buckets");
		buf_append(xml, page.xml.data, page.xml.len);
		ossd_xml_end(xml, "Buckets");
		ossd_xml_end(xml, "ListAllMyBucketsResult");
		document_reply(req);
	}
	buf_fini(&page.xml);
	return r;
}

static int take_acl(struct ossd_request *req, enum ossd_acl *acl)
{
	const char *name = ossd_request_header(req, "x-oss-acl");

	if (name && (ossd_acl_parse(name, acl) < 0 || *acl == OSSD_ACL_DEFAULT))
		return OSSD_E_INVALID_ARGUMENT;
	return 0;
}

int ossd_op_put_bucket(struct ossd_request *req)
{
	struct ossd_bucket bucket = {.acl = OSSD_ACL_PRIVATE}, there;
	char class_name[32] = "", location[OSSD_BUCKET_SIZE + 1];
	int r = take_acl(req, &bucket.acl);

	if (r == 0 && req->body.len)
		r = ossd_xml_parse_bucket(class_name, sizeof(class_name), req->body.data,
					  req->body.len);
	if (r)
		return r;
	if (*class_name && ossd_class_parse(class_name, &bucket.storage_class) < 0)
		return OSSD_E_INVALID_ARGUMENT;
	snprintf(bucket.name, sizeof(bucket.name), "%s", req->target.bucket);
	there = bucket;
	r = ossd_store_bucket_create(req->context->store, &there);
	/* The same owner and the same settings: done already (protocol.md §3.3). */
	if (r == OSSD_E_BUCKET_EXISTS && there.storage_class == bucket.storage_class)
		r = ossd_request_header(req, "x-oss-acl")
			    ? ossd_store_bucket_set_acl(req->context->store, bucket.name,
							bucket.acl)
			    : 0;
	if (r == 0) {
		snprintf(location, sizeof(location), "/%s", bucket.name);
		ossd_reply_header(req, "Location", location);
	}
	return r;
}

int ossd_op_delete_bucket(struct ossd_request *req)
{
	req->reply.status = 204;
	return ossd_store_bucket_delete(req->context->store, req->target.bucket);
}

int ossd_op_head_bucket(struct ossd_request *req)
{
	struct ossd_bucket bucket;

	return find(req, &bucket);
}

int ossd_op_get_bucket_info(struct ossd_request *req)
{
	struct buf *xml = &req->reply.body;
	struct ossd_bucket bucket;
	int r = find(req, &bucket);

	if (r)
		return r;
	ossd_xml_document(xml, "BucketInfo");
	ossd_xml_begin(xml, "Bucket");
	put_bucket(req, xml, &bucket);
	ossd_xml_text(xml, "DataRedundancyType", "LRS");
	ossd_xml_text(xml, "TransferAcceleration", "Disabled");
	ossd_xml_text(xml, "CrossRegionReplication", "Disabled");
	ossd_owner_put(xml);
	ossd_xml_begin(xml, "AccessControlList");
	ossd_xml_text(xml, "Grant", ossd_acl_name(bucket.acl));
	ossd_xml_end(xml, "AccessControlList");
	ossd_xml_end(xml, "Bucket");
	ossd_xml_end(xml, "BucketInfo");
	document_reply(req);
	return 0;
}

int ossd_op_get_bucket_location(struct ossd_request *req)
{
	struct ossd_bucket bucket;
	char text[128];
	int r = find(req, &bucket);

	if (r)
		return r;
	snprintf(text, sizeof(text), "oss-%s", req->context->region);
	ossd_xml_document(&req->reply.body, "LocationConstraint");
	buf_puts(&req->reply.body, text);
	ossd_xml_end(&req->reply.body, "LocationConstraint");
	document_reply(req);
	return 0;
}

struct bucket_stat {
	uint64_t bytes, objects, uploads;
};

/* Counted when asked for: one walk of the index. */
static int count(struct ossd_request *req, struct bucket_stat *stat)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	_cleanup_(ossd_cursor_close) struct ossd_cursor c = {0};
	struct ossd_upload upload = {.id = ""};
	struct ossd_bucket bucket;
	int r = ossd_txn_begin(ossd_store_index(req->context->store), false, &txn);

	if (r == 0)
		r = ossd_index_bucket(&txn, req->target.bucket, &bucket);
	if (r == 0)
		r = ossd_cursor_open(&txn, bucket.id, &c);
	if (r)
		return r;
	for (r = ossd_cursor_seek(&c, "", 0); r == 0; r = ossd_cursor_next(&c)) {
		struct ossd_object o = {0};

		r = ossd_object_decode(&o, c.value, c.value_len);
		if (r < 0)
			return r;
		stat->objects++;
		stat->bytes += o.size;
		ossd_object_fini(&o);
	}
	while (r == OSSD_E_NO_SUCH_KEY &&
	       ossd_index_upload_next(&txn, upload.id, &upload) == 0) {
		stat->uploads += !strcmp(upload.bucket, req->target.bucket);
		ossd_object_fini(&upload.object);
	}
	return r == OSSD_E_NO_SUCH_KEY ? 0 : r;
}

int ossd_op_get_bucket_stat(struct ossd_request *req)
{
	struct buf *xml = &req->reply.body;
	struct bucket_stat stat = {0};
	int r = count(req, &stat);

	if (r)
		return r;
	ossd_xml_document(xml, "BucketStat");
	ossd_xml_uint(xml, "Storage", stat.bytes);
	ossd_xml_uint(xml, "ObjectCount", stat.objects);
	ossd_xml_uint(xml, "MultipartUploadCount", stat.uploads);
	ossd_xml_uint(xml, "LiveChannelCount", 0);
	ossd_xml_uint(xml, "LastModifiedTime",
		      (uint64_t)(ossd_request_now_ms(req) / 1000));
	ossd_xml_uint(xml, "StandardStorage", stat.bytes);
	ossd_xml_uint(xml, "StandardObjectCount", stat.objects);
	ossd_xml_end(xml, "BucketStat");
	document_reply(req);
	return 0;
}

int ossd_op_get_bucket_acl(struct ossd_request *req)
{
	struct ossd_bucket bucket;
	int r = find(req, &bucket);

	if (r)
		return r;
	ossd_acl_document(&req->reply.body, ossd_acl_name(bucket.acl));
	document_reply(req);
	return 0;
}

int ossd_op_put_bucket_acl(struct ossd_request *req)
{
	enum ossd_acl acl = OSSD_ACL_PRIVATE;
	int r = take_acl(req, &acl);

	if (r)
		return r;
	if (!ossd_request_header(req, "x-oss-acl"))
		return OSSD_E_MISSING_ARGUMENT;
	return ossd_store_bucket_set_acl(req->context->store, req->target.bucket, acl);
}

int ossd_op_get_bucket_versioning(struct ossd_request *req)
{
	struct ossd_bucket bucket;
	int r = find(req, &bucket);

	if (r)
		return r;
	ossd_xml_document(&req->reply.body, "VersioningConfiguration");
	ossd_xml_end(&req->reply.body, "VersioningConfiguration");
	document_reply(req);
	return 0;
}
