/* SPDX-License-Identifier: Apache-2.0 */
/* The program `runc` as we call it: with state of our own, a bare environment, no shell. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct why;

#define RUNC_CALL_MS 120000 /* more than any call takes on a loaded machine */
#define RUNC_ID_SIZE 300

struct runc {
	char program[PATH_MAX];
	char run_dir[PATH_MAX]; /* $SLUICE_RUN_DIR, or /run/sluice */
	char root[PATH_MAX];    /* run_dir/runc: one directory per container */
	char tag[9];            /* tells this run directory from others on the host */
	bool seccomp;           /* compiled in */
};

/* Finds it and makes its directories. -ENOENT with what to install. */
int runc_open(struct runc *rc, struct why *why) __attribute__((warn_unused_result));

/* The container's control group: unique on the host. */
void runc_cgroup_name(const struct runc *rc, const char *name, char out[RUNC_ID_SIZE]);

/* Is there state of this container? */
bool runc_exists(const struct runc *rc, const char *name);

/* `runc VERB [ARG] NAME [LAST]`; its complaint becomes the sentence. */
int runc_call(const struct runc *rc, const char *verb, const char *arg, const char *name,
	      const char *last, struct why *why) __attribute__((warn_unused_result));

/* "created", "running", "stopped"; "" when there is no such container. */
int runc_status(const struct runc *rc, const char *name, char out[32], struct why *why)
	__attribute__((warn_unused_result));

/* What a log of `runc --log-format json` says last, or `fallback`. */
void runc_complaint(const char *log, const char *fallback, char *out, unsigned long size);

extern const char *const runc_env[]; /* nothing of ours is in it */
