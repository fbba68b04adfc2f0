/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal that says how far an upload is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on; /* standard error is a terminal */
	bool begun;
	uint64_t start_ms;
	uint64_t last_ms;    /* when it was drawn */
	uint64_t files_base; /* stored before we looked */
	uint64_t bytes_base;
};

struct progress_amount {
	uint64_t files_done, bytes_done;
	uint64_t files_left, bytes_left;
	uint64_t moving; /* renamed directories with more than that, not counted yet */
};

void progress_init(struct progress *p, bool quiet);
/* What is done since some time before, and what is left. */
void progress_show(struct progress *p, const struct progress_amount *amount);
/* The same when nobody knows yet how much there is. */
void progress_count(struct progress *p, uint64_t files_done, uint64_t bytes_done);
void progress_end(struct progress *p); /* leaves the cursor on a line of its own */

/* The line without control sequences, at most `width` columns. Pure. */
void progress_format(char *out, int width, const struct progress_amount *amount,
		     uint64_t elapsed_ms);
