/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials ready for signing: one set with the V4 key of the day derived from it, shared
 * by all requests until either changes. Grants lie in memory of their own, kept out of
 * core dumps, and are wiped when the last user lets go.
 */
#pragma once

#include <stdbool.h>

#include "fs/backend/creds.h"
#include "fs/backend/oss_sign.h"

struct oss_signer;

struct oss_grant {
	unsigned int refs; /* the signer's lock */
	char day[9];       /* UTC, of the key; "" for V1 */
	struct oss_v4_key key;
	struct creds_set set; /* id "": anonymous */
};

/* `creds` and `region` are borrowed and outlive the signer; region NULL: V1. */
int oss_signer_new(struct creds *creds, const char *region, struct oss_signer **out);
struct oss_signer *oss_signer_free(struct oss_signer *s); /* takes NULL, returns NULL */

/* `date`: "YYYYMMDDTHHMMSSZ". Never blocks on the network; -EKEYEXPIRED and -EACCES come
 * from creds_get(). */
int oss_signer_get(struct oss_signer *s, const char *date, struct oss_grant **out);
void oss_signer_put(struct oss_signer *s, struct oss_grant *grant); /* takes NULL */
