/* SPDX-License-Identifier: Apache-2.0 */
/* How a job stands: status.json in its directory, replaced at every change. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"
#include "runner/spec.h"

struct buf;

enum job_phase {
	JOB_PREPARING, /* code, mounts, network, containers made */
	JOB_STARTING,
	JOB_RUNNING,
	JOB_STOPPING, /* the result is known: containers end, output is flushed */
	JOB_SUCCEEDED,
	JOB_FAILED,
	JOB_STOPPED, /* by a person */
	JOB_PHASE_N
};

enum replica_state {
	REPLICA_PENDING,
	REPLICA_CREATED,
	REPLICA_RUNNING,
	REPLICA_EXITED,  /* by itself */
	REPLICA_STOPPED, /* by the runner: its exit code says nothing about the job */
	REPLICA_STATE_N
};

enum output_state {
	OUTPUT_NONE,    /* the job has no output, or never got so far */
	OUTPUT_OPEN,    /* mounted */
	OUTPUT_STORED,  /* all of it is in the store */
	OUTPUT_PENDING, /* something is still on this machine */
	OUTPUT_STATE_N
};

struct status_replica {
	char role[SPEC_ROLE_NAME_MAX + 1];
	unsigned int index;
	enum replica_state state;
	int exit_code;                /* once EXITED or STOPPED; 128+n for signal n */
	bool oom;                     /* killed by the memory limit */
	int64_t started_ms, ended_ms; /* since 1970; 0: not yet */
};

struct status {
	char name[SPEC_NAME_MAX + 1];
	char framework[16];
	char commit[65]; /* of the code; "": none */
	enum job_phase phase;
	int64_t started_ms, ended_ms;
	int exit_code;      /* of the job, once it is over */
	int first_failure;  /* index into replicas; -1: none */
	struct why message; /* one sentence on how it ended, or "" */
	enum output_state output;
	struct why output_message;
	struct status_replica *replicas; /* owned */
	size_t replica_count;
};

void status_init(struct status *s, const struct spec *spec);
void status_fini(struct status *s);
bool status_is_over(const struct status *s);

void status_format(const struct status *s, bool lost, struct buf *out); /* JSON */
int status_write(const struct status *s, int dirfd);
/* -ENOENT: none yet; -EINVAL: damaged. */
int status_read(int dirfd, struct status *out);

const char *job_phase_name(enum job_phase phase);
const char *replica_state_name(enum replica_state state);
const char *output_state_name(enum output_state state);
