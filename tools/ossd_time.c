/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_time.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
				     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

static struct tm split(int64_t ms)
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	gmtime_r(&seconds, &tm);
	return tm;
}

char *ossd_time_iso(char *out, int64_t ms)
{
	struct tm tm = split(ms);

	snprintf(out, OSSD_TIME_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
		 (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
		 tm.tm_min, tm.tm_sec, (int)(ms % 1000));
	return out;
}

char *ossd_time_http(char *out, int64_t ms)
{
	struct tm tm = split(ms);

	/* Not strftime: day and month are English whatever the locale. */
	snprintf(out, OSSD_TIME_SIZE, "%s, %02d %s %04d %02d:%02d:%02d GMT",
		 days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
		 (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min, tm.tm_sec);
	return out;
}

static int parse(const char *text, const char *format, int64_t *ms)
{
	struct tm tm = {0};
	const char *end = strptime(text, format, &tm);
	time_t seconds;

	if (!end || *end)
		return -EINVAL;
	seconds = timegm(&tm);
	if (seconds == (time_t)-1)
		return -EINVAL;
	*ms = (int64_t)seconds * 1000;
	return 0;
}

int ossd_time_parse_http(const char *text, int64_t *ms)
{
	return parse(text, "%a, %d %b %Y %H:%M:%S GMT", ms);
}

int ossd_time_parse_basic(const char *text, int64_t *ms)
{
	return parse(text, "%Y%m%dT%H%M%SZ", ms);
}
