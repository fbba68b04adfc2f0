/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = BUF_INIT;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

int buf_error(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

char *buf_reserve(struct buf *b, size_t n)
{
	size_t want;
	char *grown;

	if (b->failed)
		return NULL;
	if (b->size - b->len > n)
		return b->data + b->len;
	if (__builtin_add_overflow(b->len, n, &want) ||
	    __builtin_add_overflow(want, 1, &want)) {
		b->failed = true;
		return NULL;
	}
	if (want < b->size * 2)
		want = b->size * 2;
	if (want < 64)
		want = 64;
	grown = realloc(b->data, want);
	if (!grown) {
		b->failed = true;
		return NULL;
	}
	b->data = grown;
	b->size = want;
	return b->data + b->len;
}

void buf_append(struct buf *b, const void *data, size_t n)
{
	char *to = buf_reserve(b, n);

	if (!to)
		return;
	if (n)
		memcpy(to, data, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *format, ...)
{
	va_list args;
	char *to;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0) {
		b->failed = true;
		return;
	}
	to = buf_reserve(b, (size_t)n);
	if (!to)
		return;
	va_start(args, format);
	vsnprintf(to, (size_t)n + 1, format, args);
	va_end(args);
	b->len += (size_t)n;
}

char *buf_steal(struct buf *b)
{
	char *s;

	if (!b->data)
		buf_append(b, "", 0);
	s = b->failed ? NULL : b->data;
	if (b->failed)
		free(b->data);
	*b = BUF_INIT;
	return s;
}

void buf_wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->size);
	buf_fini(b);
}
