/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A miss: one ranged request to the store (a fetch), which brings consecutive pieces of
 * one object (fills), each in a buffer of the memory budget and each inside one block.
 *
 *   fill state   entered when                      readers
 *   fetching     the fetch was made                copy what has arrived, wait for the rest
 *   ready        all its bytes are there           copy; the writer takes it to the disk
 *   failed       the fetch ended without them      get the error
 *
 * A fill of which a part has arrived when its fetch fails is cut to that part and is ready:
 * what a reader has seen stays, and is summed (proof.h) with the rest.
 *
 * A fill is found through its block while it is of use: until its bytes are on disk, until
 * memory is wanted back (when the disk will not take them), or until it fails. It lives on
 * for those who hold it.
 *
 * First bytes go to a reader as they arrive, except where nothing has vouched for them
 * before the end: small objects (whole in one request, checked against the store's CRC-64)
 * and origins without ETags are shown only when the request is over and found right.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/base/list.h"

struct cache;
struct object;
struct origin;
struct wait;

#define FETCH_BLOCKS_MAX 8 /* of one request: 8 MiB */

enum fill_state {
	FILL_FETCHING,
	FILL_READY,
	FILL_FAILED,
	FILL_STATE_N
};
const char *fill_state_name(enum fill_state state);

struct fill {
	struct object *object; /* holds a reference */
	atomic_uint refs;      /* its block, its fetch, readers, the writer */
	unsigned char *data;   /* len bytes of the budget */
	uint64_t off;          /* in the object, page aligned */
	uint32_t len;          /* to a page boundary or the object's end */
	uint32_t room;         /* of the buffer: what len was before it was cut */
	uint64_t crc64;        /* of what has arrived; the fetch's until then */
	bool prefetch;         /* nobody was waiting for it when it was asked for */
	atomic_bool queued;    /* waits for the writer, or is in its hands */
	atomic_bool used;      /* a reader has read to its end */

	/* under object->lock */
	struct fill *next; /* in its block */
	bool linked;       /* found through its block */
	enum fill_state state;
	bool begun;       /* its request has been answered, if not with these bytes */
	bool revoked;     /* found wrong: a writer must not have written it */
	uint32_t arrived; /* bytes a reader may copy: whole pages */
	uint32_t waiters;
	uint32_t want;        /* the least that a waiter wants to have arrived */
	bool writing;         /* the writer has it in hand */
	int error;            /* FILL_FAILED */
	pthread_cond_t moved; /* arrived or state */

	struct list memory; /* in cache->memory or ->queued; under cache->lock */
};

/* Asks for absent pages of [off, end), page aligned or the object's end. What lies in
 * [off, demand_end) somebody needs: memory for its first block is waited for; the rest is
 * taken as far as the budget has room. *asked = end of what is on its way or needs none
 * (> off). Lock not held. -EINTR, -ETIMEDOUT, -ENOMEM; FETCH_E_BUDGET: nothing was demanded and there is no
 * memory. */
enum fetch_condition {
	FETCH_E_BUDGET = 1
};
int fetch_start(struct object *o, uint64_t off, uint64_t end, uint64_t demand_end,
		const struct wait *w, uint64_t *asked);

/* The fill that covers `off`, with a reference; NULL: none. Lock held. */
struct fill *fill_find_locked(struct object *o, uint64_t off);
void fill_put(struct fill *f);

/* It has come to the writers' queue, or left it without being written. */
void fill_set_queued(struct fill *f, bool queued);

/* No more to be found: unlinks it from its block and from the memory list. Lock held. */
void fill_unlink_locked(struct fill *f);

/* Buffers back: drops fills that only lie in memory, what has been read before what has
 * not, oldest first, until `want` bytes; or only what has been read. */
void fill_reclaim(void *cache, uint64_t want);
void fill_reclaim_used(struct cache *c, uint64_t want);
/* All fills in memory of an origin, or of all (NULL). */
void fill_drop_all(struct cache *c, const struct origin *origin);

/* Cancels the requests of an origin (NULL: all) and waits until they are over. */
void fetch_cancel_all(struct cache *c, struct origin *origin);
