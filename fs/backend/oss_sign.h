/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OSS signatures V4 and V1, header and URL (protocol.md §2). Pure: no clock, no I/O. The
 * client signs with it; ossd computes the same and compares.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/buf.h"

struct oss_pair {
	const char *name;
	const char *value; /* NULL or "": present without a value */
};

struct oss_sign_request {
	const char *method; /* "GET" */
	const char *bucket; /* NULL: service level */
	const char *key;    /* NULL: bucket level; raw bytes, not encoded */
	size_t key_len;
	const struct oss_pair *query; /* decoded, as they go on the wire, unsorted */
	size_t query_count;
	const struct oss_pair *headers; /* as they go on the wire; only those that matter
					 * are picked (x-oss-*, content-type, content-md5,
					 * date, additional ones) */
	size_t header_count;
	const char *additional; /* V4: "host;range": lower case, sorted; NULL: none */
};

struct oss_credentials {
	const char *id;
	const char *secret;
	const char *token; /* NULL: none. The caller sends it; it is signed as a header or
			    * query parameter of `req` like any other. */
};

/* The V4 scheme is AWS's with other words in it; a server that speaks both passes AWS. */
enum oss_dialect {
	OSS_DIALECT_OSS,
	OSS_DIALECT_AWS
};

struct oss_scope {
	const char *region;  /* "cn-hangzhou" */
	const char *product; /* "oss"; AWS: "s3" */
	const char *date;    /* "YYYYMMDDTHHMMSSZ" */
	enum oss_dialect dialect;
};

/* Derived from the secret for one UTC day, region and product. A secret itself. */
struct oss_v4_key {
	unsigned char bytes[32];
};

/* Percent-encoding with the unreserved set of §2.4; '/' kept when keep_slash. */
void oss_encode(struct buf *out, const char *s, size_t n, bool keep_slash);
/* %XX once; '+' stays. -EINVAL on a broken escape. Appends to out. */
int oss_decode(struct buf *out, const char *s, size_t n);

/* "/bucket/key" or "/bucket/" or "/", encoded. */
void oss_canonical_uri(struct buf *out, const struct oss_sign_request *req);
/* Sorted, encoded, joined by '&'; x-oss-signature left out. */
int oss_canonical_query(struct buf *out, const struct oss_sign_request *req);

/* What of `names` may stand in oss_sign_request.additional: lower-cased, sorted, without
 * those that the request lacks or that are signed anyway. Nothing when none is left. */
int oss_v4_additional(struct buf *out, const struct oss_sign_request *req,
		      const char *const *names, size_t count);

/* V4: the canonical request (its last line is `payload`, "UNSIGNED-PAYLOAD" for the
 * client), the string to sign, the signature in lower-case hex (65 bytes). */
int oss_v4_canonical(struct buf *out, const struct oss_sign_request *req,
		     const char *payload);
int oss_v4_string_to_sign(struct buf *out, const struct oss_scope *scope,
			  const char *canonical, size_t n);
int oss_v4_signature(char out[65], const char *secret, const struct oss_scope *scope,
		     const char *string_to_sign, size_t n);

/* The four HMACs that depend only on the day, for a signer that keeps their result. */
int oss_v4_derive_key(struct oss_v4_key *key, const char *secret,
		      const struct oss_scope *scope);
int oss_v4_signature_keyed(char out[65], const struct oss_v4_key *key,
			   const char *string_to_sign, size_t n);

/* V1: the string to sign (date line: scope->date) and the base64 signature (29 bytes).
 * Sub-resources are picked by the union list of §2.2, or a name that starts "x-oss-". */
int oss_v1_string_to_sign(struct buf *out, const struct oss_sign_request *req,
			  const char *date_line);
int oss_v1_signature(char out[29], const char *secret, const char *string_to_sign,
		     size_t n);

/* The whole Authorization header value for a request whose headers already hold x-oss-date
 * (V4) or Date / x-oss-date (V1). */
int oss_v4_authorization(struct buf *out, const struct oss_sign_request *req,
			 const struct oss_credentials *credentials,
			 const struct oss_scope *scope);
int oss_v4_authorization_keyed(struct buf *out, const struct oss_sign_request *req,
			       const char *id, const struct oss_v4_key *key,
			       const struct oss_scope *scope);
int oss_v1_authorization(struct buf *out, const struct oss_sign_request *req,
			 const struct oss_credentials *credentials,
			 const char *date_line);

/* ETag of a completed multipart upload from its parts' ETags (without quotes, §4.3): MD5 of
 * their upper-case text, '-', their number. */
#define OSS_MULTIPART_ETAG_SIZE (32 + 1 + 5 + 1)
int oss_multipart_etag(char out[OSS_MULTIPART_ETAG_SIZE], const char *const *part_etags,
		       size_t count);

/* Constant-time comparison of two NUL-terminated strings. */
bool oss_sign_equal(const char *a, const char *b);
