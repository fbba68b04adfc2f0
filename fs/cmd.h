/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of `sluice`, one file each, and what they share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "fs/base/opt.h"

struct config;
struct why;

extern const struct command cmd_mount, cmd_umount, cmd_flush, cmd_status, cmd_recover,
	cmd_check, cmd_warm, cmd_metrics;

/* "sluice: SENTENCE" on standard error; returns the code. */
int cmd_fail(int exit_code, const struct why *why);

/* Logging of a command that runs in the foreground: warnings, --debug areas. */
int cmd_log_init(const struct config *config, struct why *why);

/* Mounts as `config` says, in the background unless config->foreground. Exit code. */
int cmd_mount_config(struct config *config, const char *source, const char *dir);

/* The result line of a drain: prints receipt or sentence, returns the exit code. `files`: the
 * elements of the receipt's member of that name, in a file that is read from its start; NULL:
 * none. */
int cmd_print_drained(const json_t *result, FILE *files, bool as_json, const char *dir);

/* mount(8)'s helper: mount.sluice SOURCE DIR [-sfnv] [-o OPTIONS]. Its exit codes. */
int cmd_mount_helper(int argc, char **argv);
