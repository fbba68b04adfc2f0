/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* The candidate nearest to `word` by edit distance, or NULL when none is near enough to be
 * what was meant. `stride` is the distance in bytes between two `const char *` fields, so
 * that any table of structs with a name can be searched. Pure. */
const char *suggest_nearest(const char *word, const char *const *first, size_t count,
			    size_t stride);
