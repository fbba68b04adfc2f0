/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a disk, as this process sees it:
 *
 *   good     reads and writes go there
 *   paused   a write or read failed (ENOSPC, EIO, EROFS …): nothing goes there until the
 *            pause is over; it doubles from 1 s to 60 s with each fault in a row
 *   hanging  an operation has not come back for DISK_HANG_MS: nothing new goes there until
 *            all that hang have come back
 *
 * Threads: any. The usage page is shared with other processes and only touched by atomics.
 * On close: the last process marks the page clean; any other end leads to a recount.
 */
#include "cache/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

#define USAGE_MAGIC 0x31656761736c7553ull
#define USAGE_SIZE 4096
#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 60000
#define FREE_LOOK_MS 100           /* statvfs at most this often … */
#define FREE_LOOK_BYTES (4u << 20) /* … unless this much was written meanwhile */
#define LOCK_WAIT_MS 10000
#define WATCH_MS 200

enum {
	SLOT_N = 64
};

/* `usage`: one page, little endian as the machine is; never leaves the host. */
struct usage {
	uint64_t magic;
	_Atomic uint64_t bytes; /* counted before they are written */
	_Atomic uint32_t clean; /* closed by the last process in order */
};

struct disk {
	int fd;
	int lock_fd;
	struct usage *usage;
	uint64_t size_max, free_min;
	bool alone;

	_Atomic uint64_t paused_until_ms;
	_Atomic uint64_t pause_ms; /* the length of the next pause */
	atomic_bool hanging;
	_Atomic uint64_t watched_ms;    /* when that was looked at last */
	_Atomic uint64_t slots[SLOT_N]; /* when the operation began; 0: free */

	struct lock lock; /* the three below */
	uint64_t free_looked_ms;
	uint64_t free_bytes; /* at that time */
	uint64_t free_spent; /* reserved since */
};

/* Waits a little for another process that is just recounting. */
static int lock_shared(int fd, struct why *why)
{
	uint64_t deadline = clock_mono_ms() + LOCK_WAIT_MS;

	while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return why_set(why, err_origin(-errno), "cache lock: %s",
				       strerror(errno));
		if (clock_mono_ms() > deadline)
			return why_set(why, err_origin(-EBUSY),
				       "cache directory is locked by another process");
		clock_sleep_ms(20);
	}
	return 0;
}

static int map_usage(struct disk *d, struct why *why)
{
	static const char zeros[USAGE_SIZE];
	_cleanup_(close_fdp) int fd =
		openat(d->fd, "usage", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;
	int r = 0;

	if (fd < 0)
		r = -errno;
	else if (fstat(fd, &st) < 0)
		r = -errno;
	/* Written, not truncated to length: a hole would fault when the disk is full. */
	else if (st.st_size < USAGE_SIZE)
		r = io_pwrite(fd, zeros, sizeof(zeros), 0);
	if (r == 0) {
		d->usage =
			mmap(NULL, USAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (d->usage == MAP_FAILED) {
			d->usage = NULL;
			r = -errno;
		}
	}
	return r < 0 ? why_set(why, err_origin(r), "cache usage file: %s", strerror(-r))
		     : 0;
}

/* Data whose map is not there: NAME.NONCE.data without NAME.map. */
static bool is_orphan(int dirfd, const char *name)
{
	const char *kind = strrchr(name, '.');
	char map[NAME_MAX + 1];

	if (!kind || strcmp(kind, ".data") != 0)
		return false;
	snprintf(map, sizeof(map), "%.*s.map", (int)strcspn(name, "."), name);
	return faccessat(dirfd, map, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* Bytes on disk of the files in `path`; what a crash left half made is removed. */
static uint64_t count_dir(struct disk *d, const char *path)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	uint64_t total = 0;
	int fd = openat(d->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return 0;
	}
	while ((entry = readdir(dir))) {
		size_t n = strlen(entry->d_name);
		struct stat st;

		if (entry->d_name[0] == '.')
			continue;
		if ((n > 4 && !strcmp(entry->d_name + n - 4, ".tmp")) ||
		    is_orphan(fd, entry->d_name))
			unlinkat(fd, entry->d_name, 0);
		else if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			 S_ISREG(st.st_mode))
			total += (uint64_t)st.st_blocks * 512;
	}
	return total;
}

static void recount(struct disk *d)
{
	uint64_t total = count_dir(d, "packs") + count_dir(d, "lists");
	char path[32];

	for (unsigned int i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "objects/%02x", i);
		total += count_dir(d, path);
	}
	atomic_store(&d->usage->bytes, total);
}

static int make_dirs(struct disk *d, struct why *why)
{
	char path[32];
	int r = 0;

	if (mkdirat(d->fd, "packs", 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (mkdirat(d->fd, "lists", 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (mkdirat(d->fd, "objects", 0700) < 0 && errno != EEXIST)
		r = -errno;
	for (unsigned int i = 0; i < 256 && r == 0; i++) {
		snprintf(path, sizeof(path), "objects/%02x", i);
		if (mkdirat(d->fd, path, 0700) < 0 && errno != EEXIST)
			r = -errno;
	}
	return r < 0 ? why_set(why, err_origin(r), "cache directory: %s", strerror(-r))
		     : 0;
}

/* The first one in has the directory for itself while it puts things right. */
static int settle(struct disk *d, struct why *why)
{
	int r;

	d->lock_fd =
		openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return why_set(why, err_origin(-errno), "cache lock file: %s",
			       strerror(errno));
	d->alone = flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0;
	if (!d->alone) {
		r = lock_shared(d->lock_fd, why);
		if (r < 0)
			return err_trace(r);
	}
	r = map_usage(d, why);
	if (r == 0)
		r = make_dirs(d, why);
	if (r < 0)
		return err_trace(r);
	if (d->alone &&
	    (d->usage->magic != USAGE_MAGIC || !atomic_load(&d->usage->clean))) {
		recount(d);
		d->usage->magic = USAGE_MAGIC;
	}
	atomic_store(&d->usage->clean, 0);
	return d->alone ? err_trace(lock_shared(d->lock_fd, why)) : 0;
}

int disk_open(const struct disk_config *config, struct disk **out, struct why *why)
{
	struct disk *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return err_origin(-ENOMEM);
	lock_init(&d->lock);
	d->lock_fd = -1;
	d->size_max = config->size_max;
	d->free_min = config->free_min;
	d->pause_ms = PAUSE_MIN_MS;
	d->fd = io_open_private_dir(config->dir, why);
	r = d->fd < 0 ? d->fd : settle(d, why);
	if (r < 0) {
		disk_close(d);
		return err_trace(r);
	}
	*out = d;
	return 0;
}

struct disk *disk_close(struct disk *d)
{
	if (!d)
		return NULL;
	/* The last one out: nobody can come in between, newcomers wait for the lock. */
	if (d->usage && d->lock_fd >= 0 && flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0)
		atomic_store(&d->usage->clean, 1);
	if (d->usage)
		munmap(d->usage, USAGE_SIZE);
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	if (d->fd >= 0)
		close(d->fd);
	lock_fini(&d->lock);
	free(d);
	return NULL;
}

void disk_set_noatime(int fd)
{
	int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return;
	flags |= FS_NOATIME_FL;
	ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int disk_fd(const struct disk *d)
{
	return d->fd;
}

bool disk_alone(const struct disk *d)
{
	return d->alone;
}

/* Free space less the reserve, from a look that is never old. */
static uint64_t free_room(struct disk *d, uint64_t n)
{
	uint64_t now = clock_mono_ms();
	struct statvfs st;
	uint64_t gone;

	lock_scope(&d->lock);
	if (!d->free_looked_ms || now - d->free_looked_ms > FREE_LOOK_MS ||
	    d->free_spent + n > FREE_LOOK_BYTES) {
		if (fstatvfs(d->fd, &st) < 0)
			return 0;
		d->free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
		d->free_looked_ms = now;
		d->free_spent = 0;
	}
	gone = d->free_min + d->free_spent;
	d->free_spent += n;
	return d->free_bytes > gone ? d->free_bytes - gone : 0;
}

bool disk_reserve(struct disk *d, uint64_t n)
{
	/* What the file system adds (extents, directories, the index) comes out of a
	 * 64th that is never handed out. */
	uint64_t limit = d->size_max - d->size_max / 64;
	uint64_t before = atomic_load(&d->usage->bytes);

	if (free_room(d, n) < n)
		return false;
	/* Never over the limit, not even for a moment: another who tries at the same time
	 * would be refused for nothing. */
	do {
		if (before + n > limit)
			return false;
	} while (!atomic_compare_exchange_weak(&d->usage->bytes, &before, before + n));
	return true;
}

void disk_release(struct disk *d, uint64_t n)
{
	uint64_t now = atomic_load(&d->usage->bytes);

	/* Never below zero: a wrong count must not turn into a huge one. */
	while (!atomic_compare_exchange_weak(&d->usage->bytes, &now,
					     now > n ? now - n : 0))
		;
}

uint64_t disk_used(struct disk *d)
{
	return atomic_load(&d->usage->bytes);
}

uint64_t disk_limit(struct disk *d)
{
	uint64_t limit = d->size_max - d->size_max / 64;
	uint64_t room = free_room(d, 0), used = disk_used(d);

	return used + room < limit ? used + room : limit;
}

void disk_watch(struct disk *d)
{
	uint64_t now = clock_mono_ms();
	bool hanging = false;

	atomic_store_explicit(&d->watched_ms, now, memory_order_relaxed);
	for (int i = 0; i < SLOT_N; i++) {
		uint64_t began = atomic_load_explicit(&d->slots[i], memory_order_relaxed);

		if (began && now > began + DISK_HANG_MS)
			hanging = true;
	}
	if (hanging != atomic_exchange(&d->hanging, hanging))
		log_warn(hanging ? "cache disk hangs: bypassed"
				 : "cache disk answers again");
}

bool disk_usable(struct disk *d)
{
	uint64_t until = atomic_load_explicit(&d->paused_until_ms, memory_order_relaxed);
	uint64_t now = clock_mono_ms();

	/* Here too: the janitor may be the one that hangs. */
	if (now - atomic_load_explicit(&d->watched_ms, memory_order_relaxed) > WATCH_MS)
		disk_watch(d);
	if (atomic_load_explicit(&d->hanging, memory_order_relaxed))
		return false;
	return now >= until;
}

void disk_fault(struct disk *d, int r, const char *doing)
{
	uint64_t now = clock_mono_ms(), pause = atomic_load(&d->pause_ms);
	uint64_t until = atomic_load(&d->paused_until_ms);

	if (now < until)
		return; /* the pause has been noted already */
	/* A long quiet time since the last pause starts over. */
	if (until && now - until > PAUSE_MAX_MS)
		pause = PAUSE_MIN_MS;
	if (!atomic_compare_exchange_strong(&d->paused_until_ms, &until, now + pause))
		return;
	atomic_store(&d->pause_ms, pause * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause * 2);
	log_warn("cache disk bypassed doing=%s error=%s pause_ms=%llu", doing,
		 strerror(-r), (unsigned long long)pause);
}

int disk_begin(struct disk *d)
{
	uint64_t now = clock_mono_ms();

	for (int i = 0; i < SLOT_N; i++) {
		uint64_t none = 0;

		if (atomic_load_explicit(&d->slots[i], memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong(&d->slots[i], &none, now))
			return i;
	}
	return -1; /* more than SLOT_N at once: the others tell enough */
}

void disk_end(struct disk *d, int slot)
{
	if (slot >= 0)
		atomic_store(&d->slots[slot], 0);
}
