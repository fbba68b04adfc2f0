/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/datafile.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/disk.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define MAP_MAGIC 0x3250414d434c5353ull /* "SSLCMAP2" */
#define SEAL_MAGIC 0x4c414553u          /* "SEAL" */
#define MAP_RECORDS 4096                /* where the records start */
#define MAP_SEAL 4088                   /* where the seal stands */
#define MAP_MARK 4056                   /* where the mark stands */
#define MAP_SUM 4032                    /* where the CRC-64 stands */
#define TIME_STEP_MS 20                 /* file times may be as coarse as this */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define OPEN_TRIES 4
#define COUNT_STEP 4096 /* records looked at in one read */

struct map_header {
	uint64_t magic;
	uint64_t nonce;
	uint64_t size;      /* of the object */
	uint32_t ident_len; /* bytes of identity that follow */
	uint32_t crc;       /* CRC-32C of the header with crc 0, and the identity */
};

struct map_mark {
	uint64_t boot;    /* CRC-64 of the kernel's boot id */
	int64_t ctime_ns; /* of the data file */
	uint64_t nonce;
	uint32_t crc; /* CRC-32C of the above */
	uint32_t pad;
};

struct map_sum {
	uint64_t crc64; /* of the object */
	uint64_t nonce;
	uint32_t crc; /* CRC-32C of the above */
	uint32_t pad;
};
static_assert(sizeof(struct map_header) + IDENT_BYTES_MAX <= MAP_SUM, "room for a sum");
static_assert(MAP_SUM + sizeof(struct map_sum) <= MAP_MARK, "room for a mark");
static_assert(MAP_MARK + sizeof(struct map_mark) <= MAP_SEAL, "room for a seal");

union map_head {
	struct map_header header;
	unsigned char bytes[sizeof(struct map_header) + IDENT_BYTES_MAX];
};

uint32_t datafile_record(const void *page, size_t n)
{
	uint32_t crc = crc32c(0, page, n);

	return crc ? crc : 1;
}

uint64_t datafile_map_bytes(uint64_t size)
{
	uint64_t pages = (size + PAGE_BYTES - 1) >> PAGE_SHIFT;

	return MAP_RECORDS + ((pages * sizeof(uint32_t) + PAGE_BYTES - 1) &
			      ~(uint64_t)(PAGE_BYTES - 1));
}

enum {
	PATH_SIZE = 128
};

static const char *path_of(char path[PATH_SIZE], const unsigned char *hash,
			   const char *kind)
{
	char name[IDENT_NAME_SIZE];

	ident_name(name, hash);
	snprintf(path, PATH_SIZE, "objects/%.2s/%s%s", name, name, kind);
	return path;
}

/* A pair's own: what writes to one that was removed meets none of its successor's bytes. */
static const char *data_path(char path[PATH_SIZE], const unsigned char *hash,
			     uint64_t nonce)
{
	char kind[32];

	snprintf(kind, sizeof(kind), ".%016llx.data", (unsigned long long)nonce);
	return path_of(path, hash, kind);
}

static uint32_t head_crc(const union map_head *head)
{
	union map_head copy;
	size_t n = sizeof(head->header) + head->header.ident_len;

	memcpy(&copy, head, n);
	copy.header.crc = 0;
	return crc32c(0, copy.bytes, n);
}

static size_t format_head(union map_head *head, const struct ident *id)
{
	head->header = (struct map_header){
		.magic = MAP_MAGIC,
		.nonce = clock_random(),
		.size = id->size,
		.ident_len = id->len,
	};
	memcpy(head->bytes + sizeof(head->header), id->bytes, id->len);
	head->header.crc = head_crc(head);
	return sizeof(head->header) + id->len;
}

static bool head_good(const union map_head *head, size_t n, const struct ident *id)
{
	if (n < sizeof(head->header) || head->header.magic != MAP_MAGIC)
		return false;
	if (head->header.ident_len != id->len || head->header.size != id->size ||
	    n < sizeof(head->header) + id->len)
		return false;
	if (head->header.crc != head_crc(head))
		return false;
	return !memcmp(head->bytes + sizeof(head->header), id->bytes, id->len);
}

static int make_data(struct disk *d, const struct ident *id, uint64_t nonce)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[PATH_SIZE];

	fd = openat(disk_fd(d), data_path(path, id->hash, nonce),
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_origin(-errno);
	disk_set_noatime(fd);
	/* Exactly the object's size: what the kernel reads through it ends there. */
	return ftruncate(fd, (off_t)id->size) < 0 ? err_origin(-errno) : 0;
}

/* Makes the data, and the map whole under a name of its own, then links it: whoever finds it
 * finds all of it. An existing one (another process was first) is as good. */
static int make_map(struct disk *d, const struct ident *id, const char *path)
{
	_cleanup_(close_fdp) int fd = -1;
	uint64_t bytes = datafile_map_bytes(id->size);
	char temporary[PATH_SIZE], data[PATH_SIZE], suffix[40];
	union map_head head;
	size_t n = format_head(&head, id);
	int r;

	if (!disk_reserve(d, bytes))
		return DATAFILE_E_FULL;
	snprintf(suffix, sizeof(suffix), ".%016llx.tmp",
		 (unsigned long long)clock_random());
	path_of(temporary, id->hash, suffix);
	fd = openat(disk_fd(d), temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : io_pwrite(fd, head.bytes, n, 0);
	/* Its full length at once: records of absent pages read as zero. */
	if (r == 0 && ftruncate(fd, (off_t)bytes) < 0)
		r = -errno;
	if (r == 0)
		r = make_data(d, id, head.header.nonce);
	if (r == 0 && linkat(disk_fd(d), temporary, disk_fd(d), path, 0) < 0)
		r = -errno;
	if (fd >= 0)
		unlinkat(disk_fd(d), temporary, 0);
	if (r < 0) {
		unlinkat(disk_fd(d), data_path(data, id->hash, head.header.nonce), 0);
		disk_release(d, bytes);
	}
	return r == -EEXIST ? 0 : err_trace(r);
}

static int open_map(struct disk *d, const struct ident *id, bool create, int *out,
		    uint64_t *nonce)
{
	_cleanup_(close_fdp) int fd = -1;
	union map_head head;
	char path[PATH_SIZE];
	ssize_t n;
	int r;

	path_of(path, id->hash, ".map");
	fd = openat(disk_fd(d), path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && create) {
		r = make_map(d, id, path);
		if (r != 0)
			return err_trace(r);
		fd = openat(disk_fd(d), path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0)
		return errno == ENOENT ? DATAFILE_E_NONE : err_origin(-errno);
	n = io_pread(fd, head.bytes, sizeof(head.bytes), 0);
	if (n < 0)
		return err_trace((int)n);
	if (!head_good(&head, (size_t)n, id)) {
		uint64_t freed;

		log_warn("cache map damaged, dropped file=%s", path);
		r = datafile_remove(d, id->hash, &freed);
		if (r == 0)
			disk_release(d, freed);
		return r < 0 ? err_trace(r) : DATAFILE_E_NONE;
	}
	*nonce = head.header.nonce;
	*out = steal_fd(&fd);
	return 0;
}

static int open_data(struct disk *d, const struct ident *id, uint64_t nonce, int *out)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[PATH_SIZE];
	struct stat st;

	fd = openat(disk_fd(d), data_path(path, id->hash, nonce),
		    O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return DATAFILE_E_NONE;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_origin(-errno);
	if ((uint64_t)st.st_size != id->size && ftruncate(fd, (off_t)id->size) < 0)
		return err_origin(-errno);
	*out = steal_fd(&fd);
	return 0;
}

/* A map without its data: someone is removing it, or died there, or took the data away. */
static void drop_half(struct disk *d, const struct ident *id, struct datafile *f)
{
	char path[PATH_SIZE];
	struct stat ours, now;
	uint64_t freed;

	path_of(path, id->hash, ".map");
	if (fstat(f->map_fd, &ours) == 0 &&
	    fstatat(disk_fd(d), path, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	    ours.st_ino == now.st_ino && datafile_remove(d, id->hash, &freed) == 0)
		disk_release(d, freed);
	close(steal_fd(&f->map_fd));
}

int datafile_open(struct disk *d, const struct ident *id, bool create,
		  struct datafile **out)
{
	struct datafile *f = calloc(1, sizeof(*f));
	int r = DATAFILE_E_NONE;

	if (!f)
		return err_origin(-ENOMEM);
	f->data_fd = f->map_fd = -1;
	lock_init(&f->write_lock);
	f->size = id->size;
	atomic_store(&f->refs, 1);
	for (int i = 0; i < OPEN_TRIES; i++) {
		r = open_map(d, id, create, &f->map_fd, &f->nonce);
		if (r == DATAFILE_E_NONE && create)
			continue;
		if (r != 0)
			break;
		r = open_data(d, id, f->nonce, &f->data_fd);
		if (r != DATAFILE_E_NONE)
			break;
		drop_half(d, id, f);
	}
	if (r != 0) {
		datafile_put(f);
		return err_trace(r);
	}
	*out = f;
	return 0;
}

struct datafile *datafile_get(struct datafile *f)
{
	atomic_fetch_add(&f->refs, 1);
	return f;
}

void datafile_put(struct datafile *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) > 1)
		return;
	if (f->data_fd >= 0)
		close(f->data_fd);
	if (f->map_fd >= 0)
		close(f->map_fd);
	lock_fini(&f->write_lock);
	free(f);
}

bool datafile_gone(const struct datafile *f)
{
	struct stat st;

	return fstat(f->map_fd, &st) < 0 || st.st_nlink == 0;
}

int datafile_load(struct datafile *f, uint64_t page, uint32_t count, uint32_t *records)
{
	size_t n = count * sizeof(*records);
	ssize_t got =
		io_pread(f->map_fd, records, n, MAP_RECORDS + page * sizeof(*records));

	if (got < 0)
		return err_trace((int)got);
	memset((char *)records + got, 0, n - (size_t)got);
	return 0;
}

int datafile_store(struct datafile *f, uint64_t page, uint32_t count,
		   const uint32_t *records)
{
	return err_trace(io_pwrite(f->map_fd, records, count * sizeof(*records),
				   MAP_RECORDS + page * sizeof(*records)));
}

ssize_t datafile_read(struct datafile *f, uint64_t off, void *p, size_t n, bool nowait)
{
	struct iovec v = {p, n};
	ssize_t got;

	if (!nowait)
		return io_pread(f->data_fd, p, n, off);
	got = preadv2(f->data_fd, &v, 1, (off_t)off, RWF_NOWAIT);
	/* A file system without the flag answers from its own memory anyway (tmpfs) or
	 * must be waited for. */
	if (got < 0 && errno == EOPNOTSUPP)
		return io_pread(f->data_fd, p, n, off);
	if (got < 0)
		return errno == EAGAIN ? -EAGAIN : err_origin(-errno);
	return (size_t)got < n && off + (uint64_t)got < f->size ? -EAGAIN : got;
}

int datafile_write(struct datafile *f, uint64_t off, const void *p, size_t n)
{
	lock_scope(&f->write_lock);
	return err_trace(io_pwrite(f->data_fd, p, n, off));
}

static struct map_sum make_sum(const struct datafile *f, uint64_t crc64)
{
	struct map_sum s = {.crc64 = crc64, .nonce = f->nonce};

	s.crc = crc32c(0, &s, offsetof(struct map_sum, crc));
	return s;
}

int datafile_note_crc64(struct datafile *f, uint64_t crc64)
{
	struct map_sum s = make_sum(f, crc64);

	if (atomic_exchange(&f->noted, true))
		return 0;
	return err_trace(io_pwrite(f->map_fd, &s, sizeof(s), MAP_SUM));
}

bool datafile_crc64(const struct datafile *f, uint64_t *crc64)
{
	struct map_sum found, right;

	if (io_pread(f->map_fd, &found, sizeof(found), MAP_SUM) != sizeof(found))
		return false;
	right = make_sum(f, found.crc64);
	*crc64 = found.crc64;
	return !memcmp(&found, &right, sizeof(found));
}

int datafile_seal(struct datafile *f)
{
	uint32_t seal[2] = {SEAL_MAGIC, (uint32_t)f->nonce};

	return err_trace(io_pwrite(f->map_fd, seal, sizeof(seal), MAP_SEAL));
}

int datafile_unseal(struct datafile *f)
{
	static const uint32_t none[2];

	return err_trace(io_pwrite(f->map_fd, none, sizeof(none), MAP_SEAL));
}

bool datafile_sealed(const struct datafile *f)
{
	uint32_t seal[2];

	return io_pread(f->map_fd, seal, sizeof(seal), MAP_SEAL) == sizeof(seal) &&
	       seal[0] == SEAL_MAGIC && seal[1] == (uint32_t)f->nonce;
}

/* What tells this start of the machine from others; 0: unknown. */
static uint64_t boot_id(void)
{
	_cleanup_(close_fdp) int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
	char id[64];
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id));

	return n > 0 ? crc64(0, id, (size_t)n) : 0;
}

/* The mark as it is right now. */
static bool make_mark(const struct datafile *f, struct map_mark *m)
{
	struct stat st;

	if (fstat(f->data_fd, &st) < 0 || (uint64_t)st.st_size != f->size)
		return false;
	*m = (struct map_mark){
		.boot = boot_id(),
		.ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec,
		.nonce = f->nonce,
	};
	m->crc = crc32c(0, m, offsetof(struct map_mark, crc));
	return m->boot != 0;
}

int datafile_mark(struct datafile *f)
{
	struct map_mark m;
	int64_t age_ms;

	if (!make_mark(f, &m))
		return err_origin(-ENODATA);
	age_ms = (clock_real_ns() - m.ctime_ns) / 1000000;
	if (age_ms >= 0 && age_ms < TIME_STEP_MS)
		clock_sleep_ms(TIME_STEP_MS - (uint64_t)age_ms);
	return err_trace(io_pwrite(f->map_fd, &m, sizeof(m), MAP_MARK));
}

bool datafile_marked(const struct datafile *f)
{
	struct map_mark found, now;

	return io_pread(f->map_fd, &found, sizeof(found), MAP_MARK) == sizeof(found) &&
	       make_mark(f, &now) && !memcmp(&found, &now, sizeof(now));
}

int datafile_reopen(const struct datafile *f)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->data_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_origin(-errno) : fd;
}

/* Pages that were counted when their records were written. */
static uint64_t count_pages(int map_fd)
{
	uint32_t records[COUNT_STEP];
	uint64_t at = MAP_RECORDS, pages = 0;

	for (;;) {
		ssize_t n = io_pread(map_fd, records, sizeof(records), at);

		if (n < (ssize_t)sizeof(*records))
			return pages;
		for (size_t i = 0; i < (size_t)n / sizeof(*records); i++)
			pages += records[i] != 0;
		at += (uint64_t)n;
	}
}

/* The data of a map that says no more which are its. */
static void remove_any_data(struct disk *d, const unsigned char *hash)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	char name[IDENT_NAME_SIZE], path[PATH_SIZE];
	struct dirent *entry;
	int fd;

	ident_name(name, hash);
	snprintf(path, sizeof(path), "objects/%.2s", name);
	fd = openat(disk_fd(d), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir && fd >= 0)
		close(fd);
	while (dir && (entry = readdir(dir))) {
		const char *kind = strrchr(entry->d_name, '.');

		if (kind && !strcmp(kind, ".data") &&
		    !strncmp(entry->d_name, name, sizeof(name) - 1))
			unlinkat(fd, entry->d_name, 0);
	}
}

int datafile_remove(struct disk *d, const unsigned char hash[IDENT_HASH_SIZE],
		    uint64_t *freed)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[PATH_SIZE], taken[PATH_SIZE], suffix[40];
	struct map_header head = {0};
	struct stat st;

	/* Under another name it is ours: only he who unlinks it gives its bytes back. */
	snprintf(suffix, sizeof(suffix), ".%016llx.tmp",
		 (unsigned long long)clock_random());
	if (renameat(disk_fd(d), path_of(path, hash, ".map"), disk_fd(d),
		     path_of(taken, hash, suffix)) < 0)
		return errno == ENOENT ? DATAFILE_E_NONE : err_origin(-errno);
	fd = openat(disk_fd(d), taken, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && io_pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
	    head.magic == MAP_MAGIC) {
		if (unlinkat(disk_fd(d), data_path(path, hash, head.nonce), 0) < 0 &&
		    errno != ENOENT)
			log_warn("cache data not removed file=%s error=%s", path,
				 strerror(errno));
	} else {
		remove_any_data(d, hash);
	}
	unlinkat(disk_fd(d), taken, 0);
	*freed = fd < 0 ? 0
			: (count_pages(fd) << PAGE_SHIFT) +
				  (fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0);
	return 0;
}
