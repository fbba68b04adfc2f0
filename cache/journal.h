/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intent log of /output: group commit, snapshots, replay (cache/JOURNAL.md).
 *
 * The journal is one segment file: a snapshot of everything, then what changed since. When
 * the log part has outgrown the snapshot a new segment takes its place. Thread-safe.
 *
 * Lock order: the owner's lock (under which it appends) -> the journal's own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/record.h"
#include "fs/base/err.h"
#include "fs/base/list.h"

struct buf;
struct journal;
struct tail;

struct journal_report {
	uint64_t records;     /* replayed */
	uint64_t damaged;     /* places in the middle that failed their checksum */
	uint64_t torn_bytes;  /* cut off at the end; nobody was told they were safe */
	bool fresh;           /* there was no journal */
	bool closed;          /* the last exit was orderly */
	char quarantined[64]; /* file name in quarantine/, when damaged or torn */
};

struct journal_config {
	int dirfd;             /* <state>/journal; borrowed */
	int quarantine_fd;     /* <state>/quarantine; borrowed */
	const char *source;    /* what the state belongs to; borrowed */
	uint64_t log_size_min; /* bytes of log before a new segment; 0: 16 MiB */
	struct tail *tail;     /* what the last process appended; NULL: none; borrowed */
	void *arg;
	/* Called by journal_open(), once per record. Negative ends the open. */
	int (*replay)(void *arg, const struct record *r);
	/* Writes the whole state as records into `b` and, still under the lock that orders
	 * appends, calls journal_snapshot_taken(). */
	void (*snapshot)(void *arg, struct buf *b);
	/* Before each commit: what the records name must be durable first (the entries of
	 * the stage directory). May be NULL. Called without locks, by one thread at a
	 * time. */
	int (*before_commit)(void *arg);
};

/* Reads what is there. -EINVAL with a sentence when it belongs to another source or a
 * newer format. A damaged journal is read as far as its checksums hold, and moved to the
 * quarantine; the caller looks at the report. Nothing can be appended until
 * journal_start(). */
int journal_open(const struct journal_config *config, struct journal **out,
		 struct journal_report *report, struct why *why);

/* Writes the first snapshot: the owner's state is complete. */
int journal_start(struct journal *j);

/* Adds encoded records as one transaction: after a crash all of them are there or none.
 * Never blocks. Call it under the lock that orders the owner's state; `seq` is what
 * journal_sync() takes. -ENOMEM: nothing was added. */
int journal_append(struct journal *j, const struct buf *records, uint64_t *seq);

/* Inside config.snapshot: everything appended so far is part of the snapshot. */
void journal_snapshot_taken(struct journal *j);

/* Returns when everything up to `seq` is durable. Callers that meet share one disk sync.
 * Call it without any lock. Errors: -ENOSPC, -EIO …: what is not durable stays queued and
 * a later call tries again, after a failed sync in a new file. */
int journal_sync(struct journal *j, uint64_t seq);

/* The same for who does not wait: `done` is called once, by another thread, without locks
 * and must not block. The owner keeps the waiter until then. Returns false when `seq` is
 * durable already, and nothing will be called. */
struct journal_waiter {
	void (*done)(struct journal_waiter *w, int result);
	uint64_t seq;
	struct list link; /* the journal's */
};
bool journal_sync_later(struct journal *j, struct journal_waiter *w);

uint64_t journal_appended(struct journal *j); /* seq of the last append */
uint64_t journal_durable(struct journal *j);

struct journal_stats {
	uint64_t appends, commits, snapshots, failures, bytes;
	uint64_t segment_bytes;
};
void journal_stats(struct journal *j, struct journal_stats *stats);

/* Sync, mark the exit as orderly, close. Takes NULL, returns NULL. */
struct journal *journal_close(struct journal *j);
