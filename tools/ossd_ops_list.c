/* SPDX-License-Identifier: Apache-2.0 */
/* ListObjects, ListObjectsV2, ListObjectVersions (protocol.md §3.5 to §3.7). */
#include <string.h>

#include "fs/base/cleanup.h"
#include "tools/ossd_code.h"
#include "tools/ossd_list.h"
#include "tools/ossd_op.h"
#include "tools/ossd_owner.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

#define PAGE_MAX 1000
#define PAGE_DEFAULT 100

enum flavour {
	LIST_V1,
	LIST_V2,
	LIST_VERSIONS
};

struct listing {
	struct ossd_request *req;
	enum flavour flavour;
	bool encode, owner;
	const char *prefix, *delimiter, *marker;
	uint64_t max;
	struct buf contents, prefixes; /* XML: keys come before common prefixes */
};

static const char *parameter(const struct ossd_request *req, const char *name)
{
	const char *value = ossd_request_query(req, name);

	return value ? value : "";
}

static int parse(struct listing *l)
{
	const char *encoding = parameter(l->req, "encoding-type");

	if (*encoding && strcmp(encoding, "url") != 0)
		return OSSD_E_INVALID_ARGUMENT;
	l->encode = *encoding != '\0';
	l->prefix = parameter(l->req, "prefix");
	l->delimiter = parameter(l->req, "delimiter");
	if (strlen(l->prefix) > OSSD_KEY_MAX || strlen(l->marker) > OSSD_KEY_MAX)
		return OSSD_E_INVALID_ARGUMENT;
	return ossd_request_number(l->req, "max-keys", PAGE_DEFAULT, 0, PAGE_MAX,
				   &l->max);
}

static void put_entry(struct listing *l, struct buf *xml, const char *key, size_t n,
		      const struct ossd_object *o)
{
	const char *element = l->flavour == LIST_VERSIONS ? "Version" : "Contents";

	ossd_xml_begin(xml, element);
	ossd_xml_key(xml, "Key", key, n, l->encode);
	if (l->flavour == LIST_VERSIONS) {
		ossd_xml_text(xml, "VersionId", "null");
		ossd_xml_bool(xml, "IsLatest", true);
	}
	ossd_xml_time(xml, "LastModified", o->modified_ms);
	ossd_xml_etag(xml, "ETag", o->etag);
	ossd_xml_text(xml, "Type", ossd_type_name(o->type));
	ossd_xml_uint(xml, "Size", o->size);
	ossd_xml_text(xml, "StorageClass", ossd_class_name(o->storage_class));
	if (l->owner)
		ossd_owner_put(xml);
	ossd_xml_end(xml, element);
}

static int add(void *arg, const char *name, size_t n, const void *value, size_t value_len)
{
	struct listing *l = arg;
	const struct ossd_faults *faults = &l->req->faults;
	struct ossd_object o = {0};
	struct buf rest;
	int r;

	if (!value) {
		ossd_xml_begin(&l->prefixes, "CommonPrefixes");
		ossd_xml_key(&l->prefixes, "Prefix", name, n, l->encode);
		ossd_xml_end(&l->prefixes, "CommonPrefixes");
		return 0;
	}
	r = ossd_object_decode(&o, value, value_len);
	if (r < 0)
		return r;
	if (ossd_faults_has(faults, OSSD_FAULT_LIST_UNSORTED)) {
		rest = l->contents;
		l->contents = BUF_INIT;
		put_entry(l, &l->contents, name, n, &o);
		buf_append(&l->contents, rest.data, rest.len);
		buf_fini(&rest);
	} else {
		put_entry(l, &l->contents, name, n, &o);
	}
	if (ossd_faults_has(faults, OSSD_FAULT_LIST_DUPLICATE))
		put_entry(l, &l->contents, name, n, &o);
	ossd_object_fini(&o);
	return 0;
}

/* ---- the page around the entries ------------------------------------------------------- */

static void put_next(struct listing *l, struct buf *xml,
		     const struct ossd_list_page *page)
{
	_cleanup_(buf_fini) struct buf token = BUF_INIT;

	switch (l->flavour) {
	case LIST_V1:
		ossd_xml_key(xml, "NextMarker", page->last.data, page->last.len,
			     l->encode);
		break;
	case LIST_V2:
		ossd_token_format(&token, page->last.data, page->last.len);
		ossd_xml_text(xml, "NextContinuationToken", token.data);
		break;
	case LIST_VERSIONS:
		ossd_xml_key(xml, "NextKeyMarker", page->last.data, page->last.len,
			     l->encode);
		ossd_xml_text(xml, "NextVersionIdMarker", "null");
		break;
	}
}

static void put_head(struct listing *l, struct buf *xml,
		     const struct ossd_list_page *page)
{
	struct ossd_request *req = l->req;
	const char *start_after = parameter(req, "start-after");

	ossd_xml_text(xml, "Name", req->target.bucket);
	ossd_xml_key(xml, "Prefix", l->prefix, strlen(l->prefix), l->encode);
	if (l->flavour == LIST_V1) {
		ossd_xml_key(xml, "Marker", l->marker, strlen(l->marker), l->encode);
	} else if (l->flavour == LIST_VERSIONS) {
		ossd_xml_key(xml, "KeyMarker", l->marker, strlen(l->marker), l->encode);
		ossd_xml_text(xml, "VersionIdMarker",
			      parameter(req, "version-id-marker"));
	} else {
		if (*start_after)
			ossd_xml_key(xml, "StartAfter", start_after, strlen(start_after),
				     l->encode);
		if (ossd_request_query(req, "continuation-token"))
			ossd_xml_text(xml, "ContinuationToken",
				      parameter(req, "continuation-token"));
		ossd_xml_uint(xml, "KeyCount", page->count);
	}
	ossd_xml_uint(xml, "MaxKeys", l->max);
	ossd_xml_key(xml, "Delimiter", l->delimiter, strlen(l->delimiter), l->encode);
	if (l->encode)
		ossd_xml_text(xml, "EncodingType", "url");
	ossd_xml_bool(xml, "IsTruncated", page->truncated);
	if (page->truncated)
		put_next(l, xml, page);
}

/* What a store must not do, on request (N16 of the reliability table: duplicates, loops). */
static void apply_faults(struct listing *l, struct ossd_list_page *page)
{
	const struct ossd_faults *faults = &l->req->faults;
	bool empty = ossd_faults_has(faults, OSSD_FAULT_LIST_EMPTY);

	if (!empty && !ossd_faults_has(faults, OSSD_FAULT_LIST_LOOP))
		return;
	page->truncated = true;
	if (empty || *l->marker) {
		buf_reset(&page->last);
		buf_puts(&page->last, *l->marker ? l->marker : "\x01");
	}
	if (empty) {
		buf_reset(&l->contents);
		buf_reset(&l->prefixes);
		page->count = 0;
	}
}

static int list_bucket(struct listing *l, struct ossd_list_page *page)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	_cleanup_(ossd_cursor_close) struct ossd_cursor c = {0};
	struct ossd_list_query query = {l->prefix, l->delimiter, l->marker, l->max};
	struct ossd_bucket bucket;
	int r = ossd_txn_begin(ossd_store_index(l->req->context->store), false, &txn);

	if (r == 0)
		r = ossd_index_bucket(&txn, l->req->target.bucket, &bucket);
	if (r == 0)
		r = ossd_cursor_open(&txn, bucket.id, &c);
	return r ? r : ossd_list(&c, &query, add, l, page);
}

static int run(struct listing *l)
{
	const char *root =
		l->flavour == LIST_VERSIONS ? "ListVersionsResult" : "ListBucketResult";
	struct ossd_list_page page = {.count = 0};
	struct buf *xml = &l->req->reply.body;
	int r = parse(l);

	if (r == 0)
		r = list_bucket(l, &page);
	if (r == 0) {
		apply_faults(l, &page);
		ossd_xml_document(xml, root);
		put_head(l, xml, &page);
		buf_append(xml, l->contents.data, l->contents.len);
		buf_append(xml, l->prefixes.data, l->prefixes.len);
		ossd_xml_end(xml, root);
		ossd_reply_header(l->req, "Content-Type", "application/xml");
	}
	buf_fini(&page.last);
	buf_fini(&l->contents);
	buf_fini(&l->prefixes);
	return r;
}

int ossd_op_list_objects(struct ossd_request *req)
{
	struct listing l = {.req = req, .flavour = LIST_V1, .owner = true};

	l.marker = parameter(req, "marker");
	return run(&l);
}

int ossd_op_list_objects_v2(struct ossd_request *req)
{
	struct listing l = {.req = req, .flavour = LIST_V2};
	const char *token = parameter(req, "continuation-token");
	_cleanup_(buf_fini) struct buf marker = BUF_INIT;

	l.owner = !strcmp(parameter(req, "fetch-owner"), "true");
	l.marker = parameter(req, "start-after");
	if (*token) {
		if (ossd_token_parse(&marker, token) < 0 || !marker.len)
			return OSSD_E_INVALID_ARGUMENT;
		l.marker = marker.data;
	}
	return run(&l);
}

int ossd_op_list_versions(struct ossd_request *req)
{
	struct listing l = {.req = req, .flavour = LIST_VERSIONS, .owner = true};

	l.marker = parameter(req, "key-marker");
	return run(&l);
}
