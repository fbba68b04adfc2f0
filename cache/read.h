/* SPDX-License-Identifier: Apache-2.0 */
/* Reading from the cache's files with checksums; object_read() is in object.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct datafile;
struct object;

/* Reads [off, off + n), page aligned (or to the object's end) and inside one block, and
 * compares every page with its record. Good pages are marked checked; damaged ones are
 * dropped and counted. *good = bytes from off on that are right. Positive: OBJECT_E_WAIT
 * with nowait. A negative errno is the disk's. Lock not held. */
int read_checked(struct object *o, struct datafile *file, uint64_t off, void *p,
		 uint32_t n, bool nowait, uint32_t *good);

/* *end = where the run of absent pages from `at` ends (at `stop` at most); false: the page
 * at `at` is there or coming, and *end = where the run of such pages does. */
bool read_absent_until(struct object *o, uint64_t at, uint64_t stop, uint64_t *end);

/* 0; -ESTALE, -EIO: no use in asking the store for this version. */
int read_refused(struct object *o);

/* Removes the file from the disk and forgets it: it is of no use. Lock not held. */
void read_drop_file(struct object *o, struct datafile *file);
