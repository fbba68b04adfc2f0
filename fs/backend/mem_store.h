/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a mem: origin: immutable, counted, sorted by key. Internal to mem.c and
 * mem_multi.c. The caller's lock covers a store; an object that is held needs none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"

struct mem_object {
	char *key;
	char *data;
	uint64_t size;
	uint64_t crc64;
	int64_t mtime_ns;
	uint64_t version; /* the ETag */
	bool appendable;
	char *(*pairs)[2];
	size_t pair_count;
	size_t refs;
};

struct mem_store {
	struct mem_object **objects; /* by key, bytewise */
	size_t count, room;
	uint64_t last_version;
};

void mem_store_fini(struct mem_store *store);

/* A new object with room for `size` bytes of data and a copy of the metadata, one
 * reference. NULL: no memory. */
struct mem_object *mem_object_new(struct mem_store *store, const char *key, uint64_t size,
				  const struct origin_meta *meta);
struct mem_object *mem_object_get(struct mem_object *object);
void mem_object_put(struct mem_object *object); /* takes NULL */
int mem_object_copy_meta(struct mem_object *to, const struct mem_object *from);
void mem_object_attr(const struct mem_object *object, bool want_meta,
		     struct origin_attr *attr);

/* First index whose key is not below `key`. */
size_t mem_store_lower_bound(const struct mem_store *store, const char *key);
struct mem_object *mem_store_find(const struct mem_store *store, const char *key);
/* Takes the reference, also on failure; replaces what has the same key. -ENOMEM. */
int mem_store_insert(struct mem_store *store, struct mem_object *object);
void mem_store_remove(struct mem_store *store, const char *key);

/* The whole body at `to`, which has room. */
int mem_body_read(const struct origin_body *body, void *to);
