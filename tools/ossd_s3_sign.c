/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_s3_sign.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/arena.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"

/* Parameters that V2 signs, in the order in which they are signed. */
static const char *const v2_signed[] = {
	"accelerate",
	"acl",
	"cors",
	"defaultObjectAcl",
	"delete",
	"lifecycle",
	"location",
	"logging",
	"notification",
	"partNumber",
	"policy",
	"requestPayment",
	"response-cache-control",
	"response-content-disposition",
	"response-content-encoding",
	"response-content-language",
	"response-content-type",
	"response-expires",
	"restore",
	"storageClass",
	"tagging",
	"torrent",
	"uploadId",
	"uploads",
	"versionId",
	"versioning",
	"versions",
	"website",
};

static const char *value_of(const struct oss_pair *pair)
{
	return pair->value ? pair->value : "";
}

/* ---- V4 -------------------------------------------------------------------------------- */

/* The server's own encoding of what the client sent: clients differ in what they escape, and
 * all sign the strict form. */
static int put_path(struct buf *out, const char *path, size_t n)
{
	_cleanup_(buf_fini) struct buf decoded = BUF_INIT;

	if (n == 0) {
		buf_putc(out, '/');
		return 0;
	}
	if (oss_decode(&decoded, path, n) < 0)
		return err_origin(-EINVAL);
	oss_encode(out, decoded.data, decoded.len, true);
	return err_trace(buf_error(&decoded));
}

struct parameter {
	const char *name, *value; /* encoded */
};

static int by_name_and_value(const void *a, const void *b)
{
	const struct parameter *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : strcmp(x->value, y->value);
}

static const char *encoded(struct arena *a, const char *text)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	oss_encode(&b, text, strlen(text), false);
	return buf_error(&b) < 0 ? NULL : arena_copy(a, b.data ? b.data : "", b.len);
}

static int put_query(struct buf *out, const struct s3_sign_request *req)
{
	_cleanup_(arena_fini) struct arena text;
	_cleanup_(freep) struct parameter *sorted = NULL;
	size_t count = 0;

	arena_init(&text);
	if (!req->query_count)
		return 0;
	sorted = calloc(req->query_count, sizeof(*sorted));
	if (!sorted)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->query_count; i++) {
		const struct oss_pair *p = &req->query[i];
		struct parameter *to = &sorted[count];

		if (!strcmp(p->name, "X-Amz-Signature"))
			continue;
		to->name = encoded(&text, p->name);
		to->value = encoded(&text, value_of(p));
		if (!to->name || !to->value)
			return err_origin(-ENOMEM);
		count++;
	}
	qsort(sorted, count, sizeof(*sorted), by_name_and_value);
	for (size_t i = 0; i < count; i++)
		buf_printf(out, "%s%s=%s", i ? "&" : "", sorted[i].name, sorted[i].value);
	return 0;
}

/* Without blanks at the ends; inside, V4 has one for each run of them. */
static void put_trimmed(struct buf *out, const char *s, bool collapse)
{
	bool gap = false;

	s += strspn(s, " \t");
	for (size_t n = strlen(s); n; s++, n--) {
		bool blank = *s == ' ' || *s == '\t';

		if (blank && strspn(s, " \t") == n)
			break;
		if (!blank || !collapse || !gap)
			buf_putc(out, blank && collapse ? ' ' : *s);
		gap = blank;
	}
}

static void put_header(struct buf *out, const struct s3_sign_request *req,
		       const char *name, size_t n)
{
	bool first = true;

	buf_append(out, name, n);
	buf_putc(out, ':');
	for (size_t i = 0; i < req->header_count; i++) {
		const struct oss_pair *h = &req->headers[i];

		if (strlen(h->name) != n || strncasecmp(h->name, name, n) != 0)
			continue;
		if (!first)
			buf_putc(out, ',');
		first = false;
		put_trimmed(out, value_of(h), true);
	}
	buf_putc(out, '\n');
}

int s3_v4_canonical(struct buf *out, const struct s3_sign_request *req,
		    const char *signed_headers, const char *payload)
{
	int r;

	buf_printf(out, "%s\n", req->method);
	r = put_path(out, req->path, req->path_len);
	if (r < 0)
		return err_trace(r);
	buf_putc(out, '\n');
	r = put_query(out, req);
	if (r < 0)
		return err_trace(r);
	buf_putc(out, '\n');
	for (const char *s = signed_headers; *s; s += *s == ';') {
		size_t n = strcspn(s, ";");

		put_header(out, req, s, n);
		s += n;
	}
	buf_printf(out, "\n%s\n%s", signed_headers, payload);
	return err_trace(buf_error(out));
}

/* ---- V2 -------------------------------------------------------------------------------- */

static const char *header(const struct s3_sign_request *req, const char *name)
{
	for (size_t i = 0; i < req->header_count; i++)
		if (!strcasecmp(req->headers[i].name, name))
			return value_of(&req->headers[i]);
	return "";
}

/* Equal names keep the order they came in. */
static int by_header_name(const void *a, const void *b)
{
	const struct oss_pair *const *x = a, *const *y = b;
	int r = strcasecmp((*x)->name, (*y)->name);

	return r ? r : (*x > *y) - (*x < *y);
}

static int put_amz_headers(struct buf *out, const struct s3_sign_request *req)
{
	_cleanup_(freep) const struct oss_pair **sorted = NULL;
	size_t count = 0;

	if (!req->header_count)
		return 0;
	sorted = calloc(req->header_count, sizeof(*sorted));
	if (!sorted)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < req->header_count; i++)
		if (!strncasecmp(req->headers[i].name, "x-amz-", 6))
			sorted[count++] = &req->headers[i];
	qsort(sorted, count, sizeof(*sorted), by_header_name);
	for (size_t i = 0; i < count; i++) {
		bool repeats = i && !strcasecmp(sorted[i]->name, sorted[i - 1]->name);
		bool repeated = i + 1 < count &&
				!strcasecmp(sorted[i]->name, sorted[i + 1]->name);

		for (const char *c = sorted[i]->name; *c && !repeats; c++)
			buf_putc(out, (char)tolower((unsigned char)*c));
		buf_putc(out, repeats ? ',' : ':');
		put_trimmed(out, value_of(sorted[i]), false);
		if (!repeated)
			buf_putc(out, '\n');
	}
	return 0;
}

static void put_sub_resources(struct buf *out, const struct s3_sign_request *req)
{
	char separator = '?';

	for (size_t k = 0; k < sizeof(v2_signed) / sizeof(*v2_signed); k++)
		for (size_t i = 0; i < req->query_count; i++) {
			if (strcmp(req->query[i].name, v2_signed[k]) != 0)
				continue;
			buf_putc(out, separator);
			buf_puts(out, v2_signed[k]);
			if (*value_of(&req->query[i]))
				buf_printf(out, "=%s", value_of(&req->query[i]));
			separator = '&';
		}
}

int s3_v2_string_to_sign(struct buf *out, const struct s3_sign_request *req,
			 const char *date_line)
{
	int r;

	buf_printf(out, "%s\n%s\n%s\n%s\n", req->method, header(req, "content-md5"),
		   header(req, "content-type"), date_line);
	r = put_amz_headers(out, req);
	if (r < 0)
		return err_trace(r);
	if (req->bucket)
		buf_printf(out, "/%s", req->bucket);
	if (req->path_len)
		buf_append(out, req->path, req->path_len);
	else
		buf_putc(out, '/');
	put_sub_resources(out, req);
	return err_trace(buf_error(out));
}
