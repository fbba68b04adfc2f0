/* SPDX-License-Identifier: Apache-2.0 */
/* Where credentials are read from: references, the look-up order, one read. Internal to
 * creds.c. No state: every load asks again. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/backend/creds.h"

enum creds_kind {
	CREDS_ANONYMOUS,
	CREDS_ENV,
	CREDS_FILE,     /* file:PATH, our own forms */
	CREDS_OSSUTIL,  /* ossutil:PATH[#PROFILE] */
	CREDS_PASSWD,   /* passwd:PATH, ossfs's password file */
	CREDS_RAM_ROLE, /* ram-role[:NAME | :URL] */
	CREDS_URI,      /* uri:URL */
	CREDS_KIND_N
};

struct creds_source {
	enum creds_kind kind;
	char where[PATH_MAX]; /* path, role name or URL; "" when the kind needs none */
	char profile[64];     /* ossutil; "": the default one */
	char bucket[64]; /* passwd: the bucket whose line is wanted; "": the default */
	char text[PATH_MAX + 32]; /* for people */
};

struct creds_reply {
	struct creds_set set;
	int64_t lifetime_s; /* from now; 0: never expires */
};

/* A set that fits into headers and is whole. -EINVAL with a sentence that names `what`. */
int creds_set_check(const struct creds_set *set, const char *what, struct why *why);

int creds_source_parse(const char *reference, struct creds_source *out, struct why *why);

/* Reads it. May block for the network (bounded). `out` holds secrets: wipe it. */
int creds_source_load(const struct creds_source *source, struct creds_reply *out,
		      struct why *why);

/* Walks the look-up order; the first that exists decides, also when it is faulty. Reads
 * the set of this bucket, where it makes a difference; NULL: the default one. */
int creds_source_find(const char *bucket, struct creds_source *source,
		      struct creds_reply *out, struct why *why);

/* Whether another load can give something else. */
bool creds_source_renewable(const struct creds_source *source);
