/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of warm.c (jobs and their threads) and warm_fetch.c (what a job does with a name).
 * Everything is under warm->lock but what is marked. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "cache/ahead.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/order.h"
#include "fs/warm.h"

struct origin_req;

#define WARM_LOOKERS 8
#define WARM_OUTSTANDING_MAX 256
#define WARM_PROBLEMS_SHOWN 8

enum warm_state {
	WARM_WAITING,
	WARM_RUNNING,
	WARM_DONE,
	WARM_CANCELLED,
	WARM_FAILED,
	WARM_N
};

/* A file of a recorded order that was fetched and not read yet. */
struct warm_mark {
	UT_hash_handle hh;
	struct list link; /* in job->marks, in the order they were fetched */
	uint64_t hash, number, cost;
};

struct warm_job {
	struct list link;
	uint64_t id;
	int fd;
	char *dir;
	struct order_reader *reader; /* the one that reads holds `reading` */
	bool reading, read_out;
	unsigned int lookers; /* at work */
	enum warm_state state;
	atomic_bool stop;
	uint64_t born_ms, end_ms; /* clock_mono_ms() */
	uint64_t outstanding;

	uint64_t files_found, bytes_found; /* to be in the cache, so far */
	uint64_t files_cached, bytes_cached;
	uint64_t files_fetched, bytes_fetched;
	uint64_t files_failed, files_missing, lines_bad;
	uint64_t files_too_many, bytes_too_many; /* that do not fit */
	uint64_t lines;                          /* of the file */
	uint64_t line_bytes, line_trees;         /* files so far; trees among the lines */
	uint64_t tree_files, tree_bytes;         /* in all trees, when they are counted */
	struct list trees;                       /* to be counted */
	unsigned int counting;                   /* trees to be counted, or being */
	uint64_t cost;         /* bytes of cache that it has filled or found filled */
	bool ahead_of_readers; /* an order: waits for them */
	unsigned int failures; /* in a row */
	int error;             /* WARM_FAILED */
	char problems[WARM_PROBLEMS_SHOWN][192];
	unsigned int problem_count;

	struct warm_mark *marks_by_hash;
	struct list marks;
	uint64_t mark_number, mark_cost;
};

/* A tree whose files are counted while it is fetched, so that one knows how far it is. */
struct warm_tree {
	struct list link;
	char prefix[];
};

/* An object handed to ahead.c. */
struct warm_item {
	struct ahead_item ahead;
	struct warm *warm;
	struct warm_job *job;
	struct list link; /* in warm->again */
	uint64_t size;
	unsigned int tries;
	bool gone; /* this version of it */
	char key[PATH_KEY_MAX + 2];
};

struct warm {
	struct warm_config config;
	pthread_t threads[WARM_LOOKERS];
	unsigned int thread_count;
	_Atomic uint64_t marks; /* of all jobs: nobody reads a lock for nothing */

	struct lock lock; /* everything below, and the jobs */
	pthread_cond_t moved;
	struct list jobs;  /* the latest last */
	struct list again; /* items to be tried again */
	unsigned int job_count;
	uint64_t next_id;
	bool stop;
	struct origin_req
		*requests[WARM_LOOKERS]; /* listings under way, to be cancelled */
};

/* One of the first few things that went wrong. */
void warm_problem_locked(struct warm_job *j, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Ends a job because of the store. */
void warm_fail_locked(struct warm *w, struct warm_job *j, int error);

void warm_unmark_locked(struct warm *w, struct warm_job *j, struct warm_mark *m);

/* The file or the tree of this name ("": everything). Lock not held; blocks. */
void warm_take_key(struct warm *w, struct warm_job *j, const char *key);

/* An item of warm->again. Lock not held; blocks. */
void warm_fetch_again(struct warm_item *item);

/* Counts the files of a tree and frees it. Lock not held; blocks. */
void warm_count_tree(struct warm *w, struct warm_job *j, struct warm_tree *tree);
