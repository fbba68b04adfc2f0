/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a listing: entries of one directory in the byte order of their keys, found by
 * position and by key, in memory and on disk (format: cache/README.md). Counted. Pure but
 * for memory.
 *
 * One thread appends; any number read what was there when they looked: nothing that has
 * been appended ever moves. A directory's key has a '/' behind its name, and sorts so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"

#define ENTRIES_BYTES_MAX (64u << 10)              /* of the entries of one block */
#define ENTRIES_COUNT_MAX (ENTRIES_BYTES_MAX / 24) /* the smallest entry takes 24 */
#define ENTRIES_IMAGE_MAX (ENTRIES_BYTES_MAX + ENTRIES_COUNT_MAX * 2 + 16)

struct entries;

/* An empty block with room for n bytes; NULL: no memory. */
struct entries *entries_new(uint32_t room);
struct entries *entries_get(struct entries *e);
void entries_put(struct entries *e); /* NULL is allowed */

/* Appends an entry that is behind all others; the name is without '/'. false: no room. */
bool entries_add(struct entries *e, const char *name, size_t n,
		 const struct origin_attr *attr);
/* A copy with another room, at least what is used; NULL: no memory. */
struct entries *entries_copy(const struct entries *e, uint32_t room);

uint32_t entries_count(const struct entries *e);
uint32_t entries_used(const struct entries *e); /* bytes of the entries */
size_t entries_memory(const struct entries *e); /* bytes it takes */

const char *entries_name(const struct entries *e, uint32_t i, size_t *n, bool *is_dir);
void entries_attr(const struct entries *e, uint32_t i, struct origin_attr *attr);

/* Orders a key, a name and whether it is a directory's, against the i-th. */
int entries_compare(const struct entries *e, uint32_t i, const char *name, size_t n,
		    bool is_dir);
/* The first one that is not less; entries_count() when all are. */
uint32_t entries_lower_bound(const struct entries *e, const char *name, size_t n,
			     bool is_dir);

/* What lies on disk: at most ENTRIES_IMAGE_MAX bytes. */
size_t entries_encode(const struct entries *e, void *image);
/* The way back, everything checked. -EBADMSG, -ENOMEM. */
int entries_decode(const void *image, size_t n, struct entries **out);
