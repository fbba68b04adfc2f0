/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per inode that is open with a mode which restricts others:
 *
 *   pass > 0    cached == 0, id > 0: passthrough opens of one backing file
 *   cached > 0  pass == 0: page-cache opens
 *   direct > 0  fixed, pass == 0: opens past the page cache, which may be mapped
 *   none        the entry goes
 *
 * The id lives from the first passthrough open to the last: the kernel keeps the backing
 * file by it, so an evicted cache file gives its space back with the last close.
 *
 * Threads: one lock over the table; the kernel is called under it (two short ioctls), since
 * a second id for an inode must never come into being.
 */
#include "fs/backing.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <uthash.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

struct entry {
	uint64_t ino;
	dev_t file_dev; /* of the backing file */
	ino_t file_ino;
	unsigned int pass, cached, direct; /* opens */
	int id;
	UT_hash_handle hh;
};

struct backing {
	struct lock lock; /* everything below */
	struct backing_kernel kernel;
	bool fixed;
	struct entry *entries;
	struct backing_stats stats;
};

static const char *const mode_names[] = {"direct", "cached", "passthrough"};
static_assert(sizeof(mode_names) / sizeof(*mode_names) == BACKING_MODE_N, "mode names");

const char *backing_mode_name(enum backing_mode mode)
{
	return mode < BACKING_MODE_N ? mode_names[mode] : "unknown";
}

int backing_new(const struct backing_kernel *kernel, bool fixed, struct backing **out)
{
	struct backing *b = calloc(1, sizeof(*b));

	if (!b)
		return err_origin(-ENOMEM);
	lock_init(&b->lock);
	b->kernel = *kernel;
	b->fixed = fixed;
	*out = b;
	return 0;
}

struct backing *backing_free(struct backing *b)
{
	struct entry *e, *next;

	if (!b)
		return NULL;
	HASH_ITER (hh, b->entries, e, next) {
		HASH_DEL(b->entries, e);
		free(e);
	}
	lock_fini(&b->lock);
	free(b);
	return NULL;
}

static void entry_check(const struct entry *e)
{
	check(!(e->pass && (e->cached || e->direct)));
	check((e->pass > 0) == (e->id > 0));
}

static struct entry *entry_get(struct backing *b, uint64_t ino)
{
	struct entry *e;

	HASH_FIND(hh, b->entries, &ino, sizeof(ino), e);
	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->ino = ino;
	HASH_ADD(hh, b->entries, ino, sizeof(e->ino), e);
	return e;
}

static void entry_drop_unused(struct backing *b, struct entry *e)
{
	entry_check(e);
	if (e->pass || e->cached || e->direct)
		return;
	HASH_DEL(b->entries, e);
	free(e);
}

/* Whether the kernel serves this open from `fd`. */
static bool try_pass(struct backing *b, void *ctx, struct entry *e, int fd)
{
	struct stat st;

	if (e->pass && b->fixed) {
		e->pass++;
		return true;
	}
	if (fd < 0 || e->cached || e->direct || fstat(fd, &st) < 0)
		return false;
	if (e->pass) {
		/* Another backing file is another version of the object. */
		if (e->file_dev != st.st_dev || e->file_ino != st.st_ino)
			return false;
		e->pass++;
		return true;
	}
	e->id = b->kernel.open(ctx, fd);
	if (e->id <= 0) {
		if (!b->stats.refused++)
			log_warn("kernel takes no backing file, requests serve it "
				 "error=%d",
				 -e->id);
		b->stats.last_error = e->id;
		e->id = 0;
		return false;
	}
	e->file_dev = st.st_dev;
	e->file_ino = st.st_ino;
	e->pass = 1;
	b->stats.passed++;
	return true;
}

enum backing_mode backing_open(struct backing *b, void *ctx, uint64_t ino, int fd,
			       bool cached, int *id)
{
	enum backing_mode mode = BACKING_DIRECT;
	struct entry *e;

	lock_scope(&b->lock);
	e = entry_get(b, ino);
	if (e) {
		if (try_pass(b, ctx, e, fd)) {
			mode = BACKING_PASS;
			*id = e->id;
		} else if (cached && !e->pass) {
			mode = BACKING_CACHED;
			e->cached++;
		} else if (b->fixed) {
			e->direct++;
		}
		entry_drop_unused(b, e);
	}
	b->stats.opens[mode]++;
	return mode;
}

void backing_close(struct backing *b, void *ctx, uint64_t ino, enum backing_mode mode)
{
	struct entry *e;

	if (mode == BACKING_DIRECT && !b->fixed)
		return;
	lock_scope(&b->lock);
	HASH_FIND(hh, b->entries, &ino, sizeof(ino), e);
	if (mode == BACKING_DIRECT && !e)
		return; /* there was no memory to note it */
	check(e);
	if (mode == BACKING_DIRECT) {
		check(e->direct > 0);
		e->direct--;
	} else if (mode == BACKING_CACHED) {
		check(e->cached > 0);
		e->cached--;
	} else {
		check(e->pass > 0);
		e->pass--;
		if (!e->pass) {
			b->kernel.close(ctx, e->id);
			e->id = 0;
			b->stats.passed--;
		}
	}
	entry_drop_unused(b, e);
}

void backing_restore(struct backing *b, uint64_t ino, enum backing_mode mode, int id,
		     uint64_t file_dev, uint64_t file_ino)
{
	struct entry *e;

	if (mode == BACKING_DIRECT && !b->fixed)
		return;
	lock_scope(&b->lock);
	e = entry_get(b, ino);
	check(e);
	if (mode == BACKING_DIRECT) {
		e->direct++;
		return;
	}
	if (mode == BACKING_CACHED) {
		e->cached++;
		return;
	}
	b->stats.passed += e->pass == 0;
	e->pass++;
	e->id = id;
	e->file_dev = (dev_t)file_dev;
	e->file_ino = (ino_t)file_ino;
}

bool backing_knows(struct backing *b, int id)
{
	struct entry *e, *next;

	lock_scope(&b->lock);
	HASH_ITER (hh, b->entries, e, next) {
		if (e->pass && e->id == id)
			return true;
	}
	return false;
}

void backing_stats(struct backing *b, struct backing_stats *stats)
{
	lock_scope(&b->lock);
	*stats = b->stats;
}
