/* SPDX-License-Identifier: Apache-2.0 */
/* What is on its way and what is not; object_read() is in object.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct object;
struct wait;

/* *end = where the run of absent pages from `at` ends (at `stop` at most); false: the page
 * at `at` is there or coming, and *end = where the run of such pages does. */
bool read_absent_until(struct object *o, uint64_t at, uint64_t stop, uint64_t *end);

/* 0; -ESTALE, -EIO: no use in asking the store for this version. */
int read_refused(struct object *o);

/* Asks for what is absent of [at, end), in requests that end at multiples of `request` (a
 * power of two). Memory for the first block is waited for if it lies before demand_end.
 * *reached = how far memory went. Errors of fetch_start(). */
int read_ask(struct object *o, uint64_t at, uint64_t end, uint64_t demand_end,
	     uint64_t request, const struct wait *w, uint64_t *reached);
