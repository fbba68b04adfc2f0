/* SPDX-License-Identifier: Apache-2.0 */
/* After a crash: which journal file counts, what of it is whole, what is set aside. */
#pragma once

#include <stdint.h>

#include "fs/base/err.h"

struct journal_config;
struct journal_report;

/* Delivers every record that passes its checksum to config->replay, oldest first, and sets
 * `generation` to the highest one in the directory. See journal_open(). */
int replay_journal(const struct journal_config *config, uint64_t *generation,
		   struct journal_report *report, struct why *why);

/* Removes published segments older than `generation`, which is whole and published. */
void replay_sweep(int dirfd, uint64_t generation);
