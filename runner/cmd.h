/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, and what several of them share. */
#pragma once

#include <stdbool.h>

struct command;
struct opt_strings;
struct spec;
struct mistakes;

extern const struct command cmd_check, cmd_start, cmd_plan, cmd_list, cmd_status,
	cmd_logs, cmd_stop;

/* Reads a job file with its --set assignments and checks it against this machine. Prints
 * the mistakes, or a JSON document of them, and returns the exit code; 0 sets *out. */
int cmd_load(const char *path, const struct opt_strings *sets, bool json,
	     struct spec **out);
