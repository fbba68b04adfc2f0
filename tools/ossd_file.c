/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"

#define HASH_BYTES (256u << 10)

/* ---- paths ----------------------------------------------------------------------------- */

int ossd_file_open(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
		.mode = flags & O_CREAT ? 0600 : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? err_origin(-errno) : (int)fd;
}

/* One step down, making the folder when it is missing. */
static int step_down(int dir_fd, const char *name, bool create)
{
	int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT || !create)
		return fd < 0 ? -errno : fd;
	if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int ossd_file_parent(int root_fd, const char *path, bool create, int *fd,
		     const char **leaf)
{
	_cleanup_(close_fdp) int dir = -1;
	char name[NAME_MAX + 1];
	const char *slash;
	struct stat st;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		size_t n = (size_t)(slash - path);
		int next;

		if (n > NAME_MAX)
			return err_origin(-ENAMETOOLONG);
		memcpy(name, path, n);
		name[n] = '\0';
		next = step_down(dir < 0 ? root_fd : dir, name, create);
		if (next == -ENOTDIR || next == -ELOOP)
			return OSSD_FILE_TAKEN;
		if (next < 0)
			return err_origin(next);
		close_fdp(&dir);
		dir = next;
	}
	if (create && fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(st.st_mode))
		return OSSD_FILE_TAKEN;
	*fd = steal_fd(&dir);
	*leaf = path;
	return 0;
}

static int depth(const char *path)
{
	int n = 1;

	while ((path = strchr(path, '/'))) {
		path++;
		n++;
	}
	return n;
}

int ossd_file_remove(int root_fd, const char *path, int keep)
{
	_cleanup_(close_fdp) int fd = -1;
	char above[PATH_MAX];
	const char *leaf;
	int r = ossd_file_parent(root_fd, path, false, &fd, &leaf);

	if (r == OSSD_FILE_TAKEN || r == -ENOENT)
		return 0;
	if (r < 0)
		return err_trace(r);
	if (unlinkat(fd, leaf, 0) < 0 && errno != ENOENT)
		return err_origin(-errno);
	snprintf(above, sizeof(above), "%s", path);
	while (depth(above) > keep + 1) {
		*strrchr(above, '/') = '\0';
		close_fdp(&fd);
		fd = -1;
		if (ossd_file_parent(root_fd, above, false, &fd, &leaf) != 0 ||
		    unlinkat(fd, leaf, AT_REMOVEDIR) < 0)
			break;
	}
	return 0;
}

/* ---- content --------------------------------------------------------------------------- */

static void remember_file(struct ossd_object *o, const struct stat *st)
{
	o->ino = st->st_ino;
	o->file_time_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

int ossd_file_stamp(int fd, struct ossd_object *o)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_origin(-errno);
	remember_file(o, &st);
	return 0;
}

int ossd_file_describe(int fd, struct ossd_object *o)
{
	_cleanup_(freep) char *chunk = xcalloc(1, HASH_BYTES);
	EVP_MD_CTX *md5 = EVP_MD_CTX_new();
	uint64_t size = 0, crc = 0;
	ssize_t n = 0;
	int r;

	if (!md5 || !EVP_DigestInit_ex(md5, EVP_md5(), NULL)) {
		EVP_MD_CTX_free(md5);
		return err_origin(-ENOMEM);
	}
	r = ossd_file_stamp(fd, o); /* before reading: a later change shows */
	while (r == 0 && (n = io_pread(fd, chunk, HASH_BYTES, size)) > 0) {
		EVP_DigestUpdate(md5, chunk, (size_t)n);
		crc = crc64(crc, chunk, (size_t)n);
		size += (uint64_t)n;
	}
	if (r == 0 && n < 0)
		r = (int)n;
	if (r == 0) {
		EVP_DigestFinal_ex(md5, o->md5, NULL);
		o->has_md5 = true;
		o->size = size;
		o->crc = crc;
		ossd_object_etag_from_md5(o);
	}
	EVP_MD_CTX_free(md5);
	return err_trace(r);
}

bool ossd_file_matches(int fd, const struct ossd_object *o)
{
	struct ossd_object now = {0};
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	remember_file(&now, &st);
	/* An append that is under way has written behind the end that the index knows. */
	if (o->type == OSSD_APPENDABLE)
		return now.ino == o->ino && (uint64_t)st.st_size >= o->size;
	return now.ino == o->ino && now.file_time_ns == o->file_time_ns &&
	       (uint64_t)st.st_size == o->size;
}

/* For file systems that do not copy themselves. */
static int copy_plainly(int from, uint64_t from_offset, int to, uint64_t to_offset,
			uint64_t n)
{
	_cleanup_(freep) char *chunk = xcalloc(1, HASH_BYTES);

	while (n) {
		ssize_t got =
			io_pread(from, chunk, n < HASH_BYTES ? (size_t)n : HASH_BYTES,
				 from_offset);
		int r;

		if (got <= 0)
			return err_origin(got < 0 ? (int)got : -EIO);
		r = io_pwrite(to, chunk, (size_t)got, to_offset);
		if (r < 0)
			return err_trace(r);
		from_offset += (uint64_t)got;
		to_offset += (uint64_t)got;
		n -= (uint64_t)got;
	}
	return 0;
}

int ossd_file_copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t n)
{
	while (n) {
		off_t in = (off_t)from_offset, out = (off_t)to_offset;
		ssize_t r = copy_file_range(from, &in, to, &out,
					    n < SSIZE_MAX ? (size_t)n : SSIZE_MAX, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS))
			return copy_plainly(from, from_offset, to, to_offset, n);
		if (r < 0)
			return err_origin(-errno);
		if (r == 0)
			return err_origin(-EIO);
		from_offset += (uint64_t)r;
		to_offset += (uint64_t)r;
		n -= (uint64_t)r;
	}
	return 0;
}

/* ---- spool ----------------------------------------------------------------------------- */

int ossd_spool_open(struct ossd_spool *s, int dir_fd, bool sync)
{
	EVP_MD_CTX *md5 = EVP_MD_CTX_new();

	*s = (struct ossd_spool){
		.dir_fd = dir_fd, .fd = -1, .md5_context = md5, .sync = sync};
	if (!md5 || !EVP_DigestInit_ex(md5, EVP_md5(), NULL))
		return err_origin(-ENOMEM);
	snprintf(s->name, sizeof(s->name), "%016" PRIx64, clock_random());
	s->fd = openat(dir_fd, s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return s->fd < 0 ? err_origin(-errno) : 0;
}

int ossd_spool_write(struct ossd_spool *s, const void *data, size_t n)
{
	int r = io_pwrite(s->fd, data, n, s->size);

	if (r < 0)
		return err_trace(r);
	EVP_DigestUpdate(s->md5_context, data, n);
	s->crc = crc64(s->crc, data, n);
	s->size += n;
	return 0;
}

int ossd_spool_copy(struct ossd_spool *s, int fd, uint64_t offset, uint64_t n, bool hash)
{
	_cleanup_(freep) char *chunk = NULL;
	int r;

	if (!hash) {
		r = ossd_file_copy(fd, offset, s->fd, s->size, n);
		if (r == 0)
			s->size += n;
		return err_trace(r);
	}
	chunk = xcalloc(1, HASH_BYTES);
	while (n) {
		ssize_t got = io_pread(fd, chunk, n < HASH_BYTES ? (size_t)n : HASH_BYTES,
				       offset);

		if (got <= 0)
			return err_origin(got < 0 ? (int)got : -EIO);
		r = ossd_spool_write(s, chunk, (size_t)got);
		if (r < 0)
			return err_trace(r);
		offset += (uint64_t)got;
		n -= (uint64_t)got;
	}
	return 0;
}

int ossd_spool_finish(struct ossd_spool *s)
{
	EVP_DigestFinal_ex(s->md5_context, s->md5, NULL);
	if (s->sync && fdatasync(s->fd) < 0)
		return err_origin(-errno);
	return 0;
}

void ossd_spool_close(struct ossd_spool *s)
{
	if (s->fd >= 0) {
		close(s->fd);
		if (!s->moved)
			unlinkat(s->dir_fd, s->name, 0);
	}
	s->fd = -1;
	EVP_MD_CTX_free(s->md5_context);
	s->md5_context = NULL;
}
