/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the bytes of a large object that have passed by are right. A store vouches for a
 * whole object only (CRC-64), not for a range, so every byte that comes from it, or from a
 * file that another process wrote, is summed here (sums.h) before a reader may see all of
 * its piece. Whoever brings the last piece has the verdict before anybody can see that
 * piece: all of an object is never shown while it is wrong.
 *
 *   verdict   entered when                                what readers see
 *   open      something has not passed by yet             what has come, but for the last piece
 *   right     the sums combine to the store's             everything
 *   wrong     they do not, or bytes that came again are   nothing: all is dropped, the object is
 *             not what they were                          open again and read only once it is right
 *
 * What was shown before a wrong verdict is suspect. When the object has come again and is
 * right, the blocks whose sums have changed are those that were wrong. Readers that were
 * there then (their generation) go on if none of these had been shown to anybody, else they
 * fail for good.
 *
 * What cannot be kept (no disk, an object larger than the cache) may have to be fetched in
 * other pieces than before, which cannot be compared: the sums then begin anew, and what was
 * shown before that is not vouched for.
 *
 * Stores without CRC-64: nothing is summed. Locks: the object's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cache;
struct fill;
struct object;

struct proof {
	uint64_t unsummed; /* blocks whose sum is not known */
	bool right;        /* the verdict on all that has passed by */
	bool dropping;     /* the file is being removed: it must not be opened */
	uint64_t lo,
		hi; /* what readers have seen since the sums began lies in [lo, hi) */
	uint32_t generation; /* grows with each wrong verdict */
	uint32_t tainted;    /* readers up to this generation have seen wrong bytes */
	uint64_t *suspect;   /* the blocks' sums when the verdict was wrong; NULL: none */
	uint64_t suspect_lo, suspect_hi;
	struct fill *dropped; /* of a wrong verdict, for proof_clear() */
};

void proof_init(struct object *o);
void proof_fini(struct object *o);

/* n bytes at off, whole pages (or to the object's end) inside one block, have come; crc is
 * their CRC-64. false: found wrong, and all of the object's memory and disk is dropped.
 * Then, and before anything else, drop the lock and call proof_clear(). Lock held. */
bool proof_add_locked(struct object *o, uint64_t off, const void *data, uint32_t n,
		      uint64_t crc);
/* The store's CRC-64 has become known. As proof_add_locked(). */
bool proof_judge_locked(struct object *o);
void proof_clear(struct object *o); /* lock not held */

/* A page of the block was damaged on disk and dropped. Lock held. */
void proof_lose_locked(struct object *o, uint64_t block);
/* Another process had the verdict for the file that was opened. Lock held. */
void proof_trust_locked(struct object *o);

/* Whether nothing may be shown before the verdict, because there was a wrong one. Lock held. */
bool proof_doubts_locked(const struct object *o);
/* Whether all of the object can be kept until it is right. */
bool proof_can_keep(const struct object *o);
/* [off, end) is shown to a reader. Lock held. */
void proof_shown_locked(struct object *o, uint64_t off, uint64_t end);
