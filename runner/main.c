/* SPDX-License-Identifier: Apache-2.0 */
/* The job runner: a table of commands, one file each (cmd_*.c). README.md is the map. */
#include <stddef.h>

#include "fs/base/log.h"
#include "fs/base/opt.h"
#include "fs/base/standard.h"
#include "runner/cmd.h"

static const struct command *const commands[] = {
	&cmd_start,  &cmd_check, &cmd_plan, &cmd_list,
	&cmd_status, &cmd_logs,  &cmd_stop, NULL,
};

static const struct program program = {
	.name = "runner",
	.summary =
		"run a training job in containers, with its data in /input and /output",
	.version = VERSION,
	.commands = commands,
};

int main(int argc, char **argv)
{
	standard_open();
	log_init("runner");
	return opt_main(&program, argc, argv);
}
