/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds, for our own mistakes only. */
#pragma once

#define check(x)                                                                         \
	do {                                                                             \
		if (__builtin_expect(!(x), 0))                                           \
			check_failed(#x, __FILE__, __LINE__, __func__);                  \
	} while (0)

void check_failed(const char *what, const char *file, int line, const char *function)
	__attribute__((noreturn, cold));
