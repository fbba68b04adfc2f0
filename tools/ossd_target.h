/* SPDX-License-Identifier: Apache-2.0 */
/* The request target and the Host header as bucket, key and query. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/buf.h"
#include "tools/ossd_key.h"

#define OSSD_QUERY_MAX 64 /* parameters of one request */

struct ossd_target {
	char bucket[OSSD_BUCKET_SIZE];         /* "": service level */
	struct buf key;                        /* decoded once; empty: bucket level */
	struct oss_pair query[OSSD_QUERY_MAX]; /* decoded, as they came */
	size_t query_count;
	bool path_style;
	const char
		*path; /* as it came, encoded, with the first '/'; borrowed from `raw` */
	size_t path_len;
	struct buf text; /* what the pairs point into */
};

/* %XX once, and '+' as a blank: the service takes form encoding everywhere, and there are
 * clients that send it (a plus is %2B in all of them). -EINVAL. Appends. */
int ossd_decode(struct buf *out, const char *s, size_t n);

/* `raw` as it stands in the request line; `host` may be NULL. A host that ends in one of
 * `suffixes` has the bucket in front of it; every other is an address, and the bucket is
 * the first component of the path. Returns 0, OSSD_E_INVALID_BUCKET_NAME,
 * OSSD_E_INVALID_OBJECT_NAME or OSSD_E_INVALID_ARGUMENT. Fini in every case. */
int ossd_target_parse(struct ossd_target *t, const char *raw, const char *host,
		      const char *const *suffixes, size_t suffix_count);
void ossd_target_fini(struct ossd_target *t);

/* The first parameter of that name: its value ("" when it has none), or NULL. */
const char *ossd_target_query(const struct ossd_target *t, const char *name);

/* x-oss-copy-source: "/bucket/key[?versionId=ID]", encoded. 0, OSSD_E_INVALID_ARGUMENT or
 * OSSD_E_INVALID_OBJECT_NAME; `key` is appended. */
int ossd_target_parse_source(const char *header, char bucket[OSSD_BUCKET_SIZE],
			     struct buf *key);
