/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults on demand: a program of rules that a test sets at run time. Each request is held
 * against all rules; those that match are put together into one struct ossd_faults. The
 * rules' language is told in tools/README.md and ossd(1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/buf.h"

struct ossd_fault_program;
struct why;

/* kind, name in a rule */
#define OSSD_FAULTS(X)                                                                   \
	X(STATUS, "status")                                                              \
	X(COMMIT_THEN_500, "commit-then-500")                                            \
	X(DROP, "drop")                                                                  \
	X(RESET, "reset")                                                                \
	X(RESET_UPLOAD, "reset-upload")                                                  \
	X(TRUNCATE, "truncate")                                                          \
	X(EXTRA, "extra")                                                                \
	X(FLIP, "flip")                                                                  \
	X(CRC, "crc")                                                                    \
	X(NO_CRC, "no-crc")                                                              \
	X(SLOW, "slow")                                                                  \
	X(STALL, "stall")                                                                \
	X(LATENCY, "latency")                                                            \
	X(BANDWIDTH, "bandwidth")                                                        \
	X(EXPIRED_TOKEN, "expired-token")                                                \
	X(SKEW, "skew")                                                                  \
	X(HEADER, "header")                                                              \
	X(IGNORE_RANGE, "ignore-range")                                                  \
	X(SHORT_DELETE, "short-delete")                                                  \
	X(LIST_DUPLICATE, "list-duplicate")                                              \
	X(LIST_UNSORTED, "list-unsorted")                                                \
	X(LIST_LOOP, "list-loop")                                                        \
	X(LIST_EMPTY, "list-empty")

enum ossd_fault {
#define OSSD_FAULT_ENUM(kind, name) OSSD_FAULT_##kind,
	OSSD_FAULTS(OSSD_FAULT_ENUM)
#undef OSSD_FAULT_ENUM
	OSSD_FAULT_N
};

#define OSSD_FAULT_HEADERS_MAX 8
#define OSSD_RULES_MAX 256

/* What is done to one request. Strings are its own. */
struct ossd_faults {
	uint64_t set; /* bit per enum ossd_fault */
	int status;   /* STATUS, EXPIRED_TOKEN, COMMIT_THEN_500: what is answered */
	char code[64];
	char *body; /* instead of the error document; NULL: the document */
	uint64_t retry_after_s;
	uint64_t reset_after;        /* RESET: bytes of the answer's body */
	uint64_t reset_upload_after; /* RESET_UPLOAD: bytes of the request's body */
	uint64_t truncate_after;
	uint64_t extra;                 /* EXTRA: zero bytes behind the end */
	uint64_t flip_at;               /* UINT64_MAX: the middle */
	uint64_t slow_rate;             /* SLOW: bytes per second of the answer's body */
	uint64_t stall_after, stall_ms; /* stall_ms 0: until the client gives up */
	uint64_t latency_ms;
	uint64_t rate;   /* BANDWIDTH: bytes per second, each way */
	int64_t skew_ms; /* the server's clock is this far ahead */
	uint64_t keep;   /* SHORT_DELETE: keys that are deleted */
	char *header_names[OSSD_FAULT_HEADERS_MAX],
		*header_values[OSSD_FAULT_HEADERS_MAX];
	int header_count;
};

static inline bool ossd_faults_has(const struct ossd_faults *f, enum ossd_fault kind)
{
	return f->set >> kind & 1;
}

/* An empty program. */
struct ossd_fault_program *ossd_fault_program_new(void);
struct ossd_fault_program *ossd_fault_program_free(struct ossd_fault_program *program);

/* Replaces the rules by those of a JSON array; on failure the old ones stay. -EINVAL with a
 * sentence that names the rule. */
int ossd_fault_program_set(struct ossd_fault_program *program, const char *json, size_t n,
			   struct why *why);

/* The rules as JSON, with "seen" (requests that matched) and "hits" (those it acted on). */
void ossd_fault_program_format(struct ossd_fault_program *program, struct buf *out);

/* `key` is "" for requests to no object. Counts. */
void ossd_fault_match(struct ossd_fault_program *program, const char *op, const char *key,
		      struct ossd_faults *out);
void ossd_faults_fini(struct ossd_faults *faults);
