/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of small objects: whole from the store in one request, whole in a pack. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct object;
struct wait;

/* As object_read(), the range inside the object. *missed: the store was waited for. */
int read_small(struct object *o, uint64_t off, void *p, size_t n, bool nowait,
	       const struct wait *w, bool *missed);
