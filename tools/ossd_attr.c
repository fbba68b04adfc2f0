/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_attr.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/ossd_code.h"
#include "tools/ossd_mime.h"
#include "tools/ossd_request.h"
#include "tools/ossd_time.h"

#define META "x-oss-meta-"
#define TAGS_MAX 10
#define ENCRYPTION "x-oss-server-side-encryption"
#define DAY_MS (24 * 60 * 60 * 1000)

static const char *const stored[] = {
	"content-type",     "cache-control",    "content-disposition",
	"content-encoding", "content-language", "expires",
	ENCRYPTION,
};

/* Parameters of a GET that replace a stored header. */
static const struct {
	const char *parameter, *header;
} overrides[] = {
	{"response-content-type", "content-type"},
	{"response-cache-control", "cache-control"},
	{"response-content-disposition", "content-disposition"},
	{"response-content-encoding", "content-encoding"},
	{"response-content-language", "content-language"},
	{"response-expires", "expires"},
};

bool ossd_attrs_forbid_overwrite(const struct ossd_request *req)
{
	const char *value = ossd_request_header(req, "x-oss-forbid-overwrite");

	return value && !strcasecmp(value, "true");
}

static int take_meta(const struct ossd_request *req, struct ossd_object *o)
{
	size_t total = 0;

	for (size_t i = 0; i < req->header_count; i++) {
		const char *name = req->headers[i].name, *value = req->headers[i].value;
		char lower[256];
		size_t n = strlen(name);

		if (strncasecmp(name, META, strlen(META)) != 0)
			continue;
		total += n - strlen(META) + (value ? strlen(value) : 0);
		if (n >= sizeof(lower) || n == strlen(META) || total > OSSD_META_MAX)
			return OSSD_E_INVALID_ARGUMENT;
		for (size_t k = 0; k <= n; k++)
			lower[k] = (char)tolower((unsigned char)name[k]);
		ossd_object_set_attr(o, lower, value ? value : "");
	}
	return 0;
}

/* x-oss-tagging: "k1=v1&k2=v2". */
static int take_tags(const struct ossd_request *req, struct ossd_object *o)
{
	const char *tags = ossd_request_header(req, "x-oss-tagging");
	int count = 1;

	if (!tags || !*tags)
		return 0;
	for (const char *c = tags; *c; c++)
		count += *c == '&';
	if (count > TAGS_MAX)
		return OSSD_E_INVALID_TAG;
	ossd_object_set_attr(o, "x-oss-tagging", tags);
	return 0;
}

int ossd_attrs_take(struct ossd_request *req, const struct ossd_bucket *bucket,
		    struct ossd_object *o)
{
	const char *class_name = ossd_request_header(req, "x-oss-storage-class");
	const char *acl_name = ossd_request_header(req, "x-oss-object-acl");
	const char *encryption = ossd_request_header(req, ENCRYPTION);
	enum ossd_acl acl;
	int r;

	/* Said and shown again, not done. */
	if (encryption && strcmp(encryption, "AES256") != 0 &&
	    strcmp(encryption, "KMS") != 0 && strcmp(encryption, "SM4") != 0)
		return OSSD_E_INVALID_ARGUMENT;
	for (size_t i = 0; i < sizeof(stored) / sizeof(*stored); i++) {
		const char *value = ossd_request_header(req, stored[i]);

		if (value && *value)
			ossd_object_set_attr(o, stored[i], value);
	}
	if (!ossd_object_attr(o, "content-type"))
		ossd_object_set_attr(
			o, "content-type",
			ossd_mime_type(req->target.key.data, req->target.key.len));
	o->storage_class = bucket->storage_class;
	if (class_name && ossd_class_parse(class_name, &o->storage_class) < 0)
		return OSSD_E_INVALID_ARGUMENT;
	if (acl_name && ossd_acl_parse(acl_name, &acl) < 0)
		return OSSD_E_INVALID_ARGUMENT;
	if (acl_name)
		ossd_object_set_attr(o, "x-oss-object-acl", acl_name);
	r = take_tags(req, o);
	return r ? r : take_meta(req, o);
}

enum ossd_restore ossd_restore_state(const struct ossd_object *o, int64_t now_ms)
{
	const char *done = ossd_object_attr(o, OSSD_RESTORE_ATTR);
	int64_t done_ms = done ? strtoll(done, NULL, 10) : 0;

	if (!done || now_ms > done_ms + DAY_MS)
		return OSSD_RESTORE_NONE;
	return now_ms < done_ms ? OSSD_RESTORE_RUNNING : OSSD_RESTORE_DONE;
}

static void show_restore(struct ossd_request *req, const struct ossd_object *o)
{
	char date[OSSD_TIME_SIZE], text[OSSD_TIME_SIZE + 64];

	switch (ossd_restore_state(o, ossd_request_now_ms(req))) {
	case OSSD_RESTORE_NONE:
		break;
	case OSSD_RESTORE_RUNNING:
		ossd_reply_header(req, "x-oss-restore", "ongoing-request=\"true\"");
		break;
	case OSSD_RESTORE_DONE:
		ossd_time_http(date,
			       strtoll(ossd_object_attr(o, OSSD_RESTORE_ATTR), NULL, 10) +
				       DAY_MS);
		snprintf(text, sizeof(text),
			 "ongoing-request=\"false\", expiry-date=\"%s\"", date);
		ossd_reply_header(req, "x-oss-restore", text);
		break;
	}
}

static const char *replacement(const struct ossd_request *req, const char *header)
{
	for (size_t i = 0; i < sizeof(overrides) / sizeof(*overrides); i++)
		if (!strcmp(overrides[i].header, header))
			return ossd_request_query(req, overrides[i].parameter);
	return NULL;
}

/* Of the x-oss- attributes; the others are the server's own. */
static bool is_public(const char *name)
{
	return !strncmp(name, META, strlen(META)) || !strcmp(name, ENCRYPTION);
}

static void show_tag_count(struct ossd_request *req, const char *tags)
{
	uint64_t count = *tags != '\0';

	for (; *tags; tags++)
		count += *tags == '&';
	ossd_reply_header_uint(req, "x-oss-tagging-count", count);
}

void ossd_attrs_show(struct ossd_request *req, const struct ossd_object *o)
{
	char date[OSSD_TIME_SIZE];
	const char *name, *value;
	size_t at = 0;

	while (ossd_object_next_attr(o, &at, &name, &value)) {
		if (!strcmp(name, "x-oss-tagging"))
			show_tag_count(req, value);
		else if (strncmp(name, "x-oss-", 6) != 0 ? !replacement(req, name)
							 : is_public(name))
			ossd_reply_header(req, name, value);
	}
	for (size_t i = 0; i < sizeof(overrides) / sizeof(*overrides); i++) {
		value = ossd_request_query(req, overrides[i].parameter);
		if (value)
			ossd_reply_header(req, overrides[i].header, value);
	}
	ossd_reply_etag(req, o->etag);
	ossd_reply_header(req, "Last-Modified", ossd_time_http(date, o->modified_ms));
	ossd_reply_header(req, "Accept-Ranges", "bytes");
	ossd_reply_header(req, "x-oss-object-type", ossd_type_name(o->type));
	ossd_reply_header(req, "x-oss-storage-class", ossd_class_name(o->storage_class));
	if (o->type != OSSD_SYMLINK)
		ossd_reply_crc(req, o->crc);
	if (o->has_md5)
		ossd_reply_md5(req, o->md5);
	show_restore(req, o);
	if (o->type == OSSD_APPENDABLE)
		ossd_reply_header_uint(req, "x-oss-next-append-position", o->size);
}
