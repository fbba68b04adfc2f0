/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job file: read, checked, and held as plain data. The schema is the table in
 * spec_fields.c; `runner check --fields` prints it and runner.1 explains it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runner/mistakes.h"

#define SPEC_NAME_MAX 64
#define SPEC_ROLE_NAME_MAX 20
#define SPEC_ROLES_MAX 8
#define SPEC_PORTS_MAX 16
#define SPEC_COUNT_MAX 64     /* replicas of one role */
#define SPEC_REPLICAS_MAX 128 /* of the job */
#define SPEC_PAIRS_MAX 1000   /* env, hyperparameters, options */
#define SPEC_WORDS_MAX 4096   /* of a command */

enum framework {
	FRAMEWORK_TENSORFLOW,
	FRAMEWORK_KERAS,
	FRAMEWORK_PYTHON,
	FRAMEWORK_PYTORCH,
	FRAMEWORK_MXNET,
	FRAMEWORK_CUSTOM,
	FRAMEWORK_N
};

enum spec_chief {
	SPEC_CHIEF_NONE,
	SPEC_CHIEF_WORKER0,
	SPEC_CHIEF_N
};
enum spec_finish {
	SPEC_FINISH_ALL_WORKERS,
	SPEC_FINISH_FIRST_WORKER,
	SPEC_FINISH_N
};
enum spec_restart {
	SPEC_RESTART_NEVER,
	SPEC_RESTART_N
};

/* A secret by reference; at most one is set. */
struct spec_secret {
	const char *file; /* absolute */
	const char *env;
};

struct spec_pair {
	const char *name;
	const char *value;
	bool quoted; /* written as a string, whatever it looks like */
};

struct spec_pairs {
	struct spec_pair *items;
	size_t count;
};

struct spec_command {
	const char **argv; /* count words and a NULL */
	size_t count;      /* 0: not given */
};

struct spec_code {
	const char *dir; /* absolute; or: */
	const char *git; /* http or https URL without credentials */
	const char *branch, *commit;
	const char *user;
	struct spec_secret password, token;
	const char *target; /* in the container */
};

struct spec_credentials {
	const char *reference; /* as `sluice mount --credentials` takes it; or: */
	struct spec_secret id, secret, token;
};

/* A side of the job's data: what `sluice mount` is told. */
struct spec_store {
	const char *source; /* NULL: none */
	const char *endpoint, *region;
	const char *cache_dir, *state_dir; /* absolute */
	struct spec_credentials credentials;
	struct spec_pairs options;  /* further options of `sluice mount` */
	uint64_t flush_deadline_ms; /* 0: as long as it takes */
};

struct spec_role {
	const char *name;
	uint64_t count;
	uint64_t cpu_millis;   /* 0: no limit */
	uint64_t memory_bytes; /* 0: no limit */
	uint64_t ports[SPEC_PORTS_MAX];
	size_t port_count; /* at least 1: the first is the cluster's */
	const char *image; /* "host" or an absolute directory */
	struct spec_command command;
	struct spec_pairs env;
	int service; /* 1: is stopped when the workers have ended; it never ends the job well */
};

struct spec {
	const char *name;
	int framework;      /* enum framework */
	const char *engine; /* NULL: the default */
	const char *image;
	struct spec_code code;
	struct spec_command command;
	const char *workdir; /* NULL: code.target where there is code, else "/" */
	struct spec_pairs env;
	struct spec_pairs hyperparameters;
	struct spec_role
		roles[SPEC_ROLES_MAX]; /* in canonical order, none with count 0 */
	size_t role_count;
	struct spec_store input, output;
	const char *tensorboard; /* NULL: none */
	int chief;               /* enum spec_chief */
	int finish;              /* enum spec_finish */
	int restart;             /* enum spec_restart */
	uint64_t grace_ms;       /* between SIGTERM and SIGKILL */
	struct node_doc *doc;    /* what all strings point into */
	void **blocks;           /* what else belongs to it */
	size_t block_count;
};

/* What spec_check_host() compares with. */
struct spec_host {
	uint64_t memory_bytes;
	uint64_t cpu_count;
};

/* Reads `path` and applies the --set assignments. -EINVAL: the mistakes say why. */
int spec_load(const char *path, const char *const *sets, size_t set_count,
	      struct spec **out, struct mistakes *m);

/* The same from memory. Relative paths in it are relative to `base_dir` (absolute). */
int spec_parse(const char *source, const char *text, size_t n, const char *base_dir,
	       const char *const *sets, size_t set_count, struct spec **out,
	       struct mistakes *m);
struct spec *spec_free(struct spec *spec);

/* What does not fit the machine: memory, processors, directories that are not there. Reads
 * the file system, changes nothing. Images are the engine's business. */
void spec_check_host(const struct spec *spec, const struct spec_host *host,
		     struct mistakes *m);

/* Where in the file "roles.ps.memory" stands, or the nearest thing above it. */
struct mistake_place spec_place(const struct spec *spec, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The job file with --set applied and paths made absolute. */
int spec_write(const struct spec *spec, FILE *out);

/* The schema: one line for each field. */
void spec_print_fields(FILE *out);

const char *spec_framework_name(int framework);
size_t spec_replica_count(const struct spec *spec);
