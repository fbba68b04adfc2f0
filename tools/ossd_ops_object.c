/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that make and remove objects (protocol.md §3.8, §3.11 to §3.13, §3.15). */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "tools/ossd_attr.h"
#include "tools/ossd_body.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_range.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

/* A new object with the attributes that the request gives it. */
static int new_object(struct ossd_request *req, struct ossd_object *o)
{
	struct ossd_bucket bucket;
	int r = ossd_store_bucket(req->context->store, req->target.bucket, &bucket);

	return r ? r : ossd_attrs_take(req, &bucket, o);
}

static bool has_conditions(const struct ossd_request *req)
{
	static const char *const names[] = {"if-match", "if-none-match",
					    "if-modified-since", "if-unmodified-since"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (ossd_request_header(req, names[i]))
			return true;
	return false;
}

int ossd_op_put_object(struct ossd_request *req)
{
	struct ossd_object o = {.type = OSSD_NORMAL};
	struct ossd_put put = {
		.ref = ossd_request_ref(req),
		.spool = &req->spool,
		.object = &o,
		.forbid_overwrite = ossd_attrs_forbid_overwrite(req),
	};
	int r;

	if (has_conditions(req)) /* there are none on PUT (protocol.md §3.8) */
		return OSSD_E_NOT_IMPLEMENTED;
	r = ossd_body_verify(req);
	if (r == 0)
		r = new_object(req, &o);
	if (r == 0)
		r = ossd_store_put(req->context->store, &put);
	if (r == 0) {
		ossd_reply_etag(req, o.etag);
		ossd_reply_md5(req, o.md5);
		ossd_reply_crc(req, o.crc);
	}
	ossd_object_fini(&o);
	return r;
}

int ossd_op_append_object(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	uint64_t position = UINT64_MAX;
	char next[24];
	int r;

	if (!ossd_request_query(req, "position"))
		return OSSD_E_MISSING_ARGUMENT;
	r = ossd_request_number(req, "position", 0, 0, INT64_MAX, &position);
	if (r == 0)
		r = ossd_body_verify(req);
	if (r == 0)
		r = new_object(req, &o);
	if (r == 0)
		r = ossd_store_append(req->context->store, &ref, &req->spool, &o,
				      &position);
	if (r == 0) {
		ossd_reply_etag(req, o.etag);
		ossd_reply_crc(req, o.crc);
		ossd_reply_header_uint(req, "x-oss-next-append-position", position);
	}
	ossd_object_fini(&o);
	if (r != OSSD_E_POSITION)
		return r;
	ossd_reply_error(req, r, NULL);
	snprintf(next, sizeof(next), "%llu", (unsigned long long)position);
	ossd_reply_header(req, "x-oss-next-append-position", next);
	return 0;
}

/* ---- copy ------------------------------------------------------------------------------ */

static bool replaces(const struct ossd_request *req, const char *directive)
{
	const char *value = ossd_request_header(req, directive);

	return value && !strcasecmp(value, "REPLACE");
}

/* The destination's attributes: the source's or the request's (protocol.md §3.12). */
static int copy_attrs(struct ossd_request *req, const struct ossd_object *from,
		      bool in_place, struct ossd_object *to)
{
	const char *tags = ossd_object_attr(from, "x-oss-tagging");
	struct ossd_object taken = {0};
	int r = new_object(req, &taken);

	if (r) {
		ossd_object_fini(&taken);
		return r;
	}
	ossd_object_copy(to, from);
	to->storage_class = taken.storage_class;
	if (in_place || replaces(req, "x-oss-metadata-directive")) {
		const char *target = ossd_object_attr(from, "x-oss-symlink-target");

		buf_reset(&to->attrs);
		buf_append(&to->attrs, taken.attrs.data, taken.attrs.len);
		if (target)
			ossd_object_set_attr(to, "x-oss-symlink-target", target);
	} else {
		ossd_object_set_attr(to, "x-oss-object-acl",
				     ossd_object_attr(&taken, "x-oss-object-acl"));
	}
	if (replaces(req, "x-oss-tagging-directive"))
		tags = ossd_object_attr(&taken, "x-oss-tagging");
	ossd_object_set_attr(to, "x-oss-tagging", tags);
	ossd_object_fini(&taken);
	return 0;
}

/* Onto itself: only what the index knows changes, unless the content did meanwhile. */
static int replace_attrs(struct ossd_object *o, void *arg)
{
	struct ossd_object *with = arg;

	if (strcmp(o->etag, with->etag) != 0)
		return OSSD_E_PRECONDITION;
	buf_reset(&o->attrs);
	buf_append(&o->attrs, with->attrs.data, with->attrs.len);
	o->storage_class = with->storage_class;
	o->modified_ms = with->modified_ms = clock_real_ns() / 1000000;
	return 0;
}

static int copy_content(struct ossd_request *req, const struct ossd_object *from, int fd,
			struct ossd_object *to)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_put put = {
		.ref = ossd_request_ref(req),
		.spool = &spool,
		.object = to,
		.content_known = true,
		.forbid_overwrite = ossd_attrs_forbid_overwrite(req),
	};
	int r = ossd_store_spool(req->context->store, &spool);

	/* An appendable object's copy is a normal one: its ETag is the MD5 of what it has. */
	if (from->type == OSSD_APPENDABLE) {
		put.content_known = false;
		to->type = OSSD_NORMAL;
		to->etag[0] = '\0';
	}
	if (r == 0)
		r = ossd_spool_copy(&spool, fd, 0, from->size, !put.content_known);
	if (r == 0)
		r = ossd_spool_finish(&spool);
	return r ? r : ossd_store_put(req->context->store, &put);
}

int ossd_op_copy_object(struct ossd_request *req)
{
	_cleanup_(buf_fini) struct buf source_key = BUF_INIT;
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object from = {0}, to = {0};
	char bucket[OSSD_BUCKET_SIZE];
	bool in_place;
	int fd = -1;
	int r = ossd_source_open(req, bucket, &source_key, &from, &fd);

	in_place = r == 0 && !strcmp(bucket, ref.bucket) &&
		   source_key.len == ref.key_len &&
		   !memcmp(source_key.data, ref.key, ref.key_len);
	if (r == 0)
		r = copy_attrs(req, &from, in_place, &to);
	if (r == 0 && in_place)
		r = ossd_attrs_forbid_overwrite(req)
			    ? OSSD_E_FILE_EXISTS
			    : ossd_store_change(req->context->store, &ref, replace_attrs,
						&to);
	else if (r == 0)
		r = copy_content(req, &from, fd, &to);
	if (r == 0) {
		ossd_reply_etag(req, to.etag);
		ossd_reply_crc(req, to.crc);
		ossd_reply_header(req, "Content-Type", "application/xml");
		ossd_xml_document(&req->reply.body, "CopyObjectResult");
		ossd_xml_time(&req->reply.body, "LastModified", to.modified_ms);
		ossd_xml_etag(&req->reply.body, "ETag", to.etag);
		ossd_xml_end(&req->reply.body, "CopyObjectResult");
	}
	close_fdp(&fd);
	ossd_object_fini(&from);
	ossd_object_fini(&to);
	return r;
}

/* ---- delete ---------------------------------------------------------------------------- */

int ossd_op_delete_object(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);

	req->reply.status = 204;
	return ossd_store_delete(req->context->store, &ref);
}

static int delete_keys(struct ossd_request *req, const struct ossd_keys *keys,
		       bool encode)
{
	struct buf *xml = &req->reply.body;
	size_t limit = keys->count;
	int r = 0;

	if (ossd_faults_has(&req->faults, OSSD_FAULT_SHORT_DELETE) &&
	    req->faults.keep < limit)
		limit = (size_t)req->faults.keep;
	if (!keys->quiet) {
		ossd_xml_document(xml, "DeleteResult");
		if (encode)
			ossd_xml_text(xml, "EncodingType", "url");
	}
	for (size_t i = 0; i < limit && r == 0; i++) {
		const char *key = keys->items[i];
		struct ossd_ref ref = {req->target.bucket, key, strlen(key)};

		/* A key that could not be deleted is not listed (protocol.md §3.13). */
		if (!ossd_key_valid(key, ref.key_len))
			continue;
		r = ossd_store_delete(req->context->store, &ref);
		if (keys->quiet || r)
			continue;
		ossd_xml_begin(xml, "Deleted");
		ossd_xml_key(xml, "Key", key, ref.key_len, encode);
		ossd_xml_end(xml, "Deleted");
	}
	if (keys->quiet)
		return r;
	ossd_xml_end(xml, "DeleteResult");
	ossd_reply_header(req, "Content-Type", "application/xml");
	return r;
}

int ossd_op_delete_objects(struct ossd_request *req)
{
	const char *encoding = ossd_request_query(req, "encoding-type");
	bool encode = encoding && !strcmp(encoding, "url");
	struct ossd_bucket bucket;
	struct ossd_keys keys = {0};
	int r;

	if (!ossd_request_header(req, "content-length") &&
	    !ossd_request_header(req, "transfer-encoding"))
		return OSSD_E_MISSING_LENGTH;
	if (!req->s3 && !ossd_request_header(req, "content-md5"))
		return OSSD_E_MISSING_ARGUMENT;
	r = ossd_body_verify(req);
	if (r == 0)
		r = ossd_store_bucket(req->context->store, req->target.bucket, &bucket);
	if (r == 0)
		r = ossd_xml_parse_delete(&keys, req->body.data, req->body.len);
	if (r == 0)
		r = delete_keys(req, &keys, encode);
	ossd_keys_fini(&keys);
	return r;
}

/* ---- symbolic links -------------------------------------------------------------------- */

int ossd_op_put_symlink(struct ossd_request *req)
{
	const char *target = ossd_request_header(req, "x-oss-symlink-target");
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	_cleanup_(buf_fini) struct buf key = BUF_INIT;
	struct ossd_object o = {.type = OSSD_SYMLINK};
	struct ossd_put put = {
		.ref = ossd_request_ref(req),
		.spool = &spool,
		.object = &o,
		.forbid_overwrite = ossd_attrs_forbid_overwrite(req),
	};
	int r;

	if (!target || ossd_decode(&key, target, strlen(target)) < 0 ||
	    !ossd_key_valid(key.data, key.len))
		return OSSD_E_INVALID_ARGUMENT;
	r = new_object(req, &o);
	if (r == 0)
		r = ossd_store_spool(req->context->store, &spool);
	if (r == 0)
		r = ossd_spool_finish(&spool);
	if (r == 0) {
		snprintf(o.etag, sizeof(o.etag), "%016llX%016llX",
			 (unsigned long long)clock_random(),
			 (unsigned long long)clock_random());
		ossd_object_set_attr(&o, "x-oss-symlink-target", target);
		r = ossd_store_put(req->context->store, &put);
	}
	if (r == 0)
		ossd_reply_etag(req, o.etag);
	ossd_object_fini(&o);
	return r;
}

int ossd_op_get_symlink(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	int r = ossd_store_head(req->context->store, &ref, &o);

	if (r == 0 && o.type != OSSD_SYMLINK)
		r = OSSD_E_NOT_SYMLINK;
	if (r == 0) {
		ossd_attrs_show(req, &o);
		ossd_reply_header(req, "x-oss-symlink-target",
				  ossd_object_attr(&o, "x-oss-symlink-target"));
	}
	ossd_object_fini(&o);
	return r;
}
