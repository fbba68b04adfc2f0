/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemons of one mount leave to each other (holder.h): the connection to the
 * kernel, and memory with what the kernel believes, which lies at the same address in all
 * of them.
 *
 * A daemon may end between any two instructions. So everything here is an item of its own
 * that counts from one last store and until one first store, and is complete in between;
 * what connects items (hashes, lists, counts) is built anew by each daemon.
 *
 * Order towards the kernel: an item is there before the reply that tells of it, and goes
 * after the reply that ends it. A request whose reply did not come through is sent again
 * by the kernel, which tells the next daemon of which items it must not believe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/handover_file.h"
#include "fs/handover_node.h"

struct tail;
struct why;

enum handover_phase {
	HANDOVER_STARTING,
	HANDOVER_SERVING,
	HANDOVER_ENDING, /* the mount is gone, or about to be: no other daemon is wanted */
};

#define HANDOVER_INIT_MAX 512
#define HANDOVER_BUFFERS_MAX 256 /* threads that take requests */

/* What this mount's daemons have brought to the store, also repeatedly. */
struct handover_totals {
	_Atomic uint64_t files, bytes, failures;
	_Atomic uint64_t moved; /* objects that went where they were renamed to */
};

/* The head of the memory. The holder writes what it says only between two daemons. */
struct handover {
	/* The holder's. */
	int fd; /* of /dev/fuse; the same number in all processes. -1: still in … */
	int pair[2];    /* … this, which fusermount.h wants; -1: root mounts */
	int control_fd; /* control_socket(): who connects between two daemons waits */
	pid_t holder;
	uint32_t generation; /* of daemons; 1: the first, which mounts */
	int64_t restarted_ns;
	bool wanted; /* --restart on: rather than io_uring */

	/* The daemons'. */
	_Atomic int phase;
	atomic_bool draining; /* a signal asked for the end */
	atomic_bool
		rings; /* requests come over io_uring: the kernel cannot resend them */
	atomic_bool resends;  /* the kernel can */
	atomic_bool unlocked; /* not all buffers of this daemon are locked (receive.h) */
	_Atomic uint32_t init_size;
	char init[HANDOVER_INIT_MAX]; /* the kernel's first request */
	_Atomic uint64_t next_ino;    /* of /output */

	struct tail *tail; /* of the journal */
	char *patches;     /* of /output: patch_table_new() */
	char *buffers;     /* handover_buffer() */
	struct handover_files files;
	struct handover_nodes nodes;
	struct handover_totals totals;      /* of /output */
	void *ledger;                       /* … cache/ledger.h */
	struct handover_requests *requests; /* this daemon's */
};

/* The memory, zeroed but for its parts. Nothing of it is counted before it is used. */
int handover_new(struct handover **out, struct why *why);
/* Only in the process that made it, and only when no daemon lives. */
struct handover *handover_free(struct handover *h);

/* Where the i-th thread reads requests into (receive.h). */
char *handover_buffer(const struct handover *h, unsigned int i);

/* First of all in a daemon: readies the parts. In one that is not the first it also has
 * the kernel send again what the last daemon had not answered, and reads that; until
 * handover_take() has given out all of it, it waits there. */
int handover_begin(struct handover *h);
void handover_end(struct handover *h);

/* Whether this request of the last daemon's has come again. */
bool handover_resent(const struct handover *h, uint64_t request);

/* The next of what was read before the loop, the caller's to free; first the kernel's first
 * request once more, for the library to know what was agreed on (the kernel drops the
 * reply: it waits for none). False: there is no more. */
bool handover_take(struct handover *h, void **data, size_t *size);

/* Before a request is processed, in that thread. */
void handover_note(struct handover *h, const void *data, size_t size);

/* The number of the request that this thread processes, without the kernel's mark of
 * those that were sent again, and that mark. */
uint64_t handover_request(bool *again);
