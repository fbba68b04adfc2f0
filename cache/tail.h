/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was appended to the journal and is not durable yet, in memory that outlives the
 * process: the next one replays it, so that a process that is killed takes back nothing it
 * has told anyone. (What the machine's end takes is the journal's business.)
 *
 * The memory is the caller's, zeroed before the first use. One process at a time uses it,
 * under the journal's lock; it may end between any two instructions, so a transaction
 * counts from the one store that moves `end`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct record;
struct tail;

/* Lays it out in `size` bytes at `memory` (at a page's start), or finds what is there. Of a
 * large shared mapping only what is in use takes memory. */
struct tail *tail_attach(void *memory, size_t size);

/* Adds the records of one transaction, which are the journal's up to `seq`. -ENOMEM: there is
 * no room, and must be no such transaction. */
int tail_append(struct tail *t, const struct buf *records, uint64_t seq);
/* Where the transactions that count end: it grows by the store that makes one count. */
uint64_t tail_end(const struct tail *t);
/* The journal is durable up to `seq`. */
void tail_trim(struct tail *t, uint64_t seq);
/* The whole journal is. */
void tail_clear(struct tail *t);

/* Calls fn for each record in order; a negative answer ends it and is returned. */
int tail_replay(struct tail *t, int (*fn)(void *arg, const struct record *r), void *arg);

/* The request that this thread works for, 0: none. The transaction that is appended while
 * `final` is what the request was for: tail_executed() then says so, for the last few
 * thousand, also in the next process. */
void tail_set_request(uint64_t request);
void tail_set_final(bool final);
bool tail_executed(const struct tail *t, uint64_t request);
