/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one object of the store holds: attributes, the target of a link, content.
 *
 * An object that we move keeps its content, so whoever reads it follows it; one that others
 * replaced is another file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output_impl.h"

#define FETCH_TRIES_MAX 4

static int sink_buf(void *arg, uint64_t off, const void *data, size_t n)
{
	struct buf *b = arg;

	(void)off;
	buf_append(b, data, n);
	return buf_error(b);
}

static int read_target(struct output *o, const char *key, char **out)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = key,
				 .len = 4096,
				 .sink = sink_buf,
				 .sink_arg = &b};
	int r = origin_call(o->config.origin, &req);

	if (r < 0)
		return err_trace(r);
	*out = buf_steal(&b);
	return *out ? 0 : err_origin(-ENOMEM);
}

/* The listing called it a file; the object says it is a link. */
static void become_link(struct output *o, struct node *n, char *target)
{
	if (n->opens > 0 || n->acked || n->live || n->kind != RECORD_FILE) {
		free(target);
		return;
	}
	(void)o;
	free(n->target);
	n->kind = RECORD_SYMLINK;
	n->target = target;
	n->mode = S_IFLNK | 0777;
}

int store_attributes(struct output *o, struct node *n, unsigned int flags)
{
	struct origin_req req = {.op = ORIGIN_STAT, .want_meta = true};
	_cleanup_(freep) char *key = NULL;
	char *target = NULL;
	bool need_target;
	int r;

	lock_take(&o->lock);
	need_target = n->kind == RECORD_SYMLINK && !n->target && n->stored.key;
	if ((!n->unverified && !need_target) || !n->stored.key || n->acked ||
	    n->opens > 0) {
		lock_drop(&o->lock);
		return 0;
	}
	key = strdup(n->stored.key);
	lock_drop(&o->lock);
	if (!key)
		return err_origin(-ENOMEM);
	if (flags & TREE_NOWAIT)
		return TREE_E_WAIT;
	req.key = key;
	r = origin_call(o->config.origin, &req);
	if (r == 0 && req.attr.is_symlink)
		r = read_target(o, key, &target);
	lock_scope(&o->lock);
	if (r == -ENOENT) {
		if (n->parent)
			n->parent->listed = false;
		return err_trace(r);
	}
	if (r < 0)
		return err_trace(r);
	n->unverified = false;
	if (n->meta_dirty || !n->stored.key || strcmp(n->stored.key, key) != 0) {
		free(target);
		return 0;
	}
	store_take_attributes(o, n, &req.attr);
	n->unverified = false;
	if (target)
		become_link(o, n, target);
	return 0;
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
	*key = strdup(n->stored.key);
	memcpy(etag, n->stored.etag, ORIGIN_ETAG_MAX);
	*size = n->stored.size;
	return *key ? 0 : err_origin(-ENOMEM);
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
		/* Perhaps we have just moved it. */
		if ((r != -ENOENT && r != -ESTALE) || attempt > 0)
			return r == -ENOENT ? err_origin(-ESTALE) : err_trace(r);
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
		r = stage_create(o->stage, &c);
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
		return 0;
	}
	content_unpin(c);
	content_put(c, 0);
	if (r != -ENOENT && r != -ESTALE)
		return err_trace(r);
	lock_scope(&o->lock);
	*moved = n->stored.key && strcmp(n->stored.key, key) != 0;
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
