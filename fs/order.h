/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of keys in files. A recorded order begins with the line "sluice-order 1", a list
 * that a program made with "sluice-list 1"; both have a key a line, control characters and
 * the backslash as \xHH, and "." for everything. Any other file is a plain list: a path a line as it is,
 * relative to the mount point or absolute below it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/path.h"

struct buf;

#define ORDER_HEAD "sluice-order 1\n"
#define ORDER_LIST_HEAD "sluice-list 1\n"
#define ORDER_LINE_MAX 8192

/* Appends the key as a line. */
void order_put(struct buf *b, const char *key);

/* One line (without its newline) as a key, "" for everything; `dir` is the mount point. A
 * trailing '/' goes. ORDER_E_EMPTY: nothing on it; ORDER_E_BAD: *why_bad says what is wrong. Pure. */
enum order_condition {
	ORDER_E_EMPTY = 1,
	ORDER_E_BAD,
	ORDER_E_END
};
int order_key(const char *line, size_t n, bool escaped, const char *dir,
	      char key[PATH_KEY_MAX + 2], const char **why_bad);

/* Whether it begins as a recorded order; a negative errno. */
int order_is_recorded(int fd);

/* Reads a file line by line with pread(): memory for one line, whatever the file is. */
struct order_reader {
	int fd;          /* borrowed */
	const char *dir; /* borrowed */
	bool recorded;   /* an order */
	bool escaped;
	bool begun, ended;
	uint64_t off, line; /* of the last line, from 1 */
	size_t at, len;
	char data[2 * ORDER_LINE_MAX];
};
void order_reader_init(struct order_reader *r, int fd, const char *dir);

/* The next key. ORDER_E_BAD: r->line is wrong, go on; ORDER_E_END; a negative errno. A last
 * line with escapes that has no newline was never completed, and is left out. */
int order_next(struct order_reader *r, char key[PATH_KEY_MAX + 2], const char **why_bad);
