/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of the journal: what they say, and how they stand in bytes
 * (cache/JOURNAL.md, "Records"). Pure.
 *
 * A NODE record is the whole state of one node of /output, so that the last one wins and
 * replaying any of them twice changes nothing; one whose content is sparse is followed by a
 * RANGES record. DROP takes the node away again. BEGIN, PART, ENDING and END are the life of
 * a multipart upload of that node. A directory's NODE is followed by its SOURCEs. DATA comes in the same transaction as the NODE that
 * acknowledges the version.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"
#include "cache/ranges.h"

struct buf;

enum record_type {
	RECORD_NODE = 1, /* the whole state of a node */
	RECORD_DROP,     /* the node needs the journal no more */
	RECORD_BEGIN,    /* an upload id; an empty one: about to ask for it */
	RECORD_PART,     /* one part the store has acknowledged */
	RECORD_END,      /* the upload is finished or given up */
	RECORD_SNAPSHOT, /* all records before it in this file are a complete state */
	RECORD_CLOSED,   /* written last by an orderly exit */
	RECORD_DATA,     /* the bytes of a version, when they are few */
	RECORD_RANGES,   /* which bytes of the node's content are its own */
	RECORD_ENDING,   /* all parts are recorded, the upload may be complete */
	RECORD_APPEND,   /* the object that the content needs may have been appended to */
	RECORD_SOURCE,   /* a prefix that the directory's children may still have */
	RECORD_TYPE_N
};
const char *record_type_name(enum record_type type);

enum record_kind {
	RECORD_FILE,
	RECORD_DIR,
	RECORD_SYMLINK,
	RECORD_GARBAGE,
	RECORD_KIND_N
};

enum record_flag {
	RECORD_LINKED = 1 << 0,     /* it has a name in the tree; else it is to vanish */
	RECORD_META_DIRTY = 1 << 1, /* the attributes in the store are older than these */
	RECORD_MARKER = 1 << 2,     /* a directory that must have a marker object */
	RECORD_HAS_CONTENT = 1 << 3, /* `content` names an acknowledged version */
	RECORD_HAS_STORED = 1 << 4,  /* `stored_*` names an object of the store */
	RECORD_STORED_CRC = 1 << 5,  /* stored_crc64 is known */
	RECORD_CARRIED = 1 << 6,     /* a DATA record has the acknowledged version */
	RECORD_SPARSE = 1 << 7,      /* a RANGES record says what `content` holds */
	RECORD_APPENDABLE = 1 << 8,  /* the stored object can be appended to */
};

enum record_ranges_flag {
	RECORD_RANGES_CRC = 1 << 0, /* object_crc64 is known */
};
#define RECORD_RANGES_FORMAT 1

/* Strings are borrowed from the encoder's caller, or point into the decoded bytes; they
 * are terminated by NUL in both cases. Fields that a type does not use are zero or "". */
struct record {
	enum record_type type;
	uint64_t ino;

	/* NODE */
	enum record_kind kind;
	uint32_t flags; /* enum record_flag */
	uint64_t parent;
	const char *name;
	uint32_t mode, uid, gid;
	int64_t mtime_ns, ctime_ns;
	uint64_t version;        /* of the acknowledged content, counted per node */
	uint64_t stored_version; /* the one that the store has */
	uint64_t content;        /* id of the staged file */
	uint64_t content_size;   /* bytes of it that belong to the version; of `data` */
	int64_t pending_ns;      /* real time since which something is to be sent */
	const char *target;      /* of a symbolic link */
	const char *stored_key;
	const char *stored_etag;
	uint64_t stored_size, stored_crc64;
	int64_t stored_mtime_ns;

	/* DATA, with version and content_size */
	const char *data;

	/* BEGIN, PART, APPEND; key: SOURCE too */
	const char *key;
	const char *upload_id;
	uint64_t part_size; /* BEGIN; of the first parts, cache/upload_schedule.h */
	uint32_t part;      /* PART: 1-based */
	const char *etag;
	uint64_t crc64, size;
	uint64_t off; /* PART: in the object */

	/* RANGES, with `flags`, `content`, `etag`, `size` and `crc64` of the object */
	uint64_t len;             /* bytes of the object that are still the content's */
	const struct ranges *own; /* to encode: below `len`, what the content holds */
	const char *raw_ranges;   /* decoded: read it with record_range() */
	uint32_t range_count;
};

/* Appends the record; failures show in buf_error(). */
void record_encode(struct buf *b, const struct record *r);

/* One of the decoded ranges: sorted, apart from each other, below `len`. */
struct range record_range(const struct record *r, uint32_t i);

/* Takes the first record off `*p`, `*n` bytes, and moves both behind it. The strings point
 * into the bytes. -EBADMSG: not a record (the caller has checked the frame's CRC, so this
 * is a newer format or our mistake). */
int record_decode(const char **p, size_t *n, struct record *r);
