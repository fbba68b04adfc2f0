/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/power.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECTOR 512
#define FDS 1024
#define DIRS 8
#define NAMES 4096

/* A change of a file's bytes that no sync has covered. */
struct change {
	struct change *next;
	uint64_t off, len; /* len 0: the size becomes off … */
	bool grow;         /* … unless it is larger already */
	unsigned char data[];
};

struct file {
	unsigned char *safe;
	uint64_t safe_size;
	struct change *first, **last;
};

/* A name that came (file), went (NULL), or came in place of another. */
struct entry {
	char name[64], from[64]; /* from: renamed; it goes in the same moment */
	struct file *file;
};

struct names {
	struct entry entries[NAMES]; /* changes, in order */
	size_t count, safe;          /* the first `safe` of them are on disk */
};

struct dir {
	char path[32]; /* below the watched one; "" is itself */
	struct names *names;
};

static struct power_config power;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dir dirs[DIRS];
static struct file *files[FDS]; /* by descriptor */
static uint64_t count, syncs, chance;
static bool watching, done;

static uint64_t pick(uint64_t n)
{
	chance ^= chance >> 12;
	chance ^= chance << 25;
	chance ^= chance >> 27;
	return (chance * 2685821657736338717ull >> 33) % n;
}

/* ---- the cut ----------------------------------------------------------------------------- */

static void resize(struct file *f, uint64_t size)
{
	f->safe = realloc(f->safe, size + 1);
	assert(f->safe);
	if (size > f->safe_size)
		memset(f->safe + f->safe_size, 0, size - f->safe_size);
	f->safe_size = size;
}

static void put(struct file *f, uint64_t off, const unsigned char *p, uint64_t n)
{
	if (off + n > f->safe_size)
		resize(f, off + n);
	memcpy(f->safe + off, p, n);
}

/* Makes a change safe; `keep` says of each sector whether it arrives. */
static void apply(struct file *f, const struct change *c, bool (*keep)(void))
{
	if (c->len == 0) {
		if (keep() && (!c->grow || c->off > f->safe_size))
			resize(f, c->off);
		return;
	}
	for (uint64_t at = 0; at < c->len;) {
		uint64_t n = SECTOR - (c->off + at) % SECTOR;

		if (n > c->len - at)
			n = c->len - at;
		if (keep())
			put(f, c->off + at, c->data + at, n);
		at += n;
	}
}

static bool always(void)
{
	return true;
}

static bool never(void)
{
	return false;
}

static bool by_chance(void)
{
	return pick(2);
}

static void settle(struct file *f, bool (*keep)(void))
{
	struct change *c, *next;

	for (c = f->first; c; c = next) {
		next = c->next;
		apply(f, c, keep);
		free(c);
	}
	f->first = NULL;
	f->last = &f->first;
}

/* What a name stands for after the first n changes of its directory. */
static struct file *resolve(const struct names *names, const char *name, size_t n)
{
	while (n-- > 0) {
		if (strcmp(names->entries[n].name, name) == 0)
			return names->entries[n].file;
		if (strcmp(names->entries[n].from, name) == 0)
			return NULL;
	}
	return NULL;
}

static void save(const struct dir *d, const char *name, const struct file *f)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", power.image, d->path, name);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert(fd >= 0);
	for (uint64_t at = 0; at < f->safe_size;) {
		ssize_t n = syscall(SYS_write, fd, f->safe + at, f->safe_size - at);

		assert(n > 0);
		at += (uint64_t)n;
	}
	close(fd);
}

static void save_dir(const struct dir *d, bool (*keep)(void))
{
	struct names *names = d->names;
	size_t n = names->safe;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", power.image, d->path);
	mkdir(path, 0700);
	if (keep == always)
		n = names->count;
	else if (keep == by_chance)
		n += pick(names->count - n + 1);
	for (size_t i = 0; i < n; i++) {
		struct file *f = resolve(names, names->entries[i].name, n);

		if (!f)
			continue;
		settle(f, keep);
		save(d, names->entries[i].name, f);
	}
}

static void cut(void)
{
	/* Nothing, everything, and twice as often something in between. */
	bool (*const ways[])(void) = {never, by_chance, by_chance, always};
	bool (*keep)(void) = ways[pick(4)];

	done = true;
	for (int i = 0; i < DIRS && dirs[i].names; i++)
		save_dir(&dirs[i], keep);
	kill(getpid(), SIGKILL);
}

/* ---- keeping book; all with the lock held -------------------------------------------------- */

/* One change or sync. */
static void step(void)
{
	if (++count == power.cut_at)
		cut();
}

/* The watched directory behind a descriptor, or NULL. */
static struct dir *dir_of(int fd)
{
	char link[64], path[512];
	size_t n = watching ? strlen(power.dir) : 0;
	ssize_t got;
	int i;

	if (!watching || done)
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	got = readlink(link, path, sizeof(path) - 1);
	if (got < (ssize_t)n)
		return NULL;
	path[got] = '\0';
	if (strncmp(path, power.dir, n) != 0 || (path[n] && path[n] != '/'))
		return NULL;
	for (i = 0; i < DIRS && dirs[i].names; i++)
		if (strcmp(dirs[i].path, path[n] ? path + n + 1 : "") == 0)
			return &dirs[i];
	assert(i < DIRS);
	snprintf(dirs[i].path, sizeof(dirs[i].path), "%s", path[n] ? path + n + 1 : "");
	dirs[i].names = calloc(1, sizeof(*dirs[i].names));
	assert(dirs[i].names);
	return &dirs[i];
}

static struct file *file_of(int fd)
{
	return watching && !done && fd >= 0 && fd < FDS ? files[fd] : NULL;
}

static void note_name(struct dir *d, const char *from, const char *name, struct file *f)
{
	struct names *names = d->names;
	struct entry *e = &names->entries[names->count++];

	assert(names->count < NAMES);
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->from, sizeof(e->from), "%s", from);
	e->file = f;
	step();
}

static void note_change(struct file *f, uint64_t off, const void *data, uint64_t len,
			bool grow)
{
	struct change *c = calloc(1, sizeof(*c) + len);

	assert(c);
	c->off = off;
	c->len = len;
	c->grow = grow;
	if (len)
		memcpy(c->data, data, len);
	*f->last = c;
	f->last = &c->next;
	step();
}

static void note_open(int fd, int dirfd, const char *name, int flags)
{
	struct dir *d = dirfd < 0 || name[0] == '.' ? NULL : dir_of(dirfd);
	struct file *f;
	struct stat st;

	if (fd >= FDS)
		return;
	files[fd] = NULL;
	if (!d || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	f = resolve(d->names, name, d->names->count);
	if (!f) {
		f = calloc(1, sizeof(*f));
		assert(f);
		f->last = &f->first;
		note_name(d, "", name, f);
	} else if (flags & O_TRUNC) {
		note_change(f, 0, NULL, 0, false);
	}
	files[fd] = f;
}

static int sync_file(int fd)
{
	struct dir *d;
	struct stat st;

	if (file_of(fd)) {
		bool fails = ++syncs == power.fail_sync_at;

		step();
		settle(files[fd], fails ? never : always);
		errno = EIO;
		return fails ? -1 : 0;
	}
	if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	d = dir_of(fd);
	if (d) {
		step();
		d->names->safe = d->names->count;
	}
	return 0;
}

/* ---- in place of the C library -------------------------------------------------------------- */

int openat(int dirfd, const char *name, int flags, ...)
{
	mode_t mode = 0;
	va_list args;
	int fd;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, mode_t);
	va_end(args);
	pthread_mutex_lock(&lock);
	fd = (int)syscall(SYS_openat, dirfd, name, flags, mode);
	if (fd >= 0 && watching)
		note_open(fd, name[0] == '/' ? -1 : dirfd, name, flags);
	pthread_mutex_unlock(&lock);
	return fd;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	ssize_t done_bytes;

	pthread_mutex_lock(&lock);
	done_bytes = syscall(SYS_pwrite64, fd, p, n, off);
	if (done_bytes > 0 && file_of(fd))
		note_change(files[fd], (uint64_t)off, p, (uint64_t)done_bytes, false);
	pthread_mutex_unlock(&lock);
	return done_bytes;
}

ssize_t copy_file_range(int from, off_t *in, int to, off_t *out, size_t n,
			unsigned int flags)
{
	if (!watching)
		return syscall(SYS_copy_file_range, from, in, to, out, n, flags);
	errno = EXDEV; /* the caller then reads and writes */
	return -1;
}

int ftruncate(int fd, off_t size)
{
	int r;

	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_ftruncate, fd, size);
	if (r == 0 && file_of(fd))
		note_change(files[fd], (uint64_t)size, NULL, 0, false);
	pthread_mutex_unlock(&lock);
	return r;
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	int r;

	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_fallocate, fd, mode, off, len);
	if (r == 0 && file_of(fd)) {
		assert(mode == 0);
		note_change(files[fd], (uint64_t)(off + len), NULL, 0, true);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static int sync_watched(int fd)
{
	int r;

	pthread_mutex_lock(&lock);
	r = sync_file(fd);
	pthread_mutex_unlock(&lock);
	return r;
}

int fdatasync(int fd)
{
	return watching ? sync_watched(fd) : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	return watching ? sync_watched(fd) : (int)syscall(SYS_fsync, fd);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	struct dir *d;
	int r;

	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
	d = r == 0 ? dir_of(from_fd) : NULL;
	if (d) {
		assert(from_fd == to_fd);
		note_name(d, from, to, resolve(d->names, from, d->names->count));
	}
	pthread_mutex_unlock(&lock);
	return r;
}

int unlinkat(int dirfd, const char *name, int flags)
{
	struct dir *d;
	int r;

	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_unlinkat, dirfd, name, flags);
	d = r == 0 && !(flags & AT_REMOVEDIR) ? dir_of(dirfd) : NULL;
	if (d)
		note_name(d, "", name, NULL);
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- control ---------------------------------------------------------------------------------- */

void power_watch(const struct power_config *config)
{
	pthread_mutex_lock(&lock);
	power = *config;
	chance = power.seed * 2 + 1;
	pick(2);
	watching = true;
	pthread_mutex_unlock(&lock);
}

void power_cut(void)
{
	pthread_mutex_lock(&lock);
	cut();
	pthread_mutex_unlock(&lock);
}

uint64_t power_count(void)
{
	return count;
}

uint64_t power_syncs(void)
{
	return syncs;
}
