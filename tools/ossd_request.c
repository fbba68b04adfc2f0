/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_request.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "tools/ossd_code.h"
#include "tools/ossd_s3.h"
#include "tools/ossd_xml.h"

const char *ossd_request_header(const struct ossd_request *req, const char *name)
{
	for (size_t i = 0; i < req->header_count; i++)
		if (!strcasecmp(req->headers[i].name, name))
			return req->headers[i].value ? req->headers[i].value : "";
	return NULL;
}

const char *ossd_request_query(const struct ossd_request *req, const char *name)
{
	return ossd_target_query(&req->target, name);
}

struct ossd_ref ossd_request_ref(const struct ossd_request *req)
{
	return (struct ossd_ref){req->target.bucket, req->target.key.data,
				 req->target.key.len};
}

int64_t ossd_request_now_ms(const struct ossd_request *req)
{
	return clock_real_ns() / 1000000 + req->faults.skew_ms;
}

int ossd_request_number(struct ossd_request *req, const char *name, uint64_t init,
			uint64_t min, uint64_t max, uint64_t *out)
{
	const char *text = ossd_request_query(req, name);
	unsigned long long value;
	char *end;

	if (!text || !*text) {
		*out = init;
		return 0;
	}
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || strlen(text) > 19 || value < min ||
	    value > max) {
		ossd_xml_text(&req->error_extra, "ArgumentName", name);
		ossd_xml_text(&req->error_extra, "ArgumentValue", text);
		return OSSD_E_INVALID_ARGUMENT;
	}
	*out = value;
	return 0;
}

void ossd_reply_header(struct ossd_request *req, const char *name, const char *value)
{
	buf_append(&req->reply.headers, name, strlen(name) + 1);
	buf_append(&req->reply.headers, value, strlen(value) + 1);
}

void ossd_reply_header_uint(struct ossd_request *req, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	ossd_reply_header(req, name, text);
}

void ossd_reply_etag(struct ossd_request *req, const char *etag)
{
	char quoted[OSSD_ETAG_SIZE + 2];

	snprintf(quoted, sizeof(quoted), "\"%s\"", etag);
	ossd_reply_header(req, "ETag", quoted);
}

void ossd_reply_crc(struct ossd_request *req, uint64_t crc)
{
	if (ossd_faults_has(&req->faults, OSSD_FAULT_NO_CRC))
		return;
	if (ossd_faults_has(&req->faults, OSSD_FAULT_CRC))
		crc ^= 1;
	ossd_reply_header_uint(req, "x-oss-hash-crc64ecma", crc);
}

void ossd_reply_md5(struct ossd_request *req, const unsigned char md5[16])
{
	unsigned char text[25];

	EVP_EncodeBlock(text, md5, 16);
	ossd_reply_header(req, "Content-MD5", (const char *)text);
}

static void clear_reply(struct ossd_request *req)
{
	buf_reset(&req->reply.headers);
	buf_reset(&req->reply.body);
	if (req->reply.fd >= 0)
		close(req->reply.fd);
	req->reply.fd = -1;
	req->reply.length = 0;
}

/* A HEAD answer has no body: the document goes into a header (protocol.md §3.10). */
static void put_head_error(struct ossd_request *req)
{
	size_t n = req->reply.body.len;
	unsigned char *text = malloc(n * 4 / 3 + 8);

	if (!text)
		return;
	EVP_EncodeBlock(text, (const unsigned char *)req->reply.body.data, (int)n);
	ossd_reply_header(req, "x-oss-err", (const char *)text);
	free(text);
}

static void put_error(struct ossd_request *req, const struct ossd_code_info *info,
		      const char *message)
{
	struct ossd_error_doc doc = {
		.message = message,
		.request_id = req->id,
		.host_id = ossd_request_header(req, "host"),
		.extra = req->error_extra.data,
	};

	clear_reply(req);
	req->reply.status = info->status;
	req->reply.code = info->code;
	if (info->status == 304)
		return;
	ossd_error_format(&req->reply.body, info, &doc);
	ossd_reply_header(req, "Content-Type", "application/xml");
	if (*info->ec)
		ossd_reply_header(req, "x-oss-ec", info->ec);
	if (!strcmp(req->method, "HEAD"))
		put_head_error(req);
}

void ossd_reply_error(struct ossd_request *req, int code, const char *message)
{
	if (code < 0) {
		log_error("%s op failed bucket=%s key=%s request=%s", strerror(-code),
			  req->target.bucket,
			  req->target.key.data ? req->target.key.data : "", req->id);
		code = OSSD_E_INTERNAL;
	}
	if (code == OSSD_E_NO_SUCH_BUCKET || code == OSSD_E_BUCKET_EXISTS)
		ossd_xml_text(&req->error_extra, "BucketName", req->target.bucket);
	if (code == OSSD_E_NO_SUCH_KEY)
		ossd_xml_key(&req->error_extra, "Key", req->target.key.data,
			     req->target.key.len, false);
	put_error(req, req->s3 ? ossd_s3_code_info(code) : ossd_code_info(code), message);
}

void ossd_reply_fault(struct ossd_request *req, const struct ossd_faults *faults)
{
	struct ossd_code_info info = {faults->status, req->error_code, "0000-00000000",
				      "Answered by a fault rule."};

	snprintf(req->error_code, sizeof(req->error_code), "%s", faults->code);
	put_error(req, &info, NULL);
	if (faults->body) {
		clear_reply(req);
		buf_puts(&req->reply.body, faults->body);
		ossd_reply_header(req, "Content-Type", "text/html");
	}
	if (faults->retry_after_s)
		ossd_reply_header_uint(req, "Retry-After", faults->retry_after_s);
}
