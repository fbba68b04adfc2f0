/* SPDX-License-Identifier: Apache-2.0 */
/* Real containers for tests: needs root and runc, else box_engine is NULL and the cases skip.
 * Everything lives under one temporary directory with a job "job" and its network. Include
 * tests/unit/test.h first. */
#pragma once

#include <stdbool.h>

#include "runner/engine.h"

#define BOX_PEERS 3
#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NEEDS_ENGINE()                                                                   \
	(void)state;                                                                     \
	if (!box_engine)                                                                 \
		skip();

extern struct engine *box_engine;
extern char box_top[64];
extern char box_marker[32];    /* an argument of sleep that no other process has */
extern char box_output[65536]; /* what the last finished container wrote */
extern struct engine_peer box_peers[BOX_PEERS]; /* ps-0, worker-0, worker-1 */

/* Group fixtures. */
int box_setup(void **state);
int box_teardown(void **state); /* fails when traces are left */

/* What is left of job-worker-0, or of the network, on the host; NULL: nothing. */
const char *box_traces(void);

/* "top/name"; sixteen may be in use at once. */
const char *box_path(const char *name);

/* A container on image "host"; four may be in use at once. */
struct engine_container box_describe(const char *host, const char *const *argv);

void box_begin(const struct engine_container *c); /* creates, starts */

/* Waits, removes, fills box_output; returns the exit status. */
int box_finish(const struct engine_container *c, bool *oom);

int box_run(const struct engine_container *c); /* both */
int box_sh(const char *text);                  /* `sh -c` in worker-0 */
