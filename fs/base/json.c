/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 when there is none. */
static int utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char first_min, first_max, second_min, second_max;
		int n;
	} forms[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	if (*s < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		if (s[0] < forms[i].first_min || s[0] > forms[i].first_max)
			continue;
		if (s[1] < forms[i].second_min || s[1] > forms[i].second_max)
			return 0;
		for (int k = 2; k < forms[i].n; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].n;
	}
	return 0;
}

static void put_quoted(struct buf *b, const char *value)
{
	const unsigned char *s = (const unsigned char *)value;

	buf_putc(b, '"');
	while (*s) {
		int n = utf8_length(s);

		if (*s == '"' || *s == '\\')
			buf_printf(b, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			buf_printf(b, "\\u%04x", *s);
		else if (n == 0)
			buf_puts(b, "\xef\xbf\xbd");
		else
			buf_append(b, s, (size_t)n);
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
