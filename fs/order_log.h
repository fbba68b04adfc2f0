/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes down the order in which files are read for the first time (format: order.h), for
 * `sluice warm --from`. The file appears with its first line, in place of an older one, and
 * grows by whole lines a few times a second: what a kill leaves is a shorter record.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct order_log;
struct why;

#define ORDER_LOG_KEYS_MAX (4u << 20)
#define ORDER_LOG_BYTES_MAX (512ull << 20)

/* -EBUSY: another mount is about to write there; a sentence for this and the rest. */
int order_log_open(const char *path, struct order_log **out, struct why *why);
struct order_log *order_log_close(struct order_log *r); /* takes NULL, returns NULL */

/* dir/name is read (dir "" or ending in '/'). Never blocks for the disk. */
void order_log_read(struct order_log *r, const char *dir, const char *name);
