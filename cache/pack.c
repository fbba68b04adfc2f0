/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The current pack is this process' own: made at the first append, left when it is full or
 * when someone has removed it. Packs of the past are read through a small table of
 * descriptors, the least recently used one closed when it is full.
 *
 * Threads: any. Appends to the current pack are in order under `lock`: they are copies
 * into the page cache of 256 KiB at most, and hold the lock for that long.
 * Failure modes: an append that fails half way leaves bytes nobody points at; the pack is
 * left and a new one begun.
 */
#include "cache/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/disk.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"

#define RECORD_MAGIC 0x4b434150u /* "PACK" */
#define PACK_BYTES_MAX (64u << 20)
#define PACK_BYTES_MIN (1u << 20)

enum {
	FD_N = 128,
	PATH_SIZE = 40
};

struct record {
	uint32_t magic;
	uint32_t ident_len;
	uint32_t len;      /* of the data */
	uint32_t crc;      /* CRC-32C of the data */
	uint32_t head_crc; /* of the above and the identity that follows */
};

struct pack_fd {
	atomic_int refs; /* one of the table, one per reader */
	uint64_t pack;
	int fd;
	uint64_t used; /* a counter of uses */
};

struct packs {
	struct disk *disk;
	uint64_t bytes_max; /* of one pack */
	struct lock lock;   /* everything below */
	uint64_t current;   /* 0: none */
	int current_fd;
	uint64_t current_len;
	uint64_t clock;
	struct pack_fd *fds[FD_N];
};

static const char *path_of(char path[PATH_SIZE], uint64_t pack)
{
	snprintf(path, PATH_SIZE, "packs/%016llx.pack", (unsigned long long)pack);
	return path;
}

int packs_new(struct disk *d, uint64_t size_max, struct packs **out)
{
	struct packs *p = calloc(1, sizeof(*p));

	if (!p)
		return err_origin(-ENOMEM);
	lock_init(&p->lock);
	p->disk = d;
	p->current_fd = -1;
	/* Eviction takes whole packs: a sixteenth of a small cache at most. */
	p->bytes_max = size_max / 16;
	if (p->bytes_max > PACK_BYTES_MAX)
		p->bytes_max = PACK_BYTES_MAX;
	if (p->bytes_max < PACK_BYTES_MIN)
		p->bytes_max = PACK_BYTES_MIN;
	*out = p;
	return 0;
}

static void fd_put(struct pack_fd *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) > 1)
		return;
	close(f->fd);
	free(f);
}

static void leave_current_locked(struct packs *p)
{
	if (p->current_fd >= 0)
		close(p->current_fd);
	p->current_fd = -1;
	p->current = 0;
}

struct packs *packs_free(struct packs *p)
{
	if (!p)
		return NULL;
	leave_current_locked(p);
	for (int i = 0; i < FD_N; i++)
		fd_put(p->fds[i]);
	lock_fini(&p->lock);
	free(p);
	return NULL;
}

/* ---- append ---- */

static int begin_locked(struct packs *p)
{
	char path[PATH_SIZE];

	p->current = clock_random() | 1;
	p->current_len = 0;
	p->current_fd = openat(disk_fd(p->disk), path_of(path, p->current),
			       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->current_fd < 0) {
		p->current = 0;
		return err_origin(-errno);
	}
	disk_set_noatime(p->current_fd);
	return 0;
}

static int writev_all(int fd, struct iovec *v, int count, uint64_t off)
{
	while (count) {
		ssize_t n = pwritev(fd, v, count, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_origin(n < 0 ? -errno : -ENOSPC);
		off += (uint64_t)n;
		while (count && (size_t)n >= v->iov_len) {
			n -= (ssize_t)v->iov_len;
			v++;
			count--;
		}
		if (count) {
			v->iov_base = (char *)v->iov_base + n;
			v->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static uint32_t head_crc(const struct record *r, const struct ident *id)
{
	return crc32c(crc32c(0, r, offsetof(struct record, head_crc)), id->bytes,
		      id->len);
}

/* A pack someone evicted would swallow what is appended to it. */
static int ready_locked(struct packs *p, uint64_t n)
{
	struct stat st;

	if (p->current_fd >= 0 && (p->current_len + n > p->bytes_max ||
				   fstat(p->current_fd, &st) < 0 || st.st_nlink == 0))
		leave_current_locked(p);
	return p->current_fd >= 0 ? 0 : err_trace(begin_locked(p));
}

int pack_append(struct packs *p, const struct ident *id, const void *data,
		struct index_small *where)
{
	static const char zeros[8];
	struct record head = {
		.magic = RECORD_MAGIC,
		.ident_len = id->len,
		.len = (uint32_t)id->size,
		.crc = crc32c(0, data, id->size),
	};
	size_t n = sizeof(head) + id->len + id->size, pad = -n & 7;
	struct iovec v[4] = {
		{&head, sizeof(head)},
		{(void *)(uintptr_t)id->bytes, id->len},
		{(void *)(uintptr_t)data, id->size},
		{(void *)(uintptr_t)zeros, pad},
	};
	int r;

	check(id->size <= PACK_OBJECT_MAX);
	head.head_crc = head_crc(&head, id);
	if (!disk_reserve(p->disk, n + pad))
		return PACK_E_FULL;
	lock_take(&p->lock);
	r = ready_locked(p, n + pad);
	if (r == 0)
		r = writev_all(p->current_fd, v, pad ? 4 : 3, p->current_len);
	if (r == 0) {
		*where = (struct index_small){
			.pack = p->current,
			.off = (uint32_t)p->current_len,
			.ident_len = id->len,
			.len = head.len,
			.crc = head.crc,
		};
		p->current_len += n + pad;
	} else {
		leave_current_locked(p);
	}
	lock_drop(&p->lock);
	if (r < 0)
		disk_release(p->disk, n + pad);
	return err_trace(r);
}

uint64_t pack_current(struct packs *p, uint64_t *bytes)
{
	lock_scope(&p->lock);
	*bytes = p->current_len;
	return p->current;
}

/* ---- read ---- */

static struct pack_fd *find_locked(struct packs *p, uint64_t pack, int *victim)
{
	*victim = 0;
	for (int i = 0; i < FD_N; i++) {
		struct pack_fd *f = p->fds[i];

		if (f && f->pack == pack) {
			f->used = ++p->clock;
			atomic_fetch_add(&f->refs, 1);
			return f;
		}
		if (!f)
			*victim = i;
		else if (p->fds[*victim] && f->used < p->fds[*victim]->used)
			*victim = i;
	}
	return NULL;
}

static int fd_get(struct packs *p, uint64_t pack, struct pack_fd **out)
{
	struct pack_fd *f, *other;
	char path[PATH_SIZE];
	int victim;

	lock_take(&p->lock);
	f = find_locked(p, pack, &victim);
	lock_drop(&p->lock);
	if (f) {
		*out = f;
		return 0;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_origin(-ENOMEM);
	atomic_store(&f->refs, 1);
	f->pack = pack;
	f->fd = openat(disk_fd(p->disk), path_of(path, pack),
		       O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (f->fd < 0) {
		int r = -errno;

		free(f);
		return r == -ENOENT ? PACK_E_NONE : err_origin(r);
	}
	lock_take(&p->lock);
	other = find_locked(p, pack, &victim);
	if (!other) {
		other = p->fds[victim];
		f->used = ++p->clock;
		p->fds[victim] = f;
		atomic_fetch_add(&f->refs, 1);
	} else {
		struct pack_fd *mine = f;

		f = other;
		other = mine;
	}
	lock_drop(&p->lock);
	fd_put(other);
	*out = f;
	return 0;
}

/* All of it or a condition; `n` is what the buffers hold together. */
static int readv_all(int fd, struct iovec *v, int count, size_t n, uint64_t off,
		     bool nowait)
{
	ssize_t got;

	do
		got = preadv2(fd, v, count, (off_t)off, nowait ? RWF_NOWAIT : 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EOPNOTSUPP && nowait)
		got = preadv2(fd, v, count, (off_t)off, 0);
	if (got < 0)
		return errno == EAGAIN ? PACK_E_WAIT : err_origin(-errno);
	if ((size_t)got == n)
		return 0;
	return nowait ? PACK_E_WAIT : PACK_E_NONE;
}

int pack_read(struct packs *p, const struct ident *id, const struct index_small *where,
	      void *data, bool nowait)
{
	unsigned char ident[IDENT_BYTES_MAX];
	struct record head;
	struct iovec v[3] = {{&head, sizeof(head)}, {ident, id->len}, {data, where->len}};
	size_t n = sizeof(head) + id->len + where->len;
	struct pack_fd *f;
	int r;

	if (where->ident_len != id->len || where->len != id->size)
		return PACK_E_NONE;
	r = fd_get(p, where->pack, &f);
	if (r != 0)
		return err_trace(r);
	r = readv_all(f->fd, v, where->len ? 3 : 2, n, where->off, nowait);
	fd_put(f);
	if (r != 0)
		return err_trace(r);
	if (head.magic != RECORD_MAGIC || head.ident_len != id->len ||
	    head.len != where->len || memcmp(ident, id->bytes, id->len) ||
	    head.head_crc != head_crc(&head, id))
		return PACK_E_DAMAGED;
	return crc32c(0, data, where->len) == head.crc ? 0 : PACK_E_DAMAGED;
}

int pack_read_part(struct packs *p, const struct index_small *where, uint32_t off,
		   void *data, size_t n, bool nowait)
{
	uint64_t at =
		(uint64_t)where->off + sizeof(struct record) + where->ident_len + off;
	struct iovec v = {data, n};
	struct pack_fd *f;
	int r = fd_get(p, where->pack, &f);

	if (r != 0)
		return err_trace(r);
	r = readv_all(f->fd, &v, 1, n, at, nowait);
	fd_put(f);
	return err_trace(r);
}

/* ---- removal ---- */

static void forget_fd_locked(struct packs *p, uint64_t pack)
{
	for (int i = 0; i < FD_N; i++)
		if (p->fds[i] && p->fds[i]->pack == pack) {
			fd_put(p->fds[i]);
			p->fds[i] = NULL;
		}
}

int pack_remove(struct packs *p, uint64_t pack, uint64_t *freed)
{
	char path[PATH_SIZE];
	struct stat st;

	path_of(path, pack);
	lock_scope(&p->lock);
	forget_fd_locked(p, pack);
	if (p->current == pack)
		leave_current_locked(p);
	if (fstatat(disk_fd(p->disk), path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    unlinkat(disk_fd(p->disk), path, 0) < 0)
		return errno == ENOENT ? PACK_E_NONE : err_origin(-errno);
	*freed = (uint64_t)st.st_size;
	return 0;
}

void packs_tidy(struct packs *p)
{
	struct stat st;

	lock_scope(&p->lock);
	for (int i = 0; i < FD_N; i++)
		if (p->fds[i] && (fstat(p->fds[i]->fd, &st) < 0 || st.st_nlink == 0)) {
			fd_put(p->fds[i]);
			p->fds[i] = NULL;
		}
	if (p->current_fd >= 0 && (fstat(p->current_fd, &st) < 0 || st.st_nlink == 0))
		leave_current_locked(p);
}

int packs_each(struct packs *p, pack_fn fn, void *arg)
{
	int fd = openat(disk_fd(p->disk), "packs",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	struct stat st;

	if (fd < 0)
		return err_origin(-errno);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_origin(-ENOMEM);
	}
	while ((entry = readdir(dir))) {
		char *end;
		uint64_t pack = strtoull(entry->d_name, &end, 16);

		if (!strcmp(end, ".pack") && end != entry->d_name &&
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			fn(arg, pack, (uint64_t)st.st_size);
	}
	return 0;
}
