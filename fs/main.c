/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice: an object store, an NFS export or a directory as two directories, one to read
 * from and one to write to. Map of the source: fs/README.md.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/standard.h"
#include "fs/cmd.h"
#include "fs/config.h"

static const struct command *const commands[] = {
	&cmd_mount,   &cmd_umount, &cmd_flush,   &cmd_status, &cmd_warm,
	&cmd_recover, &cmd_check,  &cmd_metrics, NULL,
};

static const struct program program = {
	.name = "sluice",
	.summary = "object storage as directories for training jobs",
	.version = VERSION,
	.commands = commands,
};

int cmd_fail(int exit_code, const struct why *why)
{
	char text[1024];

	fprintf(stderr, "sluice: %s\n", log_escape(text, sizeof(text), why->text));
	return exit_code;
}

int cmd_log_init(const struct config *config, struct why *why)
{
	if (config->debug && log_set_debug(config->debug) < 0)
		return why_set(why, -EINVAL, "--debug %s: names no area; see --help",
			       config->debug);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');

	standard_open();
	log_init("sluice");
	name = name ? name + 1 : argv[0];
	if (!strcmp(name, "mount.sluice") || !strcmp(name, "mount.fuse.sluice"))
		return cmd_mount_helper(argc, argv);
	return opt_main(&program, argc, argv);
}
