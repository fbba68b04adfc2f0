/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/mem_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin_posix.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"

void mem_store_fini(struct mem_store *store)
{
	for (size_t i = 0; i < store->count; i++)
		mem_object_put(store->objects[i]);
	free(store->objects);
	*store = (struct mem_store){0};
}

static int set_pairs(struct mem_object *object, const char *const (*pairs)[2],
		     size_t count)
{
	object->pairs = calloc(count ? count : 1, sizeof(*object->pairs));
	if (!object->pairs)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < count; i++) {
		object->pair_count = i + 1;
		object->pairs[i][0] = strdup(pairs[i][0]);
		object->pairs[i][1] = strdup(pairs[i][1]);
		if (!object->pairs[i][0] || !object->pairs[i][1])
			return err_origin(-ENOMEM);
	}
	return 0;
}

static void free_pairs(struct mem_object *object)
{
	for (size_t i = 0; i < object->pair_count; i++) {
		free(object->pairs[i][0]);
		free(object->pairs[i][1]);
	}
	free(object->pairs);
	object->pairs = NULL;
	object->pair_count = 0;
}

struct mem_object *mem_object_new(struct mem_store *store, const char *key, uint64_t size,
				  const struct origin_meta *meta)
{
	struct mem_object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->refs = 1;
	object->key = strdup(key);
	object->data = malloc(size ? size : 1);
	object->size = size;
	object->mtime_ns = clock_real_ns();
	object->version = ++store->last_version;
	if (!object->key || !object->data ||
	    set_pairs(object, meta ? meta->pairs : NULL, meta ? meta->count : 0) < 0) {
		mem_object_put(object);
		return NULL;
	}
	return object;
}

struct mem_object *mem_object_get(struct mem_object *object)
{
	object->refs++;
	return object;
}

void mem_object_put(struct mem_object *object)
{
	if (!object)
		return;
	check(object->refs > 0);
	if (--object->refs)
		return;
	free_pairs(object);
	free(object->data);
	free(object->key);
	free(object);
}

int mem_object_copy_meta(struct mem_object *to, const struct mem_object *from)
{
	free_pairs(to);
	return set_pairs(to, (const char *const(*)[2])from->pairs, from->pair_count);
}

void mem_object_attr(const struct mem_object *object, bool want_meta,
		     struct origin_attr *attr)
{
	size_t n = strlen(object->key);

	*attr = (struct origin_attr){
		.size = object->size,
		.mtime_ns = object->mtime_ns,
		.crc64 = object->crc64,
		.has_crc64 = true,
		.is_dir = n && object->key[n - 1] == '/',
		.is_appendable = object->appendable,
	};
	snprintf(attr->etag, sizeof(attr->etag), "MEM%013" PRIX64, object->version);
	for (size_t i = 0; want_meta && i < object->pair_count; i++)
		origin_posix_parse(attr, object->pairs[i][0], object->pairs[i][1]);
}

size_t mem_store_lower_bound(const struct mem_store *store, const char *key)
{
	size_t low = 0, high = store->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(store->objects[middle]->key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct mem_object *mem_store_find(const struct mem_store *store, const char *key)
{
	size_t i = mem_store_lower_bound(store, key);

	if (i == store->count || strcmp(store->objects[i]->key, key) != 0)
		return NULL;
	return store->objects[i];
}

int mem_store_insert(struct mem_store *store, struct mem_object *object)
{
	size_t i = mem_store_lower_bound(store, object->key);

	if (i < store->count && !strcmp(store->objects[i]->key, object->key)) {
		mem_object_put(store->objects[i]);
		store->objects[i] = object;
		return 0;
	}
	if (store->count == store->room) {
		size_t room = store->room ? store->room * 2 : 64;
		struct mem_object **grown =
			reallocarray(store->objects, room, sizeof(*grown));

		if (!grown) {
			mem_object_put(object);
			return err_origin(-ENOMEM);
		}
		store->objects = grown;
		store->room = room;
	}
	memmove(&store->objects[i + 1], &store->objects[i],
		(store->count - i) * sizeof(*store->objects));
	store->objects[i] = object;
	store->count++;
	return 0;
}

void mem_store_remove(struct mem_store *store, const char *key)
{
	size_t i = mem_store_lower_bound(store, key);

	if (i == store->count || strcmp(store->objects[i]->key, key) != 0)
		return;
	mem_object_put(store->objects[i]);
	store->count--;
	memmove(&store->objects[i], &store->objects[i + 1],
		(store->count - i) * sizeof(*store->objects));
}

int mem_body_read(const struct origin_body *body, void *to)
{
	ssize_t n;

	if (!body->len)
		return 0;
	if (body->data) {
		memcpy(to, body->data, body->len);
		return 0;
	}
	n = io_pread(body->fd, to, body->len, body->fd_off);
	if (n < 0)
		return err_trace((int)n);
	return (uint64_t)n == body->len ? 0 : err_origin(-EIO);
}
