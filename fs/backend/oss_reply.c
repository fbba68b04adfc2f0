/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_reply.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ERROR_MAX 16384 /* of x-oss-err, encoded */
#define RETRY_AFTER_MAX_S 3600

static const char meta_prefix[] = "x-oss-meta-";

void oss_reply_reset(struct oss_reply *reply)
{
	struct buf error = reply->error;

	buf_reset(&error);
	*reply = (struct oss_reply){.error = error};
}

void oss_reply_fini(struct oss_reply *reply)
{
	buf_fini(&reply->error);
}

static void copy_text(char *out, size_t out_size, const char *s, size_t n)
{
	if (n >= out_size)
		n = out_size - 1;
	memcpy(out, s, n);
	out[n] = '\0';
}

static void take_etag(struct oss_reply *reply, const char *s, size_t n)
{
	oss_etag_copy(reply->etag, sizeof(reply->etag), s, n);
}

static void take_request_id(struct oss_reply *reply, const char *s, size_t n)
{
	copy_text(reply->request_id, sizeof(reply->request_id), s, n);
}

static void take_ec(struct oss_reply *reply, const char *s, size_t n)
{
	copy_text(reply->ec, sizeof(reply->ec), s, n);
}

static void take_length(struct oss_reply *reply, const char *s, size_t n)
{
	reply->has_length = oss_number_parse(s, n, &reply->length) == 0;
}

static void take_crc(struct oss_reply *reply, const char *s, size_t n)
{
	reply->has_crc64 = oss_number_parse(s, n, &reply->crc64) == 0;
}

static void take_position(struct oss_reply *reply, const char *s, size_t n)
{
	reply->has_next_position = oss_number_parse(s, n, &reply->next_position) == 0;
}

static void take_type(struct oss_reply *reply, const char *s, size_t n)
{
	reply->appendable = n == strlen("Appendable") && memcmp(s, "Appendable", n) == 0;
}

static void take_retry_after(struct oss_reply *reply, const char *s, size_t n)
{
	uint64_t seconds;

	/* The form with a date is not known from any store of this kind. */
	if (oss_number_parse(s, n, &seconds) == 0)
		reply->retry_after_ms =
			(seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S) *
			1000;
}

static void take_date(struct oss_reply *reply, const char *s, size_t n)
{
	(void)!oss_time_parse_http(s, n, &reply->date_ns);
}

static void take_modified(struct oss_reply *reply, const char *s, size_t n)
{
	(void)!oss_time_parse_http(s, n, &reply->modified_ns);
}

static void take_range(struct oss_reply *reply, const char *s, size_t n)
{
	reply->has_range = oss_range_parse(s, n, &reply->range) == 0;
}

static void take_error(struct oss_reply *reply, const char *s, size_t n)
{
	struct buf *out = &reply->error;
	int got;

	buf_reset(out);
	if (n > ERROR_MAX || n % 4 || !buf_reserve(out, n + 1))
		return;
	got = EVP_DecodeBlock((unsigned char *)out->data, (const unsigned char *)s,
			      (int)n);
	if (got < 0)
		return;
	/* Blocks of three, padding included. */
	while (n && s[n - 1] == '=' && got > 0) {
		n--;
		got--;
	}
	out->len = (size_t)got;
	out->data[out->len] = '\0';
}

static const struct {
	const char *name;
	size_t len;
	void (*take)(struct oss_reply *reply, const char *s, size_t n);
} headers[] = {
#define HEADER(name, take)                                                               \
	{                                                                                \
		name, sizeof(name) - 1, take                                             \
	}
	HEADER("ETag", take_etag),
	HEADER("x-oss-request-id", take_request_id),
	HEADER("Content-Length", take_length),
	HEADER("Content-Range", take_range),
	HEADER("Last-Modified", take_modified),
	HEADER("x-oss-hash-crc64ecma", take_crc),
	HEADER("Date", take_date),
	HEADER("x-oss-ec", take_ec),
	HEADER("x-oss-err", take_error),
	HEADER("x-oss-next-append-position", take_position),
	HEADER("x-oss-object-type", take_type),
	HEADER("Retry-After", take_retry_after),
#undef HEADER
};

void oss_reply_header(struct oss_reply *reply, const char *name, size_t name_len,
		      const char *value, size_t value_len)
{
	const size_t skip = sizeof(meta_prefix) - 1;

	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		if (name_len == headers[i].len &&
		    strncasecmp(name, headers[i].name, name_len) == 0) {
			headers[i].take(reply, value, value_len);
			return;
		}
	}
	if (name_len > skip && strncasecmp(name, meta_prefix, skip) == 0)
		oss_posix_take(&reply->posix, name + skip, name_len - skip, value,
			       value_len);
}

void oss_reply_attr(const struct oss_reply *reply, const char *key, uint64_t size,
		    struct origin_attr *attr)
{
	size_t n = strlen(key);

	*attr = (struct origin_attr){
		.size = size,
		.mtime_ns = reply->modified_ns,
		.crc64 = reply->crc64,
		.has_crc64 = reply->has_crc64,
		.is_dir = n && key[n - 1] == '/',
		.is_appendable = reply->appendable,
	};
	memcpy(attr->etag, reply->etag, sizeof(attr->etag));
}
