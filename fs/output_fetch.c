/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one object of the store holds.
 *
 * An object that we move keeps its content, so whoever reads it follows it; one that others
 * replaced is another file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

#define FETCH_TRIES_MAX 4
#define MOVE_WAIT_MS 30000 /* for the answer to what we sent ourselves */

void store_learn(struct node *n, const struct origin_attr *a)
{
	if (!n->stored.key || !a->etag[0] || strcmp(a->etag, n->stored.etag) != 0 ||
	    a->size != n->stored.size)
		return;
	n->stored.appendable = a->is_appendable;
	if (a->has_crc64) {
		n->stored.crc64 = a->crc64;
		n->stored.has_crc64 = true;
	}
	kept_attr(n);
}

struct read_sink {
	char *p;
	uint64_t off;
	size_t n, got;
};

static int sink_memory(void *arg, uint64_t off, const void *data, size_t n)
{
	struct read_sink *s = arg;

	if (off < s->off || off - s->off + n > s->n)
		return err_origin(-EBADMSG);
	memcpy(s->p + (off - s->off), data, n);
	s->got = (size_t)(off - s->off) + n;
	return 0;
}

/* The object that `file` reads now. */
static int current_object(struct output *o, struct output_file *file, char **key,
			  char etag[static ORIGIN_ETAG_MAX], uint64_t *size)
{
	struct node *n = file->node;

	lock_scope(&o->lock);
	if (!n->stored.key)
		return err_origin(-ESTALE);
	if (n->stored_change != file->stored_change)
		return err_origin(-ESTALE);
	/* What was written here belongs to another version. */
	if (n->live && !store_base_is_there(n, n->live))
		return err_origin(-ESTALE);
	*key = strdup(n->stored.key);
	memcpy(etag, n->stored.etag, ORIGIN_ETAG_MAX);
	*size = n->stored.size;
	return *key ? 0 : err_origin(-ENOMEM);
}

/* The object is not where, or not what, we took it for. A request of ours whose answer is
 * not here yet may have done that. Returns whether it is known under another key or ETag
 * now. */
static bool was_moved(struct output *o, struct node *n, const char *key, const char *etag)
{
	uint64_t deadline = clock_mono_ms() + MOVE_WAIT_MS;

	lock_scope(&o->lock);
	for (;;) {
		if (!n->stored.key)
			return false;
		if (strcmp(n->stored.key, key) != 0 || strcmp(n->stored.etag, etag) != 0)
			return true;
		if (!n->task && !(n->stored.unsure && plan_is_dirty(n)))
			return false;
		if (o->stopping || clock_mono_ms() >= deadline)
			return false;
		lock_wait(&o->lock, &o->changed, deadline);
	}
}

int store_read(struct output *o, struct output_file *file, uint64_t off, void *p,
	       size_t n, size_t *got)
{
	char etag[ORIGIN_ETAG_MAX];
	uint64_t size = 0;

	for (int attempt = 0;; attempt++) {
		struct read_sink sink = {p, off, n, 0};
		struct origin_req req = {.op = ORIGIN_GET,
					 .off = off,
					 .sink = sink_memory,
					 .sink_arg = &sink};
		_cleanup_(freep) char *key = NULL;
		int r = current_object(o, file, &key, etag, &size);

		if (r < 0)
			return err_trace(r);
		*got = 0;
		if (off >= size || n == 0)
			return 0;
		req.key = key;
		req.len = size - off < n ? size - off : n;
		req.if_match = etag[0] ? etag : NULL;
		r = origin_call(o->config.origin, &req);
		if (r == 0 && sink.got != req.len)
			r = err_origin(-EIO);
		if (r == 0) {
			*got = sink.got;
			return 0;
		}
		if (r != -ENOENT && r != -ESTALE)
			return err_trace(r);
		if (attempt == FETCH_TRIES_MAX || !was_moved(o, file->node, key, etag))
			return err_origin(-ESTALE);
	}
}

struct fetch_sink {
	int fd;
	uint64_t size, crc;
};

static int sink_file(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fetch_sink *s = arg;

	s->crc = crc64(s->crc, data, n);
	s->size += n;
	return err_trace(io_pwrite(s->fd, data, n, off));
}

/* One try at the object where it stands now; *moved: we have moved it since. */
static int fetch_once(struct output *o, struct node *n, struct content **out, bool *moved)
{
	struct fetch_sink sink = {.fd = -1};
	struct origin_req req = {.op = ORIGIN_GET,
				 .len = ORIGIN_TO_END,
				 .sink = sink_file,
				 .sink_arg = &sink};
	char etag[ORIGIN_ETAG_MAX];
	_cleanup_(freep) char *key = NULL;
	struct content *c;
	uint64_t size;
	int r;

	lock_take(&o->lock);
	key = n->stored.key ? strdup(n->stored.key) : NULL;
	memcpy(etag, n->stored.etag, sizeof(etag));
	size = n->stored.size;
	lock_drop(&o->lock);
	if (!key)
		return err_origin(-ESTALE);
	r = content_wait_room(o, size);
	if (r == 0)
		r = content_file(o, &c);
	if (r < 0)
		return err_trace(r);
	sink.fd = content_fd(c);
	req.key = key;
	req.if_match = etag[0] ? etag : NULL;
	r = size > 0 ? origin_call(o->config.origin, &req) : 0;
	if (r == 0 &&
	    (sink.size != size || (req.attr.has_crc64 && req.attr.crc64 != sink.crc))) {
		log_warn("object fails its checksum key=%s", key);
		r = err_origin(-EIO);
	}
	if (r == 0) {
		content_count(c, size);
		*out = c;
		lock_scope(&o->lock);
		if (size > 0)
			store_learn(n, &req.attr);
		return 0;
	}
	content_unpin(c);
	content_put(c, 0);
	if (r != -ENOENT && r != -ESTALE)
		return err_trace(r);
	*moved = was_moved(o, n, key, etag);
	return err_origin(-ESTALE);
}

int store_fetch(struct output *o, struct node *n, struct content **out)
{
	bool moved;
	int r;

	/* Each rename moves it once; a reader need not outrun a program that never stops. */
	for (int attempt = 0; attempt < FETCH_TRIES_MAX; attempt++) {
		moved = false;
		r = fetch_once(o, n, out, &moved);
		if (!moved)
			break;
	}
	return err_trace(r);
}

/* ---- objects that are changed without being fetched ---------------------------------------- */

bool store_has_base(struct output *o, const struct node *n)
{
	const unsigned int needed = ORIGIN_CAP_MULTI | ORIGIN_CAP_MULTI_COPY;

	lock_assert_held(&o->lock);
	return n->stored.key && n->stored.etag[0] &&
	       n->stored.size > o->config.fetch_max &&
	       (o->config.origin->caps & needed) == needed;
}

bool store_base_is_there(const struct node *n, struct content *c)
{
	struct patch *p = content_patch(c);
	struct patch_object object;

	if (!p || !patch_is_sparse(p))
		return true;
	patch_object(p, &object);
	return n->stored.key && strcmp(object.etag, n->stored.etag) == 0;
}

/* Where the object is, and what it is; `key` is the caller's to free. */
static int known_object(struct output *o, struct node *n, char **key,
			struct patch_object *object)
{
	lock_scope(&o->lock);
	*key = n->stored.key ? strdup(n->stored.key) : NULL;
	memcpy(object->etag, n->stored.etag, sizeof(object->etag));
	object->size = n->stored.size;
	object->crc64 = n->stored.crc64;
	object->has_crc64 = n->stored.has_crc64;
	return *key ? 0 : err_origin(-ESTALE);
}

/* One try at the object as it is known, with its checksum where the store has one: listings
 * lack it. */
static int ask_object(struct output *o, struct node *n, struct patch_object *object,
		      bool *moved)
{
	struct origin_req req = {.op = ORIGIN_STAT, .if_match = object->etag};
	_cleanup_(freep) char *key = NULL;
	int r = known_object(o, n, &key, object);

	if (r < 0 || object->has_crc64)
		return err_trace(r);
	req.key = key;
	r = origin_call(o->config.origin, &req);
	if (r == -ENOENT || r == -ESTALE || (r == 0 && req.attr.size != object->size)) {
		*moved = was_moved(o, n, key, object->etag);
		return err_origin(-ESTALE);
	}
	if (r < 0)
		return err_trace(r);
	object->crc64 = req.attr.crc64;
	object->has_crc64 = req.attr.has_crc64;
	lock_scope(&o->lock);
	store_learn(n, &req.attr);
	return 0;
}

static int base_object(struct output *o, struct node *n, struct patch_object *object)
{
	int r = -ESTALE;
	bool moved = true;

	for (int attempt = 0; moved && attempt < FETCH_TRIES_MAX; attempt++) {
		moved = false;
		r = ask_object(o, n, object, &moved);
	}
	return err_trace(r);
}

int store_base(struct output *o, struct node *n, struct content **out)
{
	struct patch_object object;
	struct patch *patch = NULL;
	struct content *c;
	int r = base_object(o, n, &object);

	if (r == 0)
		r = patch_new(&object, true, &patch);
	if (r == 0)
		r = content_file(o, &c);
	if (r < 0) {
		patch_free(patch);
		return err_trace(r);
	}
	r = content_set_patch(c, patch);
	if (r < 0)
		patch_free(patch);
	else if (ftruncate(content_fd(c), (off_t)object.size) < 0)
		r = err_origin(-errno);
	if (r < 0) {
		content_unpin(c);
		content_put(c, 0);
		return err_trace(r);
	}
	*out = c;
	return 0;
}

static int call_origin(void *output, struct origin_req *req)
{
	struct output *o = output;

	return origin_call(o->config.origin, req);
}

int store_complete(struct output *o, struct node *n, struct content *c, uint64_t end)
{
	struct patch *p = content_patch(c);

	for (int attempt = 0;; attempt++) {
		_cleanup_(freep) char *key = NULL;
		struct patch_object object;
		uint64_t len = patch_len(p), has;
		bool there;
		int r;

		/* Perhaps it came home otherwise. */
		if (!patch_is_sparse(p) || (patch_has(p, 0, &has) && has >= end))
			return 0;
		r = known_object(o, n, &key, &object);
		if (r < 0)
			return err_trace(r);
		lock_take(&o->lock);
		there = store_base_is_there(n, c);
		lock_drop(&o->lock);
		if (!there)
			return err_origin(-ESTALE);
		r = patch_fetch(p, content_fd(c), key, 0, end < len ? end : len,
				call_origin, o);
		if (r != -ENOENT && r != -ESTALE)
			return err_trace(r);
		if (attempt == FETCH_TRIES_MAX ||
		    (!was_moved(o, n, key, object.etag) && patch_is_sparse(p)))
			return err_origin(-ESTALE);
	}
}
