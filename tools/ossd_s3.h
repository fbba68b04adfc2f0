/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 dialect: a request is put into the words of OSS before an operation sees it, the
 * reply into those of S3 afterwards. No operation knows of it but for what differs in
 * substance: `req->s3` is then not NULL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/arena.h"
#include "tools/ossd_target.h"

struct buf;
struct ossd_code_info;
struct ossd_request;

struct ossd_s3 {
	struct oss_pair *headers; /* as they came: what is signed */
	size_t header_count;
	struct ossd_target target; /* the same; shares all memory with the request's */
	struct arena text;         /* names and values that were put in their place */
	void *sha256;              /* of the body so far; NULL: nobody asked */
	const char *sha256_wanted; /* hex */
};

/* With headers and target there: whether the request speaks S3 (AWS signatures; without a
 * signature, any x-amz- header), and if so, puts it into the words of OSS and sets req->s3.
 * 0, OSSD_E_NOT_IMPLEMENTED or OSSD_E_INVALID_ARGUMENT. */
int ossd_s3_begin(struct ossd_request *req);

/* Whether the operation that was found is one of S3's. 0 or OSSD_E_NOT_IMPLEMENTED. */
int ossd_s3_check_op(const struct ossd_request *req);

/* The body against x-amz-content-sha256: bytes, and at the end 0 or OSSD_E_PAYLOAD_HASH. */
int ossd_s3_body(struct ossd_s3 *s3, const char *data, size_t n);
int ossd_s3_body_end(struct ossd_s3 *s3);

/* As ossd_code_info(), in the words of S3. */
const struct ossd_code_info *ossd_s3_code_info(int code);

/* Headers and document of the reply into the words of S3. */
void ossd_s3_reply(struct ossd_request *req);

/* The document alone: namespace of the root, ETags, storage classes, region. Pure. */
void ossd_s3_document(struct buf *out, const char *xml, size_t n);

/* The storage class of S3 as OSS calls it and back; unknown ones are standard. */
const char *ossd_s3_class_in(const char *name);
const char *ossd_s3_class_out(const char *name, size_t n);

struct ossd_s3 *ossd_s3_free(struct ossd_s3 *s3); /* takes NULL */
