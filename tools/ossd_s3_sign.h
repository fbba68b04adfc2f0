/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What AWS signs: the canonical request of V4 and the string to sign of V2. Pure. The rest
 * of V4 is the OSS scheme with other words (oss_sign.h, OSS_DIALECT_AWS); the signature of
 * V2 is that of OSS V1.
 */
#pragma once

#include <stddef.h>

#include "fs/backend/oss_sign.h"

struct buf;

#define S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct s3_sign_request {
	const char *method;
	const char *path; /* as in the request line, encoded, no query; "" is "/" */
	size_t path_len;
	const char *bucket; /* V2: of a host that names the bucket; NULL: in the path */
	const struct oss_pair *query; /* decoded */
	size_t query_count;
	const struct oss_pair *headers;
	size_t header_count;
};

/* `signed_headers` as the client lists them: "host;x-amz-date". A name that the request
 * lacks counts as empty. `payload` is the last line. */
int s3_v4_canonical(struct buf *out, const struct s3_sign_request *req,
		    const char *signed_headers, const char *payload);

/* `date_line`: the Date header, the Expires of a URL, or "" where x-amz-date is sent. */
int s3_v2_string_to_sign(struct buf *out, const struct s3_sign_request *req,
			 const char *date_line);
