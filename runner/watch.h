/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches all containers of a job at once: an engine's wait() blocks for one, so each has a
 * thread, and what they learn comes out of one descriptor in the order of the ends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct watch;

struct watch_event {
	size_t replica;
	int error;  /* negative errno when the end could not be learned */
	int status; /* exit code, 128+n for signal n */
	bool oom;
	int64_t ended_ms; /* since 1970 */
};

enum {
	WATCH_E_NONE = 1
};

/* `e` is borrowed. */
int watch_new(struct engine *e, size_t replica_max, struct watch **out);

/* The container `name` (borrowed) was started. At most replica_max times. */
int watch_add(struct watch *w, const char *name, size_t replica);

/* Readable when there is an event. */
int watch_fd(const struct watch *w);

/* 0, or WATCH_E_NONE when there is none now. */
int watch_next(struct watch *w, struct watch_event *out);

/* Waits for the threads: every container that was added must have ended or been removed.
 * Takes NULL, returns NULL. */
struct watch *watch_free(struct watch *w);
