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

enum {
	PROBE_E_NONE = 1
};
/* 0: *attr filled (is_dir). The store's error, -EINTR, -ETIMEDOUT, -ENOMEM. */
int probe(struct probes *p, const char *key, const struct wait *w,
	  struct origin_attr *attr);

uint64_t probes_count(struct probes *p); /* pairs sent so far */
