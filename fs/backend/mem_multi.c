/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/mem_multi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/crc.h"

struct part {
	struct list link;
	struct origin_part info;
	uint64_t off; /* where the caller says it lies */
	char *data;
};

struct upload {
	struct list link;
	struct list parts;        /* by number */
	struct mem_object *shell; /* key, metadata, start */
	char id[32];
};

static void part_free(struct part *part)
{
	list_remove(&part->link);
	free(part->data);
	free(part);
}

static void upload_free(struct upload *upload)
{
	list_remove(&upload->link);
	while (!list_empty(&upload->parts))
		part_free(list_first(&upload->parts, struct part, link));
	mem_object_put(upload->shell);
	free(upload);
}

void mem_uploads_init(struct mem_uploads *uploads)
{
	list_init(&uploads->list);
	uploads->last_id = 0;
}

void mem_uploads_fini(struct mem_uploads *uploads)
{
	while (!list_empty(&uploads->list))
		upload_free(list_first(&uploads->list, struct upload, link));
}

static struct upload *find(struct mem_uploads *uploads, const struct origin_req *req)
{
	struct list *it;

	list_for_each (it, &uploads->list) {
		struct upload *upload = container_of(it, struct upload, link);

		if (!strcmp(upload->id, req->upload_id) &&
		    !strcmp(upload->shell->key, req->key))
			return upload;
	}
	return NULL;
}

static int no_upload(struct origin_req *req)
{
	return why_set(&req->why, err_origin(-ENOENT), "no upload %s of %s",
		       req->upload_id, req->key);
}

int mem_multi_begin(struct mem_uploads *uploads, struct mem_store *store,
		    struct origin_req *req)
{
	struct upload *upload = calloc(1, sizeof(*upload));

	if (!upload)
		return err_origin(-ENOMEM);
	list_init(&upload->parts);
	list_init(&upload->link);
	upload->shell = mem_object_new(store, req->key, 0, req->meta);
	if (!upload->shell) {
		upload_free(upload);
		return err_origin(-ENOMEM);
	}
	snprintf(upload->id, sizeof(upload->id), "UPLOAD%08" PRIX64, ++uploads->last_id);
	snprintf(req->upload_id_result, sizeof(req->upload_id_result), "%s", upload->id);
	list_push_back(&uploads->list, &upload->link);
	return 0;
}

/* Takes `data`, also on failure. */
static int add_part(struct upload *upload, struct origin_req *req, uint64_t off,
		    char *data, uint64_t size)
{
	struct part *part = calloc(1, sizeof(*part));
	struct list *it;

	if (!part) {
		free(data);
		return err_origin(-ENOMEM);
	}
	part->off = off;
	part->data = data;
	part->info.number = req->part;
	part->info.size = size;
	part->info.crc64 = crc64(0, data, size);
	snprintf(part->info.etag, sizeof(part->info.etag), "PART%016" PRIX64,
		 part->info.crc64);
	list_for_each (it, &upload->parts) {
		struct part *other = container_of(it, struct part, link);

		if (other->info.number < req->part)
			continue;
		if (other->info.number == req->part) {
			it = other->link.next;
			part_free(other);
		}
		break;
	}
	list_insert(it->prev, &part->link);
	req->part_result = part->info;
	return 0;
}

int mem_multi_part(struct mem_uploads *uploads, struct origin_req *req)
{
	struct upload *upload = find(uploads, req);
	char *data;
	int r;

	if (!upload)
		return no_upload(req);
	data = malloc(req->body.len ? req->body.len : 1);
	if (!data)
		return err_origin(-ENOMEM);
	r = mem_body_read(&req->body, data);
	if (r < 0) {
		free(data);
		return err_trace(r);
	}
	return err_trace(add_part(upload, req, req->off, data, req->body.len));
}

int mem_multi_copy(struct mem_uploads *uploads, struct mem_store *store,
		   struct origin_req *req)
{
	struct upload *upload = find(uploads, req);
	struct mem_object *source = mem_store_find(store, req->source);
	struct origin_attr attr;
	char *data;

	if (!upload)
		return no_upload(req);
	if (!source)
		return why_set(&req->why, err_origin(-ENOENT), "no object %s",
			       req->source);
	mem_object_attr(source, false, &attr);
	if (req->if_match && strcmp(req->if_match, attr.etag) != 0)
		return why_set(&req->why, err_origin(-ESTALE), "%s has changed",
			       req->source);
	if (req->off > source->size || req->len > source->size - req->off)
		return why_set(&req->why, err_origin(-EINVAL),
			       "the range is outside of %s", req->source);
	data = malloc(req->len);
	if (!data)
		return err_origin(-ENOMEM);
	memcpy(data, source->data + req->off, req->len);
	return err_trace(add_part(upload, req, req->target_off, data, req->len));
}

/* The listed parts, as they are here, into `object`, which has the right size. */
static int assemble(struct upload *upload, uint64_t part_size_min, struct origin_req *req,
		    struct mem_object *object)
{
	struct list *it = upload->parts.next;
	uint64_t off = 0;

	for (size_t i = 0; i < req->part_count; i++) {
		const struct origin_part *want = &req->parts[i];
		struct part *have;

		for (; it != &upload->parts; it = it->next)
			if (container_of(it, struct part, link)->info.number ==
			    want->number)
				break;
		have = container_of(it, struct part, link);
		if (it == &upload->parts || strcmp(have->info.etag, want->etag) != 0 ||
		    have->info.size != want->size || have->off != off)
			return why_set(&req->why, err_origin(-EINVAL),
				       "part %u is not the one that was sent",
				       want->number);
		if (i + 1 < req->part_count && have->info.size < part_size_min)
			return why_set(&req->why, err_origin(-EINVAL),
				       "part %u is smaller than %" PRIu64 " bytes",
				       want->number, part_size_min);
		memcpy(object->data + off, have->data, have->info.size);
		off += have->info.size;
	}
	object->crc64 = crc64(0, object->data, object->size);
	if (req->has_expect_crc64 && req->expect_crc64 != object->crc64)
		return why_set(&req->why, err_origin(-EBADMSG),
			       "%s: the assembled object has another checksum", req->key);
	return 0;
}

int mem_multi_end(struct mem_uploads *uploads, struct mem_store *store,
		  uint64_t part_size_min, struct origin_req *req)
{
	struct upload *upload = find(uploads, req);
	struct mem_object *object;
	int r;

	if (!upload)
		return no_upload(req);
	if (req->if_none_match && mem_store_find(store, req->key))
		return why_set(&req->why, err_origin(-EEXIST), "%s is there", req->key);
	object = mem_object_new(store, req->key, req->size, NULL);
	if (!object)
		return err_origin(-ENOMEM);
	r = mem_object_copy_meta(object, upload->shell);
	if (r == 0)
		r = assemble(upload, part_size_min, req, object);
	if (r < 0) {
		mem_object_put(object);
		return err_trace(r);
	}
	mem_object_attr(object, false, &req->attr);
	r = mem_store_insert(store, object);
	if (r == 0)
		upload_free(upload);
	return err_trace(r);
}

void mem_multi_abort(struct mem_uploads *uploads, struct origin_req *req)
{
	struct upload *upload = find(uploads, req);

	if (upload)
		upload_free(upload);
}

static int by_key_then_id(const void *a, const void *b)
{
	const struct upload *x = *(struct upload *const *)a,
			    *y = *(struct upload *const *)b;
	int r = strcmp(x->shell->key, y->shell->key);

	return r ? r : strcmp(x->id, y->id);
}

/* One page holds them all: tests do not open thousands. */
int mem_multi_list(struct mem_uploads *uploads, struct origin_req *req)
{
	struct upload **sorted = NULL;
	size_t count = 0, i = 0;
	struct list *it;
	int r = 0;

	list_for_each (it, &uploads->list)
		count++;
	sorted = calloc(count ? count : 1, sizeof(struct upload *));
	if (!sorted)
		return err_origin(-ENOMEM);
	list_for_each (it, &uploads->list)
		sorted[i++] = container_of(it, struct upload, link);
	qsort(sorted, count, sizeof(*sorted), by_key_then_id);
	for (i = 0; i < count && r == 0; i++) {
		const char *key = sorted[i]->shell->key;
		struct origin_attr attr = {.mtime_ns = sorted[i]->shell->mtime_ns};

		if (strncmp(key, req->key, strlen(req->key)) != 0)
			continue;
		snprintf(attr.etag, sizeof(attr.etag), "%s", sorted[i]->id);
		r = req->list.entry(req->list.entry_arg, key, strlen(key), &attr);
	}
	free(sorted);
	return r;
}
