/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer: commas and escaping are its business. Reading is jansson's, whose names the
 * writer's must not clash with. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/buf.h"

/* `json_put_xxx(b, "name", value)` inside an object; name NULL inside an array or at the top.
 * Bytes that are not UTF-8 become U+FFFD. Errors show in buf_error(). */
void json_begin_object(struct buf *b, const char *name);
void json_end_object(struct buf *b);
void json_begin_array(struct buf *b, const char *name);
void json_end_array(struct buf *b);
void json_put_string(struct buf *b, const char *name, const char *value); /* NULL: null */
void json_put_uint(struct buf *b, const char *name, uint64_t value);
void json_put_int(struct buf *b, const char *name, int64_t value);
void json_put_double(struct buf *b, const char *name, double value);
void json_put_bool(struct buf *b, const char *name, bool value);
void json_put_raw(struct buf *b, const char *name,
		  const char *json); /* trusted JSON text */
