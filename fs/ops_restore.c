/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was open in the last daemon is open in this one, under the kernel's numbers. Files
 * of /output are opened before the first request (output_handover.c): the uploader must
 * know who writes. Directories, and files of /input, are at their first use, since that may
 * have to ask the store.
 */
#include "fs/ops_restore.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/input.h"
#include "fs/ops_call.h"
#include "fs/output.h"

#define BACKING_CLOSE_IOCTL _IOW(229, 2, uint32_t) /* of linux/fuse.h since 6.9 */

static void close_output_file(void *file)
{
	output_release(file);
}

static void close_output_dir(void *dir)
{
	output_closedir(dir);
}

static void close_input_file(void *file)
{
	input_close(file);
}

static void close_input_dir(void *dir)
{
	input_closedir(dir);
}

static handle_close_fn closer(const struct ops *o, bool is_dir)
{
	if (o->config.input)
		return is_dir ? close_input_dir : close_input_file;
	return is_dir ? close_output_dir : close_output_file;
}

static struct handle *restore_one(struct ops *o, uint32_t slot)
{
	struct handover_file *f = handover_file_at(&o->config.handover->files, slot);
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->slot = slot;
	h->writes = !f->is_dir && (f->flags & O_ACCMODE) != O_RDONLY;
	h->mode = f->is_dir ? BACKING_DIRECT : (enum backing_mode)f->mode;
	h->close = closer(o, f->is_dir);
	if (!f->is_dir) {
		h->file = output_restored_file(o->config.output, slot);
		backing_restore(o->backing, f->ino, h->mode, f->backing_id,
				f->backing_dev, f->backing_ino);
	}
	atomic_store(&h->ready, true);
	list_push_back(&o->handles, &h->link);
	o->slots[slot] = h;
	return h;
}

/* Backing files that the last daemon had given to the kernel for an open that never was,
 * or was about to take back. */
static void close_orphans(struct ops *o)
{
	const struct handover *h = o->config.handover;

	for (size_t i = 0; i < h->files.orphan_count; i++) {
		uint32_t id = (uint32_t)h->files.orphans[i];

		if (!backing_knows(o->backing, (int)id))
			ioctl(h->fd, BACKING_CLOSE_IOCTL, &id);
	}
}

int ops_restore(struct ops *o)
{
	struct handover *h = o->config.handover;
	uint32_t limit = h ? atomic_load(&h->files.limit) : 0, count = 0;

	for (uint32_t i = 0; i < limit; i++) {
		struct handover_file *f = handover_file_at(&h->files, i);

		if (handover_file_state(f) == HANDOVER_FREE)
			continue;
		if (!restore_one(o, i))
			return err_origin(-ENOMEM);
		count++;
	}
	if (!h || h->generation == 1)
		return 0;
	close_orphans(o);
	log_info("open files taken over count=%u", count);
	return 0;
}

static int open_again(struct call *c, const struct handover_file *f, unsigned int flags,
		      void **out)
{
	struct output *output = c->ops->config.output;
	struct input *input = c->ops->config.input;

	if (input && f->is_dir)
		return input_opendir(input, f->ino, flags, (struct input_dir **)out);
	/* An inode of /input is one version: it is the same file, or stale. */
	if (input)
		return input_open(input, f->ino, flags, (struct input_file **)out);
	if (f->is_dir)
		return output_opendir(output, f->ino, flags, (struct output_dir **)out);
	return err_origin(-EIO); /* it could not be taken over */
}

int ops_reopen(struct call *c, struct handle *h, unsigned int flags)
{
	struct handover_file *f =
		handover_file_at(&c->ops->config.handover->files, h->slot);
	void *file = NULL;
	int r = open_again(c, f, flags, &file);

	if (r != 0)
		return r;
	lock_take(&c->ops->lock);
	if (!h->file) {
		__atomic_store_n(&h->file, file, __ATOMIC_RELEASE);
		file = NULL;
	}
	lock_drop(&c->ops->lock);
	if (file) /* another thread was faster */
		h->close(file);
	return 0;
}
