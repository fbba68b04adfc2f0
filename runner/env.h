/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container's process finds in its environment: built from nothing, so that no
 * variable of the runner (and no credential) gets in. Three layers: a small base, the
 * neutral RUNNER_* and HP_* names with the framework's own contract, what the user wrote.
 * Pure. runner.1 lists every name.
 */
#pragma once

#include <stddef.h>

struct buf;
struct spec;
struct spec_role;
struct why;

/* Where files about the job are in every container. */
#define ENV_FILES_DIR "/run/runner"

struct env_task {
	const struct spec_role *role; /* of the spec */
	size_t index;                 /* within the role */
	const char *commit;           /* of the code; NULL: not known or none */
};

struct env {
	char **items; /* "NAME=value", NULL at the end */
	size_t count;
};

void env_build(const struct spec *spec, const struct env_task *task, struct env *out);
void env_fini(struct env *env);
const char *env_get(const struct env *env, const char *name); /* NULL: not set */

/* Why a user's variable may not have this name; NULL when it may. */
const char *env_name_fault(const struct spec *spec, const char *name);

/* Appends `text` with {{placeholders}} replaced: {{hp.NAME}} {{job}} {{role}} {{job_name}}
 * {{index}} {{task_index}} {{ROLE_hosts}} {{input}} {{output}} {{code}}. Braces around
 * anything but such a word stay as they are. -EINVAL with a sentence: unknown. */
int env_expand(const struct spec *spec, const struct env_task *task, const char *text,
	       struct buf *out, struct why *why);

/* "name-index": what the job's other containers call it. */
void env_hostname(char *out, size_t out_size, const struct spec_role *role, size_t index);

/* "host:port,host:port" of all replicas of a role. */
void env_hosts(const struct spec_role *role, struct buf *out);

/* The cluster as JSON, keys sorted: {"ps":["ps-0:2222"],"worker":[…]}. */
void env_cluster_json(const struct spec *spec, struct buf *out);

/* Hyperparameters as JSON; numbers, true and false unquoted unless the file quotes them. */
void env_hyperparameters_json(const struct spec *spec, struct buf *out);

/* The files of ENV_FILES_DIR into an open directory: cluster.json, hparams.json, hostfile,
 * and a ROLE.host for each role. */
int env_write_files(const struct spec *spec, int dirfd);
