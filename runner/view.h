/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as the commands list, status, logs and stop see them: from their state on disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"
#include "runner/job.h"
#include "runner/status.h"

struct view {
	struct job *job;      /* owned */
	struct status status; /* owned; zero when it could not be read */
	bool readable;        /* the status was read */
	bool held;            /* a supervisor looks after it */
	bool lost;            /* not over, and nobody does */
	bool empty;           /* a folder in which no job ever began */
};

/* `name`, or NULL for the only job that is not over, else the one that began last. Returns 0
 * or an exit code, with the reason on standard error. */
int view_open(const char *name, struct view *out);

/* Reads status and holder again. */
void view_refresh(struct view *v);
void view_close(struct view *v);

/* "running", "lost" … */
const char *view_phase(const struct view *v);

/* "1h02m", into out (24 bytes); "-" when it has not begun. */
void view_took(int64_t started_ms, int64_t ended_ms, char out[24]);
/* "2026-11-21 12:00:05", local time, into out (24 bytes); "-" for 0. */
void view_time(int64_t ms, char out[24]);
