/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for the shells. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "fs/base/opt.h"

/* For "bash", "zsh" or "fish". False: another shell; nothing is written. */
bool opt_print_completion(FILE *out, const struct program *program, const char *shell);
