/* SPDX-License-Identifier: Apache-2.0 */
/* What control.c says to its callers. */
#pragma once

#include <stdbool.h>

struct buf;
struct receipt;

/* Appends the line's end. Blocks for as long as the socket does. */
int control_send_line(int fd, struct buf *b);
/* The last line: `result` as control_ops have it; `message`, and `object` (JSON, what the
 * receipt is where there is no drain) may be NULL. */
void control_send_result(int fd, int result, const char *message, const char *object);
/* The same of a drain, after the receipt's files if these are wanted; `elsewhere` and the
 * receipt may be NULL. */
void control_send_receipt(int fd, bool files, int result, const char *elsewhere,
			  const struct receipt *receipt);
