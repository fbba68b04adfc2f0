/* SPDX-License-Identifier: Apache-2.0 */
/* What is on its way and what is not; object_read() is in object.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct object;

/* *end = where the run of absent pages from `at` ends (at `stop` at most); false: the page
 * at `at` is there or coming, and *end = where the run of such pages does. */
bool read_absent_until(struct object *o, uint64_t at, uint64_t stop, uint64_t *end);

/* 0; -ESTALE, -EIO: no use in asking the store for this version. */
int read_refused(struct object *o);
