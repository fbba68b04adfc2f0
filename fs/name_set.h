/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of names that answers "surely not" or "perhaps", in 5 to 11 bytes a name. Nothing is
 * taken out of it. Not thread-safe. All zero: empty.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct name_set {
	uint32_t *slots; /* checksums of names; 0: free */
	size_t size;     /* a power of two, or 0 */
	size_t count;
};

int name_set_add(struct name_set *s, const char *name); /* -ENOMEM */
bool name_set_may_have(const struct name_set *s, const char *name);
/* Empty again. */
void name_set_fini(struct name_set *s);
