/* SPDX-License-Identifier: Apache-2.0 */
/* Growable bytes. After a failed append the buffer is poisoned: later appends do nothing
 * and buf_error() says -ENOMEM, so a writer checks once at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* NUL after the last byte once anything was appended */
	size_t len;
	size_t size; /* allocated */
	bool failed;
};

#define BUF_INIT ((struct buf){0})

void buf_fini(struct buf *b);  /* safe twice; wipes nothing */
void buf_reset(struct buf *b); /* empty, keeps the allocation, clears the failure */
int buf_error(const struct buf *b);
void buf_append(struct buf *b, const void *data, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Room for n more bytes at data + len; the caller then adds to len. NULL: no memory. */
char *buf_reserve(struct buf *b, size_t n);

/* The bytes as a string the caller frees (never NULL unless poisoned); b is empty then. */
char *buf_steal(struct buf *b);

/* Overwrites with zeros before freeing: for secrets. */
void buf_wipe(struct buf *b);
