/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One content on its way to one key, as a pure machine: results go in, what to do next
 * comes out. It performs nothing and knows no time; the uploader does.
 *
 *   START ── small ──────────────→ PUT ──────────────┐
 *    ↑↓ └─ large ─→ BEGIN → PARTS → END ────────────┤→ DONE
 *   PROVE             ↑        │      └─ unclear → CHECK ┤
 *                     └ no such upload ←──────────────┘
 *   cancelled anywhere: what flies lands, then ABORT → DONE
 *
 *   START ── grows ──→ APPEND ── 0 ──→ DONE        behind what the key holds already
 *    PROVE ↗            ↑  └─ another length ─→ CHECK ─ all of it ─→ DONE
 *                       └─ a part of it ───────────┘
 *
 * An upload that failed with an id and parts keeps them: starting it again sends the rest.
 * With a plan (cache/upload_plan.h) some parts are copied within the store; where the plan
 * rests on a guess, that is proved first. Ahead of the end of a file that grows, parts
 * alone are sent: DONE follows PARTS and the upload goes on another time. So it does when
 * it is stopped: no part is begun any more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"
#include "cache/patch.h"
#include "cache/upload_plan.h"
#include "cache/upload_schedule.h"

#define UPLOAD_RESTART_MAX 3 /* upload ids lost under one attempt before it fails */

enum upload_action {
	UPLOAD_WAIT, /* nothing to do until something that flies lands */
	UPLOAD_PUT,  /* the whole content in one request */
	UPLOAD_BEGIN,
	UPLOAD_PART, /* the part in *part */
	UPLOAD_END,
	UPLOAD_CHECK, /* does the key hold our content? */
	UPLOAD_ABORT,
	UPLOAD_PROVE,  /* does the content start with the object that the plan copies? */
	UPLOAD_APPEND, /* what is behind append_off, to the object of that length */
	UPLOAD_DONE,   /* state->result says how it went */
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
	PHASE_PROVE,
	PHASE_APPEND,
	PHASE_DONE,
	PHASE_N
};

enum upload_part_state {
	PART_TODO,
	PART_CLAIMED, /* sent earlier, perhaps of other bytes: to be compared */
	PART_FLYING,
	PART_SENT
};

/* A part of an unfinished upload, as it was recorded. */
struct upload_sent {
	struct origin_part part;
	uint64_t off;
	bool proven; /* sent from this very content */
};

struct upload_state {
	enum upload_phase phase;
	bool asked; /* the phase's one request flies */
	bool cancelled;
	int result;     /* 0, or the first failure */
	int end_result; /* why CHECK is asked */
	uint64_t size;
	struct upload_schedule schedule; /* of the parts, unless there are ranges */
	uint32_t part_count;             /* 0: in one request */
	uint32_t flying, sent;           /* parts */
	uint32_t next;                   /* no part before it is to be sent */
	uint32_t restarts;
	uint8_t *part_state;         /* enum upload_part_state, by number - 1 */
	struct origin_part *parts;   /* sent, or claimed */
	struct upload_range *ranges; /* by number - 1; NULL: as scheduled, all sent */
	struct patch_object object;  /* with ranges: what is copied from */
	bool prove;                  /* the ranges rest on a guess */
	bool ahead;                  /* no END: the content is not complete */
	bool stopped;                /* … and no part more is begun */
	bool only_end;               /* nothing but END, no new upload */
	bool append;                 /* the tail goes behind the object … */
	uint64_t append_off;         /* … of this length … */
	uint64_t append_crc64;       /* … and checksum */
	uint64_t prove_off;          /* the bytes before are the object's for certain */
	bool only_check;             /* nothing but CHECK: was it appended? */
	char upload_id[ORIGIN_UPLOAD_ID_MAX]; /* "" when there is none */
};

/* part_size, of the first parts (cache/upload_schedule.h): no less than the store takes; 0
 * for a store without multipart uploads: always in one request. */
int upload_state_init(struct upload_state *s, uint64_t size, uint64_t part_size);
void upload_state_fini(struct upload_state *s); /* safe on zeroes and twice */

/* Takes up an earlier upload of the same content: first its id, then its parts. */
void upload_state_resume(struct upload_state *s, const char *upload_id);
void upload_state_resume_part(struct upload_state *s, const struct upload_sent *sent);

/* Before anything else: these parts instead of scheduled ones. Takes `ranges`, also when it
 * fails. With `prove` UPLOAD_PROVE comes first. */
int upload_state_plan(struct upload_state *s, struct upload_range *ranges, uint32_t count,
		      const struct patch_object *object, bool prove);

/* Before anything else: what is behind `object` is appended to it. Unless the content is
 * known to start with all of it, that is to be proved of what is behind `prove_off`; else
 * parts that are sent replace it. */
void upload_state_append(struct upload_state *s, const struct patch_object *object,
			 uint64_t prove_off);

/* Whether an append whose answer was lost was carried out: the key holds `size` bytes. */
void upload_state_init_check(struct upload_state *s, uint64_t size, uint64_t crc64);

/* Another attempt at an END whose answer was lost, with nothing but what was recorded. */
int upload_state_init_end(struct upload_state *s, uint64_t size, const char *upload_id,
			  const struct upload_sent *sent, size_t count);

/* Readies a machine that is DONE with a failure for another attempt. */
void upload_state_retry(struct upload_state *s);

/* What to do next. The answer counts as begun: it is not given again. */
enum upload_action upload_next(struct upload_state *s, uint32_t *part);

/* What came of it: a result of cache/origin.h. For BEGIN `upload_id`; for PART `part`;
 * for CHECK 0 means the content is there, -ENOENT that it is not, UPLOAD_PREFIX that the
 * key holds the content's first part->size bytes, with part->crc64; for PROVE 0 means yes,
 * -ESTALE no, UPLOAD_SAME that the key holds this very content already. */
enum {
	UPLOAD_SAME = 1,
	UPLOAD_PREFIX
};
void upload_landed(struct upload_state *s, enum upload_action action, int result,
		   const char *upload_id, const struct origin_part *part);

/* The content is wanted no more. */
void upload_cancel(struct upload_state *s);
/* Ahead of the end: DONE as soon as what flies has landed. */
void upload_stop(struct upload_state *s);

/* The offset and length of a part. */
void upload_part_range(const struct upload_state *s, uint32_t part, uint64_t *off,
		       uint64_t *n);

/* Bytes of parts that were sent, now or earlier, or fly. */
uint64_t upload_sent_bytes(const struct upload_state *s);

bool upload_part_copied(const struct upload_state *s, uint32_t part);
/* What was sent earlier as this part, to be compared; NULL: nothing. */
const struct origin_part *upload_part_claim(const struct upload_state *s, uint32_t part);

/* CRC-64 of the whole from what is known of its pieces; all parts are sent. False: a part
 * was copied and the store did not say what it sums up to. */
bool upload_whole_crc64(const struct upload_state *s, uint64_t *crc);
