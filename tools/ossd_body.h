/* SPDX-License-Identifier: Apache-2.0 */
/* What operations have in common: checks of the body, the source of a copy. */
#pragma once

#include "tools/ossd_key.h"

struct buf;
struct ossd_object;
struct ossd_request;

/* Content-MD5 and x-oss-hash-crc64ecma against what was received. 0, OSSD_E_BAD_DIGEST or
 * OSSD_E_BAD_CRC. */
int ossd_body_verify(const struct ossd_request *req);

/* The object that x-oss-copy-source names, if its conditions hold. The caller closes *fd and
 * finis the object and the key in every case. */
int ossd_source_open(struct ossd_request *req, char bucket[OSSD_BUCKET_SIZE],
		     struct buf *key, struct ossd_object *o, int *fd);
