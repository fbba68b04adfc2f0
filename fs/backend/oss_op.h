/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One origin request on its way through OSS. Internal to fs/backend/oss*.c.
 *
 * A verb says how a request is built and what its answer means. The frame (oss_op.c) signs
 * and sends, collects the answer, turns errors into errno values and sentences, re-sends
 * once with a corrected clock, and ends the request. A verb that needs another exchange
 * builds it and returns OSS_E_AGAIN.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"
#include "fs/backend/http.h"
#include "fs/backend/oss_reply.h"
#include "fs/backend/oss_sign.h"
#include "fs/backend/oss_signer.h"
#include "fs/backend/oss_xml.h"
#include "fs/base/arena.h"
#include "fs/base/buf.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

#define OSS_QUERY_MAX 8
#define OSS_SLOW_ANSWER_MS 120000 /* a large copy or completion says nothing for long */
#define OSS_META_MAX 100          /* user metadata of one object; 8 KB in all says OSS */

/* What the functions of a verb return besides 0 and errno values. */
enum {
	OSS_E_AGAIN = 1, /* another exchange has been built */
	OSS_E_DONE = 2,  /* nothing to send: success */
};

struct oss {
	struct origin origin;
	struct http *http;
	struct creds *creds;
	struct oss_signer *signer;
	char *base_url; /* "https://bucket.host/" or "https://host/bucket/" */
	char host[256]; /* for sentences */
	char bucket[64];
	char prefix[1024];
	char region[64];
	bool v1;
	bool read_only;
	uint64_t stall_ms;
	atomic_int_least64_t clock_offset_ns; /* the store's clock less ours */
	atomic_uint_least64_t requests[ORIGIN_OP_N], failures;
	atomic_uint_least64_t bytes_in, bytes_out, crc_mismatches;
	struct lock
		lock; /* layer[ORIGIN_LAYER_STORE] of all requests, cancelled of ops */
};

struct oss_op;

struct oss_verb {
	/* Builds the exchange. 0, negative, or OSS_E_DONE. */
	int (*build)(struct oss_op *op);
	/* Part of a good answer's body; NULL: it is collected in op->body. */
	int (*receive)(struct oss_op *op, const void *data, size_t n);
	/* A good answer is complete. 0, negative, or OSS_E_AGAIN. */
	int (*finish)(struct oss_op *op);
	/* It failed with r; NULL: that is the result. 0, negative, or OSS_E_AGAIN. */
	int (*failed)(struct oss_op *op, int r);
};

struct oss_op {
	struct http_exchange x;
	struct oss *oss;
	struct origin_req *req;
	const struct oss_verb *verb;
	bool cancelled;       /* oss->lock */
	bool clock_corrected; /* re-sent once for RequestTimeTooSkewed */
	uint64_t deadline_ms;
	struct oss_grant *grant;

	/* The exchange being built. Names and values live in `arena` or longer. */
	struct arena arena;
	enum http_method method;
	const char *key; /* whole, with the source's prefix; NULL: bucket level */
	struct oss_pair query[OSS_QUERY_MAX];
	size_t query_count;
	struct http_header headers[HTTP_HEADERS_MAX];
	size_t header_count; /* without those of the signature */
	struct http_body body_out;
	uint64_t stall_ms;
	int build_error;

	/* Its answer. */
	struct oss_reply reply;
	struct oss_error error; /* parsed from a bad answer */
	struct buf body;        /* XML */
	uint64_t crc_sent;      /* of body_out, as it went out */
	bool sent_twice; /* a kept connection died under it, perhaps after its work */
	uint64_t crc_received; /* GET of a whole object */
	uint64_t expected;     /* GET: bytes the answer has */
	uint64_t got;          /* GET: of them delivered */
	bool accepted;         /* GET: the header was looked at */

	/* What a verb keeps from one exchange to the next. */
	struct buf payload; /* XML to send */
	struct {
		uint64_t crc64; /* the object must have, when has_crc64 */
		bool has_crc64;
		char etag[ORIGIN_ETAG_MAX]; /* "": any */
		uint64_t size;
		int original; /* what to say when it is not there */
		struct why why;
	} confirm;
	struct {
		char *token;        /* continuation token; or key marker */
		char *upload_id;    /* upload id marker */
		unsigned int pages; /* without progress */
	} page;
	struct {
		size_t *left; /* places in req->keys of what is not gone yet */
		size_t count, batch;
		unsigned int rounds; /* without progress */
	} remove;
};

/* From submit to done. */
void oss_op_start(struct oss *oss, struct origin_req *req, const struct oss_verb *verb);

/* Building: the first two begin anew. Failures show when the exchange is sent. */
void oss_op_on_key(struct oss_op *op, enum http_method method, const char *key);
void oss_op_on_bucket(struct oss_op *op, enum http_method method);
void oss_op_query(struct oss_op *op, const char *name, const char *value);
void oss_op_header(struct oss_op *op, const char *name, const char *value);
const char *oss_op_text(struct oss_op *op, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The source's prefix and the key. */
const char *oss_op_whole_key(struct oss_op *op, const char *key);
/* Content-Type and x-oss-meta-* of req->meta. */
void oss_op_meta(struct oss_op *op, const char *key);
/* x-oss-copy-source and its conditions, from req. */
void oss_op_copy_source(struct oss_op *op);
void oss_op_send_body(struct oss_op *op, const struct origin_body *body);
void oss_op_send_xml(struct oss_op *op); /* op->payload */

/* Says what failed: "what: put dir/a at bucket.host (request 66C2…)". Returns r. */
int oss_op_why(struct oss_op *op, int r, const char *what);
/* The answer's CRC-64 against ours: 0, or -EBADMSG with a sentence. */
int oss_op_check_crc(struct oss_op *op, uint64_t ours);

/* The XML of a good answer; an <Error> in it is treated as one. Negative as a result. */
int oss_op_outcome(struct oss_op *op, struct oss_outcome *out);

/* The verbs. */
extern const struct oss_verb oss_verb_stat, oss_verb_get, oss_verb_put, oss_verb_append,
	oss_verb_copy, oss_verb_delete, oss_verb_delete_many, oss_verb_probe,
	oss_verb_list, oss_verb_multi_begin, oss_verb_multi_part, oss_verb_multi_copy,
	oss_verb_multi_end, oss_verb_multi_abort, oss_verb_multi_list,
	oss_verb_make_bucket;
