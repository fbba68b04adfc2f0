/* SPDX-License-Identifier: Apache-2.0 */
/* A set of byte offsets, as sorted ranges that neither meet nor overlap. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"

struct range {
	uint64_t off, end; /* off < end */
};

struct ranges {
	struct range *list;
	size_t count, size;
};

/* Safe on zeroes and twice; the set is empty afterwards. */
void ranges_fini(struct ranges *r);

int ranges_copy(struct ranges *to, const struct ranges *from);

/* Adds [off, end). Nothing changes on -ENOMEM. */
int ranges_add(struct ranges *r, uint64_t off, uint64_t end);

/* Takes away all from `at` on. */
void ranges_cut(struct ranges *r, uint64_t at);

/* Closes the smallest gaps until at most `count` ranges are left. */
void ranges_coarsen(struct ranges *r, size_t count);

/* Whether `off` is in the set; *end: where that stops being so (UINT64_MAX: never). */
bool ranges_at(const struct ranges *r, uint64_t off, uint64_t *end);

uint64_t ranges_sum(const struct ranges *r);
