/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/record.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/path.h"

static const char *const type_names[] = {
	"none",   "node", "drop",   "begin",  "part",   "end",    "snapshot",
	"closed", "data", "ranges", "ending", "append", "source",
};
static_assert(sizeof(type_names) / sizeof(*type_names) == RECORD_TYPE_N, "record types");

const char *record_type_name(enum record_type type)
{
	return type < RECORD_TYPE_N ? type_names[type] : "unknown";
}

static void put_u32(struct buf *b, uint32_t v)
{
	v = htole32(v);
	buf_append(b, &v, sizeof(v));
}

static void put_u64(struct buf *b, uint64_t v)
{
	v = htole64(v);
	buf_append(b, &v, sizeof(v));
}

/* Length, bytes, NUL: the NUL lets the decoder hand out pointers into the frame. */
static void put_string(struct buf *b, const char *s)
{
	size_t n = s ? strlen(s) : 0;

	check(n < UINT32_MAX);
	put_u32(b, (uint32_t)n);
	buf_append(b, s ? s : "", n);
	buf_putc(b, '\0');
}

static void put_node(struct buf *b, const struct record *r)
{
	put_u32(b, r->kind);
	put_u32(b, r->flags);
	put_u64(b, r->parent);
	put_u32(b, r->mode);
	put_u32(b, r->uid);
	put_u32(b, r->gid);
	put_u64(b, (uint64_t)r->mtime_ns);
	put_u64(b, (uint64_t)r->ctime_ns);
	put_u64(b, r->version);
	put_u64(b, r->stored_version);
	put_u64(b, r->content);
	put_u64(b, r->content_size);
	put_u64(b, (uint64_t)r->pending_ns);
	put_u64(b, r->stored_size);
	put_u64(b, r->stored_crc64);
	put_u64(b, (uint64_t)r->stored_mtime_ns);
	put_string(b, r->name);
	put_string(b, r->target);
	put_string(b, r->stored_key);
	put_string(b, r->stored_etag);
}

static void put_ranges(struct buf *b, const struct record *r)
{
	put_u32(b, RECORD_RANGES_FORMAT);
	put_u32(b, r->flags);
	put_u64(b, r->content);
	put_u64(b, r->size);
	put_u64(b, r->crc64);
	put_u64(b, r->len);
	put_string(b, r->etag);
	put_u32(b, (uint32_t)r->own->count);
	for (size_t i = 0; i < r->own->count; i++) {
		put_u64(b, r->own->list[i].off);
		put_u64(b, r->own->list[i].end);
	}
}

void record_encode(struct buf *b, const struct record *r)
{
	size_t start = b->len;
	uint32_t n;

	put_u32(b, 0); /* length, known below */
	put_u32(b, r->type);
	put_u64(b, r->ino);
	switch (r->type) {
	case RECORD_NODE:
		put_node(b, r);
		break;
	case RECORD_BEGIN:
		put_u64(b, r->version);
		put_u64(b, r->part_size);
		put_u64(b, r->size);
		put_u64(b, (uint64_t)r->pending_ns);
		put_string(b, r->key);
		put_string(b, r->upload_id);
		break;
	case RECORD_PART:
		put_u32(b, r->part);
		put_u64(b, r->size);
		put_u64(b, r->crc64);
		put_string(b, r->etag);
		put_u64(b, r->off);
		break;
	case RECORD_APPEND:
		put_u64(b, r->version);
		put_u64(b, r->size);
		put_u64(b, r->crc64);
		put_string(b, r->key);
		break;
	case RECORD_RANGES:
		put_ranges(b, r);
		break;
	case RECORD_SOURCE:
		put_string(b, r->key);
		break;
	case RECORD_DATA:
		put_u64(b, r->version);
		put_u64(b, r->content_size);
		buf_append(b, r->data, (size_t)r->content_size);
		break;
	default:
		break;
	}
	if (buf_error(b) < 0)
		return;
	n = htole32((uint32_t)(b->len - start));
	memcpy(b->data + start, &n, sizeof(n));
}

/* What is left of one record; any short read poisons it. */
struct reader {
	const char *p;
	size_t n;
	bool bad;
};

static const char *take(struct reader *in, size_t n)
{
	const char *p = in->p;

	if (in->bad || in->n < n) {
		in->bad = true;
		return NULL;
	}
	in->p += n;
	in->n -= n;
	return p;
}

static uint32_t get_u32(struct reader *in)
{
	const char *p = take(in, sizeof(uint32_t));
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get_u64(struct reader *in)
{
	const char *p = take(in, sizeof(uint64_t));
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static const char *get_string(struct reader *in)
{
	uint32_t n = get_u32(in);
	const char *p = take(in, (size_t)n + 1);

	if (!p)
		return "";
	if (p[n] != '\0' || memchr(p, '\0', n)) {
		in->bad = true;
		return "";
	}
	return p;
}

static void get_node(struct reader *in, struct record *r)
{
	r->kind = get_u32(in);
	r->flags = get_u32(in);
	r->parent = get_u64(in);
	r->mode = get_u32(in);
	r->uid = get_u32(in);
	r->gid = get_u32(in);
	r->mtime_ns = (int64_t)get_u64(in);
	r->ctime_ns = (int64_t)get_u64(in);
	r->version = get_u64(in);
	r->stored_version = get_u64(in);
	r->content = get_u64(in);
	r->content_size = get_u64(in);
	r->pending_ns = (int64_t)get_u64(in);
	r->stored_size = get_u64(in);
	r->stored_crc64 = get_u64(in);
	r->stored_mtime_ns = (int64_t)get_u64(in);
	r->name = get_string(in);
	r->target = get_string(in);
	r->stored_key = get_string(in);
	r->stored_etag = get_string(in);
	if (r->kind >= RECORD_KIND_N || strlen(r->stored_etag) >= ORIGIN_ETAG_MAX)
		in->bad = true;
}

struct range record_range(const struct record *r, uint32_t i)
{
	struct reader in = {r->raw_ranges + (size_t)i * 16, 16, false};
	struct range range;

	check(i < r->range_count);
	range.off = get_u64(&in);
	range.end = get_u64(&in);
	return range;
}

static void get_ranges(struct reader *in, struct record *r)
{
	uint64_t last = 0;

	if (get_u32(in) != RECORD_RANGES_FORMAT)
		in->bad = true;
	r->flags = get_u32(in);
	r->content = get_u64(in);
	r->size = get_u64(in);
	r->crc64 = get_u64(in);
	r->len = get_u64(in);
	r->etag = get_string(in);
	r->range_count = get_u32(in);
	r->raw_ranges = take(in, (size_t)r->range_count * 16);
	in->bad |= r->etag[0] == '\0' || strlen(r->etag) >= ORIGIN_ETAG_MAX ||
		   r->len > r->size;
	for (uint32_t i = 0; !in->bad && i < r->range_count; i++) {
		struct range range = record_range(r, i);

		in->bad |= range.off >= range.end || range.end > r->len ||
			   (i > 0 && range.off <= last);
		last = range.end;
	}
}

static bool ends_in_slash(const char *s)
{
	return s[0] && s[strlen(s) - 1] == '/';
}

static void get_fields(struct reader *in, struct record *r)
{
	switch (r->type) {
	case RECORD_NODE:
		get_node(in, r);
		break;
	case RECORD_BEGIN:
		r->version = get_u64(in);
		r->part_size = get_u64(in);
		r->size = get_u64(in);
		r->pending_ns = (int64_t)get_u64(in);
		r->key = get_string(in);
		r->upload_id = get_string(in);
		in->bad |= strlen(r->upload_id) >= ORIGIN_UPLOAD_ID_MAX;
		break;
	case RECORD_PART:
		r->part = get_u32(in);
		r->size = get_u64(in);
		r->crc64 = get_u64(in);
		r->etag = get_string(in);
		/* Formats 1 and 2 had equal parts only and did not say where they are. */
		r->off = in->n > 0 ? get_u64(in) : UINT64_MAX;
		in->bad |= r->part == 0 || r->part > ORIGIN_PART_COUNT_MAX ||
			   strlen(r->etag) >= ORIGIN_ETAG_MAX;
		break;
	case RECORD_DATA:
		r->version = get_u64(in);
		r->content_size = get_u64(in);
		r->data = take(in, r->content_size);
		break;
	case RECORD_APPEND:
		r->version = get_u64(in);
		r->size = get_u64(in);
		r->crc64 = get_u64(in);
		r->key = get_string(in);
		break;
	case RECORD_RANGES:
		get_ranges(in, r);
		break;
	case RECORD_SOURCE:
		r->key = get_string(in);
		in->bad |= strlen(r->key) > PATH_KEY_MAX || !ends_in_slash(r->key);
		break;
	case RECORD_ENDING:
	case RECORD_DROP:
	case RECORD_END:
	case RECORD_SNAPSHOT:
	case RECORD_CLOSED:
		break;
	default:
		in->bad = true;
	}
}

int record_decode(const char **p, size_t *n, struct record *r)
{
	struct reader in = {*p, *n, false};
	uint32_t size = get_u32(&in);

	if (in.bad || size < 16 || size > *n)
		return err_origin(-EBADMSG);
	in.n = size - sizeof(uint32_t);
	*r = (struct record){.name = "",
			     .target = "",
			     .stored_key = "",
			     .stored_etag = "",
			     .key = "",
			     .upload_id = "",
			     .etag = ""};
	r->type = get_u32(&in);
	r->ino = get_u64(&in);
	get_fields(&in, r);
	if (in.bad || in.n != 0)
		return err_origin(-EBADMSG);
	*p += size;
	*n -= size;
	return 0;
}
