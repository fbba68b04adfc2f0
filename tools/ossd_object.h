/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index knows of one object, and its form on disk. Pure.
 *
 * Attributes are pairs of strings: response headers under their lower-case names
 * (content-type, cache-control, x-oss-meta-…) and the server's own: x-oss-object-acl,
 * x-oss-tagging, x-oss-symlink-target.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/buf.h"

enum ossd_type {
	OSSD_NORMAL,
	OSSD_MULTIPART,
	OSSD_APPENDABLE,
	OSSD_SYMLINK,
	OSSD_TYPE_N
};
const char *ossd_type_name(enum ossd_type type);

enum ossd_class {
	OSSD_STANDARD,
	OSSD_IA,
	OSSD_ARCHIVE,
	OSSD_COLD_ARCHIVE,
	OSSD_DEEP_COLD_ARCHIVE,
	OSSD_CLASS_N
};
const char *ossd_class_name(enum ossd_class storage_class);
/* -EINVAL for a name that is none. */
int ossd_class_parse(const char *name, enum ossd_class *out);

#define OSSD_ETAG_SIZE 48

struct ossd_object {
	enum ossd_type type;
	enum ossd_class storage_class;
	bool has_md5;
	bool odd;      /* lies under .ossd/odd (ossd_key.h) */
	uint64_t size; /* bytes of content */
	uint64_t crc;  /* CRC-64 of the content */
	uint64_t ino;  /* of the file; with size and time: "the file is the one that
			       * was indexed" */
	int64_t file_time_ns; /* its modification time */
	int64_t modified_ms;  /* Last-Modified */
	unsigned char md5[16];
	char etag[OSSD_ETAG_SIZE]; /* upper case, without quotes */
	struct buf attrs;          /* "name\0value\0"… */
};

void ossd_object_fini(struct ossd_object *o);
/* A copy of its own. */
void ossd_object_copy(struct ossd_object *to, const struct ossd_object *from);

/* NULL: no such attribute. Valid until the next change. */
const char *ossd_object_attr(const struct ossd_object *o, const char *name);
/* Replaces or adds; value NULL removes. */
void ossd_object_set_attr(struct ossd_object *o, const char *name, const char *value);
/* Walks: *at starts at 0. False at the end. */
bool ossd_object_next_attr(const struct ossd_object *o, size_t *at, const char **name,
			   const char **value);

/* The ETag that the MD5 gives. */
void ossd_object_etag_from_md5(struct ossd_object *o);

/* On-disk form (tools/README.md, "the index"): appended; decoded into an object whose
 * attributes are its own. -EINVAL for what is none. */
void ossd_object_encode(struct buf *out, const struct ossd_object *o);
int ossd_object_decode(struct ossd_object *o, const void *data, size_t n);

/* Attributes alone, for bucket and upload records: same pairs. */
const char *ossd_attr_find(const char *attrs, size_t n, const char *name);
