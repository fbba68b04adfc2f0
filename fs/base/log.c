/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const area_names[] = {"err",     "http",    "oss",    "origin",
					 "cache",   "journal", "upload", "fuse",
					 "control", "runner",  "ossd"};
static_assert(sizeof(level_names) / sizeof(*level_names) == LOG_LEVEL_N, "level names");
static_assert(sizeof(area_names) / sizeof(*area_names) == LOG_AREA_N, "area names");

static const char *log_program = "sluice";
static atomic_int log_fd = STDERR_FILENO;
static atomic_int log_level_max = LOG_WARN;
static atomic_uint log_areas;

void log_init(const char *program)
{
	log_program = program;
}

void log_set_level(enum log_level level)
{
	atomic_store(&log_level_max, (int)level);
}

void log_set_fd(int fd)
{
	atomic_store(&log_fd, fd);
}

int log_set_debug(const char *areas)
{
	unsigned int mask = 0;

	while (*areas) {
		size_t n = strcspn(areas, ",");
		unsigned int bit = 0;

		if (n == 3 && !strncmp(areas, "all", n))
			bit = ~0u;
		for (int i = 0; i < LOG_AREA_N && !bit; i++)
			if (strlen(area_names[i]) == n &&
			    !strncmp(areas, area_names[i], n))
				bit = 1u << i;
		if (!bit)
			return -EINVAL;
		mask |= bit;
		areas += n;
		areas += *areas == ',';
	}
	atomic_store(&log_areas, mask);
	return 0;
}

bool log_debug_on(enum log_area area)
{
	return atomic_load_explicit(&log_areas, memory_order_relaxed) & (1u << area);
}

/* Length of the visible UTF-8 sequence at `s`, 0 when it is none. C1 controls and the
 * bidirectional overrides (U+202A..E, U+2066..9) count as invisible. */
static int utf8_visible(const unsigned char *s)
{
	uint32_t c;
	int n;

	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	c = s[0] & (0xff >> (n + 1));
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	if (c < 0xa0 || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	if ((c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x2069) || c == 0xfeff)
		return 0;
	return n;
}

char *log_escape(char *out, unsigned long out_size, const char *in)
{
	const unsigned char *s = (const unsigned char *)in;
	size_t at = 0;

	while (*s) {
		int n = *s >= 0x20 && *s < 0x7f ? 1 : utf8_visible(s);

		if (at + (n ? (size_t)n : 4) >= out_size)
			break;
		if (n) {
			memcpy(out + at, s, (size_t)n);
			at += (size_t)n;
			s += n;
		} else {
			at += (size_t)snprintf(out + at, 5, "\\x%02x", *s++);
		}
	}
	if (out_size)
		out[at] = '\0';
	return out;
}

static void emit(const char *level, const char *area, const char *format, va_list args)
{
	char text[LINE_MAX_BYTES / 2], line[LINE_MAX_BYTES], stamp[40];
	struct timespec now;
	struct tm tm;
	int n;

	vsnprintf(text, sizeof(text), format, args);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line, sizeof(line), "%s.%03ldZ %s %s%s%s: ", stamp,
		     now.tv_nsec / 1000000, log_program, level, *area ? "/" : "", area);
	log_escape(line + n, sizeof(line) - (size_t)n - 1, text);
	n = (int)strlen(line);
	line[n++] = '\n';
	/* One write per line: lines of several threads do not mix. A log that cannot
	 * be written has nowhere to be reported. */
	if (write(atomic_load(&log_fd), line, (size_t)n) < 0)
		return;
}

void log_write(enum log_level level, const char *format, ...)
{
	va_list args;

	if ((int)level > atomic_load(&log_level_max))
		return;
	va_start(args, format);
	emit(level_names[level], "", format, args);
	va_end(args);
}

void log_write_debug(enum log_area area, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	emit("debug", area_names[area], format, args);
	va_end(args);
}

void log_fatal(int exit_code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	emit("fatal", "", format, args);
	va_end(args);
	exit(exit_code);
}
