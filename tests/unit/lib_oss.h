/* SPDX-License-Identifier: Apache-2.0 */
/* An OSS origin in front of a scripted server. */
#pragma once

#include "cache/origin.h"
#include "fs/backend/oss.h"
#include "fs/base/buf.h"
#include "tests/unit/lib_httpd.h"

struct lib_oss {
	struct httpd *server;
	struct origin *origin;
	struct origin_req req; /* the last one */
	struct buf got;        /* by sink; or entries, each and a blank after it */
};

/* Path style, bucket "b", keys "test-id:test-secret"; `change` may alter the config. */
void lib_oss_start(struct lib_oss *o, void (*change)(struct oss_config *config));
/* Asserts that the script was followed. */
void lib_oss_finish(struct lib_oss *o);

/* Each runs one request (into o->req) and returns its result. */
int lib_oss_get(struct lib_oss *o, const char *key, uint64_t off, uint64_t len,
		const char *if_match);
int lib_oss_stat(struct lib_oss *o, const char *key);
int lib_oss_put(struct lib_oss *o, const char *key, const char *text);
int lib_oss_list(struct lib_oss *o, const char *prefix, const char *after,
		 const char *until, bool recursive);
int lib_oss_end(struct lib_oss *o, const char *key, const struct origin_part *parts,
		size_t count);

/* Scripts a reply with an <Error> document; `inside` is more XML, `header` more lines. */
void lib_oss_error(struct lib_oss *o, const char *expect, const char *status,
		   const char *code, const char *inside, const char *header);
/* Scripts the reply to a HEAD of an object. */
void lib_oss_head(struct lib_oss *o, const char *expect, uint64_t size, uint64_t crc64);
/* The n-th request's header; NULL: it had none. The text lives until the next call. */
const char *lib_oss_header(struct lib_oss *o, size_t n, const char *name);
