/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_auth_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "tools/ossd_code.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_target.h"
#include "tools/ossd_time.h"
#include "tools/ossd_xml.h"

const char *ossd_auth_header(const struct ossd_auth *a, const char *name)
{
	for (size_t i = 0; i < a->header_count; i++)
		if (!strcasecmp(a->headers[i].name, name))
			return a->headers[i].value ? a->headers[i].value : "";
	return NULL;
}

const char *ossd_auth_query(const struct ossd_auth *a, const char *name)
{
	return ossd_target_query(a->target, name);
}

static struct oss_sign_request sign_request(const struct ossd_auth *a)
{
	const struct ossd_target *t = a->target;

	return (struct oss_sign_request){
		.method = a->method,
		.bucket = t->bucket[0] ? t->bucket : NULL,
		.key = t->key.len ? t->key.data : NULL,
		.key_len = t->key.len,
		.query = t->query,
		.query_count = t->query_count,
		.headers = a->headers,
		.header_count = a->header_count,
	};
}

/* ---- what all have in common ----------------------------------------------------------- */

int ossd_auth_account(const struct ossd_auth *a, const struct ossd_claim *claim,
		      const struct ossd_account **who, struct buf *extra)
{
	const struct ossd_account *account = ossd_accounts_find(a->accounts, claim->id);

	if (!account) {
		ossd_xml_text(extra, claim->aws ? "AWSAccessKeyId" : "OSSAccessKeyId",
			      claim->id);
		return OSSD_E_INVALID_KEY_ID;
	}
	if (!account->token != !claim->token)
		return account->token ? OSSD_E_INVALID_KEY_ID : OSSD_E_INVALID_TOKEN;
	if (account->token && !oss_sign_equal(account->token, claim->token))
		return OSSD_E_INVALID_TOKEN;
	*who = account;
	return 0;
}

int ossd_auth_skew(const struct ossd_auth *a, int64_t signed_ms, struct buf *extra)
{
	int64_t away =
		a->now_ms > signed_ms ? a->now_ms - signed_ms : signed_ms - a->now_ms;

	if (!a->clock_check || away <= OSSD_AUTH_SKEW_MS)
		return 0;
	ossd_xml_uint(extra, "MaxAllowedSkewMilliseconds", OSSD_AUTH_SKEW_MS);
	ossd_xml_time(extra, "RequestTime", signed_ms);
	ossd_xml_time(extra, "ServerTime", a->now_ms);
	return OSSD_E_TIME_SKEWED;
}

int ossd_auth_mismatch(const struct ossd_claim *claim, const struct buf *to_sign,
		       const struct buf *canonical, struct buf *extra)
{
	ossd_xml_text(extra, claim->aws ? "AWSAccessKeyId" : "OSSAccessKeyId", claim->id);
	ossd_xml_text(extra, "SignatureProvided", claim->signature);
	if (to_sign->data)
		ossd_xml_text(extra, "StringToSign", to_sign->data);
	if (canonical && canonical->data)
		ossd_xml_text(extra, "CanonicalRequest", canonical->data);
	return OSSD_E_SIGNATURE;
}

int ossd_auth_region(const struct ossd_auth *a, const struct ossd_claim *c,
		     struct buf *extra)
{
	char endpoint[96];

	if (!a->region || !strcmp(a->region, c->region))
		return 0;
	snprintf(endpoint, sizeof(endpoint), "oss-%s.aliyuncs.com", a->region);
	if (a->target->bucket[0])
		ossd_xml_text(extra, "Bucket", a->target->bucket);
	ossd_xml_text(extra, "Endpoint", endpoint);
	ossd_xml_text(extra, "Region", a->region);
	return OSSD_E_WRONG_REGION;
}

/* ---- V4 -------------------------------------------------------------------------------- */

#define TERMINATOR "aliyun_v4_request"

int ossd_claim_credential(struct ossd_claim *c, const char *text, size_t n,
			  const char *terminator)
{
	const char *end = text + n, *parts[5];

	parts[4] = end;
	for (int i = 3; i >= 0; i--) {
		parts[i] = memrchr(text, '/', (size_t)(parts[i + 1] - text));
		if (!parts[i])
			return -EINVAL;
	}
	if ((size_t)(end - parts[3] - 1) != strlen(terminator) ||
	    memcmp(parts[3] + 1, terminator, strlen(terminator)) != 0 ||
	    parts[0] - text >= OSSD_AUTH_FIELD_SIZE || parts[1] - parts[0] != 9 ||
	    parts[2] - parts[1] > (ptrdiff_t)sizeof(c->region) ||
	    parts[3] - parts[2] > (ptrdiff_t)sizeof(c->product))
		return -EINVAL;
	snprintf(c->id, sizeof(c->id), "%.*s", (int)(parts[0] - text), text);
	snprintf(c->scope_date, sizeof(c->scope_date), "%.8s", parts[0] + 1);
	snprintf(c->region, sizeof(c->region), "%.*s", (int)(parts[2] - parts[1] - 1),
		 parts[1] + 1);
	snprintf(c->product, sizeof(c->product), "%.*s", (int)(parts[3] - parts[2] - 1),
		 parts[2] + 1);
	return 0;
}

int ossd_claim_fields(struct ossd_claim *c, const char *s, const char *names,
		      const char *terminator)
{
	size_t names_len = strlen(names);
	bool credential = false;

	while (*s) {
		size_t n;

		s += strspn(s, " ,");
		n = strcspn(s, ",");
		if (!strncasecmp(s, "Credential=", 11) && n > 11) {
			if (ossd_claim_credential(c, s + 11, n - 11, terminator) < 0)
				return -EINVAL;
			credential = true;
		} else if (!strncasecmp(s, "Signature=", 10) &&
			   n - 10 < sizeof(c->signature)) {
			snprintf(c->signature, sizeof(c->signature), "%.*s",
				 (int)(n - 10), s + 10);
		} else if (n > names_len + 1 && !strncasecmp(s, names, names_len) &&
			   s[names_len] == '=' &&
			   n - names_len - 1 < sizeof(c->additional)) {
			snprintf(c->additional, sizeof(c->additional), "%.*s",
				 (int)(n - names_len - 1), s + names_len + 1);
		} else if (n) {
			return -EINVAL;
		}
		s += n;
	}
	return credential && c->signature[0] ? 0 : -EINVAL;
}

static int check_scope(const struct ossd_auth *a, const struct ossd_claim *c,
		       const char *date, const char **message, struct buf *extra)
{
	if (strncmp(date, c->scope_date, 8) != 0) {
		*message = "The date in the credential scope is not that of x-oss-date.";
		return OSSD_E_INVALID_ARGUMENT;
	}
	if (strcmp(c->product, "oss") != 0) {
		*message = "The product in the credential scope must be oss.";
		return OSSD_E_INVALID_ARGUMENT;
	}
	return ossd_auth_region(a, c, extra);
}

static int compare_v4(const struct ossd_auth *a, const struct ossd_claim *c,
		      const char *date, const char *secret, struct buf *extra)
{
	_cleanup_(buf_fini) struct buf canonical = BUF_INIT, to_sign = BUF_INIT;
	const char *payload = ossd_auth_header(a, "x-oss-content-sha256");
	struct oss_sign_request req = sign_request(a);
	struct oss_scope scope = {
		.region = c->region, .product = c->product, .date = date};
	char expected[65];
	int r;

	req.additional = c->additional[0] ? c->additional : NULL;
	r = oss_v4_canonical(&canonical, &req,
			     payload && *payload ? payload : "UNSIGNED-PAYLOAD");
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

static int check_v4_header(const struct ossd_auth *a, const char *fields,
			   const struct ossd_account **who, const char **message,
			   struct buf *extra)
{
	struct ossd_claim c = {.token = ossd_auth_header(a, "x-oss-security-token")};
	const char *date = ossd_auth_header(a, "x-oss-date");
	int64_t signed_ms;
	int r;

	if (ossd_claim_fields(&c, fields, "AdditionalHeaders", TERMINATOR) < 0) {
		*message = "The Authorization header is not of the form OSS4-HMAC-SHA256 "
			   "Credential=…,Signature=…";
		return OSSD_E_INVALID_ARGUMENT;
	}
	if (!date || ossd_time_parse_basic(date, &signed_ms) < 0) {
		*message = "x-oss-date is missing or not of the form YYYYMMDDTHHMMSSZ.";
		return OSSD_E_ACCESS_DENIED;
	}
	r = check_scope(a, &c, date, message, extra);
	if (r == 0)
		r = ossd_auth_account(a, &c, who, extra);
	if (r == 0)
		r = ossd_auth_skew(a, signed_ms, extra);
	return r ? r : compare_v4(a, &c, date, (*who)->secret, extra);
}

bool ossd_auth_number(const char *text, int64_t max, int64_t *out)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoll(text, &end, 10);
	return !*end && !errno && *out <= max;
}

static int check_v4_url(const struct ossd_auth *a, const char *version,
			const struct ossd_account **who, const char **message,
			struct buf *extra)
{
	struct ossd_claim c = {.token = ossd_auth_query(a, "x-oss-security-token")};
	const char *date = ossd_auth_query(a, "x-oss-date"),
		   *signature = ossd_auth_query(a, "x-oss-signature");
	const char *credential = ossd_auth_query(a, "x-oss-credential");
	const char *additional = ossd_auth_query(a, "x-oss-additional-headers");
	int64_t from_ms, expires_s;
	int r;

	if (strcmp(version, "OSS4-HMAC-SHA256") != 0 || !credential || !signature ||
	    !date || strlen(signature) >= sizeof(c.signature) ||
	    (additional && strlen(additional) >= sizeof(c.additional)) ||
	    ossd_claim_credential(&c, credential, strlen(credential), TERMINATOR) < 0 ||
	    ossd_time_parse_basic(date, &from_ms) < 0 ||
	    !ossd_auth_number(ossd_auth_query(a, "x-oss-expires"),
			      OSSD_AUTH_EXPIRES_MAX_S, &expires_s) ||
	    expires_s == 0) {
		*message =
			"The signature parameters of the URL are incomplete or invalid.";
		return OSSD_E_INVALID_ARGUMENT;
	}
	snprintf(c.signature, sizeof(c.signature), "%s", signature);
	snprintf(c.additional, sizeof(c.additional), "%s", additional ? additional : "");
	if (a->now_ms > from_ms + expires_s * 1000 ||
	    a->now_ms < from_ms - OSSD_AUTH_SKEW_MS)
		return OSSD_E_URL_EXPIRED;
	r = check_scope(a, &c, date, message, extra);
	if (r == 0)
		r = ossd_auth_account(a, &c, who, extra);
	return r ? r : compare_v4(a, &c, date, (*who)->secret, extra);
}

int ossd_auth_compare_sha1(const struct ossd_claim *c, struct buf *to_sign,
			   const char *secret, struct buf *extra)
{
	char expected[29];
	int r = oss_v1_signature(expected, secret, to_sign->data, to_sign->len);

	if (r < 0)
		return err_trace(r);
	return oss_sign_equal(expected, c->signature)
		       ? 0
		       : ossd_auth_mismatch(c, to_sign, NULL, extra);
}

/* ---- V1 -------------------------------------------------------------------------------- */

static int compare_v1(const struct ossd_auth *a, const struct ossd_claim *c,
		      const char *date_line, const char *secret, struct buf *extra)
{
	_cleanup_(buf_fini) struct buf to_sign = BUF_INIT;
	struct oss_sign_request req = sign_request(a);
	int r = oss_v1_string_to_sign(&to_sign, &req, date_line);

	return r < 0 ? err_trace(r) : ossd_auth_compare_sha1(c, &to_sign, secret, extra);
}

static int check_v1_header(const struct ossd_auth *a, const char *fields,
			   const struct ossd_account **who, const char **message,
			   struct buf *extra)
{
	struct ossd_claim c = {.token = ossd_auth_header(a, "x-oss-security-token")};
	const char *date = ossd_auth_header(a, "x-oss-date"),
		   *colon = strrchr(fields, ':');
	int64_t signed_ms;
	int r;

	if (!date)
		date = ossd_auth_header(a, "date");
	if (!colon || colon == fields || colon - fields >= OSSD_AUTH_FIELD_SIZE ||
	    strlen(colon + 1) >= sizeof(c.signature)) {
		*message =
			"The Authorization header is not of the form OSS ID:SIGNATURE.";
		return OSSD_E_INVALID_ARGUMENT;
	}
	snprintf(c.id, sizeof(c.id), "%.*s", (int)(colon - fields), fields);
	snprintf(c.signature, sizeof(c.signature), "%s", colon + 1);
	if (!date || ossd_time_parse_http(date, &signed_ms) < 0) {
		*message = "OSS authentication requires a valid Date.";
		return OSSD_E_ACCESS_DENIED;
	}
	r = ossd_auth_account(a, &c, who, extra);
	if (r == 0)
		r = ossd_auth_skew(a, signed_ms, extra);
	return r ? r : compare_v1(a, &c, date, (*who)->secret, extra);
}

static int check_v1_url(const struct ossd_auth *a, const char *id,
			const struct ossd_account **who, const char **message,
			struct buf *extra)
{
	struct ossd_claim c = {.token = ossd_auth_query(a, "security-token")};
	const char *expires = ossd_auth_query(a, "Expires"),
		   *signature = ossd_auth_query(a, "Signature");
	int64_t until_s;
	int r;

	if (!*id || !expires || !signature) {
		*message =
			"Query string authentication requires the Signature, Expires and "
			"OSSAccessKeyId parameters";
		return OSSD_E_ACCESS_DENIED;
	}
	if (!ossd_auth_number(expires, INT64_MAX / 1000, &until_s)) {
		*message = "Invalid date (should be seconds since epoch)";
		return OSSD_E_ACCESS_DENIED;
	}
	if (until_s * 1000 < a->now_ms)
		return OSSD_E_URL_EXPIRED;
	if (strlen(id) >= sizeof(c.id) || strlen(signature) >= sizeof(c.signature))
		return OSSD_E_INVALID_ARGUMENT;
	snprintf(c.id, sizeof(c.id), "%s", id);
	snprintf(c.signature, sizeof(c.signature), "%s", signature);
	r = ossd_auth_account(a, &c, who, extra);
	return r ? r : compare_v1(a, &c, expires, (*who)->secret, extra);
}

/* ---- the table ------------------------------------------------------------------------- */

/* An Authorization header that starts so, and a URL that has such a parameter. */
static const struct {
	const char *scheme;
	ossd_auth_fn check;
} header_schemes[] = {
	{"OSS4-HMAC-SHA256 ", check_v4_header},
	{"OSS ", check_v1_header},
	{"AWS4-HMAC-SHA256 ", ossd_s3_v4_header},
	{"AWS ", ossd_s3_v2_header},
};

static const struct {
	const char *parameter;
	ossd_auth_fn check;
} url_schemes[] = {
	{"x-oss-signature-version", check_v4_url},
	{"OSSAccessKeyId", check_v1_url},
	{"X-Amz-Algorithm", ossd_s3_v4_url},
	{"AWSAccessKeyId", ossd_s3_v2_url},
};

int ossd_auth_check(const struct ossd_auth *a, const struct ossd_account **who,
		    const char **message, struct buf *extra)
{
	const char *authorization = ossd_auth_header(a, "authorization"), *value;

	*who = NULL;
	for (size_t i = 0; i < sizeof(url_schemes) / sizeof(*url_schemes); i++) {
		value = ossd_auth_query(a, url_schemes[i].parameter);
		if (!value)
			continue;
		if (authorization) {
			*message = "Only one of header and URL may carry a signature.";
			return OSSD_E_INVALID_ARGUMENT;
		}
		return url_schemes[i].check(a, value, who, message, extra);
	}
	if (!authorization)
		return 0;
	for (size_t i = 0; i < sizeof(header_schemes) / sizeof(*header_schemes); i++) {
		size_t n = strlen(header_schemes[i].scheme);

		if (!strncmp(authorization, header_schemes[i].scheme, n))
			return header_schemes[i].check(a, authorization + n, who, message,
						       extra);
	}
	*message = "Unsupported authorization type.";
	return OSSD_E_INVALID_ARGUMENT;
}
