/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the reconciler on its way. Only output_sync.c, output_task.c,
 * output_result.c and output_ahead.c. */
#pragma once

#include "fs/output_impl.h"

/* One request, or one upload of many, for one node. */
struct task {
	struct upload_job job; /* first */
	struct output *output;
	struct node *node;
	enum sync_op op;
	uint64_t version;
	uint32_t meta_change;    /* of the node when the request was made */
	struct content *content; /* its reference, pinned */
	char key[PATH_KEY_MAX + 1];
	char source[PATH_KEY_MAX + 1];
	char etag[ORIGIN_ETAG_MAX];
	char *data;
	struct origin_posix posix;
	mode_t mode; /* … of these */
	uid_t uid;
	gid_t gid;
	struct list flying; /* output->flying; not those of SYNC_AHEAD */
	UT_hash_handle by_key, by_source;
};

/* Fills in what the operation needs, from the node as it is now. NULL: no memory, or the
 * staged file cannot be opened. Lock held. */
struct task *task_new(struct output *o, struct node *n, enum sync_op op, const char *key);

/* `seq`: journal sequence after which its staged file may go. */
void task_free(struct task *t, uint64_t seq);

/* Keeps the task where sync_key_busy() sees it, and not any more. Lock held. */
void task_fly(struct task *t);
void task_land(struct task *t);
/* Bytes of each of the first parts; 0: the store takes none. */
uint64_t task_part_size(const struct output *o);

/* output_ahead.c: that of SYNC_AHEAD has ended. Otherwise as below. */
void ahead_done(struct upload_job *job);

/* The request has ended; also for one that never left. Takes the lock; frees the task. */
void task_done(struct upload_job *job);
