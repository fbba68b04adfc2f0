/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into which parts a version goes that has much in common with an object of the store:
 * unchanged ranges are copied there, the others are sent. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/err.h"

struct patch;

/* One part of the new object. */
struct upload_range {
	uint64_t off, size;
	bool copy; /* the same range of the source object; else sent */
};

struct upload_rules {
	uint64_t part_size; /* about this much is sent at a time */
	uint64_t part_min;  /* of every part but the last; 0: any */
	uint64_t copy_size; /* about this much is copied at a time */
};

/* The first `size` bytes of the file as parts, at most ORIGIN_PART_COUNT_MAX. Sets *out
 * (the caller's to free) and *count; NULL and 0 when nothing is worth a copy. Parts that
 * are sent may hold bytes of the object: small unchanged pieces between changed ones. */
int upload_plan(struct patch *patch, uint64_t size, const struct upload_rules *rules,
		struct upload_range **out, uint32_t *count);
