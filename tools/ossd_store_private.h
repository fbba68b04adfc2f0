/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the storage engine share. Nobody else includes this. */
#pragma once

#include "fs/base/lock.h"
#include "tools/ossd_store.h"

#define APPEND_LOCKS 64
#define REDO_DONE_MAX 64

struct ossd_store {
	int root_fd;
	int tmp_fd;     /* .ossd/tmp */
	int uploads_fd; /* .ossd/uploads */
	int lock_fd;    /* held while the process lives */
	bool sync;
	uint64_t part_min;
	struct ossd_index *index;

	/* Covers writing transactions, every change of a name below the root, and the
	 * fields below. Appends take append_locks first. */
	struct lock lock;
	uint64_t redo_seq;
	uint64_t redo_done
		[REDO_DONE_MAX]; /* done; their records go with the next commit */
	size_t redo_done_count;

	struct lock append_locks[APPEND_LOCKS]; /* by key: one append at a time */
};

/* Begins a writing transaction and clears away finished redo records. Lock held. */
int ossd_store_begin(struct ossd_store *store, struct ossd_txn *txn);
/* Commits, and forgets the redo records that the beginning cleared. Lock held. */
int ossd_store_commit(struct ossd_store *store, struct ossd_txn *txn);
/* Nothing unless the store was opened with `sync`. */
int ossd_store_sync_dir(struct ossd_store *store, int dir_fd, const char *path);

/* Notes that a file operation follows the commit. Lock held. */
int ossd_store_redo(struct ossd_store *store, struct ossd_txn *txn,
		    const struct ossd_ref *ref, enum ossd_redo_op op, bool odd,
		    const char *temp, uint64_t *seq);
void ossd_store_redo_done(struct ossd_store *store, uint64_t seq);

/* The file operation of a redo record. Lock held. */
int ossd_store_apply(struct ossd_store *store, const struct ossd_redo *redo);

/* The index's record of a file whose content is not what it says is brought up to date, or
 * removed with the file. */
int ossd_store_reindex(struct ossd_store *store, const struct ossd_ref *ref);

/* ossd_scan.c: at start, before anything is served. */
int ossd_store_recover(struct ossd_store *store);
int ossd_store_scan(struct ossd_store *store);
