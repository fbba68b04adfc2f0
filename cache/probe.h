/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one key is: a file, a directory, or nothing. Two requests at once, STAT of the key
 * and LIST of one entry below "key/", since a directory need not have an object of its own;
 * when both are there the directory wins. One pair for all who ask meanwhile; whoever gives
 * up waiting leaves it to run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

struct probes;
struct wait;

int probes_new(struct origin *origin, bool want_meta, struct probes **out);
struct probes *probes_free(struct probes *p); /* cancels, waits */

/* Asks, or joins who asks already; probe_end() for each. `is_file`: a listing has told that
 * it is one, so STAT will do. NULL: no memory. */
struct pair;
struct pair *probe_begin(struct probes *p, const char *key, bool is_file);

enum {
	PROBE_E_NONE = 1
};
/* Waits for the answer; `pair` is gone then, whatever comes. 0: *attr filled (is_dir). The
 * store's error, -EINTR, -ETIMEDOUT. */
int probe_end(struct probes *p, struct pair *pair, const struct wait *w,
	      struct origin_attr *attr);

uint64_t probes_count(struct probes *p); /* pairs sent so far */
