/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out what the reconciler decides: puts, copies, deletes, fetches. A fixed number
 * of threads; requests of one large file run on all of them, requests of many files side by
 * side, the oldest job first. Every job is one attempt: waiting and trying again is the
 * reconciler's business. Parts ahead of the end of a file (state.ahead) are sent when
 * nothing else is to be done, and never by all threads. Thread-safe.
 *
 * Lock order: the owner's lock -> the uploader's. Callbacks run without the uploader's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"
#include "cache/upload_step.h"
#include "fs/base/list.h"

struct content;
struct uploader;

enum upload_kind {
	UPLOAD_CONTENT, /* content or data -> key */
	UPLOAD_COPY,    /* source -> key, within the store */
	UPLOAD_DELETE,  /* key; those that wait together go in one request */
	UPLOAD_FETCH,   /* key -> content */
	UPLOAD_FILL, /* what the sparse content lacks of key -> content, made durable */
	UPLOAD_ABANDON, /* abort upload_id of key; "" = look for uploads of the key */
	UPLOAD_KIND_N
};
const char *upload_kind_name(enum upload_kind kind);

enum upload_note {
	UPLOAD_NOTE_BEGIN, /* an upload id is about to be asked for */
	UPLOAD_NOTE_ID,    /* state.upload_id is known */
	UPLOAD_NOTE_PART,  /* *part is in the store */
	UPLOAD_NOTE_END, /* the upload is about to be completed; its source may go with it */
	/* The object that the content needs is about to grow to *part: size and crc64. */
	UPLOAD_NOTE_APPEND,
};

/* The owner fills in the first half and keeps the job until `done` has been called. */
struct upload_job {
	enum upload_kind kind;
	const char *key;
	const char *source;   /* COPY; CONTENT with a plan: what parts are copied from */
	const char *if_match; /* COPY, FETCH: version of the source, or NULL */
	struct content *content; /* CONTENT, FETCH; pinned by the owner */
	const void *data;        /* CONTENT: bytes in memory instead */
	const struct origin_meta *meta;
	bool alone;                /* DELETE: in a request of its own */
	struct origin_attr known;  /* CONTENT: what `key` holds; is_known */
	bool is_known;             /* the same bytes again need no request */
	bool unchanged;            /* result: and they were the same */
	int64_t since_ns;          /* ABANDON without an id: of uploads begun since */
	struct upload_state state; /* CONTENT: initialised; ABANDON: its upload_id */
	/* From a worker, before the next step. Negative fails the job with that errno. */
	int (*note)(struct upload_job *job, enum upload_note note,
		    const struct origin_part *part);
	/* From a worker, once; the job is the owner's again. */
	void (*done)(struct upload_job *job);
	uint64_t rank; /* among those ahead: the lowest goes first */

	/* Results. */
	int result;
	struct origin_attr attr; /* etag, crc64 of what is at `key` now (CONTENT, COPY) */
	struct why why;

	/* The uploader's. */
	struct list queued;
	struct upload_job *next; /* of the deletes in one request */
	int working;             /* workers on it now */
	bool cancelled;
	_Atomic uint64_t bytes_flying;
};

struct uploader_config {
	struct origin *origin; /* borrowed */
	uint32_t parallel;     /* threads, and requests at a time */
};

int uploader_new(const struct uploader_config *config, struct uploader **out);
/* Stops at a safe point: requests that fly are cancelled, jobs end with -ECANCELED and
 * keep their multipart uploads for the next start. Takes NULL, returns NULL. */
struct uploader *uploader_free(struct uploader *u);

/* Several at once, linked by `next`: no worker sees some of them without the others. */
void uploader_submit(struct uploader *u, struct upload_job *jobs);

/* Ends the job early with -ECANCELED unless it is too late. Call it while the job is known
 * to be the uploader's (under the owner's lock). */
void uploader_cancel(struct uploader *u, struct upload_job *job);

/* Ends a job ahead of the end as soon as the parts that fly have landed; it ends well. As
 * for uploader_cancel(). */
void uploader_stop(struct uploader *u, struct upload_job *job);

/* Bytes of its parts that are in the store or on their way there. As for
 * uploader_cancel(). */
uint64_t uploader_sent(struct uploader *u, const struct upload_job *job);

uint64_t uploader_bytes_flying(struct uploader *u);
