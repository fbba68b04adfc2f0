/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/err.h"

#define CHUNK_SIZE 8192
#define ALIGNMENT _Alignof(max_align_t)

struct arena_chunk {
	struct arena_chunk *next;
	max_align_t bytes[];
};

void arena_init(struct arena *a)
{
	uintptr_t off = (uintptr_t)a->first % ALIGNMENT;

	a->chunks = NULL;
	a->at = a->first + (off ? ALIGNMENT - off : 0);
	a->left = sizeof(a->first) - (size_t)(a->at - a->first);
	a->failed = false;
}

void arena_fini(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *chunk = a->chunks;

		a->chunks = chunk->next;
		free(chunk);
	}
	arena_init(a);
}

int arena_error(const struct arena *a)
{
	return a->failed ? err_origin(-ENOMEM) : 0;
}

static bool grow(struct arena *a, size_t n)
{
	size_t size = n > CHUNK_SIZE ? n : CHUNK_SIZE;
	struct arena_chunk *chunk = NULL;

	if (size <= SIZE_MAX - sizeof(*chunk))
		chunk = malloc(sizeof(*chunk) + size);
	if (!chunk) {
		a->failed = true;
		return false;
	}
	chunk->next = a->chunks;
	a->chunks = chunk;
	a->at = (char *)chunk->bytes;
	a->left = size;
	return true;
}

void *arena_alloc(struct arena *a, size_t n)
{
	size_t want = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	char *p;

	if (want < n) {
		a->failed = true;
		return NULL;
	}
	if (want > a->left && !grow(a, want))
		return NULL;
	p = a->at;
	a->at += want;
	a->left -= want;
	return p;
}

char *arena_copy(struct arena *a, const char *s, size_t n)
{
	static char none[1]; /* stays "" */
	char *p = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;

	if (!p)
		return none;
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *arena_vprintf(struct arena *a, const char *format, va_list args)
{
	static char none[1]; /* stays "" */
	va_list again;
	char *p;
	int n;

	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
	if (p)
		vsnprintf(p, (size_t)n + 1, format, again);
	va_end(again);
	if (p)
		return p;
	a->failed = true;
	return none;
}
