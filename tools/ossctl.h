/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of ossctl share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"
#include "fs/backend/backend.h"

struct ossctl_options {
	const char *endpoint, *region, *credentials, *ca_file;
	int addressing, signature;
	uint64_t retry_ms;
	bool json, dirs, recursive, verbose;
	const char *debug;
};

/* "oss://bucket/a/b" as a source that can be opened and a key in it; the same for
 * "file:///dir/a": the folder and the name in it. */
struct ossctl_place {
	char source[1200];
	char key[1024]; /* "" or what follows the bucket */
};

/* The functions below print a sentence when they fail. Those that return a place's origin
 * give -EINVAL, …; exit codes come from ossctl_exit(). */
int ossctl_parse(const char *text, struct ossctl_place *place);
int ossctl_open(const struct ossctl_options *o, const struct ossctl_place *place,
		struct origin **out);
struct backend_config ossctl_config(const struct ossctl_options *o, const char *source);

int ossctl_exit(int r);                       /* of an errno value */
int ossctl_fail(int r, const char *sentence); /* prints, returns the exit code */

/* Runs a request; prints its sentence when it fails. */
int ossctl_call(struct origin *o, struct origin_req *req);

/* Moving bytes (ossctl_copy.c): exit codes. */
int ossctl_put(const struct ossctl_options *o, const char *file, const char *to);
int ossctl_get(const struct ossctl_options *o, const char *from, const char *file);
int ossctl_cp(const struct ossctl_options *o, const char *from, const char *to);
