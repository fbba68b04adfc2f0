/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_range.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/ossd_code.h"
#include "tools/ossd_time.h"

/* Digits at *s; false when there are none or too many. */
static bool take_number(const char **s, uint64_t *out)
{
	uint64_t value = 0;
	const char *at = *s;

	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	if (at == *s)
		return false;
	*s = at;
	*out = value;
	return true;
}

static enum ossd_range part(uint64_t from, uint64_t to, uint64_t *start, uint64_t *length)
{
	*start = from;
	*length = to - from + 1;
	return OSSD_RANGE_PART;
}

/* "-N" */
static enum ossd_range parse_suffix(const char *s, uint64_t size, bool standard,
				    uint64_t *start, uint64_t *length)
{
	uint64_t n;

	if (!take_number(&s, &n) || *s)
		return OSSD_RANGE_WHOLE;
	if (standard && (n == 0 || size == 0))
		return OSSD_RANGE_INVALID;
	if (n == 0 || size == 0 || (n > size && !standard))
		return OSSD_RANGE_WHOLE;
	return part(n > size ? 0 : size - n, size - 1, start, length);
}

enum ossd_range ossd_range_parse(const char *value, uint64_t size, bool standard,
				 uint64_t *start, uint64_t *length)
{
	const char *s = value;
	uint64_t from, to;
	bool open_end;

	*start = 0;
	*length = size;
	if (!s || strncmp(s, "bytes=", 6) != 0)
		return OSSD_RANGE_WHOLE;
	s += 6;
	if (*s == '-')
		return parse_suffix(s + 1, size, standard, start, length);
	if (!take_number(&s, &from) || *s++ != '-')
		return OSSD_RANGE_WHOLE;
	open_end = !*s;
	to = size ? size - 1 : 0;
	if (!open_end && !take_number(&s, &to))
		return OSSD_RANGE_WHOLE;
	if (*s == ',')
		return standard ? OSSD_RANGE_INVALID : OSSD_RANGE_WHOLE;
	if (*s || (!open_end && to < from))
		return OSSD_RANGE_WHOLE;
	if (from >= size)
		return standard ? OSSD_RANGE_INVALID : OSSD_RANGE_WHOLE;
	if (to >= size) {
		if (!standard)
			return OSSD_RANGE_WHOLE;
		to = size - 1;
	}
	return part(from, to, start, length);
}

/* Whether the list names the ETag; "*" names every one. Weak marks and quotes are ignored,
 * case too: clients disagree on it (protocol.md §4.3). */
static bool etag_listed(const char *list, const char *etag)
{
	size_t want = strlen(etag);

	while (*list) {
		size_t n;

		list += strspn(list, " \t,");
		if (!strncmp(list, "W/", 2))
			list += 2;
		list += *list == '"';
		n = strcspn(list, "\", \t");
		if ((n == 1 && *list == '*') ||
		    (n == want && !strncasecmp(list, etag, n)))
			return true;
		list += n;
		list += *list == '"';
	}
	return false;
}

int ossd_conditions_check(const struct ossd_conditions *c, const char *etag,
			  int64_t modified_ms)
{
	int64_t when, modified = modified_ms / 1000 * 1000; /* headers carry seconds */

	if (c->match && !etag_listed(c->match, etag))
		return OSSD_E_PRECONDITION;
	if (c->unmodified_since &&
	    ossd_time_parse_http(c->unmodified_since, &when) == 0 && modified > when)
		return OSSD_E_PRECONDITION;
	if (c->none_match)
		return etag_listed(c->none_match, etag) ? OSSD_E_NOT_MODIFIED : 0;
	if (c->modified_since && ossd_time_parse_http(c->modified_since, &when) == 0 &&
	    modified <= when)
		return OSSD_E_NOT_MODIFIED;
	return 0;
}
