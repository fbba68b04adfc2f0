/* SPDX-License-Identifier: Apache-2.0 */
/* Range and conditional headers of GET, HEAD and copy (protocol.md §3.9). Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum ossd_range {
	OSSD_RANGE_WHOLE,
	OSSD_RANGE_PART,
	OSSD_RANGE_INVALID
};

/* What a Range header (NULL: none) means for an object of `size` bytes. Without `standard`
 * OSS answers every range it cannot serve to the letter with the whole object. `start` and
 * `length` are set in every case but INVALID. */
enum ossd_range ossd_range_parse(const char *value, uint64_t size, bool standard,
				 uint64_t *start, uint64_t *length);

/* The four headers; NULL: absent. */
struct ossd_conditions {
	const char *match;
	const char *none_match;
	const char *modified_since;
	const char *unmodified_since;
};

/* 0, OSSD_E_PRECONDITION or OSSD_E_NOT_MODIFIED. `etag` without quotes. */
int ossd_conditions_check(const struct ossd_conditions *c, const char *etag,
			  int64_t modified_ms);
