/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log levels with fixed meanings:
 *   error  an operator must act
 *   warn   abnormal, but handled
 *   info   a state change of the process, or a file reaching the store
 *   debug  by area, off unless named in --debug=area,area
 *   fatal  the world is wrong: log_fatal() exits with the code given
 *
 * Text is "what key=value key=value": no newline, no secrets. The layer that handles an
 * error logs it, once. Bytes outside printable ASCII and UTF-8 are escaped, so a name
 * from the store can neither forge a line nor drive a terminal.
 */
#pragma once

#include <stdbool.h>

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
	LOG_LEVEL_N
};

enum log_area {
	LOG_ERR_AREA,
	LOG_HTTP,
	LOG_OSS,
	LOG_ORIGIN,
	LOG_CACHE,
	LOG_JOURNAL,
	LOG_UPLOAD,
	LOG_FUSE,
	LOG_CONTROL,
	LOG_RUNNER,
	LOG_OSSD,
	LOG_AREA_N
};

/* Before any thread starts. `program` is borrowed for ever. */
void log_init(const char *program);
void log_set_level(enum log_level level);

/* From now on to this descriptor instead of stderr (borrowed). */
void log_set_fd(int fd);

/* Called before a line is written, at most once a second: to look after the file that the
 * descriptor leads to. Before any thread starts. */
typedef void (*log_tend_fn)(void);
void log_set_tend(log_tend_fn tend);

/* Comma-separated area names, or "all". -EINVAL names no area. */
int log_set_debug(const char *areas);
bool log_debug_on(enum log_area area);

void log_write(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void log_write_debug(enum log_area area, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void log_fatal(int exit_code, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(area, ...)                                                             \
	do {                                                                             \
		if (log_debug_on(area))                                                  \
			log_write_debug(area, __VA_ARGS__);                              \
	} while (0)

/* Copies `in` to `out` with everything but printable ASCII and well-formed, visible
 * UTF-8 written as \xNN. Always terminates; returns `out`. For terminals and logs. */
char *log_escape(char *out, unsigned long out_size, const char *in);
