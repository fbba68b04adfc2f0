/* SPDX-License-Identifier: Apache-2.0 */
/* What the checks of the dialects share: for ossd_auth.c and ossd_s3_auth.c only. Results are
 * those of ossd_auth_check(). */
#pragma once

#include <stdbool.h>

#include "tools/ossd_auth.h"

#define OSSD_AUTH_SKEW_MS (15 * 60 * 1000)
#define OSSD_AUTH_EXPIRES_MAX_S (7 * 24 * 60 * 60)
#define OSSD_AUTH_FIELD_SIZE 512

/* One signature, taken apart. */
struct ossd_claim {
	char id[OSSD_AUTH_FIELD_SIZE];
	char region[64], product[32], scope_date[16];
	char signature[128];
	char additional[OSSD_AUTH_FIELD_SIZE]; /* header names; AWS: all signed ones */
	const char *token;                     /* NULL: none */
	bool aws;
};

typedef int (*ossd_auth_fn)(const struct ossd_auth *a, const char *text,
			    const struct ossd_account **who, const char **message,
			    struct buf *extra);

/* First value of a header, any case, or of a parameter; NULL: absent. */
const char *ossd_auth_header(const struct ossd_auth *a, const char *name);
const char *ossd_auth_query(const struct ossd_auth *a, const char *name);

/* Digits only, up to `max`. */
bool ossd_auth_number(const char *text, int64_t max, int64_t *out);

/* "ID/20231216/cn-hangzhou/oss/TERMINATOR"; the id may hold slashes. -EINVAL. */
int ossd_claim_credential(struct ossd_claim *c, const char *text, size_t n,
			  const char *terminator);
/* "Credential=…,Signature=…" and the field called `names` in any order, with blanks or
 * without behind the commas. -EINVAL. */
int ossd_claim_fields(struct ossd_claim *c, const char *text, const char *names,
		      const char *terminator);

int ossd_auth_account(const struct ossd_auth *a, const struct ossd_claim *claim,
		      const struct ossd_account **who, struct buf *extra);
int ossd_auth_skew(const struct ossd_auth *a, int64_t signed_ms, struct buf *extra);
int ossd_auth_region(const struct ossd_auth *a, const struct ossd_claim *c,
		     struct buf *extra);
/* What saves hours of debugging (protocol.md §2.4.3). The strings hold no secret. */
int ossd_auth_mismatch(const struct ossd_claim *claim, const struct buf *to_sign,
		       const struct buf *canonical, struct buf *extra);

/* Of OSS V1 and AWS V2: HMAC-SHA1 over to_sign, in base 64. */
int ossd_auth_compare_sha1(const struct ossd_claim *claim, struct buf *to_sign,
			   const char *secret, struct buf *extra);

/* ossd_s3_auth.c: AWS signatures V4 and V2. */
int ossd_s3_v4_header(const struct ossd_auth *a, const char *fields,
		      const struct ossd_account **who, const char **message,
		      struct buf *extra);
int ossd_s3_v4_url(const struct ossd_auth *a, const char *algorithm,
		   const struct ossd_account **who, const char **message,
		   struct buf *extra);
int ossd_s3_v2_header(const struct ossd_auth *a, const char *fields,
		      const struct ossd_account **who, const char **message,
		      struct buf *extra);
int ossd_s3_v2_url(const struct ossd_auth *a, const char *id,
		   const struct ossd_account **who, const char **message,
		   struct buf *extra);
