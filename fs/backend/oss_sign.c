/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_sign.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"

#define PAYLOAD_UNSIGNED "UNSIGNED-PAYLOAD"

struct dialect {
	const char *algorithm;
	const char *key_prefix;
	const char *terminator;
};

static const struct dialect dialects[] = {
	[OSS_DIALECT_OSS] = {"OSS4-HMAC-SHA256", "aliyun_v4", "aliyun_v4_request"},
	[OSS_DIALECT_AWS] = {"AWS4-HMAC-SHA256", "AWS4", "aws4_request"},
};

/* Query parameters that V1 signs (protocol.md §2.2), sorted for bsearch. Names that start
 * with "x-oss-" are signed as well and not listed. */
/* clang-format off */
static const char *const v1_signed[] = {
	"accessPoint", "accessPointPolicy", "acl", "append", "asyncFetch",
	"bucketArchiveDirectRead", "bucketInfo", "callback", "callback-var",
	"cloudboxes", "cname", "comp", "continuation-token", "cors", "delete",
	"encryption", "endTime", "group", "httpsConfig", "img", "inventory",
	"inventoryId", "lifecycle", "link", "live", "location", "logging", "metaQuery",
	"objectInfo", "objectMeta", "partNumber", "policy", "policyStatus", "position",
	"publicAccessBlock", "qos", "qosInfo", "qosRequester", "redundancyTransition",
	"referer", "regionList", "replication", "replicationLocation",
	"replicationProgress", "requestPayment", "requesterQosInfo", "resourceGroup",
	"resourcePool", "resourcePoolBuckets", "resourcePoolInfo",
	"response-cache-control", "response-content-disposition",
	"response-content-encoding", "response-content-language",
	"response-content-type", "response-expires", "responseHeader", "restore", "rtc",
	"seal", "security-token", "sequential", "startTime", "stat", "status", "style",
	"styleName", "symlink", "tagging", "transferAcceleration", "udf",
	"udfApplication", "udfApplicationLog", "udfId", "udfImage", "udfImageDesc",
	"udfName", "uploadId", "uploads", "versionId", "versioning", "versions", "vod",
	"website", "withHashContext", "worm", "wormExtend", "wormId",
};
/* clang-format on */

/* ---- percent-encoding ---------------------------------------------------------------- */

static bool unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

void oss_encode(struct buf *out, const char *s, size_t n, bool keep_slash)
{
	static const char hex[] = "0123456789ABCDEF";
	char *to = buf_reserve(out, n > SIZE_MAX / 3 ? SIZE_MAX : n * 3);
	size_t len = 0;

	if (!to)
		return;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (unreserved(c) || (keep_slash && c == '/')) {
			to[len++] = (char)c;
		} else {
			to[len++] = '%';
			to[len++] = hex[c >> 4];
			to[len++] = hex[c & 15];
		}
	}
	out->len += len;
	out->data[out->len] = '\0';
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int oss_decode(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high, low;

		if (s[i] != '%') {
			buf_putc(out, s[i]);
			continue;
		}
		high = n - i > 2 ? hex_digit(s[i + 1]) : -1;
		low = n - i > 2 ? hex_digit(s[i + 2]) : -1;
		if (high < 0 || low < 0)
			return err_origin(-EINVAL);
		buf_putc(out, (char)(high << 4 | low));
		i += 2;
	}
	return err_trace(buf_error(out));
}

/* ---- sorting ------------------------------------------------------------------------- */

struct ref {
	const struct oss_pair *pair;
};

/* Equal names keep the order they came in. */
static int by_name(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	int r = strcasecmp(x->pair->name, y->pair->name);

	return r ? r : (x->pair > y->pair) - (x->pair < y->pair);
}

static int by_exact_name(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	int r = strcmp(x->pair->name, y->pair->name);

	return r ? r : (x->pair > y->pair) - (x->pair < y->pair);
}

struct encoded {
	size_t name, name_len; /* in the scratch buffer */
	size_t value, value_len;
	const char *bytes; /* the scratch buffer, set once it grows no more */
};

/* Unlike the raw names, the encoded ones are what V4 sorts by: '%' sorts below letters. */
static int by_encoded_name(const void *a, const void *b)
{
	const struct encoded *x = a, *y = b;
	size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
	int r = memcmp(x->bytes + x->name, y->bytes + y->name, n);

	if (r)
		return r;
	if (x->name_len != y->name_len)
		return x->name_len < y->name_len ? -1 : 1;
	return (x->name > y->name) - (x->name < y->name);
}

/* ---- canonical parts ----------------------------------------------------------------- */

void oss_canonical_uri(struct buf *out, const struct oss_sign_request *req)
{
	buf_putc(out, '/');
	if (!req->bucket)
		return;
	oss_encode(out, req->bucket, strlen(req->bucket), false);
	buf_putc(out, '/');
	if (req->key)
		oss_encode(out, req->key, req->key_len, true);
}

static void join_query(struct buf *out, const struct encoded *pairs, size_t count,
		       const char *bytes)
{
	for (size_t i = 0; i < count; i++) {
		if (i)
			buf_putc(out, '&');
		buf_append(out, bytes + pairs[i].name, pairs[i].name_len);
		if (!pairs[i].value_len)
			continue;
		buf_putc(out, '=');
		buf_append(out, bytes + pairs[i].value, pairs[i].value_len);
	}
}

static struct encoded encode_pair(struct buf *scratch, const struct oss_pair *p)
{
	struct encoded e = {.name = scratch->len};

	oss_encode(scratch, p->name, strlen(p->name), false);
	e.name_len = scratch->len - e.name;
	e.value = scratch->len;
	if (p->value)
		oss_encode(scratch, p->value, strlen(p->value), false);
	e.value_len = scratch->len - e.value;
	return e;
}

int oss_canonical_query(struct buf *out, const struct oss_sign_request *req)
{
	_cleanup_(buf_fini) struct buf scratch = BUF_INIT;
	struct encoded *pairs;
	size_t count = 0;
	int r;

	if (!req->query_count)
		return 0;
	pairs = calloc(req->query_count, sizeof(*pairs));
	if (!pairs)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->query_count; i++)
		if (strcmp(req->query[i].name, "x-oss-signature") != 0)
			pairs[count++] = encode_pair(&scratch, &req->query[i]);
	for (size_t i = 0; i < count; i++)
		pairs[i].bytes = scratch.data;
	if (!scratch.failed) {
		qsort(pairs, count, sizeof(*pairs), by_encoded_name);
		join_query(out, pairs, count, scratch.data);
	}
	r = scratch.failed ? -ENOMEM : buf_error(out);
	free(pairs);
	return err_trace(r);
}

static const char *header_value(const struct oss_sign_request *req, const char *name)
{
	for (size_t i = 0; i < req->header_count; i++)
		if (strcasecmp(req->headers[i].name, name) == 0)
			return req->headers[i].value ? req->headers[i].value : "";
	return NULL;
}

static bool is_oss_header(const char *name)
{
	return strncasecmp(name, "x-oss-", 6) == 0;
}

static bool signed_by_default(const char *name)
{
	return is_oss_header(name) || strcasecmp(name, "content-type") == 0 ||
	       strcasecmp(name, "content-md5") == 0;
}

/* Whether a list "a;b;c" of lower-case names holds `name` in any case. */
static bool names_hold(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (list && *list) {
		size_t item = strcspn(list, ";");

		if (item == n && strncasecmp(list, name, n) == 0)
			return true;
		list += item + (list[item] == ';');
	}
	return false;
}

static void put_lower(struct buf *out, const char *s)
{
	for (; *s; s++)
		buf_putc(out, *s >= 'A' && *s <= 'Z' ? (char)(*s + 32) : *s);
}

static void put_trimmed(struct buf *out, const char *s)
{
	size_t n;

	s += strspn(s, " \t");
	n = strlen(s);
	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
		n--;
	buf_append(out, s, n);
}

/* "name:value\n" for each header that `wanted` picks, sorted, repeated names joined by a
 * comma. */
static int put_headers(struct buf *out, const struct oss_sign_request *req,
		       bool (*wanted)(const struct oss_sign_request *, const char *))
{
	_cleanup_(freep) struct ref *sorted = NULL;
	size_t count = 0;

	if (!req->header_count)
		return 0;
	sorted = calloc(req->header_count, sizeof(*sorted));
	if (!sorted)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->header_count; i++)
		if (wanted(req, req->headers[i].name))
			sorted[count++].pair = &req->headers[i];
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 0; i < count; i++) {
		bool repeats = i && strcasecmp(sorted[i].pair->name,
					       sorted[i - 1].pair->name) == 0;
		bool repeated =
			i + 1 < count &&
			strcasecmp(sorted[i].pair->name, sorted[i + 1].pair->name) == 0;

		if (!repeats) {
			put_lower(out, sorted[i].pair->name);
			buf_putc(out, ':');
		}
		put_trimmed(out, sorted[i].pair->value ? sorted[i].pair->value : "");
		buf_putc(out, repeated ? ',' : '\n');
	}
	return err_trace(buf_error(out));
}

static bool wanted_v4(const struct oss_sign_request *req, const char *name)
{
	return signed_by_default(name) || names_hold(req->additional, name);
}

static bool wanted_v1(const struct oss_sign_request *req, const char *name)
{
	(void)req;
	return is_oss_header(name);
}

/* ---- digests ------------------------------------------------------------------------- */

static void put_hex(char *out, const unsigned char *bytes, size_t n)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = hex[bytes[i] >> 4];
		out[2 * i + 1] = hex[bytes[i] & 15];
	}
	out[2 * n] = '\0';
}

static int sha256_hex(char out[65], const char *data, size_t n)
{
	unsigned char digest[32];

	if (!EVP_Digest(data, n, digest, NULL, EVP_sha256(), NULL))
		return err_origin(-ENOMEM);
	put_hex(out, digest, sizeof(digest));
	return 0;
}

static int hmac_sha256(unsigned char out[32], const void *key, size_t key_len,
		       const char *data, size_t n)
{
	if (!HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)data, n, out,
		  NULL))
		return err_origin(-ENOMEM);
	return 0;
}

/* ---- V4 ------------------------------------------------------------------------------ */

static int by_string(const void *a, const void *b)
{
	return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

int oss_v4_additional(struct buf *out, const struct oss_sign_request *req,
		      const char *const *names, size_t count)
{
	_cleanup_(freep) const char **sorted = calloc(count + 1, sizeof(*sorted));
	size_t kept = 0, start = out->len;

	if (!sorted)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < count; i++) {
		const char *value = header_value(req, names[i]);

		if (value && *value && !signed_by_default(names[i]))
			sorted[kept++] = names[i];
	}
	qsort(sorted, kept, sizeof(*sorted), by_string);
	for (size_t i = 0; i < kept; i++) {
		if (i && strcasecmp(sorted[i], sorted[i - 1]) == 0)
			continue;
		if (out->len > start)
			buf_putc(out, ';');
		put_lower(out, sorted[i]);
	}
	return err_trace(buf_error(out));
}

int oss_v4_canonical(struct buf *out, const struct oss_sign_request *req,
		     const char *payload)
{
	int r;

	buf_puts(out, req->method);
	buf_putc(out, '\n');
	oss_canonical_uri(out, req);
	buf_putc(out, '\n');
	r = oss_canonical_query(out, req);
	if (r < 0)
		return err_trace(r);
	buf_putc(out, '\n');
	r = put_headers(out, req, wanted_v4);
	if (r < 0)
		return err_trace(r);
	buf_putc(out, '\n');
	if (req->additional)
		buf_puts(out, req->additional);
	buf_putc(out, '\n');
	buf_puts(out, payload);
	return err_trace(buf_error(out));
}

/* "YYYYMMDD/region/product/aliyun_v4_request" */
static void put_scope(struct buf *out, const struct oss_scope *scope)
{
	buf_printf(out, "%.8s/%s/%s/%s", scope->date, scope->region, scope->product,
		   dialects[scope->dialect].terminator);
}

int oss_v4_string_to_sign(struct buf *out, const struct oss_scope *scope,
			  const char *canonical, size_t n)
{
	char digest[65];
	int r = sha256_hex(digest, canonical, n);

	if (r < 0)
		return err_trace(r);
	buf_printf(out, "%s\n%s\n", dialects[scope->dialect].algorithm, scope->date);
	put_scope(out, scope);
	buf_printf(out, "\n%s", digest);
	return err_trace(buf_error(out));
}

int oss_v4_derive_key(struct oss_v4_key *key, const char *secret,
		      const struct oss_scope *scope)
{
	_cleanup_(buf_wipe) struct buf first = BUF_INIT;
	unsigned char k[32];
	int r;

	buf_printf(&first, "%s%s", dialects[scope->dialect].key_prefix, secret);
	r = buf_error(&first);
	if (r >= 0)
		r = hmac_sha256(k, first.data, first.len, scope->date,
				strnlen(scope->date, 8));
	if (r >= 0)
		r = hmac_sha256(k, k, sizeof(k), scope->region, strlen(scope->region));
	if (r >= 0)
		r = hmac_sha256(k, k, sizeof(k), scope->product, strlen(scope->product));
	if (r >= 0)
		r = hmac_sha256(key->bytes, k, sizeof(k),
				dialects[scope->dialect].terminator,
				strlen(dialects[scope->dialect].terminator));
	OPENSSL_cleanse(k, sizeof(k));
	return err_trace(r);
}

int oss_v4_signature_keyed(char out[65], const struct oss_v4_key *key,
			   const char *string_to_sign, size_t n)
{
	unsigned char digest[32];
	int r = hmac_sha256(digest, key->bytes, sizeof(key->bytes), string_to_sign, n);

	if (r < 0)
		return err_trace(r);
	put_hex(out, digest, sizeof(digest));
	return 0;
}

int oss_v4_signature(char out[65], const char *secret, const struct oss_scope *scope,
		     const char *string_to_sign, size_t n)
{
	struct oss_v4_key key;
	int r = oss_v4_derive_key(&key, secret, scope);

	if (r >= 0)
		r = oss_v4_signature_keyed(out, &key, string_to_sign, n);
	OPENSSL_cleanse(&key, sizeof(key));
	return err_trace(r);
}

int oss_v4_authorization_keyed(struct buf *out, const struct oss_sign_request *req,
			       const char *id, const struct oss_v4_key *key,
			       const struct oss_scope *scope)
{
	_cleanup_(buf_fini) struct buf canonical = BUF_INIT;
	_cleanup_(buf_fini) struct buf string = BUF_INIT;
	const char *payload = header_value(req, "x-oss-content-sha256");
	char signature[65];
	int r;

	r = oss_v4_canonical(&canonical, req, payload ? payload : PAYLOAD_UNSIGNED);
	if (r >= 0)
		r = oss_v4_string_to_sign(&string, scope, canonical.data, canonical.len);
	if (r >= 0)
		r = oss_v4_signature_keyed(signature, key, string.data, string.len);
	if (r < 0)
		return err_trace(r);
	buf_printf(out, "%s Credential=%s/", dialects[scope->dialect].algorithm, id);
	put_scope(out, scope);
	if (req->additional && *req->additional)
		buf_printf(out, ",AdditionalHeaders=%s", req->additional);
	buf_printf(out, ",Signature=%s", signature);
	return err_trace(buf_error(out));
}

int oss_v4_authorization(struct buf *out, const struct oss_sign_request *req,
			 const struct oss_credentials *credentials,
			 const struct oss_scope *scope)
{
	struct oss_v4_key key;
	int r = oss_v4_derive_key(&key, credentials->secret, scope);

	if (r >= 0)
		r = oss_v4_authorization_keyed(out, req, credentials->id, &key, scope);
	OPENSSL_cleanse(&key, sizeof(key));
	return err_trace(r);
}

/* ---- V1 ------------------------------------------------------------------------------ */

static int by_listed_name(const void *key, const void *item)
{
	return strcmp(key, *(const char *const *)item);
}

static bool v1_signs(const char *name)
{
	return strncmp(name, "x-oss-", 6) == 0 ||
	       bsearch(name, v1_signed, sizeof(v1_signed) / sizeof(*v1_signed),
		       sizeof(*v1_signed), by_listed_name);
}

static int put_sub_resources(struct buf *out, const struct oss_sign_request *req)
{
	_cleanup_(freep) struct ref *sorted = NULL;
	size_t count = 0;

	if (!req->query_count)
		return 0;
	sorted = calloc(req->query_count, sizeof(*sorted));
	if (!sorted)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->query_count; i++)
		if (v1_signs(req->query[i].name))
			sorted[count++].pair = &req->query[i];
	qsort(sorted, count, sizeof(*sorted), by_exact_name);
	for (size_t i = 0; i < count; i++) {
		buf_putc(out, i ? '&' : '?');
		buf_puts(out, sorted[i].pair->name);
		if (!sorted[i].pair->value || !*sorted[i].pair->value)
			continue;
		buf_putc(out, '=');
		buf_puts(out, sorted[i].pair->value);
	}
	return err_trace(buf_error(out));
}

int oss_v1_string_to_sign(struct buf *out, const struct oss_sign_request *req,
			  const char *date_line)
{
	const char *md5 = header_value(req, "content-md5");
	const char *type = header_value(req, "content-type");
	int r;

	buf_printf(out, "%s\n%s\n%s\n%s\n", req->method, md5 ? md5 : "", type ? type : "",
		   date_line);
	r = put_headers(out, req, wanted_v1);
	if (r < 0)
		return err_trace(r);
	buf_putc(out, '/');
	if (req->bucket)
		buf_printf(out, "%s/", req->bucket);
	if (req->bucket && req->key)
		buf_append(out, req->key, req->key_len);
	r = put_sub_resources(out, req);
	return r < 0 ? err_trace(r) : err_trace(buf_error(out));
}

int oss_v1_signature(char out[29], const char *secret, const char *string_to_sign,
		     size_t n)
{
	unsigned char digest[20];

	if (!HMAC(EVP_sha1(), secret, (int)strlen(secret),
		  (const unsigned char *)string_to_sign, n, digest, NULL))
		return err_origin(-ENOMEM);
	EVP_EncodeBlock((unsigned char *)out, digest, sizeof(digest));
	return 0;
}

int oss_v1_authorization(struct buf *out, const struct oss_sign_request *req,
			 const struct oss_credentials *credentials, const char *date_line)
{
	_cleanup_(buf_fini) struct buf string = BUF_INIT;
	char signature[29];
	int r = oss_v1_string_to_sign(&string, req, date_line);

	if (r >= 0)
		r = oss_v1_signature(signature, credentials->secret, string.data,
				     string.len);
	if (r < 0)
		return err_trace(r);
	buf_printf(out, "OSS %s:%s", credentials->id, signature);
	return err_trace(buf_error(out));
}

int oss_multipart_etag(char out[OSS_MULTIPART_ETAG_SIZE], const char *const *part_etags,
		       size_t count)
{
	_cleanup_(buf_fini) struct buf joined = BUF_INIT;
	unsigned char digest[16];

	if (!count || count > 10000)
		return err_origin(-EINVAL);
	for (size_t i = 0; i < count; i++)
		for (const char *c = part_etags[i]; *c; c++)
			buf_putc(&joined, *c >= 'a' && *c <= 'f' ? (char)(*c - 32) : *c);
	if (buf_error(&joined) < 0 ||
	    !EVP_Digest(joined.data, joined.len, digest, NULL, EVP_md5(), NULL))
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(out + 2 * i, 3, "%02X", digest[i]);
	snprintf(out + 32, OSS_MULTIPART_ETAG_SIZE - 32, "-%u", (unsigned int)count);
	return 0;
}

bool oss_sign_equal(const char *a, const char *b)
{
	size_t n = strlen(a);

	/* The length of a signature is no secret; its bytes are. */
	return n == strlen(b) && CRYPTO_memcmp(a, b, n) == 0;
}
