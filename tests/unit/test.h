/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes first: cmocka in the order it needs, and main(). A case is
 * a function named as a sentence. `TEST_MAIN(cmocka_unit_test(test_x), …)`; the first
 * argument on the command line filters the cases by a part of their name. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/clock.h"

/* How long a test waits for what must come: by the clock, and far more than it takes, for
 * the machine may be busy with other things. */
#define PATIENCE_MS 60000

/* The deadline of a call that must not end by it. */
static inline uint64_t patience(void)
{
	return clock_mono_ms() + PATIENCE_MS;
}

/* Polls until it holds. In the test's own thread: it fails the case. */
#define eventually(condition)                                                            \
	do {                                                                             \
		uint64_t _until = patience();                                            \
                                                                                         \
		while (!(condition)) {                                                   \
			if (clock_mono_ms() > _until)                                    \
				fail_msg("never became true: %s", #condition);           \
			clock_sleep_ms(2);                                               \
		}                                                                        \
	} while (0)

/* The first argument filters the cases by a part of their name. */
static inline void test_choose(int argc, char **argv)
{
	static char pattern[256];

	if (argc <= 1)
		return;
	snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
	cmocka_set_test_filter(pattern);
}

#define TEST_MAIN(...)                                                                   \
	int main(int argc, char **argv)                                                  \
	{                                                                                \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                         \
                                                                                         \
		test_choose(argc, argv);                                                 \
		return cmocka_run_group_tests(tests, NULL, NULL);                        \
	}
