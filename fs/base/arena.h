/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once; what was handed out never moves. The first ARENA_INLINE
 * bytes lie in the struct itself. After a failed allocation arena_error() says -ENOMEM, and
 * texts are "", so that a builder checks once at the end. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define ARENA_INLINE 2048

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks; /* newest first */
	char *at;                   /* free bytes; NULL: before the first use */
	size_t left;
	bool failed;
	char first[ARENA_INLINE];
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a);
int arena_error(const struct arena *a);

void *arena_alloc(struct arena *a, size_t n); /* aligned for any type; NULL: no memory */
char *arena_copy(struct arena *a, const char *s, size_t n); /* a NUL after it; "" */
char *arena_vprintf(struct arena *a, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));
