/* SPDX-License-Identifier: Apache-2.0 */
/* Where an OSS bucket is reached (protocol.md §1.1, §1.2). Pure. */
#pragma once

#include <stdbool.h>

#include "fs/backend/backend.h"

struct endpoint {
	bool tls;
	char host
		[256]; /* as in the Host header: "oss-cn-hangzhou.aliyuncs.com", "[::1]:80" */
	char region[64];                    /* "cn-hangzhou"; "": not known */
	enum backend_addressing addressing; /* never AUTO */
};

struct why;

/*
 * `endpoint` is host[:port] or a URL without path, https when it names no scheme; NULL: the
 * region's public one. `region` is as users write it ("cn-hangzhou", "oss-cn-hangzhou");
 * NULL: the one the endpoint's name gives, if any. An explicit region wins. AUTO becomes
 * path style for addresses and names without a dot, else virtual-hosted.
 * -EINVAL with a sentence.
 */
int endpoint_resolve(const char *endpoint, const char *region,
		     enum backend_addressing addressing, struct endpoint *out,
		     struct why *why);

/* 3 to 63 of a-z, 0-9 and '-', letters or digits at both ends. */
bool endpoint_bucket_ok(const char *bucket);
