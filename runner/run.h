/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a plan: forwards until the job's result is known, then backwards until nothing of
 * it is left but logs, status and receipt. README.md says who decides what.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fs/base/err.h"
#include "runner/status.h"

struct engine;
struct job;
struct logs;
struct plan;
struct signals;
struct watch;

enum run_result {
	RUN_UNDECIDED,
	RUN_SUCCEEDED,
	RUN_FAILED,
	RUN_STOPPED,
};

/* One run; lives in the supervisor. The first group is set by the caller, all borrowed. */
struct run {
	const struct plan *plan;
	struct engine *engine;
	struct job *job; /* held and signed */
	struct signals *signals;
	int terminal_fd;            /* live logs; -1: none */
	FILE *progress;             /* the runner's own lines; NULL: none */
	void (*started)(void *arg); /* called once, when every container runs; or NULL */
	void *started_arg;

	struct status status;
	enum run_result result;
	int step_code;  /* exit code of the step that fails; 0: from its errno */
	bool leftovers; /* something could not be undone */
	struct logs *logs;
	struct watch *watch;
	int *log_fds; /* files of the log pump, one a replica */
	struct {
		int64_t pending, damaged; /* files; 0 where it does not say */
	} receipt;                        /* of the last flush or recover */
	bool stopped_containers;          /* they were told to end */
};

/* The whole job; returns the exit code. r->status holds how it ended, also on disk. */
int run_job(struct run *r);

/* Undoes every step of a job whose supervisor is gone, flushes its output, and writes how it
 * ended. Returns 0, or the exit code of what could not be done. */
int run_clean_up(struct run *r);

/* ---- for the steps ------------------------------------------------------------------------ */

/* A line to r->progress. */
void run_say(struct run *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The first decision stands; later ones change nothing. */
void run_decide(struct run *r, enum run_result result, int exit_code, const char *format,
		...) __attribute__((format(printf, 4, 5)));

void run_set_phase(struct run *r, enum job_phase phase);

/* The status to disk; a failure is logged, the job goes on. */
void run_save(struct run *r);

/* Takes in the ends of containers that have come. */
void run_take_events(struct run *r);

/* Ends every container that still runs: SIGTERM to all, then SIGKILL. */
void run_stop_containers(struct run *r);
