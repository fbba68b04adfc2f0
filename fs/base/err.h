/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error doctrine.
 *
 *  - zero is success;
 *  - negative is an errno that travels up unchanged. Nobody matches on a negative that
 *    our own code returned;
 *  - positive is a condition of that one function, named in its module's enum. The direct
 *    caller handles it and never forwards it.
 *
 * err_origin() where a failure is born, err_trace() where it is passed on, err_fold()
 * where a positive condition is not expected. With --debug=err the three print a stack
 * trace of an errno.
 *
 * What a person or a remote wrote is refused with a sentence in a struct why: what,
 * where, what to do next.
 */
#pragma once

#include <stdarg.h>

struct why {
	char text[256]; /* one line, no newline; empty when nothing failed */
};

int err_at(int r, const char *verb, const char *file, int line);

#define err_origin(r) err_at((r), "origin", __FILE__, __LINE__)
#define err_trace(r)                                                                     \
	({                                                                               \
		int _r = (r);                                                            \
		__builtin_expect(_r < 0, 0) ? err_at(_r, "trace", __FILE__, __LINE__)    \
					    : _r;                                        \
	})
#define err_fold(r)                                                                      \
	({                                                                               \
		int _f = (r);                                                            \
		_f > 0 ? err_at(-ENOTRECOVERABLE, "fold", __FILE__, __LINE__)            \
		       : err_trace(_f);                                                  \
	})

/* Writes the sentence; `why` may be NULL. Returns `r`, so that a parser can say
 * `return why_set(why, -EINVAL, ...)`. Control characters are replaced by '?'. */
int why_set(struct why *why, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before what is there, cutting the tail when it grows too long. */
void why_wrap(struct why *why, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
