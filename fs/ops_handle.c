/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files and directories, as fi->fh carries them. All are in one list, so that those
 * whose release never comes (the connection was aborted) are closed at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/base/err.h"
#include "fs/ops_call.h"

int handle_kernel_open(void *ctx, int fd)
{
#if FUSE_HAS_PASSTHROUGH
	int id;

	errno = 0;
	id = fuse_passthrough_open(ctx, fd);
	return id > 0 ? id : -(errno ? errno : EIO);
#else
	(void)ctx;
	(void)fd;
	return -ENOSYS;
#endif
}

void handle_kernel_close(void *ctx, int id)
{
#if FUSE_HAS_PASSTHROUGH
	fuse_passthrough_close(ctx, id);
#else
	(void)ctx;
	(void)id;
#endif
}

static struct handle *handle_new(struct call *c, void *file, handle_close_fn close_file)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->file = file;
	h->close = close_file;
	c->fi.fh = (uintptr_t)h;
	lock_scope(&c->ops->lock);
	list_push_back(&c->ops->handles, &h->link);
	return h;
}

static void *handle_free(struct ops *o, struct handle *h)
{
	void *file = h->file;

	lock_take(&o->lock);
	list_remove(&h->link);
	lock_drop(&o->lock);
	free(h);
	return file;
}

struct handle *handle_open_dir(struct call *c, void *dir, handle_close_fn close_dir)
{
	struct handle *h = handle_new(c, dir, close_dir);

	if (h)
		atomic_store_explicit(&h->ready, true, memory_order_release);
	return h;
}

void *handle_close_dir(struct ops *o, struct handle *h)
{
	return handle_free(o, h);
}

struct handle *handle_open(struct call *c, void *file, handle_close_fn close_file, int fd,
			   bool cached, bool keep)
{
	struct handle *h = handle_new(c, file, close_file);
	int id = 0;

	if (h) {
		h->writes = (c->fi.flags & O_ACCMODE) != O_RDONLY;
		h->mode = backing_open(c->ops->backing, c->req, c->ino, fd, cached, &id);
		c->fi.direct_io = h->mode == BACKING_DIRECT;
		c->fi.keep_cache = h->mode == BACKING_CACHED && keep;
#if FUSE_HAS_PASSTHROUGH
		c->fi.parallel_direct_writes = h->mode == BACKING_DIRECT;
		if (h->mode == BACKING_PASS)
			c->fi.backing_id = id;
#endif
		atomic_store_explicit(&h->ready, true, memory_order_release);
	}
	if (fd >= 0)
		close(fd);
	return h;
}

void *handle_close(struct ops *o, fuse_req_t req, fuse_ino_t ino, struct handle *h)
{
	backing_close(o->backing, req, ino, h->mode);
	return handle_free(o, h);
}

void handle_close_all(struct ops *o)
{
	while (!list_empty(&o->handles)) {
		struct handle *h = list_first(&o->handles, struct handle, link);
		handle_close_fn close_file = h->close;

		close_file(handle_free(o, h));
	}
}
