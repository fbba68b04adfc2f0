/* SPDX-License-Identifier: Apache-2.0 */
/* ACL, tags and restoring of objects (protocol.md §3.16, §3.17). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "tools/ossd_attr.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_owner.h"
#include "tools/ossd_request.h"
#include "tools/ossd_xml.h"

struct attr {
	const char *name, *value;
};

static int set_attr(struct ossd_object *o, void *arg)
{
	const struct attr *attr = arg;

	ossd_object_set_attr(o, attr->name, attr->value);
	return 0;
}

static int change(struct ossd_request *req, const char *name, const char *value)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct attr attr = {name, value};

	return ossd_store_change(req->context->store, &ref, set_attr, &attr);
}

int ossd_op_get_object_acl(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	const char *acl;
	int r = ossd_store_head(req->context->store, &ref, &o);

	if (r)
		return r;
	acl = ossd_object_attr(&o, "x-oss-object-acl");
	ossd_acl_document(&req->reply.body, acl ? acl : "default");
	ossd_reply_header(req, "Content-Type", "application/xml");
	ossd_object_fini(&o);
	return 0;
}

int ossd_op_put_object_acl(struct ossd_request *req)
{
	const char *name = ossd_request_header(req, "x-oss-object-acl");
	enum ossd_acl acl;

	if (!name)
		return OSSD_E_MISSING_ARGUMENT;
	if (ossd_acl_parse(name, &acl) < 0)
		return OSSD_E_INVALID_ARGUMENT;
	return change(req, "x-oss-object-acl", name);
}

int ossd_op_get_tagging(struct ossd_request *req)
{
	struct ossd_ref ref = ossd_request_ref(req);
	struct ossd_object o = {0};
	const char *tags;
	int r = ossd_store_head(req->context->store, &ref, &o);

	if (r)
		return r;
	tags = ossd_object_attr(&o, "x-oss-tagging");
	ossd_xml_format_tagging(&req->reply.body, tags ? tags : "");
	ossd_reply_header(req, "Content-Type", "application/xml");
	ossd_object_fini(&o);
	return 0;
}

int ossd_op_put_tagging(struct ossd_request *req)
{
	_cleanup_(buf_fini) struct buf tags = BUF_INIT;
	int r = ossd_xml_parse_tagging(&tags, req->body.data, req->body.len);

	return r ? r : change(req, "x-oss-tagging", tags.len ? tags.data : NULL);
}

int ossd_op_delete_tagging(struct ossd_request *req)
{
	req->reply.status = 204;
	return change(req, "x-oss-tagging", NULL);
}

struct restoration {
	int64_t now_ms;
	bool again;
};

/* The time when it will be readable goes into an attribute (ossd_attr.h). */
static int restore(struct ossd_object *o, void *arg)
{
	struct restoration *restoration = arg;
	char text[24];

	if (o->storage_class < OSSD_ARCHIVE)
		return OSSD_E_NOT_SUPPORTED;
	switch (ossd_restore_state(o, restoration->now_ms)) {
	case OSSD_RESTORE_RUNNING:
		return OSSD_E_RESTORE_IN_PROGRESS;
	case OSSD_RESTORE_DONE:
		restoration->again = true;
		return 0;
	case OSSD_RESTORE_NONE:
		break;
	}
	snprintf(text, sizeof(text), "%" PRId64, restoration->now_ms + OSSD_RESTORE_MS);
	ossd_object_set_attr(o, OSSD_RESTORE_ATTR, text);
	return 0;
}

int ossd_op_restore(struct ossd_request *req)
{
	struct restoration restoration = {.now_ms = ossd_request_now_ms(req)};
	struct ossd_ref ref = ossd_request_ref(req);
	int r = ossd_store_change(req->context->store, &ref, restore, &restoration);

	req->reply.status = restoration.again ? 200 : 202;
	return r;
}
