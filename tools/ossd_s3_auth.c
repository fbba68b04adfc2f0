/* SPDX-License-Identifier: Apache-2.0 */
/* AWS signatures V4 and V2, in the header and in the URL. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "tools/ossd_auth_private.h"
#include "tools/ossd_code.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_s3_sign.h"
#include "tools/ossd_target.h"
#include "tools/ossd_time.h"

#define TERMINATOR "aws4_request"
#define UNSIGNED "UNSIGNED-PAYLOAD"

static struct s3_sign_request sign_request(const struct ossd_auth *a)
{
	const struct ossd_target *t = a->target;

	return (struct s3_sign_request){
		.method = a->method,
		.path = t->path,
		.path_len = t->path_len,
		.bucket = t->bucket[0] && !t->path_style ? t->bucket : NULL,
		.query = t->query,
		.query_count = t->query_count,
		.headers = a->headers,
		.header_count = a->header_count,
	};
}

/* ---- V4 -------------------------------------------------------------------------------- */

static bool names_hold(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (; *list; list += *list == ';') {
		size_t item = strcspn(list, ";");

		if (item == n && !strncasecmp(list, name, n))
			return true;
		list += item;
	}
	return false;
}

/* Host and every x-amz- header must be signed: an added one would change what is asked. */
static bool all_signed(const struct ossd_auth *a, const char *names)
{
	for (size_t i = 0; i < a->header_count; i++)
		if (!strncasecmp(a->headers[i].name, "x-amz-", 6) &&
		    !names_hold(names, a->headers[i].name))
			return false;
	return names_hold(names, "host");
}

static int check_scope(const struct ossd_auth *a, const struct ossd_claim *c,
		       const char *date, const char **message, struct buf *extra)
{
	if (strncmp(date, c->scope_date, 8) != 0 || strcmp(c->product, "s3") != 0) {
		*message = "The credential scope must be DATE/REGION/s3/aws4_request "
			   "with the date of X-Amz-Date.";
		return OSSD_E_MALFORMED_AUTH;
	}
	if (!all_signed(a, c->additional)) {
		*message = "There were headers present in the request which were not "
			   "signed";
		return OSSD_E_ACCESS_DENIED;
	}
	return ossd_auth_region(a, c, extra);
}

static int compare_v4(const struct ossd_auth *a, const struct ossd_claim *c,
		      const char *date, const char *payload, const char *secret,
		      struct buf *extra)
{
	_cleanup_(buf_fini) struct buf canonical = BUF_INIT, to_sign = BUF_INIT;
	struct s3_sign_request req = sign_request(a);
	struct oss_scope scope = {c->region, c->product, date, OSS_DIALECT_AWS};
	char expected[65];
	int r = s3_v4_canonical(&canonical, &req, c->additional, payload);

	if (r == 0)
		r = oss_v4_string_to_sign(&to_sign, &scope, canonical.data,
					  canonical.len);
	if (r == 0)
		r = oss_v4_signature(expected, secret, &scope, to_sign.data, to_sign.len);
	if (r < 0)
		return err_trace(r);
	return oss_sign_equal(expected, c->signature)
		       ? 0
		       : ossd_auth_mismatch(c, &to_sign, &canonical, extra);
}

int ossd_s3_v4_header(const struct ossd_auth *a, const char *fields,
		      const struct ossd_account **who, const char **message,
		      struct buf *extra)
{
	struct ossd_claim c = {.aws = true,
			       .token = ossd_auth_header(a, "x-amz-security-token")};
	const char *date = ossd_auth_header(a, "x-amz-date");
	const char *payload = ossd_auth_header(a, "x-amz-content-sha256");
	int64_t signed_ms;
	int r;

	if (ossd_claim_fields(&c, fields, "SignedHeaders", TERMINATOR) < 0 ||
	    !c.additional[0]) {
		*message = "The Authorization header is not of the form AWS4-HMAC-SHA256 "
			   "Credential=…, SignedHeaders=…, Signature=…";
		return OSSD_E_MALFORMED_AUTH;
	}
	if (!date || ossd_time_parse_basic(date, &signed_ms) < 0) {
		*message = "AWS authentication requires a valid x-amz-date header";
		return OSSD_E_ACCESS_DENIED;
	}
	r = check_scope(a, &c, date, message, extra);
	if (r == 0)
		r = ossd_auth_account(a, &c, who, extra);
	if (r == 0)
		r = ossd_auth_skew(a, signed_ms, extra);
	return r ? r
		 : compare_v4(a, &c, date, payload ? payload : S3_EMPTY_SHA256,
			      (*who)->secret, extra);
}

int ossd_s3_v4_url(const struct ossd_auth *a, const char *algorithm,
		   const struct ossd_account **who, const char **message,
		   struct buf *extra)
{
	struct ossd_claim c = {.aws = true,
			       .token = ossd_auth_query(a, "X-Amz-Security-Token")};
	const char *date = ossd_auth_query(a, "X-Amz-Date");
	const char *signature = ossd_auth_query(a, "X-Amz-Signature");
	const char *credential = ossd_auth_query(a, "X-Amz-Credential");
	const char *names = ossd_auth_query(a, "X-Amz-SignedHeaders");
	int64_t from_ms, expires_s;
	int r;

	if (strcmp(algorithm, "AWS4-HMAC-SHA256") != 0 || !credential || !signature ||
	    !date || !names || strlen(signature) >= sizeof(c.signature) ||
	    strlen(names) >= sizeof(c.additional) ||
	    ossd_claim_credential(&c, credential, strlen(credential), TERMINATOR) < 0 ||
	    ossd_time_parse_basic(date, &from_ms) < 0 ||
	    !ossd_auth_number(ossd_auth_query(a, "X-Amz-Expires"),
			      OSSD_AUTH_EXPIRES_MAX_S, &expires_s)) {
		*message =
			"The signature parameters of the URL are incomplete or invalid.";
		return OSSD_E_MALFORMED_QUERY_AUTH;
	}
	snprintf(c.signature, sizeof(c.signature), "%s", signature);
	snprintf(c.additional, sizeof(c.additional), "%s", names);
	if (a->now_ms > from_ms + expires_s * 1000 ||
	    a->now_ms < from_ms - OSSD_AUTH_SKEW_MS)
		return OSSD_E_URL_EXPIRED;
	r = check_scope(a, &c, date, message, extra);
	if (r == 0)
		r = ossd_auth_account(a, &c, who, extra);
	return r ? r : compare_v4(a, &c, date, UNSIGNED, (*who)->secret, extra);
}

/* ---- V2 -------------------------------------------------------------------------------- */

static int compare_v2(const struct ossd_auth *a, const struct ossd_claim *c,
		      const char *date_line, const char *secret, struct buf *extra)
{
	_cleanup_(buf_fini) struct buf to_sign = BUF_INIT;
	struct s3_sign_request req = sign_request(a);
	int r = s3_v2_string_to_sign(&to_sign, &req, date_line);

	return r < 0 ? err_trace(r) : ossd_auth_compare_sha1(c, &to_sign, secret, extra);
}

/* "ID:SIGNATURE". */
static bool split_v2(struct ossd_claim *c, const char *fields)
{
	const char *colon = strrchr(fields, ':');

	if (!colon || colon == fields || colon - fields >= OSSD_AUTH_FIELD_SIZE ||
	    strlen(colon + 1) >= sizeof(c->signature))
		return false;
	snprintf(c->id, sizeof(c->id), "%.*s", (int)(colon - fields), fields);
	snprintf(c->signature, sizeof(c->signature), "%s", colon + 1);
	return true;
}

/* Amazon's examples and older clients write GMT as "+0000", Go's as "UTC". */
static int parse_date(const char *text, int64_t *ms)
{
	static const char *const zones[] = {" +0000", " UTC"};
	size_t n = strlen(text);
	char gmt[64];

	for (size_t i = 0; i < sizeof(zones) / sizeof(*zones); i++) {
		size_t tail = strlen(zones[i]);

		if (n <= tail || n >= sizeof(gmt) - 4 ||
		    strcmp(text + n - tail, zones[i]) != 0)
			continue;
		snprintf(gmt, sizeof(gmt), "%.*s GMT", (int)(n - tail), text);
		return ossd_time_parse_http(gmt, ms);
	}
	return ossd_time_parse_http(text, ms);
}

int ossd_s3_v2_header(const struct ossd_auth *a, const char *fields,
		      const struct ossd_account **who, const char **message,
		      struct buf *extra)
{
	struct ossd_claim c = {.aws = true,
			       .token = ossd_auth_header(a, "x-amz-security-token")};
	const char *amz_date = ossd_auth_header(a, "x-amz-date");
	const char *date = amz_date ? amz_date : ossd_auth_header(a, "date");
	int64_t signed_ms;
	int r;

	if (!split_v2(&c, fields)) {
		*message =
			"The Authorization header is not of the form AWS ID:SIGNATURE.";
		return OSSD_E_MALFORMED_AUTH;
	}
	if (!date || parse_date(date, &signed_ms) < 0) {
		*message = "AWS authentication requires a valid Date or x-amz-date "
			   "header";
		return OSSD_E_ACCESS_DENIED;
	}
	r = ossd_auth_account(a, &c, who, extra);
	if (r == 0)
		r = ossd_auth_skew(a, signed_ms, extra);
	/* An x-amz-date is signed among the x-amz- headers. */
	return r ? r : compare_v2(a, &c, amz_date ? "" : date, (*who)->secret, extra);
}

int ossd_s3_v2_url(const struct ossd_auth *a, const char *id,
		   const struct ossd_account **who, const char **message,
		   struct buf *extra)
{
	struct ossd_claim c = {.aws = true,
			       .token = ossd_auth_query(a, "x-amz-security-token")};
	const char *expires = ossd_auth_query(a, "Expires");
	const char *signature = ossd_auth_query(a, "Signature");
	int64_t until_s;
	int r;

	if (!*id || !expires || !signature || strlen(id) >= sizeof(c.id) ||
	    strlen(signature) >= sizeof(c.signature) ||
	    !ossd_auth_number(expires, INT64_MAX / 1000, &until_s)) {
		*message = "Query-string authentication requires the Signature, Expires "
			   "and AWSAccessKeyId parameters";
		return OSSD_E_ACCESS_DENIED;
	}
	if (until_s * 1000 < a->now_ms)
		return OSSD_E_URL_EXPIRED;
	snprintf(c.id, sizeof(c.id), "%s", id);
	snprintf(c.signature, sizeof(c.signature), "%s", signature);
	r = ossd_auth_account(a, &c, who, extra);
	return r ? r : compare_v2(a, &c, expires, (*who)->secret, extra);
}
