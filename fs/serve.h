/* SPDX-License-Identifier: Apache-2.0 */
/* A mount's process, from its first step to its last. */
#pragma once

struct config;
struct handover;

/* Serves the mount until it is gone; config->dir has been looked at by serve_check_dir().
 * `report`: of daemon_fork(), -1 in the foreground. `handover`: from the holder that
 * started this process, NULL without one. Returns the exit code of the process. */
int serve_run(const struct config *config, int report, struct handover *handover);

struct why;
/* Whether `dir` can be mounted on: 0 or an enum exit_code with a sentence. */
int serve_check_dir(const char *dir, struct why *why);
