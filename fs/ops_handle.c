/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files and directories, as fi->fh carries them. All are in one list, so that those
 * whose release never comes (the connection was aborted) are closed at the end.
 *
 * With a hand-over the number is a slot's of handover_file.h, and there is a pointer per
 * slot; else it is the pointer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "fs/base/err.h"
#include "fs/handover.h"
#include "fs/ops_call.h"
#include "fs/ops_restore.h"

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

static struct handover_file *slot_of(struct ops *o, uint32_t slot)
{
	return handover_file_at(&o->config.handover->files, slot);
}

struct handle *handle_of(struct ops *o, uint64_t fh)
{
	struct handle *h;

	if (!o->slots)
		h = (struct handle *)(uintptr_t)fh;
	else if (fh == 0 || fh > HANDOVER_FILES_MAX)
		return NULL;
	else
		h = __atomic_load_n(&o->slots[fh - 1], __ATOMIC_ACQUIRE);
	/* The kernel orders this after the open; here the order is visible to tools too. */
	if (h)
		(void)atomic_load_explicit(&h->ready, memory_order_acquire);
	return h;
}

/* A slot of the hand-over for it; not told of yet. */
static int take_slot(struct call *c, struct handle *h)
{
	struct ops *o = c->ops;
	struct handover_file *f;

	h->slot = handover_file_take(o->config.handover);
	if (h->slot == SLOTS_NONE)
		return err_origin(-ENFILE);
	f = slot_of(o, h->slot);
	f->flags = c->fi.flags;
	f->ino = c->ino;
	f->backing_id = 0;
	f->mode = BACKING_DIRECT;
	f->is_dir = false;
	__atomic_store_n(&o->slots[h->slot], h, __ATOMIC_RELEASE);
	c->fi.fh = (uint64_t)h->slot + 1;
	return 0;
}

static struct handle *handle_new(struct call *c, void *file, handle_close_fn close_file)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->file = file;
	h->close = close_file;
	c->fi.fh = (uintptr_t)h;
	if (c->ops->slots && take_slot(c, h) < 0) {
		free(h);
		return NULL;
	}
	lock_scope(&c->ops->lock);
	list_push_back(&c->ops->handles, &h->link);
	return h;
}

static void *handle_free(struct ops *o, struct handle *h)
{
	void *file = h->file;

#ifdef __SANITIZE_THREAD__
	__tsan_acquire(h);
#endif
	lock_take(&o->lock);
	list_remove(&h->link);
	lock_drop(&o->lock);
	free(h);
	return file;
}

/* From now on the slot tells of it. */
static void publish(struct call *c, struct handle *h)
{
	if (c->ops->slots)
		atomic_store(&slot_of(c->ops, h->slot)->state,
			     handover_file_by(HANDOVER_OPENING, c->request));
	atomic_store_explicit(&h->ready, true, memory_order_release);
}

/* The kernel is told next that it is closed. */
static void withdraw(struct call *c, struct handle *h)
{
	if (!c->ops->slots)
		return;
	atomic_store(&slot_of(c->ops, h->slot)->state,
		     handover_file_by(HANDOVER_RELEASING, c->request));
	__atomic_store_n(&c->ops->slots[h->slot], NULL, __ATOMIC_RELEASE);
}

void handle_told_open(struct call *c)
{
	uint64_t opening = handover_file_by(HANDOVER_OPENING, c->request);

	/* It may have been closed meanwhile, and the slot be another's. */
	if (c->ops->slots)
		atomic_compare_exchange_strong(
			&slot_of(c->ops, (uint32_t)c->fi.fh - 1)->state, &opening,
			HANDOVER_OPEN);
}

void handle_told_closed(struct call *c)
{
	if (c->ops->slots && c->fi.fh > 0 && c->fi.fh <= HANDOVER_FILES_MAX &&
	    handover_file_state(slot_of(c->ops, (uint32_t)c->fi.fh - 1)) ==
		    HANDOVER_RELEASING)
		handover_file_give(c->ops->config.handover, (uint32_t)c->fi.fh - 1);
}

struct handle *handle_open_dir(struct call *c, void *dir, handle_close_fn close_dir)
{
	struct handle *h = handle_new(c, dir, close_dir);

	if (!h)
		return NULL;
	if (c->ops->slots)
		slot_of(c->ops, h->slot)->is_dir = true;
	publish(c, h);
	return h;
}

void *handle_close_dir(struct call *c, struct handle *h)
{
	withdraw(c, h);
	return handle_free(c->ops, h);
}

/* What the next daemon has to know of a file that is passed through. */
static void note_backing(struct call *c, const struct handle *h, int fd, int id)
{
	struct handover_file *f;
	struct stat st;

	if (!c->ops->slots)
		return;
	f = slot_of(c->ops, h->slot);
	f->mode = (uint8_t)h->mode;
	if (h->mode != BACKING_PASS || fstat(fd, &st) < 0)
		return;
	f->backing_id = id;
	f->backing_dev = st.st_dev;
	f->backing_ino = st.st_ino;
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
		note_backing(c, h, fd, id);
		publish(c, h);
	}
	if (fd >= 0)
		close(fd);
	return h;
}

void *handle_close(struct call *c, struct handle *h)
{
	/* Before its backing id goes: the next daemon must not give that out again. */
	withdraw(c, h);
	kill_point("release.withdrawn");
	backing_close(c->ops->backing, c->req, c->ino, h->mode);
	return handle_free(c->ops, h);
}

void handle_close_all(struct ops *o)
{
	while (!list_empty(&o->handles)) {
		struct handle *h = list_first(&o->handles, struct handle, link);
		handle_close_fn close_file = h->close;
		void *file = handle_free(o, h);

		if (file)
			close_file(file);
	}
}

int call_file(struct call *c, unsigned int flags, void **out)
{
	struct handle *h = call_handle(c);

	if (!h)
		return err_origin(-ESTALE);
	if (!__atomic_load_n(&h->file, __ATOMIC_ACQUIRE)) {
		int r = ops_reopen(c, h, flags);

		if (r != 0)
			return err_trace(r);
	}
	*out = h->file;
	return 0;
}
