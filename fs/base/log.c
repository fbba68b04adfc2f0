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

#include "fs/base/utf8.h"

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
static log_tend_fn log_tend;
static _Atomic time_t log_tended;

void log_init(const char *program)
{
	log_program = program;
}

void log_set_level(enum log_level level)
{
	atomic_store(&log_level_max, (int)level);
}

void log_set_tend(log_tend_fn tend)
{
	log_tend = tend;
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

/* Length of the visible character at `s`, 0 when it is none. C1 controls and the
 * bidirectional overrides (U+202A..E, U+2066..9) count as invisible. */
static size_t visible(const char *s)
{
	uint32_t c;
	size_t n = utf8_decode(s, SIZE_MAX, &c);

	if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0) ||
	    (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x2069) || c == 0xfeff)
		return 0;
	return n;
}

char *log_escape(char *out, unsigned long out_size, const char *in)
{
	size_t at = 0;

	while (*in) {
		size_t n = visible(in);

		if (at + (n ? n : 4) >= out_size)
			break;
		if (n) {
			memcpy(out + at, in, n);
			at += n;
			in += n;
		} else {
			at += (size_t)snprintf(out + at, 5, "\\x%02x",
					       (unsigned char)*in++);
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
	/* What it logs itself is of the same second, or comes here once more. */
	if (log_tend && atomic_exchange(&log_tended, now.tv_sec) != now.tv_sec)
		log_tend();
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
