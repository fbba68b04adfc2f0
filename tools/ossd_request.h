/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its answer, as the operations see them; nothing of the HTTP library.
 *
 * Life: ossd_http.c fills it in when the headers are there, ossd_dispatch.c decides
 * (faults, signature, permission, operation), the body goes to `spool` or `body`, the
 * operation fills in `reply`, ossd_http.c sends it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/buf.h"
#include "tools/ossd_fault.h"
#include "tools/ossd_store.h"
#include "tools/ossd_target.h"

struct ossd_account;
struct ossd_op;
struct ossd_request;
struct ossd_s3;

#define OSSD_HEADERS_MAX 128
#define OSSD_OBJECT_MAX (5ull << 30) /* bytes of one PUT, part or append */

/* What all requests share; set before the first one. */
struct ossd_context {
	struct ossd_store *store;
	struct ossd_fault_program *faults;
	struct ossd_stats *stats;
	const struct ossd_accounts *accounts; /* NULL: everyone may do everything */
	const char *region;                   /* shown; never NULL */
	const char *region_required;          /* V4 scopes must name it; NULL: any */
	bool clock_check;
	const char *const *suffixes;
	size_t suffix_count;
};

struct ossd_reply {
	int status;
	const char *code;   /* of the error; "" for success */
	struct buf headers; /* "name\0value\0"… */
	struct buf body;
	int fd; /* -1, or the body is `length` bytes of it from `offset` */
	uint64_t offset, length;
};

struct ossd_request {
	const struct ossd_context *context;
	const char *method;
	struct ossd_target target;
	struct oss_pair headers[OSSD_HEADERS_MAX]; /* borrowed from the connection */
	size_t header_count;
	const struct ossd_op *op;
	const struct ossd_account *account; /* NULL: anonymous */
	struct ossd_s3 *s3;                 /* NULL: speaks OSS */
	struct ossd_faults faults;
	char id[25];
	uint64_t start_ns;
	char error_code[64];    /* what reply.code points to when a fault made it up */
	struct buf error_extra; /* XML for the error document */

	struct ossd_spool spool; /* fd -1: not open */
	struct buf body;
	uint64_t received;

	struct ossd_reply reply;
};

/* First value of a header, any case; NULL: absent. */
const char *ossd_request_header(const struct ossd_request *req, const char *name);
const char *ossd_request_query(const struct ossd_request *req, const char *name);
struct ossd_ref ossd_request_ref(const struct ossd_request *req);
/* The server's clock as this request sees it. */
int64_t ossd_request_now_ms(const struct ossd_request *req);

/* A decimal parameter from `min` to `max`; `init` when absent. 0 or
 * OSSD_E_INVALID_ARGUMENT. */
int ossd_request_number(struct ossd_request *req, const char *name, uint64_t init,
			uint64_t min, uint64_t max, uint64_t *out);

/* ---- filling in the reply -------------------------------------------------------------- */

void ossd_reply_header(struct ossd_request *req, const char *name, const char *value);
void ossd_reply_header_uint(struct ossd_request *req, const char *name, uint64_t value);
void ossd_reply_etag(struct ossd_request *req, const char *etag);
/* x-oss-hash-crc64ecma, unless a fault says otherwise. */
void ossd_reply_crc(struct ossd_request *req, uint64_t crc);
void ossd_reply_md5(struct ossd_request *req, const unsigned char md5[16]);

/* The error document of a code (or a negative errno: InternalError), replacing whatever the
 * reply was; `message` NULL: the table's. */
void ossd_reply_error(struct ossd_request *req, int code, const char *message);
/* The same for a status and a code that stand in no table. */
void ossd_reply_fault(struct ossd_request *req, const struct ossd_faults *faults);
