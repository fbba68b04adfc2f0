/* SPDX-License-Identifier: Apache-2.0 */
/* GetObject, HeadObject, GetObjectMeta (protocol.md §3.9, §3.10). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/cleanup.h"
#include "tools/ossd_attr.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_range.h"
#include "tools/ossd_request.h"
#include "tools/ossd_time.h"
#include "tools/ossd_xml.h"

/* What a link leads to: content, ETag and digests of the target; everything else is the
 * link's own. `fd` NULL: no content is wanted. */
static int follow(struct ossd_request *req, struct ossd_object *o, int *fd)
{
	const char *encoded = ossd_object_attr(o, "x-oss-symlink-target");
	_cleanup_(buf_fini) struct buf key = BUF_INIT;
	struct ossd_object target = {0};
	struct ossd_ref ref;
	int r;

	if (!encoded || ossd_decode(&key, encoded, strlen(encoded)) < 0 || !key.len)
		return OSSD_E_SYMLINK_TARGET;
	ref = (struct ossd_ref){req->target.bucket, key.data, key.len};
	r = fd ? ossd_store_open_object(req->context->store, &ref, &target, fd)
	       : ossd_store_head(req->context->store, &ref, &target);
	if (r)
		return r == OSSD_E_NO_SUCH_KEY ? OSSD_E_SYMLINK_TARGET : r;
	if (target.type == OSSD_SYMLINK)
		r = OSSD_E_INVALID_TARGET_TYPE;
	o->size = target.size;
	o->crc = target.crc;
	o->has_md5 = target.has_md5;
	memcpy(o->md5, target.md5, sizeof(o->md5));
	memcpy(o->etag, target.etag, sizeof(o->etag));
	if (target.modified_ms > o->modified_ms)
		o->modified_ms = target.modified_ms;
	ossd_object_fini(&target);
	return r;
}

static int find(struct ossd_request *req, struct ossd_object *o, int *fd)
{
	struct ossd_ref ref = ossd_request_ref(req);
	const char *version = ossd_request_query(req, "versionId");
	int link = -1, r;

	if (version && strcmp(version, "null") != 0)
		return OSSD_E_NO_SUCH_VERSION;
	r = fd ? ossd_store_open_object(req->context->store, &ref, o, fd)
	       : ossd_store_head(req->context->store, &ref, o);
	if (r || o->type != OSSD_SYMLINK)
		return r;
	if (fd) {
		link = *fd;
		*fd = -1;
	}
	close_fdp(&link);
	return follow(req, o, fd);
}

static int check_conditions(struct ossd_request *req, const struct ossd_object *o)
{
	struct ossd_conditions c = {
		.match = ossd_request_header(req, "if-match"),
		.none_match = ossd_request_header(req, "if-none-match"),
		.modified_since = ossd_request_header(req, "if-modified-since"),
		.unmodified_since = ossd_request_header(req, "if-unmodified-since"),
	};

	return ossd_conditions_check(&c, o->etag, o->modified_ms);
}

static int set_range(struct ossd_request *req, const struct ossd_object *o)
{
	const char *behaviour = ossd_request_header(req, "x-oss-range-behavior");
	const char *value = ossd_request_header(req, "range");
	bool standard = behaviour && !strcmp(behaviour, "standard");
	char text[96];

	if (ossd_faults_has(&req->faults, OSSD_FAULT_IGNORE_RANGE))
		value = NULL;
	switch (ossd_range_parse(value, o->size, standard, &req->reply.offset,
				 &req->reply.length)) {
	case OSSD_RANGE_INVALID:
		ossd_xml_uint(&req->error_extra, "ActualObjectSize", o->size);
		ossd_xml_text(&req->error_extra, "RangeRequested", value);
		return OSSD_E_INVALID_RANGE;
	case OSSD_RANGE_PART:
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
			 req->reply.offset, req->reply.offset + req->reply.length - 1,
			 o->size);
		req->reply.status = 206;
		ossd_reply_header(req, "Content-Range", text);
		break;
	case OSSD_RANGE_WHOLE:
		break;
	}
	return 0;
}

static int get(struct ossd_request *req, struct ossd_object *o)
{
	int r = find(req, o, &req->reply.fd);

	if (r == 0 && o->storage_class >= OSSD_ARCHIVE &&
	    ossd_restore_state(o, ossd_request_now_ms(req)) != OSSD_RESTORE_DONE)
		r = OSSD_E_INVALID_OBJECT_STATE;
	if (r == 0)
		r = check_conditions(req, o);
	if (r == 0)
		r = set_range(req, o);
	if (r == 0)
		ossd_attrs_show(req, o);
	return r;
}

int ossd_op_get_object(struct ossd_request *req)
{
	struct ossd_object o = {0};
	int r = get(req, &o);

	ossd_object_fini(&o);
	return r;
}

int ossd_op_head_object(struct ossd_request *req)
{
	struct ossd_object o = {0};
	int r = find(req, &o, NULL);

	if (r == 0)
		r = check_conditions(req, &o);
	if (r == 0)
		r = set_range(req, &o);
	if (r == 0)
		ossd_attrs_show(req, &o);
	ossd_object_fini(&o);
	return r;
}

int ossd_op_get_object_meta(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	char date[OSSD_TIME_SIZE];
	int r = ossd_store_head(req->context->store, &ref, &o);

	if (r)
		return r;
	ossd_reply_etag(req, o.etag);
	ossd_reply_header(req, "Last-Modified", ossd_time_http(date, o.modified_ms));
	ossd_reply_crc(req, o.crc);
	if (!strcmp(req->method, "HEAD"))
		req->reply.length = o.size;
	ossd_object_fini(&o);
	return 0;
}
