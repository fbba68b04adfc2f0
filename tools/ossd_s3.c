/* SPDX-License-Identifier: Apache-2.0 */
/* S3 requests in the words of OSS. */
#include "tools/ossd_s3.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/err.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_op.h"
#include "tools/ossd_request.h"

#define PAGE_MAX 1000

/* Headers that mean the same under both names; x-amz-meta-* beside them. */
static const char *const same[] = {
	"copy-source",
	"copy-source-if-match",
	"copy-source-if-modified-since",
	"copy-source-if-none-match",
	"copy-source-if-unmodified-since",
	"copy-source-range",
	"metadata-directive",
	"server-side-encryption",
	"storage-class",
	"tagging",
	"tagging-directive",
};

/* Parameters that choose an operation of S3 which this server lacks: beside those that OSS
 * knows too, which ossd_op_find() refuses. */
static const char *const lacking[] = {
	"accelerate",        "analytics",    "attributes",   "intelligent-tiering",
	"legal-hold",        "metrics",      "notification", "object-lock",
	"ownershipControls", "renameObject", "retention",    "select",
	"session",           "torrent",
};

static const ossd_op_fn spoken[] = {
	ossd_op_list_buckets,        ossd_op_put_bucket,
	ossd_op_delete_bucket,       ossd_op_head_bucket,
	ossd_op_get_bucket_location, ossd_op_get_bucket_versioning,
	ossd_op_list_objects,        ossd_op_list_objects_v2,
	ossd_op_list_versions,       ossd_op_list_uploads,
	ossd_op_put_object,          ossd_op_copy_object,
	ossd_op_delete_object,       ossd_op_delete_objects,
	ossd_op_get_object,          ossd_op_head_object,
	ossd_op_get_tagging,         ossd_op_put_tagging,
	ossd_op_delete_tagging,      ossd_op_initiate_upload,
	ossd_op_upload_part,         ossd_op_upload_part_copy,
	ossd_op_complete_upload,     ossd_op_abort_upload,
	ossd_op_list_parts,
};

static const struct {
	int code;
	struct ossd_code_info info;
} codes[] = {
	{OSSD_E_BAD_DIGEST,
	 {400, "BadDigest", "",
	  "The Content-MD5 you specified did not match what we received."}},
	{OSSD_E_FILE_EXISTS,
	 {412, "PreconditionFailed", "",
	  "At least one of the pre-conditions you specified did not hold"}},
	{OSSD_E_INVALID_KEY_ID,
	 {403, "InvalidAccessKeyId", "",
	  "The AWS Access Key Id you provided does not exist in our records."}},
	{OSSD_E_INVALID_TOKEN,
	 {400, "InvalidToken", "",
	  "The provided token is malformed or otherwise invalid."}},
	{OSSD_E_MISSING_ARGUMENT,
	 {400, "InvalidRequest", "", "Missing some required arguments."}},
	{OSSD_E_NOT_IMPLEMENTED,
	 {501, "NotImplemented", "",
	  "A header or parameter you provided implies functionality that is not "
	  "implemented."}},
	{OSSD_E_TOKEN_EXPIRED,
	 {400, "ExpiredToken", "", "The provided token has expired."}},
	{OSSD_E_WRONG_REGION,
	 {400, "AuthorizationHeaderMalformed", "",
	  "The region in the credential scope is wrong."}},
};

const struct ossd_code_info *ossd_s3_code_info(int code)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		if (codes[i].code == code)
			return &codes[i].info;
	return ossd_code_info(code);
}

/* ---- which dialect --------------------------------------------------------------------- */

static bool speaks_s3(const struct ossd_request *req)
{
	const char *authorization = ossd_request_header(req, "authorization");

	if (authorization)
		return !strncmp(authorization, "AWS4-", 5) ||
		       !strncmp(authorization, "AWS ", 4);
	if (ossd_request_query(req, "X-Amz-Algorithm") ||
	    ossd_request_query(req, "AWSAccessKeyId"))
		return true;
	for (size_t i = 0; i < req->header_count; i++)
		if (!strncasecmp(req->headers[i].name, "x-amz-", 6))
			return true;
	return false;
}

/* ---- headers --------------------------------------------------------------------------- */

static const char *print(struct arena *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static const char *print(struct arena *a, const char *format, ...)
{
	const char *text;
	va_list args;

	va_start(args, format);
	text = arena_vprintf(a, format, args);
	va_end(args);
	return text;
}

static bool means_the_same(const char *name)
{
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		if (!strcasecmp(same[i], name))
			return true;
	return !strncasecmp(name, "meta-", 5);
}

/* Here ETags are in upper case. */
static const char *upper(struct arena *a, const char *value)
{
	char *copy = arena_copy(a, value, strlen(value));

	for (char *c = copy; c && *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return copy;
}

/* Canned ACLs beyond those of OSS are about accounts, of which there is one. */
static bool plain_acl(const char *value)
{
	return !strcmp(value, "private") || !strcmp(value, "public-read") ||
	       !strcmp(value, "public-read-write");
}

/* What stands for one header; false: nothing. */
static bool translate_header(const struct ossd_request *req, struct arena *text,
			     const struct oss_pair *from, struct oss_pair *to)
{
	const char *name = from->name, *value = from->value ? from->value : "";

	*to = *from;
	if (!strncasecmp(name, "x-oss-", 6))
		return false;
	if (!strcasecmp(name, "if-match") || !strcasecmp(name, "if-none-match"))
		to->value = upper(text, value);
	if (strncasecmp(name, "x-amz-", 6) != 0)
		return true;
	name += 6;
	if (!strcasecmp(name, "acl")) {
		to->name = req->target.key.len ? "x-oss-object-acl" : "x-oss-acl";
		return plain_acl(value);
	}
	if (!means_the_same(name))
		return false;
	to->name = print(text, "x-oss-%s", name);
	if (!strcasecmp(name, "storage-class"))
		to->value = ossd_s3_class_in(value);
	else if (!strcasecmp(name, "server-side-encryption"))
		to->value = strncmp(value, "aws:kms", 7) != 0 ? value : "KMS";
	else if (!strcasecmp(name, "copy-source-if-match") ||
		 !strcasecmp(name, "copy-source-if-none-match"))
		to->value = upper(text, value);
	return true;
}

static int translate_headers(struct ossd_request *req, struct ossd_s3 *s3)
{
	size_t count = 0;

	s3->headers = xcalloc(req->header_count + 1, sizeof(*s3->headers));
	memcpy(s3->headers, req->headers, req->header_count * sizeof(*s3->headers));
	s3->header_count = req->header_count;
	for (size_t i = 0; i < s3->header_count; i++)
		count += translate_header(req, &s3->text, &s3->headers[i],
					  &req->headers[count]);
	/* A range behind the end is an error here, not the whole object. */
	if (count < OSSD_HEADERS_MAX)
		req->headers[count++] =
			(struct oss_pair){"x-oss-range-behavior", "standard"};
	req->header_count = count;
	return err_trace(arena_error(&s3->text));
}

/* ---- parameters ------------------------------------------------------------------------ */

/* A count above the largest is the largest, where OSS refuses it. */
static void limit(struct ossd_request *req, const char *name)
{
	for (size_t i = 0; i < req->target.query_count; i++) {
		struct oss_pair *p = &req->target.query[i];

		if (!strcmp(p->name, name) && p->value &&
		    strtoull(p->value, NULL, 10) > PAGE_MAX)
			p->value = "1000";
	}
}

static int translate_query(struct ossd_request *req)
{
	struct ossd_target *t = &req->target;

	for (size_t i = 0; i < sizeof(lacking) / sizeof(*lacking); i++)
		if (ossd_target_query(t, lacking[i]))
			return OSSD_E_NOT_IMPLEMENTED;
	limit(req, "max-keys");
	limit(req, "max-parts");
	limit(req, "max-uploads");
	if (t->key.len || ossd_target_query(t, "max-keys"))
		return 0;
	if (t->query_count == OSSD_QUERY_MAX)
		return OSSD_E_INVALID_ARGUMENT;
	t->query[t->query_count++] = (struct oss_pair){"max-keys", "1000"};
	return 0;
}

/* ---- the body -------------------------------------------------------------------------- */

static int expect_hash(struct ossd_request *req, struct ossd_s3 *s3)
{
	const char *wanted = ossd_request_header(req, "x-amz-content-sha256");

	if (wanted && !strncmp(wanted, "STREAMING-", 10))
		return OSSD_E_NOT_IMPLEMENTED;
	if (!wanted || !strcmp(wanted, "UNSIGNED-PAYLOAD") || !req->context->accounts)
		return 0;
	s3->sha256_wanted = wanted;
	s3->sha256 = EVP_MD_CTX_new();
	if (!s3->sha256 || EVP_DigestInit_ex(s3->sha256, EVP_sha256(), NULL) != 1)
		return err_origin(-ENOMEM);
	return 0;
}

int ossd_s3_body(struct ossd_s3 *s3, const char *data, size_t n)
{
	if (!s3 || !s3->sha256)
		return 0;
	return EVP_DigestUpdate(s3->sha256, data, n) == 1 ? 0 : err_origin(-ENOMEM);
}

int ossd_s3_body_end(struct ossd_s3 *s3)
{
	unsigned char digest[32];
	char hex[65];

	if (!s3 || !s3->sha256)
		return 0;
	if (EVP_DigestFinal_ex(s3->sha256, digest, NULL) != 1)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	return strcasecmp(hex, s3->sha256_wanted) ? OSSD_E_PAYLOAD_HASH : 0;
}

/* ---- the way in ------------------------------------------------------------------------ */

int ossd_s3_begin(struct ossd_request *req)
{
	struct ossd_s3 *s3;
	int r;

	if (!speaks_s3(req))
		return 0;
	s3 = req->s3 = xcalloc(1, sizeof(*s3));
	arena_init(&s3->text);
	s3->target = req->target;
	r = expect_hash(req, s3);
	if (r == 0)
		r = translate_headers(req, s3);
	return r ? r : translate_query(req);
}

int ossd_s3_check_op(const struct ossd_request *req)
{
	if (!req->s3)
		return 0;
	for (size_t i = 0; i < sizeof(spoken) / sizeof(*spoken); i++)
		if (spoken[i] == req->op->run)
			return 0;
	return OSSD_E_NOT_IMPLEMENTED;
}

struct ossd_s3 *ossd_s3_free(struct ossd_s3 *s3)
{
	if (!s3)
		return NULL;
	EVP_MD_CTX_free(s3->sha256);
	arena_fini(&s3->text);
	free(s3->headers);
	free(s3);
	return NULL;
}
