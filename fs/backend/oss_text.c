/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "cache/origin.h"
#include "fs/base/err.h"

#define NS_PER_S 1000000000

static const char month_names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
static const char day_names[] = "SunMonTueWedThuFriSat";

/* ---- times --------------------------------------------------------------------------- */

/* Seconds since 1970 of a date that has been checked for range. */
static int to_ns(const struct tm *tm, int64_t *ns)
{
	struct tm copy = *tm;
	time_t s;

	if (tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 || tm->tm_mday > 31 ||
	    tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 60 ||
	    tm->tm_year < -330 || tm->tm_year > 330)
		return err_origin(-EINVAL);
	s = timegm(&copy);
	*ns = (int64_t)s * NS_PER_S;
	return 0;
}

/* Exactly `digits` digits at *s, which is moved past them; -1 when they are not there. */
static int take_digits(const char **s, const char *end, int digits)
{
	int value = 0;

	if (end - *s < digits)
		return -1;
	for (int i = 0; i < digits; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return -1;
		value = value * 10 + (**s - '0');
	}
	return value;
}

static bool take_char(const char **s, const char *end, char c)
{
	if (*s == end || **s != c)
		return false;
	(*s)++;
	return true;
}

/* ".123456" as nanoseconds; further digits are dropped. */
static int64_t take_fraction(const char **s, const char *end)
{
	int64_t ns = 0;
	int64_t weight = NS_PER_S / 10;

	if (!take_char(s, end, '.'))
		return 0;
	for (; *s < end && **s >= '0' && **s <= '9'; (*s)++, weight /= 10)
		ns += (**s - '0') * weight;
	return ns;
}

int oss_time_parse_iso(const char *s, size_t n, int64_t *ns)
{
	const char *end = s + n;
	struct tm tm = {0};
	int64_t whole = 0, fraction;
	int r;

	tm.tm_year = take_digits(&s, end, 4) - 1900;
	if (!take_char(&s, end, '-'))
		return err_origin(-EINVAL);
	tm.tm_mon = take_digits(&s, end, 2) - 1;
	if (!take_char(&s, end, '-'))
		return err_origin(-EINVAL);
	tm.tm_mday = take_digits(&s, end, 2);
	if (!take_char(&s, end, 'T'))
		return err_origin(-EINVAL);
	tm.tm_hour = take_digits(&s, end, 2);
	if (!take_char(&s, end, ':'))
		return err_origin(-EINVAL);
	tm.tm_min = take_digits(&s, end, 2);
	if (!take_char(&s, end, ':'))
		return err_origin(-EINVAL);
	tm.tm_sec = take_digits(&s, end, 2);
	fraction = take_fraction(&s, end);
	if (!take_char(&s, end, 'Z') || s != end || tm.tm_hour < 0 || tm.tm_min < 0 ||
	    tm.tm_sec < 0)
		return err_origin(-EINVAL);
	r = to_ns(&tm, &whole);
	if (r < 0)
		return err_trace(r);
	*ns = whole + fraction;
	return 0;
}

static int take_name(const char **s, const char *end, const char *names, int count)
{
	if (end - *s < 3)
		return -1;
	for (int i = 0; i < count; i++) {
		if (strncasecmp(*s, names + 3 * i, 3) == 0) {
			*s += 3;
			return i;
		}
	}
	return -1;
}

int oss_time_parse_http(const char *s, size_t n, int64_t *ns)
{
	const char *end = s + n;
	struct tm tm = {0};

	if (take_name(&s, end, day_names, 7) < 0 || !take_char(&s, end, ',') ||
	    !take_char(&s, end, ' '))
		return err_origin(-EINVAL);
	tm.tm_mday = take_digits(&s, end, 2);
	if (!take_char(&s, end, ' '))
		return err_origin(-EINVAL);
	tm.tm_mon = take_name(&s, end, month_names, 12);
	if (!take_char(&s, end, ' '))
		return err_origin(-EINVAL);
	tm.tm_year = take_digits(&s, end, 4) - 1900;
	if (!take_char(&s, end, ' '))
		return err_origin(-EINVAL);
	tm.tm_hour = take_digits(&s, end, 2);
	if (!take_char(&s, end, ':'))
		return err_origin(-EINVAL);
	tm.tm_min = take_digits(&s, end, 2);
	if (!take_char(&s, end, ':'))
		return err_origin(-EINVAL);
	tm.tm_sec = take_digits(&s, end, 2);
	if (end - s != 4 || memcmp(s, " GMT", 4) != 0 || tm.tm_hour < 0 ||
	    tm.tm_min < 0 || tm.tm_sec < 0)
		return err_origin(-EINVAL);
	return err_trace(to_ns(&tm, ns));
}

static struct tm broken_down(int64_t ns)
{
	time_t s = (time_t)(ns / NS_PER_S);
	struct tm tm = {0};

	gmtime_r(&s, &tm);
	return tm;
}

void oss_time_format_basic(char out[OSS_TIME_SIZE], int64_t ns)
{
	struct tm tm = broken_down(ns);

	strftime(out, OSS_TIME_SIZE, "%Y%m%dT%H%M%SZ", &tm);
}

/* Not strftime: its names follow the locale. */
void oss_time_format_http(char out[OSS_TIME_SIZE], int64_t ns)
{
	struct tm tm = broken_down(ns);

	snprintf(out, OSS_TIME_SIZE, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
		 day_names + 3 * tm.tm_wday, tm.tm_mday % 100,
		 month_names + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000,
		 tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
}

/* ---- numbers, tags, ranges ----------------------------------------------------------- */

int oss_number_parse(const char *s, size_t n, uint64_t *value)
{
	uint64_t v = 0;

	if (!n)
		return err_origin(-EINVAL);
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return err_origin(-EINVAL);
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return err_origin(-ERANGE);
	}
	*value = v;
	return 0;
}

void oss_etag_copy(char *out, size_t out_size, const char *s, size_t n)
{
	if (n >= 2 && memcmp(s, "W/", 2) == 0) {
		s += 2;
		n -= 2;
	}
	if (n >= 2 && s[0] == '"' && s[n - 1] == '"') {
		s++;
		n -= 2;
	}
	if (n >= out_size)
		n = 0;
	memcpy(out, s, n);
	out[n] = '\0';
}

bool oss_etag_equal(const char *a, const char *b)
{
	return strcasecmp(a, b) == 0;
}

int oss_range_parse(const char *s, size_t n, struct oss_range *out)
{
	const char *end = s + n, *slash = memchr(s, '/', n), *dash;
	struct oss_range range = {0};

	if (n < 6 || strncasecmp(s, "bytes ", 6) != 0 || !slash)
		return err_origin(-EINVAL);
	s += 6;
	if (slash < s ||
	    oss_number_parse(slash + 1, (size_t)(end - slash - 1), &range.size) < 0)
		return err_origin(-EINVAL);
	if (slash - s == 1 && *s == '*') {
		range.unsatisfied = true;
		*out = range;
		return 0;
	}
	dash = memchr(s, '-', (size_t)(slash - s));
	if (!dash || oss_number_parse(s, (size_t)(dash - s), &range.first) < 0 ||
	    oss_number_parse(dash + 1, (size_t)(slash - dash - 1), &range.last) < 0 ||
	    range.first > range.last || range.last >= range.size)
		return err_origin(-EINVAL);
	*out = range;
	return 0;
}

/* ---- POSIX metadata ------------------------------------------------------------------ */

static bool is_name(const char *name, size_t n, const char *expected)
{
	return n == strlen(expected) && strncasecmp(name, expected, n) == 0;
}

/* base 0: a leading 0 means octal, as ossfs reads it. */
static bool take_number(const char *value, size_t n, int base, uint32_t *out)
{
	char text[24], *end;
	unsigned long v;

	if (!n || n >= sizeof(text) || value[0] < '0' || value[0] > '9')
		return false;
	memcpy(text, value, n);
	text[n] = '\0';
	errno = 0;
	v = strtoul(text, &end, base);
	if (*end || errno || v > UINT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool take_seconds(const char *value, size_t n, int64_t *ns)
{
	const bool negative = n > 0 && *value == '-';
	const char *end = value + n, *dot = memchr(value, '.', n);
	uint64_t s = 0;
	int64_t fraction = 0;

	value += negative;
	if (oss_number_parse(value, (size_t)((dot ? dot : end) - value), &s) < 0 ||
	    s > INT64_MAX / NS_PER_S - 1)
		return false;
	if (dot)
		fraction = take_fraction(&dot, end);
	if (dot && dot != end)
		return false;
	*ns = (int64_t)s * NS_PER_S + fraction;
	if (negative) /* before 1970 */
		*ns = -*ns;
	return true;
}

/* The names ossfs writes win over those that s3sync and gsutil leave behind, in whatever
 * order they come. */
void oss_posix_take(struct oss_posix *p, const char *name, size_t name_len,
		    const char *value, size_t value_len)
{
	bool ok;

	if (is_name(name, name_len, "mode")) {
		ok = take_number(value, value_len, 0, &p->mode);
		p->has_mode |= ok;
	} else if (is_name(name, name_len, "uid")) {
		ok = take_number(value, value_len, 10, &p->uid);
		p->has_uid |= ok;
	} else if (is_name(name, name_len, "gid")) {
		ok = take_number(value, value_len, 10, &p->gid);
		p->has_gid |= ok;
	} else if (is_name(name, name_len, "mtime")) {
		ok = take_seconds(value, value_len, &p->mtime_ns);
		p->has_mtime |= ok;
	} else if (is_name(name, name_len, "permissions") && !p->has_mode) {
		p->has_mode = take_number(value, value_len, 0, &p->mode);
	} else if (is_name(name, name_len, "goog-reserved-posix-mode") && !p->has_mode) {
		p->has_mode = take_number(value, value_len, 8, &p->mode);
	} else if ((is_name(name, name_len, "owner") ||
		    is_name(name, name_len, "goog-reserved-posix-uid")) &&
		   !p->has_uid) {
		p->has_uid = take_number(value, value_len, 10, &p->uid);
	} else if ((is_name(name, name_len, "group") ||
		    is_name(name, name_len, "goog-reserved-posix-gid")) &&
		   !p->has_gid) {
		p->has_gid = take_number(value, value_len, 10, &p->gid);
	} else if (is_name(name, name_len, "goog-reserved-file-mtime") && !p->has_mtime) {
		p->has_mtime = take_seconds(value, value_len, &p->mtime_ns);
	}
}

void oss_posix_apply(const struct oss_posix *p, bool is_dir, struct origin_attr *attr)
{
	if (p->has_mtime)
		attr->mtime_ns = p->mtime_ns;
	if (!p->has_mode && !p->has_uid && !p->has_gid)
		return;
	attr->has_posix = true;
	attr->mode = p->has_mode ? p->mode : is_dir ? 0750 : 0640;
	if (!(attr->mode & S_IFMT))
		attr->mode |= is_dir ? S_IFDIR : S_IFREG;
	attr->uid = p->has_uid ? p->uid : 0;
	attr->gid = p->has_gid ? p->gid : 0;
	attr->is_symlink = S_ISLNK(attr->mode);
}

/* ---- content types ------------------------------------------------------------------- */

static const char *const content_types[][2] = {
	{"css", "text/css"},
	{"csv", "text/csv"},
	{"gif", "image/gif"},
	{"gz", "application/gzip"},
	{"htm", "text/html"},
	{"html", "text/html"},
	{"jpeg", "image/jpeg"},
	{"jpg", "image/jpeg"},
	{"js", "text/javascript"},
	{"json", "application/json"},
	{"jsonl", "application/x-ndjson"},
	{"log", "text/plain"},
	{"md", "text/markdown"},
	{"mp3", "audio/mpeg"},
	{"mp4", "video/mp4"},
	{"ndjson", "application/x-ndjson"},
	{"npy", "application/octet-stream"},
	{"npz", "application/zip"},
	{"pdf", "application/pdf"},
	{"png", "image/png"},
	{"py", "text/x-python"},
	{"svg", "image/svg+xml"},
	{"tar", "application/x-tar"},
	{"tgz", "application/gzip"},
	{"tif", "image/tiff"},
	{"tiff", "image/tiff"},
	{"tsv", "text/tab-separated-values"},
	{"txt", "text/plain"},
	{"wav", "audio/wav"},
	{"webp", "image/webp"},
	{"xml", "application/xml"},
	{"yaml", "application/yaml"},
	{"yml", "application/yaml"},
	{"zip", "application/zip"},
	{"zst", "application/zstd"},
};

static int by_suffix(const void *key, const void *row)
{
	return strcasecmp(key, ((const char *const *)row)[0]);
}

const char *oss_content_type(const char *key)
{
	const char *name = strrchr(key, '/'), *dot;
	const char *const *row;

	if (name && !name[1])
		return "application/x-directory";
	dot = strrchr(name ? name : key, '.');
	if (!dot)
		return NULL;
	row = bsearch(dot + 1, content_types,
		      sizeof(content_types) / sizeof(*content_types),
		      sizeof(*content_types), by_suffix);
	return row ? row[1] : NULL;
}
