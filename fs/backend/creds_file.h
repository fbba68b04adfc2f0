/* SPDX-License-Identifier: Apache-2.0 */
/* Credential files (protocol.md §7.6). The parsers are pure; their sentences name the line
 * and never what stands there. Internal to creds_source.c. */
#pragma once

#include <stddef.h>

#include "fs/backend/creds_source.h"

#define CREDS_FILE_MAX 65536

/* Reads a file that nobody else may read: regular, owned by us or root, no bits for others,
 * none for the group (/etc/passwd-ossfs may be readable by it), none to execute. Into
 * text[CREDS_FILE_MAX + 1], NUL-terminated; *n without it. -ENOENT, -EACCES, -EINVAL. */
int creds_file_read(const char *path, char *text, size_t *n, struct why *why);

/* ossfs: "ID:SECRET", "BUCKET:ID:SECRET", or OSSAccessKeyId= and OSSSecretKey=. The line of
 * `bucket` wins over the default one. */
int creds_parse_passwd(const char *text, size_t n, const char *path, const char *bucket,
		       struct creds_set *out, struct why *why);

/* What an ossutil config file says, versions 1 and 2. */
struct creds_ossutil {
	struct creds_set set;
	char mode[32];      /* "": AK or StsToken, by what is there */
	char role[128];     /* EcsRamRole */
	char service[1024]; /* version 1, [AkService]: a URL that gives credentials */
};
/* `profile` "": [default], else version 1's [Credentials]. */
int creds_parse_ossutil(const char *text, size_t n, const char *path, const char *profile,
			struct creds_ossutil *out, struct why *why);

/* The JSON of the metadata service, a credentials URI or a process. `now_s` is the time at
 * whoever wrote it. -EINVAL; -EKEYEXPIRED: it is over already. */
int creds_parse_json(const char *text, size_t n, const char *what, int64_t now_s,
		     struct creds_reply *out, struct why *why);
