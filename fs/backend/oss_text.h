/* SPDX-License-Identifier: Apache-2.0 */
/* Small texts of OSS: times, numbers, ETags, metadata, content types. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct origin_attr;

/* "2012-02-24T08:43:07.000Z" and "Fri, 24 Feb 2012 08:43:07 GMT". -EINVAL. */
int oss_time_parse_iso(const char *s, size_t n, int64_t *ns);
int oss_time_parse_http(const char *s, size_t n, int64_t *ns);

#define OSS_TIME_SIZE 40
void oss_time_format_basic(char out[OSS_TIME_SIZE], int64_t ns); /* 20120224T084307Z */
void oss_time_format_http(char out[OSS_TIME_SIZE], int64_t ns);

/* Decimal digits only, nothing around them. -EINVAL, -ERANGE. */
int oss_number_parse(const char *s, size_t n, uint64_t *value);

/* Without quotes and a leading W/. Empty when it does not fit: no version is better than
 * half of one. */
void oss_etag_copy(char *out, size_t out_size, const char *s, size_t n);
/* ETags differ in case between front ends of one store (protocol.md §4.3). */
bool oss_etag_equal(const char *a, const char *b);

/* The value of Content-Range: "bytes 0-99/1000", or an asterisk for the range. -EINVAL. */
struct oss_range {
	uint64_t first, last, size;
	bool unsatisfied; /* the asterisk: first and last mean nothing */
};
int oss_range_parse(const char *s, size_t n, struct oss_range *out);

/* What ossfs and other tools keep in x-oss-meta-* (protocol.md §5.4), collected header by
 * header, as their order is free. */
struct oss_posix {
	bool has_mode, has_uid, has_gid, has_mtime;
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
};
/* `name` without "x-oss-meta-". Unknown names and values that are no numbers are ignored. */
void oss_posix_take(struct oss_posix *posix, const char *name, size_t name_len,
		    const char *value, size_t value_len);
/* is_dir: what the key says, for objects whose mode has no type. */
void oss_posix_apply(const struct oss_posix *posix, bool is_dir,
		     struct origin_attr *attr);

/* By the key's suffix, in any case; NULL when unknown: then the store decides. */
const char *oss_content_type(const char *key);
