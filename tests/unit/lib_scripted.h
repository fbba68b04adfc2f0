/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that does as the test says: an in-memory origin behind threads of its own, with
 * latency, faults and counts. Everything may be changed while requests run.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

enum {
	SCRIPTED_THREADS = 8,
	SCRIPTED_LOG_MAX = 4096
};

struct scripted_request {
	enum origin_op op;
	uint64_t off, len;
	char key[128];
};

struct scripted {
	struct origin origin; /* the table's; use it as the origin */
	struct origin *inner; /* the in-memory store, for preparing objects */

	/* The script. */
	_Atomic uint64_t latency_ms; /* before each answer */
	_Atomic uint64_t piece_ms;   /* before each piece of a body */
	atomic_bool hang;        /* answer nothing until told otherwise, or cancelled */
	atomic_int fail;         /* errno (negative) for requests … */
	atomic_int fail_count;   /* … as many as this; -1: all */
	atomic_int flip_count;   /* GETs whose body gets one wrong bit … */
	_Atomic char flip_first; /* … of keys that begin so; 0: all */
	atomic_int cut_count;    /* GETs that end in the middle with -ECONNRESET */
	atomic_bool no_crc;      /* the store gives no CRC-64 */
	atomic_bool no_etag;     /* nor ETags */

	/* Entries that LIST of this prefix gives besides: keys no well-behaved client makes.
	 * In the order of keys; such a listing is one page. */
	struct {
		const char *prefix, *key;
		bool is_dir;
	} extra[16];
	int extra_count;

	/* What was asked. */
	_Atomic uint64_t count[ORIGIN_OP_N];
	_Atomic uint64_t bytes; /* of bodies delivered */
	atomic_int in_flight, in_flight_max;

	/* Internal, but for the log's reader: lock while looking. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct scripted_request log[SCRIPTED_LOG_MAX];
	uint32_t log_count;
	struct scripted_job *jobs;
	bool stop;
	pthread_t threads[SCRIPTED_THREADS];
};

struct scripted *scripted_new(const char *name);
void scripted_free(struct scripted *s); /* as the origin's free */

/* Puts an object of n bytes that follow from key, version and position. */
void scripted_put(struct scripted *s, const char *key, unsigned int version, uint64_t n);
void scripted_fill(const char *key, unsigned int version, uint64_t off, void *p,
		   size_t n);
/* attr as STAT on the in-memory store says. */
struct origin_attr scripted_attr(struct scripted *s, const char *key);

void scripted_reset(struct scripted *s); /* counts and log */
