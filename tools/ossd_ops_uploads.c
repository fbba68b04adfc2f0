/* SPDX-License-Identifier: Apache-2.0 */
/* ListMultipartUploads (protocol.md §3.14): by key, then by id. Uploads are few, so the
 * index keeps them by id, and this sorts what it finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

#define PAGE_MAX 1000
#define UPLOADS_MAX 100000 /* open uploads of one bucket that a listing looks at */

struct item {
	char *key;
	char id[OSSD_UPLOAD_ID_LEN + 1];
	enum ossd_class storage_class;
	int64_t initiated_ms;
};

struct page {
	struct ossd_request *req;
	const char *prefix, *delimiter, *key_marker, *id_marker;
	uint64_t max;
	bool encode, truncated;
	struct item *items;
	size_t item_count;
	char last_key[OSSD_KEY_MAX + 1], last_id[OSSD_UPLOAD_ID_LEN + 1];
	struct buf uploads, prefixes;
};

static int by_key_and_id(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	int r = strcmp(x->key, y->key);

	return r ? r : strcmp(x->id, y->id);
}

static int collect(struct page *p)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	_cleanup_(freep) struct ossd_upload *upload = xcalloc(1, sizeof(*upload));
	struct ossd_bucket bucket;
	size_t room = 0;
	int r = ossd_txn_begin(ossd_store_index(p->req->context->store), false, &txn);

	if (r == 0)
		r = ossd_index_bucket(&txn, p->req->target.bucket, &bucket);
	while (r == 0 && p->item_count < UPLOADS_MAX) {
		r = ossd_index_upload_next(&txn, upload->id, upload);
		if (r)
			break;
		ossd_object_fini(&upload->object);
		if (strcmp(upload->bucket, bucket.name) != 0 ||
		    strncmp(upload->key, p->prefix, strlen(p->prefix)) != 0)
			continue;
		if (p->item_count == room) {
			room = room ? room * 2 : 64;
			p->items = xrealloc(p->items, room, sizeof(*p->items));
		}
		p->items[p->item_count] = (struct item){
			.key = xstrdup(upload->key),
			.storage_class = upload->object.storage_class,
			.initiated_ms = upload->object.modified_ms,
		};
		memcpy(p->items[p->item_count++].id, upload->id, sizeof(upload->id));
	}
	return r == OSSD_E_NO_SUCH_UPLOAD ? 0 : r;
}

/* Behind the markers? An id marker counts only with a key marker. */
static bool behind(const struct page *p, const struct item *item)
{
	int r = strcmp(item->key, p->key_marker);

	if (!*p->key_marker)
		return true;
	return r > 0 || (r == 0 && *p->id_marker && strcmp(item->id, p->id_marker) > 0);
}

static size_t roll_up(const struct page *p, const char *key)
{
	const char *at =
		*p->delimiter ? strstr(key + strlen(p->prefix), p->delimiter) : NULL;

	return at ? (size_t)(at - key) + strlen(p->delimiter) : 0;
}

static void put_upload(struct page *p, const struct item *item)
{
	ossd_xml_begin(&p->uploads, "Upload");
	ossd_xml_key(&p->uploads, "Key", item->key, strlen(item->key), p->encode);
	ossd_xml_text(&p->uploads, "UploadId", item->id);
	ossd_xml_text(&p->uploads, "StorageClass", ossd_class_name(item->storage_class));
	ossd_xml_time(&p->uploads, "Initiated", item->initiated_ms);
	ossd_xml_end(&p->uploads, "Upload");
}

static void build(struct page *p)
{
	uint64_t count = 0;

	for (size_t i = 0; i < p->item_count; i++) {
		const struct item *item = &p->items[i];
		size_t rolled = roll_up(p, item->key);

		if (!behind(p, item))
			continue;
		/* Told already, on this page or the one before. */
		if (rolled && !strncmp(p->last_key, item->key, rolled) && count)
			continue;
		if (rolled && strlen(p->key_marker) == rolled &&
		    !strncmp(p->key_marker, item->key, rolled))
			continue;
		if (count++ == p->max) {
			p->truncated = true;
			break;
		}
		snprintf(p->last_key, sizeof(p->last_key), "%.*s",
			 rolled ? (int)rolled : OSSD_KEY_MAX, item->key);
		snprintf(p->last_id, sizeof(p->last_id), "%s", rolled ? "" : item->id);
		if (!rolled) {
			put_upload(p, item);
			continue;
		}
		ossd_xml_begin(&p->prefixes, "CommonPrefixes");
		ossd_xml_key(&p->prefixes, "Prefix", item->key, rolled, p->encode);
		ossd_xml_end(&p->prefixes, "CommonPrefixes");
	}
}

static void put_document(const struct page *p)
{
	struct buf *xml = &p->req->reply.body;

	ossd_xml_document(xml, "ListMultipartUploadsResult");
	ossd_xml_text(xml, "Bucket", p->req->target.bucket);
	if (p->encode)
		ossd_xml_text(xml, "EncodingType", "url");
	ossd_xml_key(xml, "KeyMarker", p->key_marker, strlen(p->key_marker), p->encode);
	ossd_xml_text(xml, "UploadIdMarker", p->id_marker);
	if (p->truncated) {
		ossd_xml_key(xml, "NextKeyMarker", p->last_key, strlen(p->last_key),
			     p->encode);
		ossd_xml_text(xml, "NextUploadIdMarker", p->last_id);
	}
	ossd_xml_key(xml, "Delimiter", p->delimiter, strlen(p->delimiter), p->encode);
	ossd_xml_key(xml, "Prefix", p->prefix, strlen(p->prefix), p->encode);
	ossd_xml_uint(xml, "MaxUploads", p->max);
	ossd_xml_bool(xml, "IsTruncated", p->truncated);
	buf_append(xml, p->uploads.data, p->uploads.len);
	buf_append(xml, p->prefixes.data, p->prefixes.len);
	ossd_xml_end(xml, "ListMultipartUploadsResult");
	ossd_reply_header(p->req, "Content-Type", "application/xml");
}

static const char *parameter(const struct ossd_request *req, const char *name)
{
	const char *value = ossd_request_query(req, name);

	return value ? value : "";
}

int ossd_op_list_uploads(struct ossd_request *req)
{
	struct page p = {
		.req = req,
		.prefix = parameter(req, "prefix"),
		.delimiter = parameter(req, "delimiter"),
		.key_marker = parameter(req, "key-marker"),
		.id_marker = parameter(req, "upload-id-marker"),
		.encode = !strcmp(parameter(req, "encoding-type"), "url"),
	};
	int r = ossd_request_number(req, "max-uploads", PAGE_MAX, 1, PAGE_MAX, &p.max);

	if (r == 0)
		r = collect(&p);
	if (r == 0) {
		if (p.item_count)
			qsort(p.items, p.item_count, sizeof(*p.items), by_key_and_id);
		build(&p);
		put_document(&p);
	}
	for (size_t i = 0; i < p.item_count; i++)
		free(p.items[i].key);
	free(p.items);
	buf_fini(&p.uploads);
	buf_fini(&p.prefixes);
	return r;
}
