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
