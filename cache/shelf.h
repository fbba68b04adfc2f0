/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where listings lie on disk: short ones in the packs of the cache, long ones in a file
 * each (format: cache/README.md). Both count against the cache's limit and are evicted
 * when they have not been used for longest. Thread-safe; a file is used by one writer and
 * any number of readers.
 *
 * A file is written while its listing is fetched, under a name that a crash leaves to be
 * removed, and gets its own when it is complete.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/ident.h"

struct cache;
struct shelf_file;

#define SHELF_SMALL_MAX (192u << 10) /* bytes of a short listing */

enum shelf_condition {
	SHELF_E_NONE = 1, /* there is none */
	SHELF_E_WAIT      /* with nowait: it must come from the disk */
};

/* Whether there is a disk to use now. */
bool shelf_usable(struct cache *c);

/* The name of a directory's listing; the caller frees it. -ENAMETOOLONG, -ENOMEM. */
int shelf_ident(const char *source, const char *dir, struct ident **out);

/* ---- short ones ---- */

/* Appends; an older one of the name is not found any more. */
int shelf_put(struct cache *c, struct ident *id, const void *data, size_t n);
/* Into data, SHELF_SMALL_MAX bytes. SHELF_E_NONE. */
int shelf_get(struct cache *c, struct ident *id, void *data, size_t *n);

/* ---- long ones ---- */

int shelf_file_new(struct cache *c, struct shelf_file **out);
/* Opens one by name. SHELF_E_NONE. */
int shelf_file_open(struct cache *c, const struct ident *id, struct shelf_file **out);
/* Without a name it is gone then. NULL is allowed. */
void shelf_file_free(struct shelf_file *f);

/* At the end; makes room in the cache if it must. -ENOSPC when there is none. */
int shelf_append(struct shelf_file *f, const void *data, size_t n, uint64_t *off);
int shelf_write(struct shelf_file *f, uint64_t off, const void *data, size_t n);
/* All n bytes, or -EBADMSG when the file is shorter. SHELF_E_WAIT. */
int shelf_read(struct shelf_file *f, uint64_t off, void *data, size_t n, bool nowait);
/* Gives it its name; another of that name is gone. */
int shelf_file_keep(struct shelf_file *f, const struct ident *id);

/* Neither a short nor a long one of this name is found any more. */
void shelf_drop(struct cache *c, const struct ident *id);
void shelf_forget(struct cache *c, const char *source, const char *dir);

/* For eviction: unlinks a long one. *freed = bytes to disk_release(). SHELF_E_NONE. */
int shelf_remove(struct cache *c, const unsigned char hash[IDENT_HASH_SIZE],
		 uint64_t *freed);
