/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "fs/base/utf8.h"

static void put_quoted(struct buf *b, const char *value)
{
	const unsigned char *s = (const unsigned char *)value;

	buf_putc(b, '"');
	while (*s) {
		size_t n = utf8_decode((const char *)s, SIZE_MAX, NULL);

		if (*s == '"' || *s == '\\')
			buf_printf(b, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			buf_printf(b, "\\u%04x", *s);
		else if (n == 0)
			buf_puts(b, "\xef\xbf\xbd");
		else
			buf_append(b, s, n);
		s += n ? n : 1;
	}
	buf_putc(b, '"');
}

static void begin_value(struct buf *b, const char *name)
{
	if (b->len && !strchr("{[", b->data[b->len - 1]))
		buf_putc(b, ',');
	if (name) {
		put_quoted(b, name);
		buf_putc(b, ':');
	}
}

void json_begin_object(struct buf *b, const char *name)
{
	begin_value(b, name);
	buf_putc(b, '{');
}

void json_end_object(struct buf *b)
{
	buf_putc(b, '}');
}

void json_begin_array(struct buf *b, const char *name)
{
	begin_value(b, name);
	buf_putc(b, '[');
}

void json_end_array(struct buf *b)
{
	buf_putc(b, ']');
}

void json_put_string(struct buf *b, const char *name, const char *value)
{
	begin_value(b, name);
	if (value)
		put_quoted(b, value);
	else
		buf_puts(b, "null");
}

void json_put_uint(struct buf *b, const char *name, uint64_t value)
{
	begin_value(b, name);
	buf_printf(b, "%" PRIu64, value);
}

void json_put_int(struct buf *b, const char *name, int64_t value)
{
	begin_value(b, name);
	buf_printf(b, "%" PRId64, value);
}

void json_put_double(struct buf *b, const char *name, double value)
{
	begin_value(b, name);
	if (isfinite(value))
		buf_printf(b, "%.6g", value);
	else
		buf_puts(b, "null");
}

void json_put_bool(struct buf *b, const char *name, bool value)
{
	begin_value(b, name);
	buf_puts(b, value ? "true" : "false");
}

void json_put_raw(struct buf *b, const char *name, const char *json)
{
	begin_value(b, name);
	buf_puts(b, json);
}
