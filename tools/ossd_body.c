/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_body.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "tools/ossd_code.h"
#include "tools/ossd_range.h"
#include "tools/ossd_request.h"

/* A spooled body was hashed as it came; one in memory is now. */
static int digest(const struct ossd_request *req, unsigned char md5[16], uint64_t *crc)
{
	if (req->spool.fd >= 0) {
		memcpy(md5, req->spool.md5, 16);
		*crc = req->spool.crc;
		return 0;
	}
	*crc = crc64(0, req->body.data, req->body.len);
	return EVP_Digest(req->body.data, req->body.len, md5, NULL, EVP_md5(), NULL)
		       ? 0
		       : err_origin(-ENOMEM);
}

int ossd_body_verify(const struct ossd_request *req)
{
	const char *want_md5 = ossd_request_header(req, "content-md5");
	const char *want_crc = ossd_request_header(req, "x-oss-hash-crc64ecma");
	unsigned char md5[16], text[25];
	uint64_t crc;
	char *end;
	int r;

	if (!want_md5 && !want_crc)
		return 0;
	r = digest(req, md5, &crc);
	if (r < 0)
		return err_trace(r);
	EVP_EncodeBlock(text, md5, sizeof(md5));
	if (want_md5 && strcmp(want_md5, (const char *)text) != 0)
		return OSSD_E_BAD_DIGEST;
	if (want_crc && (*want_crc < '0' || *want_crc > '9' ||
			 strtoull(want_crc, &end, 10) != crc || *end))
		return OSSD_E_BAD_CRC;
	return 0;
}

int ossd_source_open(struct ossd_request *req, char bucket[OSSD_BUCKET_SIZE],
		     struct buf *key, struct ossd_object *o, int *fd)
{
	struct ossd_conditions c = {
		.match = ossd_request_header(req, "x-oss-copy-source-if-match"),
		.none_match = ossd_request_header(req, "x-oss-copy-source-if-none-match"),
		.modified_since =
			ossd_request_header(req, "x-oss-copy-source-if-modified-since"),
		.unmodified_since =
			ossd_request_header(req, "x-oss-copy-source-if-unmodified-since"),
	};
	const char *header = ossd_request_header(req, "x-oss-copy-source");
	int r = ossd_target_parse_source(header, bucket, key);
	struct ossd_ref ref = {bucket, key->data, key->len};

	if (r == 0)
		r = ossd_store_open_object(req->context->store, &ref, o, fd);
	return r ? r : ossd_conditions_check(&c, o->etag, o->modified_ms);
}
