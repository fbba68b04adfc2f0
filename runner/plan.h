/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be done for a job, as data: an ordered list of steps and every container in
 * full. `runner plan` prints it, run.c walks it forwards and then, whatever happened,
 * backwards: undoing a step takes away what doing it left. Pure: nothing is touched.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

#include "runner/engine.h"
#include "runner/gateway.h"
#include "runner/spec.h"

struct buf;

enum step_kind {
	STEP_PREPARE,
	STEP_CODE,
	STEP_SHARE,
	STEP_MOUNT_INPUT,
	STEP_MOUNT_OUTPUT,
	STEP_LOGS,
	STEP_NETWORK,
	STEP_CREATE,
	STEP_START,
	STEP_WAIT,
	STEP_KIND_N
};

struct step {
	enum step_kind kind;
	size_t replica; /* STEP_CREATE, STEP_START: into replicas */
	char *what;     /* "mount oss://b/p at /input" */
	char *undo;     /* NULL: nothing to undo */
};

struct plan_replica {
	const struct spec_role *role;
	size_t index;
	char hostname[SPEC_ROLE_NAME_MAX + 16];
	char name[SPEC_NAME_MAX + SPEC_ROLE_NAME_MAX + 32]; /* the container's */
	char state_dir[PATH_MAX];
	char log_path[PATH_MAX];
	struct engine_container container; /* without env and log_fd */
	char **argv;                       /* owned; container.argv */
	struct engine_mount mounts[4];
};

/* Where things are: what the plan cannot know from the job file. */
struct plan_host {
	const char *job_dir;    /* absolute */
	const char *state_root; /* the runner's own state, hidden from containers */
	const char *gateway;    /* the gateway's program */
};

struct plan {
	const struct spec *spec;       /* borrowed */
	struct plan_replica *replicas; /* in the order of spec->roles */
	size_t replica_count;
	struct step *steps;
	size_t step_count;
	struct gateway_command mount_input, mount_output; /* empty when not used */
	char job_dir[PATH_MAX], code_dir[PATH_MAX], files_dir[PATH_MAX],
		mount_dir[PATH_MAX];
	char input_dir[PATH_MAX], output_dir[PATH_MAX], network_dir[PATH_MAX];
	char input_state_dir[PATH_MAX];
	char output_state_dir[PATH_MAX]; /* survives the job while output is pending */
	char input_log[PATH_MAX], output_log[PATH_MAX]; /* the gateway's own */
	const char **hide; /* owned array of borrowed or owned words */
	char **hide_owned;
	size_t hide_count;
};

/* The spec must outlive the plan. */
struct plan *plan_new(const struct spec *spec, const struct plan_host *host);
struct plan *plan_free(struct plan *plan);

void plan_print(const struct plan *plan, FILE *out);
void plan_format_json(const struct plan *plan, struct buf *out);

const char *step_kind_name(enum step_kind kind);
