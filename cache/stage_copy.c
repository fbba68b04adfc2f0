/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of staged files: copies that keep holes, sizes, checksums, and what a file has
 * in common with an object of the store. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/patch.h"
#include "cache/stage_impl.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

#define CRC_BLOCK (256u << 10)

struct patch *content_patch(struct content *c)
{
	return atomic_load(&c->patch);
}

int content_set_patch(struct content *c, struct patch *patch)
{
	struct patch_table *table = c->stage->config.patches;
	int r = 0;

	check(!atomic_load(&c->patch));
	if (table && patch_is_sparse(patch))
		r = patch_keep(patch, table, c->id);
	if (r == 0)
		atomic_store(&c->patch, patch);
	return err_trace(r);
}

bool content_is_sparse(struct content *c)
{
	struct patch *p = atomic_load(&c->patch);

	return p && patch_is_sparse(p);
}

/* Copies [done, size) with the kernel's help (shared blocks where the file system has
 * them). */
static int copy_range(int from, int to, uint64_t done, uint64_t size)
{
	char block[65536];

	while (done < size) {
		off_t in = (off_t)done, out = (off_t)done;
		ssize_t n = copy_file_range(from, &in, to, &out, size - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == EINVAL ||
			      errno == ENOSYS))
			break;
		if (n < 0)
			return err_origin(-errno);
		if (n == 0)
			return err_origin(-EBADMSG);
		done += (uint64_t)n;
	}
	while (done < size) {
		size_t want = size - done < sizeof(block) ? size - done : sizeof(block);
		ssize_t n = io_pread(from, block, want, done);
		int r;

		if (n <= 0)
			return n < 0 ? err_trace((int)n) : err_origin(-EBADMSG);
		r = io_pwrite(to, block, (size_t)n, done);
		if (r < 0)
			return err_trace(r);
		done += (uint64_t)n;
	}
	return 0;
}

/* All that is not a hole of the first `size` bytes. */
static int copy_file(int from, int to, uint64_t size)
{
	off_t at = 0, end;

	while ((uint64_t)at < size) {
		int r;

		at = lseek(from, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return err_origin(-errno);
		if ((uint64_t)end > size)
			end = (off_t)size;
		if (at >= end)
			break;
		r = copy_range(from, to, (uint64_t)at, (uint64_t)end);
		if (r < 0)
			return err_trace(r);
		at = end;
	}
	return ftruncate(to, (off_t)size) < 0 ? err_origin(-errno) : 0;
}

static int copy_content(struct content *from, struct content *to, uint64_t size)
{
	struct patch *patch = content_patch(from), *copy;
	struct stat st;
	int r;

	/* Before the bytes: what changes meanwhile counts as changed in neither. */
	if (patch) {
		r = patch_clone(patch, size, &copy);
		if (r < 0)
			return err_trace(r);
		r = content_set_patch(to, copy);
		if (r < 0) {
			patch_free(copy);
			return err_trace(r);
		}
	}
	if (fstat(from->fd, &st) < 0)
		return err_origin(-errno);
	if ((uint64_t)st.st_size < size)
		return err_origin(-EBADMSG);
	r = copy_file(from->fd, to->fd, size);
	if (r == 0)
		content_measure(to, size);
	return err_trace(r);
}

static int copy_carried(struct content *from, struct content *to, uint64_t size)
{
	int r = size > from->size ? err_origin(-EBADMSG)
				  : io_pwrite(to->fd, from->bytes, size, 0);

	if (r == 0)
		content_count(to, size);
	return err_trace(r);
}

int stage_copy(struct stage *s, struct content *from, uint64_t size, struct content **out)
{
	struct content *to;
	int r = content_pin(from);

	if (r < 0)
		return err_trace(r);
	r = stage_create(s, &to);
	if (r == 0) {
		if (from->bytes)
			r = copy_carried(from, to, size);
		else
			r = copy_content(from, to, size);
		if (r == 0) {
			*out = to;
		} else {
			content_unpin(to);
			content_put(to, 0);
		}
	}
	content_unpin(from);
	return err_trace(r);
}

void content_measure(struct content *c, uint64_t size)
{
	struct stat st;

	if (content_is_sparse(c) && fstat(c->fd, &st) == 0 &&
	    (uint64_t)st.st_blocks * 512 < size)
		size = (uint64_t)st.st_blocks * 512;
	content_count(c, size);
}

int content_crc64(struct content *c, uint64_t off, uint64_t n, uint64_t *crc)
{
	_cleanup_(freep) char *block = malloc(CRC_BLOCK);
	uint64_t value = 0;

	if (!block)
		return err_origin(-ENOMEM);
	while (n > 0) {
		size_t want = n < CRC_BLOCK ? (size_t)n : CRC_BLOCK;
		ssize_t got = io_pread(c->fd, block, want, off);

		if (got < 0)
			return err_trace((int)got);
		if ((size_t)got != want)
			return err_origin(-EBADMSG);
		value = crc64(value, block, want);
		off += want;
		n -= want;
	}
	*crc = value;
	return 0;
}

uint64_t content_counted(const struct content *c)
{
	return atomic_load(&c->counted);
}
