/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named places where a crash test ends the process: SLUICE_KILL_AT=point[:n] dies with
 * SIGKILL at the n-th arrival (default the first). Compiled in always: a place costs one
 * load and one branch when the variable is not set. The names are listed in
 * cache/JOURNAL.md, "Kill points".
 */
#pragma once

#include <stdbool.h>

extern bool kill_point_armed; /* set once, by kill_point_init() */

/* Reads the environment. Before threads start; harmless when called again. */
void kill_point_init(void);

void kill_point_arrive(const char *name);

#define kill_point(name)                                                                 \
	do {                                                                             \
		if (__builtin_expect(kill_point_armed, 0))                               \
			kill_point_arrive(name);                                         \
	} while (0)
