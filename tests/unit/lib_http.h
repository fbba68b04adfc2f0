/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP exchanges of tests, waited for. */
#pragma once

#include "tests/unit/test.h"

#include "fs/backend/http.h"
#include "fs/base/buf.h"
#include "fs/base/lock.h"
#include "tests/unit/lib_httpd.h"

/* An exchange and what became of it. */
struct call {
	struct http_exchange x;
	char url[1200];
	struct buf body; /* received */
	struct buf sent; /* seen by the sending hook */
	char etag[64];
	int restarts;
	size_t body_max; /* receive fails with -EFBIG beyond; 0: no limit */
	struct lock lock;
	pthread_cond_t cond;
	int done;
};

void call_init(struct call *c, const struct httpd *s, enum http_method method,
	       const char *path);
void call_wait(struct call *c);
void call_fini(struct call *c);
struct http *lib_http_start(uint32_t connections);
/* One exchange from start to end; the call stays for the caller to look at. */
int lib_http_run(struct http *h, struct call *c);
int lib_http_get(struct http *h, struct call *c, const struct httpd *s, const char *path);
