/* SPDX-License-Identifier: Apache-2.0 */
/* The process that looks after one job from its start to its end. */
#pragma once

#include <stdbool.h>

struct job;
struct spec;
struct why;

/* Runs the job here, logs live on standard output unless quiet. Returns the exit code. The
 * job must be held and cleared. */
int supervise_here(struct job *job, const struct spec *spec, bool quiet);

/* Runs it in a process of its own session that outlives this one. Returns 0 once every
 * container runs (or the job is over, and well), else the exit code, with the reason on
 * standard error. A signal to stop that comes before is handed on. */
int supervise_detached(struct job *job, const struct spec *spec);

/* Takes away what a supervisor left that was killed. The job must be held. Returns the exit
 * code. */
int supervise_clean_up(struct job *job, bool quiet);
