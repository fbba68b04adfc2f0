/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_object.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/err.h"

#define FORMAT 1

static const char *const type_names[] = {"Normal", "Multipart", "Appendable", "Symlink"};
static_assert(sizeof(type_names) / sizeof(*type_names) == OSSD_TYPE_N, "type names");
static const char *const class_names[] = {"Standard", "IA", "Archive", "ColdArchive",
					  "DeepColdArchive"};
static_assert(sizeof(class_names) / sizeof(*class_names) == OSSD_CLASS_N, "class names");

/* The fixed part on disk. Local to one machine: the machine's byte order. */
struct fixed {
	uint8_t format;
	uint8_t type;
	uint8_t storage_class;
	uint8_t flags;
	uint32_t attrs_len;
	uint64_t size, crc, ino;
	int64_t file_time_ns, modified_ms;
	unsigned char md5[16];
	char etag[OSSD_ETAG_SIZE];
};
static_assert(sizeof(struct fixed) == 8 + 5 * 8 + 16 + OSSD_ETAG_SIZE, "no padding");

enum {
	FLAG_MD5 = 1,
	FLAG_ODD = 2
};

const char *ossd_type_name(enum ossd_type type)
{
	return type_names[type];
}

const char *ossd_class_name(enum ossd_class storage_class)
{
	return class_names[storage_class];
}

int ossd_class_parse(const char *name, enum ossd_class *out)
{
	for (int i = 0; i < OSSD_CLASS_N; i++) {
		if (!strcmp(class_names[i], name)) {
			*out = (enum ossd_class)i;
			return 0;
		}
	}
	return -EINVAL;
}

void ossd_object_fini(struct ossd_object *o)
{
	buf_fini(&o->attrs);
}

void ossd_object_copy(struct ossd_object *to, const struct ossd_object *from)
{
	*to = *from;
	to->attrs = BUF_INIT;
	buf_append(&to->attrs, from->attrs.data, from->attrs.len);
}

const char *ossd_attr_find(const char *attrs, size_t n, const char *name)
{
	const char *end = attrs + n;

	while (attrs < end) {
		const char *value = attrs + strlen(attrs) + 1;

		if (!strcmp(attrs, name))
			return value;
		attrs = value + strlen(value) + 1;
	}
	return NULL;
}

const char *ossd_object_attr(const struct ossd_object *o, const char *name)
{
	return o->attrs.len ? ossd_attr_find(o->attrs.data, o->attrs.len, name) : NULL;
}

void ossd_object_set_attr(struct ossd_object *o, const char *name, const char *value)
{
	const char *old = ossd_object_attr(o, name);

	if (old) {
		size_t start = (size_t)(old - o->attrs.data) - strlen(name) - 1;
		size_t end = (size_t)(old - o->attrs.data) + strlen(old) + 1;

		memmove(o->attrs.data + start, o->attrs.data + end, o->attrs.len - end);
		o->attrs.len -= end - start;
	}
	if (!value)
		return;
	buf_append(&o->attrs, name, strlen(name) + 1);
	buf_append(&o->attrs, value, strlen(value) + 1);
}

bool ossd_object_next_attr(const struct ossd_object *o, size_t *at, const char **name,
			   const char **value)
{
	if (*at >= o->attrs.len)
		return false;
	*name = o->attrs.data + *at;
	*value = *name + strlen(*name) + 1;
	*at = (size_t)(*value - o->attrs.data) + strlen(*value) + 1;
	return true;
}

void ossd_object_etag_from_md5(struct ossd_object *o)
{
	for (int i = 0; i < 16; i++)
		snprintf(o->etag + (ptrdiff_t)2 * i, 3, "%02X", o->md5[i]);
}

void ossd_object_encode(struct buf *out, const struct ossd_object *o)
{
	struct fixed f = {
		.format = FORMAT,
		.type = (uint8_t)o->type,
		.storage_class = (uint8_t)o->storage_class,
		.flags = (uint8_t)((o->has_md5 ? FLAG_MD5 : 0) | (o->odd ? FLAG_ODD : 0)),
		.attrs_len = (uint32_t)o->attrs.len,
		.size = o->size,
		.crc = o->crc,
		.ino = o->ino,
		.file_time_ns = o->file_time_ns,
		.modified_ms = o->modified_ms,
	};

	memcpy(f.md5, o->md5, sizeof(f.md5));
	memcpy(f.etag, o->etag, sizeof(f.etag));
	buf_append(out, &f, sizeof(f));
	buf_append(out, o->attrs.data, o->attrs.len);
}

int ossd_object_decode(struct ossd_object *o, const void *data, size_t n)
{
	const char *attrs = (const char *)data + sizeof(struct fixed);
	struct fixed f;

	if (n < sizeof(f))
		return err_origin(-EINVAL);
	memcpy(&f, data, sizeof(f));
	if (f.format != FORMAT || f.type >= OSSD_TYPE_N ||
	    f.storage_class >= OSSD_CLASS_N || f.attrs_len != n - sizeof(f) ||
	    (f.attrs_len && attrs[f.attrs_len - 1]) || f.etag[OSSD_ETAG_SIZE - 1])
		return err_origin(-EINVAL);
	*o = (struct ossd_object){
		.type = f.type,
		.storage_class = f.storage_class,
		.has_md5 = f.flags & FLAG_MD5,
		.odd = f.flags & FLAG_ODD,
		.size = f.size,
		.crc = f.crc,
		.ino = f.ino,
		.file_time_ns = f.file_time_ns,
		.modified_ms = f.modified_ms,
	};
	memcpy(o->md5, f.md5, sizeof(f.md5));
	memcpy(o->etag, f.etag, sizeof(f.etag));
	buf_append(&o->attrs, attrs, f.attrs_len);
	return err_trace(buf_error(&o->attrs));
}
