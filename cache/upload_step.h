/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One content on its way to one key, as a pure machine: results go in, what to do next
 * comes out. It performs nothing and knows no time; the uploader does.
 *
 *   START ── small ──────────────→ PUT ──────────────┐
 *     └─ large ─→ BEGIN → PARTS → END ──────────────┤→ DONE
 *                   ↑        │      └─ unclear → CHECK ┤
 *                   └ no such upload ←────────────────┘
 *   cancelled anywhere: what flies lands, then ABORT → DONE
 *
 * An upload that failed with an id and parts keeps them: starting it again sends the rest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

#define UPLOAD_RESTART_MAX 3 /* upload ids lost under one attempt before it fails */

enum upload_action {
	UPLOAD_WAIT, /* nothing to do until something that flies lands */
	UPLOAD_PUT,  /* the whole content in one request */
	UPLOAD_BEGIN,
	UPLOAD_PART, /* the part in *part */
	UPLOAD_END,
	UPLOAD_CHECK, /* does the key hold our content? */
	UPLOAD_ABORT,
	UPLOAD_DONE, /* state->result says how it went */
	UPLOAD_ACTION_N
};
const char *upload_action_name(enum upload_action action);

enum upload_phase {
	PHASE_START,
	PHASE_PUT,
	PHASE_BEGIN,
	PHASE_PARTS,
	PHASE_END,
	PHASE_CHECK,
	PHASE_ABORT,
	PHASE_DONE,
	PHASE_N
};

enum upload_part_state {
	PART_TODO,
	PART_FLYING,
	PART_SENT
};

struct upload_state {
	enum upload_phase phase;
	bool asked; /* the phase's one request flies */
	bool cancelled;
	int result;     /* 0, or the first failure */
	int end_result; /* why CHECK is asked */
	uint64_t size, part_size;
	uint32_t part_count;   /* 0: in one request */
	uint32_t flying, sent; /* parts */
	uint32_t next;         /* no part before it is to be sent */
	uint32_t restarts;
	uint8_t *part_state; /* enum upload_part_state, by number - 1 */
	struct origin_part *parts;
	char upload_id[ORIGIN_UPLOAD_ID_MAX]; /* "" when there is none */
};

/* part_size 0 or a store without multipart uploads: always in one request. The part size
 * grows where ORIGIN_PART_COUNT_MAX would not be enough. */
int upload_state_init(struct upload_state *s, uint64_t size, uint64_t part_size);
void upload_state_fini(struct upload_state *s); /* safe on zeroes and twice */

/* Takes up an earlier upload of the same content: first its id, then its parts. */
void upload_state_resume(struct upload_state *s, const char *upload_id);
void upload_state_resume_part(struct upload_state *s, const struct origin_part *part);

/* Readies a machine that is DONE with a failure for another attempt. */
void upload_state_retry(struct upload_state *s);

/* What to do next. The answer counts as begun: it is not given again. */
enum upload_action upload_next(struct upload_state *s, uint32_t *part);

/* What came of it: a result of cache/origin.h. For BEGIN `upload_id`; for PART `part`;
 * for CHECK 0 means the content is there, -ENOENT that it is not. */
void upload_landed(struct upload_state *s, enum upload_action action, int result,
		   const char *upload_id, const struct origin_part *part);

/* The content is wanted no more. */
void upload_cancel(struct upload_state *s);

/* The offset and length of a part. */
void upload_part_range(const struct upload_state *s, uint32_t part, uint64_t *off,
		       uint64_t *n);

/* CRC-64 of the whole from those of the parts; all are sent. */
uint64_t upload_whole_crc64(const struct upload_state *s);
