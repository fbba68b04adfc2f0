/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int parse_scaled(const char *text, double *value, const char **unit)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return -EINVAL;
	errno = 0;
	*value = strtod(text, &end);
	if (errno || !isfinite(*value))
		return -ERANGE;
	while (*end == ' ')
		end++;
	*unit = end;
	return 0;
}

static int to_integer(double value, uint64_t *out)
{
	if (value >= 0x1p63)
		return -ERANGE;
	*out = (uint64_t)value;
	return 0;
}

int units_parse_size(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGTP";
	const char *unit, *letter;
	double value;
	int r;

	r = parse_scaled(text, &value, &unit);
	if (r < 0)
		return r;
	if (*unit && (letter = strchr(letters, toupper((unsigned char)*unit)))) {
		value *= ldexp(1, 10 * (int)(letter - letters + 1));
		unit++;
		if (*unit == 'i')
			unit++;
	}
	if (*unit && strcasecmp(unit, "B"))
		return -EINVAL;
	return to_integer(value, bytes);
}

int units_parse_duration(const char *text, uint64_t *ms)
{
	static const struct {
		const char *name;
		double factor;
	} scales[] = {{"ms", 1},     {"s", 1e3},    {"", 1e3},     {"m", 60e3},
		      {"min", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
	const char *unit;
	double value;
	int r;

	r = parse_scaled(text, &value, &unit);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++)
		if (!strcmp(unit, scales[i].name))
			return to_integer(value * scales[i].factor, ms);
	return -EINVAL;
}

char *units_format_size(char *out, size_t out_size, uint64_t bytes)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	int i = 0;

	while (value >= 1024 && i < 5) {
		value /= 1024;
		i++;
	}
	snprintf(out, out_size, i && value < 100 ? "%.1f %s" : "%.0f %s", value,
		 names[i]);
	return out;
}

char *units_format_duration(char *out, size_t out_size, uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(out, out_size, "%" PRIu64 "ms", ms);
	else if (s < 60)
		snprintf(out, out_size, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(out, out_size, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
	else
		snprintf(out, out_size, "%" PRIu64 "h%02" PRIu64 "m", s / 3600,
			 s % 3600 / 60);
	return out;
}
