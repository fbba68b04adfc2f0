/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of what was asked and answered; GET /stats of the admin address. */
#pragma once

#include <stdint.h>

#include "fs/base/buf.h"

struct ossd_stats;

struct ossd_stats *ossd_stats_new(void);
struct ossd_stats *ossd_stats_free(struct ossd_stats *stats);

void ossd_stats_begin(struct ossd_stats *stats, const char *op); /* op: for ever */
/* `code` is "" for success. It ends what begin began. */
void ossd_stats_end(struct ossd_stats *stats, int status, const char *code,
		    uint64_t bytes_in, uint64_t bytes_out);
void ossd_stats_connection(struct ossd_stats *stats);

void ossd_stats_format(struct ossd_stats *stats, struct buf *out);
void ossd_stats_reset(struct ossd_stats *stats); /* what is in flight stays */
