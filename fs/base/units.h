/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and durations as people write them. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "512", "64K", "1.5GiB": binary multiples, K M G T with optional "iB" or "B". -EINVAL,
 * -ERANGE. */
int units_parse_size(const char *text, uint64_t *bytes);

/* "250ms", "30s", "5m", "2h", "1d", or a bare number of seconds. -EINVAL, -ERANGE. */
int units_parse_duration(const char *text, uint64_t *ms);

/* "1.5 GiB", into out (16 bytes are enough); returns out. */
char *units_format_size(char *out, size_t out_size, uint64_t bytes);
/* "1h02m", "42s", "250ms", into out (24 bytes are enough); returns out. */
char *units_format_duration(char *out, size_t out_size, uint64_t ms);
