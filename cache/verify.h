/* SPDX-License-Identifier: Apache-2.0 */
/* Reading from the cache's files with checksums; the page is what is compared. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct datafile;
struct object;

/* Reads [off, off + n), page aligned (or to the object's end) and inside one block, and
 * compares every page with its record. Good pages are marked checked; damaged ones are
 * dropped and counted. *good = bytes from off on that are right. Positive: OBJECT_E_WAIT
 * with nowait. A negative errno is the disk's. Lock not held. */
int verify_read(struct object *o, struct datafile *file, uint64_t off, void *p,
		uint32_t n, bool nowait, uint32_t *good);

/* Removes the file from the disk and forgets it: it is of no use. Lock not held. */
void verify_drop_file(struct object *o, struct datafile *file);
