/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log pump: one thread that reads what every replica writes, stores it byte for byte
 * in that replica's own file, and shows it line by line, with the replica's name before
 * each line, on the terminal.
 *
 * A replica never waits for the terminal: when the terminal stands still for
 * LOGS_STALL_MS, lines are left out of it (and counted there once it moves again); the
 * file has them all. When a file cannot be written (disk full) the replica still runs on;
 * what is lost is counted and reported. On the terminal everything but printable text is
 * escaped, colours are taken out, a carriage return ends a line (progress bars), and
 * lines longer than LOGS_LINE_MAX are broken.
 */
#pragma once

#include <stdint.h>

struct logs;

#define LOGS_LINE_MAX 8192
#define LOGS_STALL_MS 2000
#define LOGS_SOURCE_MAX 4096 /* replicas of one job */

/* `terminal_fd` is borrowed until logs_free(); -1: files only. */
int logs_new(struct logs **out, int terminal_fd) __attribute__((warn_unused_result));

/* A new source. `name` ("worker-0") is copied; `file_fd` is borrowed until logs_free()
 * (opened with O_APPEND by the caller; -1: no file). *write_fd is the end of a pipe that
 * the caller hands to the replica and closes; O_CLOEXEC. May be called at any time. */
int logs_add(struct logs *l, const char *name, int file_fd, int *write_fd)
	__attribute__((warn_unused_result));

/* A line of the runner's own among the replicas' lines, as from source `name`. */
void logs_say(struct logs *l, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Waits until every source has ended and everything is shown, or timeout_ms has passed
 * (some grandchild still holds a pipe, the terminal is stuck). Returns 0, or
 * LOGS_E_TIMEOUT. */
enum {
	LOGS_E_TIMEOUT = 1
};
int logs_drain(struct logs *l, uint64_t timeout_ms);

/* Ends the thread at once, whatever is still open. Takes NULL, returns NULL. */
struct logs *logs_free(struct logs *l);
