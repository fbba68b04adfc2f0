/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/disk.h"
#include "cache/evict.h"
#include "cache/index.h"
#include "cache/pack.h"
#include "cache/state.h"
#include "cache/store.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

#define BLOCK 4096
#define PATH_SIZE (IDENT_NAME_SIZE + 16)

struct shelf_file {
	struct cache *cache;
	int fd;
	uint64_t end;          /* where the next append goes */
	uint64_t reserved;     /* bytes of the disk, until it has a name */
	char draft[PATH_SIZE]; /* its name until then; "" when it has its own */
};

bool shelf_usable(struct cache *c)
{
	return c && store_disk_usable(c);
}

int shelf_ident(const char *source, const char *dir, struct ident **out)
{
	struct origin_attr none = {0};
	char name[sizeof(((struct origin *)0)->name) + 8];

	/* No source of objects is called so. */
	snprintf(name, sizeof(name), "list:%s", source);
	return err_trace(ident_new(name, dir, &none, out));
}

static const char *path_of(char path[PATH_SIZE], const unsigned char *hash)
{
	char name[IDENT_NAME_SIZE];

	snprintf(path, PATH_SIZE, "lists/%s", ident_name(name, hash));
	return path;
}

/* ---- short ones ---- */

int shelf_put(struct cache *c, struct ident *id, const void *data, size_t n)
{
	struct index_small where;
	uint64_t pack_bytes;
	int slot, r;

	id->size = n;
	slot = disk_begin(c->disk);
	r = pack_append(c->packs, id, data, &where);
	disk_end(c->disk, slot);
	if (r == PACK_E_FULL && evict_room(c, n + id->len + BLOCK))
		r = pack_append(c->packs, id, data, &where);
	if (r == PACK_E_FULL)
		return err_origin(-ENOSPC);
	if (r < 0) {
		disk_fault(c->disk, r, "keeping a listing");
		return err_trace(r);
	}
	index_add_small(c->index, id->hash, &where);
	if (pack_current(c->packs, &pack_bytes) == where.pack)
		index_touch_pack(c->index, where.pack, pack_bytes);
	return 0;
}

int shelf_get(struct cache *c, struct ident *id, void *data, size_t *n)
{
	struct index_small where;
	int r = index_find_small(c->index, id->hash, &where);

	if (r == INDEX_E_NONE || (r == 0 && where.len > SHELF_SMALL_MAX))
		return SHELF_E_NONE;
	if (r < 0)
		return err_trace(r);
	id->size = where.len; /* the name says nothing of it */
	r = pack_read(c->packs, id, &where, data, false);
	if (r > 0) {
		index_drop_small(c->index, id->hash);
		return SHELF_E_NONE;
	}
	if (r < 0)
		return err_trace(r);
	index_touch_pack(c->index, where.pack, 0);
	*n = where.len;
	return 0;
}

/* ---- long ones ---- */

static int new_file(struct cache *c, struct shelf_file **out)
{
	struct shelf_file *f = calloc(1, sizeof(*f));

	if (!f)
		return err_origin(-ENOMEM);
	f->cache = c;
	f->fd = -1;
	*out = f;
	return 0;
}

int shelf_file_new(struct cache *c, struct shelf_file **out)
{
	struct shelf_file *f = NULL;
	int r = new_file(c, &f);

	if (r < 0)
		return err_trace(r);
	snprintf(f->draft, sizeof(f->draft), "lists/%016llx.tmp",
		 (unsigned long long)clock_random());
	f->fd = openat(disk_fd(c->disk), f->draft,
		       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f->fd < 0) {
		r = err_origin(-errno);
		disk_fault(c->disk, r, "making a file for a listing");
		free(f);
		return r;
	}
	*out = f;
	return 0;
}

int shelf_file_open(struct cache *c, const struct ident *id, struct shelf_file **out)
{
	char path[PATH_SIZE];
	struct shelf_file *f = NULL;
	int r = new_file(c, &f);

	if (r < 0)
		return err_trace(r);
	f->fd = openat(disk_fd(c->disk), path_of(path, id->hash),
		       O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (f->fd < 0) {
		r = errno == ENOENT ? SHELF_E_NONE : err_origin(-errno);
		free(f);
		return r;
	}
	index_touch_list(c->index, id->hash, 0);
	*out = f;
	return 0;
}

void shelf_file_free(struct shelf_file *f)
{
	if (!f)
		return;
	if (f->draft[0])
		unlinkat(disk_fd(f->cache->disk), f->draft, 0);
	close(f->fd);
	disk_release(f->cache->disk, f->reserved);
	free(f);
}

static int reserve(struct shelf_file *f, uint64_t end)
{
	uint64_t want = (end + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);

	if (want <= f->reserved)
		return 0;
	want -= f->reserved;
	if (!disk_reserve(f->cache->disk, want) &&
	    (!evict_room(f->cache, want) || !disk_reserve(f->cache->disk, want)))
		return err_origin(-ENOSPC);
	f->reserved += want;
	return 0;
}

int shelf_write(struct shelf_file *f, uint64_t off, const void *data, size_t n)
{
	struct disk *disk = f->cache->disk;
	int slot, r = reserve(f, off + n);

	if (r < 0)
		return err_trace(r);
	slot = disk_begin(disk);
	r = io_pwrite(f->fd, data, n, off);
	disk_end(disk, slot);
	if (r < 0)
		disk_fault(disk, r, "writing a listing");
	else if (off + n > f->end)
		f->end = off + n;
	return err_trace(r);
}

int shelf_append(struct shelf_file *f, const void *data, size_t n, uint64_t *off)
{
	*off = f->end;
	return err_trace(shelf_write(f, f->end, data, n));
}

int shelf_read(struct shelf_file *f, uint64_t off, void *data, size_t n, bool nowait)
{
	struct iovec v = {data, n};
	ssize_t got;
	int slot;

	if (nowait) {
		got = preadv2(f->fd, &v, 1, (off_t)off, RWF_NOWAIT);
		if (got == (ssize_t)n)
			return 0;
		return SHELF_E_WAIT;
	}
	slot = disk_begin(f->cache->disk);
	got = io_pread(f->fd, data, n, off);
	disk_end(f->cache->disk, slot);
	if (got < 0)
		return err_trace((int)got);
	return got == (ssize_t)n ? 0 : err_origin(-EBADMSG);
}

int shelf_file_keep(struct shelf_file *f, const struct ident *id)
{
	struct disk *disk = f->cache->disk;
	char path[PATH_SIZE];
	uint64_t freed = 0;

	if (shelf_remove(f->cache, id->hash, &freed) == 0)
		disk_release(disk, freed);
	if (renameat(disk_fd(disk), f->draft, disk_fd(disk), path_of(path, id->hash)) < 0)
		return err_origin(-errno);
	f->draft[0] = '\0';
	index_touch_list(f->cache->index, id->hash, f->reserved);
	f->reserved = 0; /* the name's now */
	return 0;
}

void shelf_drop(struct cache *c, const struct ident *id)
{
	uint64_t freed;

	index_drop_small(c->index, id->hash);
	if (shelf_remove(c, id->hash, &freed) == 0) {
		disk_release(c->disk, freed);
		index_drop_list(c->index, id->hash);
	}
}

void shelf_forget(struct cache *c, const char *source, const char *dir)
{
	_cleanup_(freep) struct ident *id = NULL;

	if (shelf_usable(c) && shelf_ident(source, dir, &id) == 0)
		shelf_drop(c, id);
}

int shelf_remove(struct cache *c, const unsigned char hash[IDENT_HASH_SIZE],
		 uint64_t *freed)
{
	char path[PATH_SIZE];
	struct stat st;

	if (fstatat(disk_fd(c->disk), path_of(path, hash), &st, AT_SYMLINK_NOFOLLOW) <
		    0 ||
	    unlinkat(disk_fd(c->disk), path, 0) < 0)
		return errno == ENOENT ? SHELF_E_NONE : err_origin(-errno);
	*freed = ((uint64_t)st.st_size + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
	return 0;
}
