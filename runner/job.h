/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job on disk: a directory of its own below the runner's state, which survives the
 * runner. README.md says what lies in it.
 *
 * Who looks after a job (the supervisor) holds a lock on it for as long as it lives. The
 * kernel drops the lock with the process, however it ends: a job that is not over and not
 * held has lost its supervisor.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "runner/spec.h"

struct why;

#define JOB_LIST_MAX 10000

struct job {
	char name[SPEC_NAME_MAX + 1];
	char dir[PATH_MAX]; /* absolute */
	int dirfd;
	int lock_fd; /* -1: not ours */
};

struct job_names {
	char (*items)[SPEC_NAME_MAX + 1]; /* sorted */
	size_t count;
};

enum {
	JOB_E_HELD = 1
}; /* another process supervises it */

/* The runner's state: $SLUICE_RUN_DIR, else /var/lib/sluice for root, else
 * $XDG_STATE_HOME/sluice or ~/.local/state/sluice. */
int job_root(char out[PATH_MAX], struct why *why);

/* Opens what is there. -ENOENT names the nearest job. Takes no lock. */
int job_open(const char *name, struct job **out, struct why *why);

/* Opens or makes it, and takes the lock. JOB_E_HELD when somebody else has it. */
int job_hold(const char *name, struct job **out, struct why *why);

/* Frees; drops the lock unless a child that was forked meanwhile still has it. */
struct job *job_close(struct job *job);

bool job_is_held(const struct job *job);

/* Removes what an earlier run left: everything but the lock. */
int job_clear(struct job *job, struct why *why);

/* This process is the supervisor from now on. */
int job_sign(struct job *job, struct why *why);

/* The supervisor's descriptor to signal it by (the caller closes it), or -ESRCH: it has
 * ended. A process that merely got its number is told apart by its start time. */
int job_supervisor(const struct job *job, pid_t *pid);

/* "dir/…" into out; a path that does not fit is our own mistake (the names are bounded). */
void job_path(const struct job *job, char out[PATH_MAX], const char *format, ...)
	__attribute__((format(printf, 3, 4)));

int job_list(struct job_names *out, struct why *why);
void job_names_fini(struct job_names *names);
