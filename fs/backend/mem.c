/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem: an object store in memory. One lock over everything; objects never change once they
 * are in the store, so a GET delivers without the lock, from the version it found.
 * Threads: none of its own. On close: everything is gone.
 */
#include "fs/backend/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin.h"
#include "fs/backend/mem_multi.h"
#include "fs/backend/mem_store.h"
#include "fs/base/check.h"
#include "fs/base/crc.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"

#define DELIVERY_MAX 65536 /* small enough that callers meet more than one piece */
#define PAGE_MAX 1000

struct mem {
	struct origin origin;
	struct lock lock; /* everything below */
	struct mem_store store;
	struct mem_uploads uploads;
	struct origin_stats stats;
};

static int not_there(struct origin_req *req, const char *key)
{
	return why_set(&req->why, err_origin(-ENOENT), "no object %s", key);
}

/* The object, if it is there and matches; what `find` found is counted by nobody yet. */
static int find_matching(struct mem *m, struct origin_req *req, const char *key,
			 struct mem_object **out)
{
	struct mem_object *object = mem_store_find(&m->store, key);
	struct origin_attr attr;

	if (!object)
		return not_there(req, key);
	mem_object_attr(object, false, &attr);
	if (req->if_match && strcmp(attr.etag, req->if_match) != 0)
		return why_set(&req->why, err_origin(-ESTALE), "%s has changed", key);
	*out = object;
	return 0;
}

static int do_stat(struct mem *m, struct origin_req *req)
{
	struct mem_object *object;
	int r;

	lock_scope(&m->lock);
	r = find_matching(m, req, req->key, &object);
	if (r == 0)
		mem_object_attr(object, req->want_meta, &req->attr);
	return r;
}

static int deliver(struct origin_req *req, const struct mem_object *object)
{
	uint64_t off = req->off, end = object->size;

	if (off >= end)
		return 0;
	if (req->len < end - off)
		end = off + req->len;
	while (off < end) {
		size_t n = end - off < DELIVERY_MAX ? end - off : DELIVERY_MAX;
		int r = req->sink(req->sink_arg, off, object->data + off, n);

		if (r < 0)
			return err_trace(r);
		req->received += n;
		off += n;
	}
	return 0;
}

static int do_get(struct mem *m, struct origin_req *req)
{
	struct mem_object *object;
	uint64_t before = req->received;
	int r;

	lock_take(&m->lock);
	r = find_matching(m, req, req->key, &object);
	if (r == 0) {
		mem_object_attr(object, false, &req->attr);
		mem_object_get(object);
	}
	lock_drop(&m->lock);
	if (r < 0)
		return r;
	r = deliver(req, object);

	lock_scope(&m->lock);
	m->stats.bytes_in += req->received - before;
	mem_object_put(object);
	return err_trace(r);
}

static int do_put(struct mem *m, struct origin_req *req)
{
	struct mem_object *object;
	int r;

	lock_scope(&m->lock);
	if (req->if_none_match && mem_store_find(&m->store, req->key))
		return why_set(&req->why, err_origin(-EEXIST), "%s is there", req->key);
	object = mem_object_new(&m->store, req->key, req->body.len, req->meta);
	if (!object)
		return err_origin(-ENOMEM);
	r = mem_body_read(&req->body, object->data);
	object->crc64 = crc64(0, object->data, object->size);
	if (r == 0 && req->has_expect_crc64 && req->expect_crc64 != object->crc64)
		r = why_set(&req->why, err_origin(-EBADMSG),
			    "%s: the body has another checksum", req->key);
	if (r < 0) {
		mem_object_put(object);
		return err_trace(r);
	}
	m->stats.bytes_out += object->size;
	mem_object_attr(object, false, &req->attr);
	return err_trace(mem_store_insert(&m->store, object));
}

static int do_append(struct mem *m, struct origin_req *req)
{
	struct mem_object *old, *object;
	uint64_t length;
	int r;

	lock_scope(&m->lock);
	old = mem_store_find(&m->store, req->key);
	length = old ? old->size : 0;
	if (old && !old->appendable)
		return why_set(&req->why, err_origin(-ENOTSUP),
			       "%s was not made by appending", req->key);
	if (req->off != length) {
		req->off = length;
		return why_set(&req->why, err_origin(-ESTALE), "%s has %" PRIu64 " bytes",
			       req->key, length);
	}
	object = mem_object_new(&m->store, req->key, length + req->body.len, req->meta);
	if (!object)
		return err_origin(-ENOMEM);
	object->appendable = true;
	r = old ? mem_object_copy_meta(object, old) : 0;
	if (old)
		memcpy(object->data, old->data, length);
	if (r == 0)
		r = mem_body_read(&req->body, object->data + length);
	if (r < 0) {
		mem_object_put(object);
		return err_trace(r);
	}
	object->crc64 = crc64(old ? old->crc64 : 0, object->data + length, req->body.len);
	m->stats.bytes_out += req->body.len;
	req->off = object->size;
	mem_object_attr(object, false, &req->attr);
	return err_trace(mem_store_insert(&m->store, object));
}

static int do_copy(struct mem *m, struct origin_req *req)
{
	struct mem_object *source, *object;
	int r;

	lock_scope(&m->lock);
	r = find_matching(m, req, req->source, &source);
	if (r < 0)
		return r;
	object = mem_object_new(&m->store, req->key, source->size, req->meta);
	if (!object)
		return err_origin(-ENOMEM);
	memcpy(object->data, source->data, source->size);
	object->crc64 = source->crc64;
	r = req->meta ? 0 : mem_object_copy_meta(object, source);
	if (r < 0) {
		mem_object_put(object);
		return err_trace(r);
	}
	mem_object_attr(object, false, &req->attr);
	return err_trace(mem_store_insert(&m->store, object));
}

static int do_delete(struct mem *m, struct origin_req *req)
{
	lock_scope(&m->lock);
	if (req->op == ORIGIN_DELETE)
		mem_store_remove(&m->store, req->key);
	for (size_t i = 0; req->op == ORIGIN_DELETE_MANY && i < req->key_count; i++) {
		mem_store_remove(&m->store, req->keys[i]);
		if (req->keys_gone)
			req->keys_gone[i] = true;
	}
	return 0;
}

/* ---- listing -------------------------------------------------------------------------- */

/* What a key is listed as: itself, or the common prefix it rolls up into. */
static void entry_of(const struct origin_req *req, const struct mem_object *object,
		     char entry[PATH_KEY_MAX + 1], struct origin_attr *attr)
{
	const char *slash = NULL;

	memcpy(entry, object->key, strlen(object->key) + 1);
	if (!req->list.recursive)
		slash = strchr(object->key + strlen(req->key), '/');
	if (slash && slash[1]) {
		entry[slash + 1 - object->key] = '\0';
		*attr = (struct origin_attr){.is_dir = true};
	} else {
		mem_object_attr(object, false, attr);
	}
}

/* The first entry above `after` (NULL: any). False: no more. */
static bool next_entry(struct mem *m, const struct origin_req *req, const char *after,
		       char entry[PATH_KEY_MAX + 1], struct origin_attr *attr)
{
	const char *from = after && strcmp(after, req->key) > 0 ? after : req->key;
	size_t i = mem_store_lower_bound(&m->store, from), n;

	while (i < m->store.count) {
		const struct mem_object *object = m->store.objects[i];

		if (strncmp(object->key, req->key, strlen(req->key)) != 0)
			return false;
		entry_of(req, object, entry, attr);
		if (!after || strcmp(entry, after) > 0)
			return !req->list.until || strcmp(entry, req->list.until) < 0;
		n = strlen(entry);
		if (!req->list.recursive && entry[n - 1] == '/' && n > strlen(req->key)) {
			/* '0' follows '/': past everything below the prefix. */
			entry[n - 1] = '0';
			i = mem_store_lower_bound(&m->store, entry);
		} else {
			i++;
		}
	}
	return false;
}

static int do_list(struct mem *m, struct origin_req *req)
{
	uint32_t count_max = req->list.count_max ? req->list.count_max : PAGE_MAX;
	const char *after = req->list.after;
	char entry[PATH_KEY_MAX + 1];
	struct origin_attr attr;

	req->list.truncated = false;
	for (uint32_t count = 0;; count++) {
		bool found;
		int r;

		lock_take(&m->lock);
		found = next_entry(m, req, after, entry, &attr);
		lock_drop(&m->lock);
		if (!found)
			return 0;
		if (count == count_max) {
			req->list.truncated = true;
			return 0;
		}
		r = req->list.entry(req->list.entry_arg, entry, strlen(entry), &attr);
		if (r < 0)
			return err_trace(r);
		memcpy(req->list.next, entry, strlen(entry) + 1);
		after = req->list.next;
	}
}

/* ---- the table ------------------------------------------------------------------------ */

static int do_multi(struct mem *m, struct origin_req *req)
{
	lock_scope(&m->lock);
	switch (req->op) {
	case ORIGIN_MULTI_BEGIN:
		return mem_multi_begin(&m->uploads, &m->store, req);
	case ORIGIN_MULTI_PART:
		m->stats.bytes_out += req->body.len;
		return mem_multi_part(&m->uploads, req);
	case ORIGIN_MULTI_COPY:
		return mem_multi_copy(&m->uploads, &m->store, req);
	case ORIGIN_MULTI_END:
		return mem_multi_end(&m->uploads, &m->store, m->origin.part_size_min,
				     req);
	case ORIGIN_MULTI_ABORT:
		mem_multi_abort(&m->uploads, req);
		return 0;
	default:
		return mem_multi_list(&m->uploads, req);
	}
}

static int execute(struct mem *m, struct origin_req *req)
{
	switch (req->op) {
	case ORIGIN_PROBE:
		return 0;
	case ORIGIN_STAT:
		return do_stat(m, req);
	case ORIGIN_GET:
		return do_get(m, req);
	case ORIGIN_LIST:
		return do_list(m, req);
	case ORIGIN_PUT:
		return do_put(m, req);
	case ORIGIN_APPEND:
		return do_append(m, req);
	case ORIGIN_COPY:
		return do_copy(m, req);
	case ORIGIN_DELETE:
	case ORIGIN_DELETE_MANY:
		return do_delete(m, req);
	default:
		return do_multi(m, req);
	}
}

static void mem_submit(struct origin *o, struct origin_req *req)
{
	struct mem *m = container_of(o, struct mem, origin);
	int r = origin_req_check(req, &req->why);

	if (r < 0)
		log_error("a request against the contract key=%s size=%llu parts=%zu "
			  "error=\"%s\"",
			  req->key ? req->key : "", (unsigned long long)req->size,
			  req->part_count, req->why.text);
	check(r == 0);
	r = execute(m, req);
	lock_take(&m->lock);
	m->stats.requests[req->op]++;
	m->stats.failures += r < 0;
	lock_drop(&m->lock);
	origin_done(req, r);
}

static void mem_stats(struct origin *o, struct origin_stats *stats)
{
	struct mem *m = container_of(o, struct mem, origin);

	lock_scope(&m->lock);
	origin_stats_add(stats, &m->stats);
}

static void mem_free(struct origin *o)
{
	struct mem *m = container_of(o, struct mem, origin);

	mem_uploads_fini(&m->uploads);
	mem_store_fini(&m->store);
	lock_fini(&m->lock);
	free(m);
}

static const struct origin_ops mem_ops = {
	.name = "mem",
	.submit = mem_submit,
	.stats = mem_stats,
	.free = mem_free,
};

int mem_origin_new(struct origin **out)
{
	struct mem *m = calloc(1, sizeof(*m));

	if (!m)
		return err_origin(-ENOMEM);
	lock_init(&m->lock);
	mem_uploads_init(&m->uploads);
	m->origin.ops = &mem_ops;
	m->origin.caps = ORIGIN_CAP_MULTI | ORIGIN_CAP_MULTI_COPY | ORIGIN_CAP_APPEND |
			 ORIGIN_CAP_META | ORIGIN_CAP_CRC64;
	strcpy(m->origin.name, "mem:");
	*out = &m->origin;
	return 0;
}
