/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: create, write, publish; then write and sync, again and again, until the
 * journal puts a newer generation in its place.
 *
 * A sync of the log costs the disk one write and one flush: the blocks are there and hold
 * zeros already, so that the file system has nothing of its own to write, and the frame goes
 * past the page cache where the file system allows it.
 *
 * Failure modes: no space (the frame is not there, try again later); a failed sync (dead);
 * a crash between any two calls (an unpublished file is swept away, a torn frame is cut).
 */
#include "cache/segment.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define FRAME_MAGIC 0x464a4c53u /* "SLJF" */
#define FRAME_ALIGN 512u        /* a frame shares no sector with the one before it */
#define MEMORY_ALIGN 4096u      /* of what is written past the page cache */
#define ALLOCATE_STEP (1u << 20)
#define FRAME_KEEP_MAX (1u << 20) /* a larger buffer is not kept for the next frame */

struct frame {
	uint32_t magic;
	uint32_t crc32c; /* of the header behind this field, then of the payload */
	uint32_t size;   /* of the payload */
	uint32_t zero;
	uint64_t sequence; /* of the frame in its segment, from 0 */
	uint64_t generation;
};
_Static_assert(sizeof(struct frame) == 32, "frame header");
#define FRAME_CRC_SKIP 8

struct segment {
	int fd;
	int dirfd; /* borrowed */
	uint64_t generation;
	uint64_t sequence;  /* of the next frame */
	uint64_t end;       /* where the next frame goes */
	uint64_t allocated; /* bytes of disk that are ours already */
	char *frame;        /* being written, aligned */
	size_t frame_size;  /* allocated */
	bool published;
	bool dead; /* a sync failed */
};

void segment_name(char out[static SEGMENT_NAME_MAX], uint64_t generation, const char *ext)
{
	snprintf(out, SEGMENT_NAME_MAX, "%016llx.%s", (unsigned long long)generation,
		 ext);
}

static uint32_t frame_crc(const struct frame *h, const void *payload, size_t n)
{
	uint32_t crc =
		crc32c(0, (const char *)h + FRAME_CRC_SKIP, sizeof(*h) - FRAME_CRC_SKIP);

	return crc32c(crc, payload, n);
}

static uint64_t frame_room(size_t n)
{
	return (sizeof(struct frame) + (uint64_t)n + FRAME_ALIGN - 1) / FRAME_ALIGN *
	       FRAME_ALIGN;
}

static int write_header(struct segment *s, const char *source)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	uint32_t version = htole32(SEGMENT_VERSION_MAX);

	buf_append(&b, &version, sizeof(version));
	buf_append(&b, source, strlen(source) + 1);
	if (buf_error(&b) < 0)
		return err_origin(buf_error(&b));
	return err_trace(segment_write(s, b.data, b.len));
}

/* Writes go straight to the disk, if frames as they are may. */
static void go_direct(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0 ||
	    !(st.stx_mask & STATX_DIOALIGN) || st.stx_dio_offset_align == 0 ||
	    FRAME_ALIGN % st.stx_dio_offset_align != 0 || st.stx_dio_mem_align == 0 ||
	    MEMORY_ALIGN % st.stx_dio_mem_align != 0)
		return;
	if (fcntl(fd, F_SETFL, O_DIRECT) < 0)
		log_debug(LOG_JOURNAL, "no direct writes error=%s", strerror(errno));
}

int segment_create(int dirfd, uint64_t generation, const char *source,
		   struct segment **out)
{
	char name[SEGMENT_NAME_MAX];
	struct segment *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_origin(-ENOMEM);
	s->dirfd = dirfd;
	s->generation = generation;
	segment_name(name, generation, "new");
	s->fd = openat(dirfd, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (s->fd < 0) {
		r = err_origin(-errno);
		free(s);
		return r;
	}
	go_direct(s->fd);
	r = write_header(s, source);
	if (r < 0) {
		segment_close(s);
		return err_trace(r);
	}
	*out = s;
	return 0;
}

/* The blocks are taken before the bytes are written, so that a full disk is found out
 * while the frame can still be refused. Those of the log are written once: the first write
 * to a block that is only reserved changes the file's map, which each sync would have to
 * write too. */
static int allocate(struct segment *s, uint64_t room)
{
	static _Alignas(MEMORY_ALIGN) char zeros[ALLOCATE_STEP]; /* never touched */
	uint64_t want = s->end + room;
	int r = 0;

	if (want <= s->allocated)
		return 0;
	want = (want + ALLOCATE_STEP - 1) / ALLOCATE_STEP * ALLOCATE_STEP;
	if (fallocate(s->fd, 0, 0, (off_t)want) < 0) {
		if (errno != EOPNOTSUPP)
			return err_origin(-errno);
		/* A file system that cannot: a short write will say so. */
	}
	if (s->published)
		r = io_pwrite(s->fd, zeros, (size_t)(want - s->end - room),
			      s->end + room);
	if (r == 0)
		s->allocated = want;
	return err_trace(r);
}

static int make_frame_room(struct segment *s, size_t room)
{
	void *p;

	if (room <= s->frame_size)
		return 0;
	free(s->frame);
	s->frame = NULL;
	s->frame_size = 0;
	room = (room + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
	if (posix_memalign(&p, MEMORY_ALIGN, room) != 0)
		return err_origin(-ENOMEM);
	s->frame = p;
	s->frame_size = room;
	return 0;
}

/* What a loss of power may make of the frame: the sectors before its middle. */
static int write_torn(struct segment *s, size_t room)
{
	size_t half = room / 2 / FRAME_ALIGN * FRAME_ALIGN;
	int r = half > 0 ? io_pwrite(s->fd, s->frame, half, s->end) : 0;

	kill_point("journal.append.torn");
	return err_trace(r);
}

int segment_write(struct segment *s, const void *payload, size_t n)
{
	size_t room = (size_t)frame_room(n);
	struct frame h = {htole32(FRAME_MAGIC), 0,
			  htole32((uint32_t)n), 0,
			  htole64(s->sequence), htole64(s->generation)};
	int r;

	check(!s->dead);
	check(n <= SEGMENT_PAYLOAD_MAX);
	h.crc32c = htole32(frame_crc(&h, payload, n));
	r = make_frame_room(s, room);
	if (r < 0)
		return err_trace(r);
	memcpy(s->frame, &h, sizeof(h));
	memcpy(s->frame + sizeof(h), payload, n);
	memset(s->frame + sizeof(h) + n, 0, room - sizeof(h) - n);
	r = allocate(s, room);
	if (r == 0 && kill_point_armed)
		r = write_torn(s, room);
	if (r == 0)
		r = io_pwrite(s->fd, s->frame, room, s->end);
	if (s->frame_size > FRAME_KEEP_MAX) {
		free(s->frame);
		s->frame = NULL;
		s->frame_size = 0;
	}
	if (r < 0)
		return err_trace(r);
	s->end += room;
	s->sequence++;
	return 0;
}

int segment_sync(struct segment *s)
{
	check(!s->dead);
	kill_point("journal.fsync.before");
	if (fdatasync(s->fd) < 0) {
		s->dead = true;
		return err_origin(-errno);
	}
	kill_point("journal.fsync.after");
	return 0;
}

int segment_publish(struct segment *s)
{
	char from[SEGMENT_NAME_MAX], to[SEGMENT_NAME_MAX];
	int r;

	/* fsync, not fdatasync: the file is new. */
	if (fsync(s->fd) < 0) {
		s->dead = true;
		return err_origin(-errno);
	}
	segment_name(from, s->generation, "new");
	segment_name(to, s->generation, "wal");
	kill_point("checkpoint.rename.before");
	if (renameat(s->dirfd, from, s->dirfd, to) < 0)
		return err_origin(-errno);
	s->published = true;
	s->allocated = s->end; /* what is reserved behind it gets its zeros */
	r = io_fsync_dir(s->dirfd);
	if (r < 0) {
		s->dead = true;
		return err_trace(r);
	}
	kill_point("checkpoint.rename.after");
	return 0;
}

uint64_t segment_size(const struct segment *s)
{
	return s->end;
}

uint64_t segment_generation(const struct segment *s)
{
	return s->generation;
}

struct segment *segment_close(struct segment *s)
{
	char name[SEGMENT_NAME_MAX];

	if (!s)
		return NULL;
	if (!s->published) {
		segment_name(name, s->generation, "new");
		unlinkat(s->dirfd, name, 0);
	}
	close(s->fd);
	free(s->frame);
	free(s);
	return NULL;
}

/* A segment mapped for reading. */
struct image {
	const char *data;
	uint64_t size;
	uint64_t generation;
};

/* Whether a whole frame stands at `at`; its header in host order. */
static bool frame_at(const struct image *m, uint64_t at, struct frame *h)
{
	if (m->size - at < sizeof(*h))
		return false;
	memcpy(h, m->data + at, sizeof(*h));
	if (le32toh(h->magic) != FRAME_MAGIC || le32toh(h->size) > SEGMENT_PAYLOAD_MAX ||
	    le32toh(h->size) > m->size - at - sizeof(*h) ||
	    le64toh(h->generation) != m->generation)
		return false;
	if (frame_crc(h, m->data + at + sizeof(*h), le32toh(h->size)) !=
	    le32toh(h->crc32c))
		return false;
	h->size = le32toh(h->size);
	h->sequence = le64toh(h->sequence);
	return true;
}

/* Offset of the next whole frame behind `at` with a sequence of at least `from`; the size
 * of the image when there is none. */
static uint64_t find_frame(const struct image *m, uint64_t at, uint64_t from)
{
	struct frame h;

	for (at += FRAME_ALIGN; at < m->size; at += FRAME_ALIGN) {
		if (frame_at(m, at, &h) && h.sequence >= from)
			return at;
	}
	return m->size;
}

static uint64_t nonzero_bytes(const struct image *m, uint64_t at)
{
	uint64_t end = m->size;

	while (end > at && m->data[end - 1] == 0)
		end--;
	return end - at;
}

static void read_header(const char *payload, size_t n, struct segment_report *report)
{
	uint32_t version;

	if (n < sizeof(version) + 1 || payload[n - 1] != '\0')
		return;
	memcpy(&version, payload, sizeof(version));
	report->version = le32toh(version);
	snprintf(report->source, sizeof(report->source), "%s", payload + sizeof(version));
	report->has_header = true;
}

static int scan_image(const struct image *m, segment_frame_fn fn, void *arg,
		      struct segment_report *report)
{
	uint64_t at = 0, expected = 0;
	struct frame h;

	while (at < m->size) {
		const char *payload = m->data + at + sizeof(h);
		int r = 0;

		if (!frame_at(m, at, &h) || h.sequence < expected) {
			uint64_t next = find_frame(m, at, expected);

			if (next == m->size)
				break;
			report->damaged++;
			at = next;
			/* The gap is counted; the frames behind it go on from here. */
			if (frame_at(m, at, &h))
				expected = h.sequence;
			continue;
		}
		if (h.sequence > expected)
			report->damaged++;
		if (h.sequence == 0)
			read_header(payload, h.size, report);
		else
			r = fn(arg, payload, h.size);
		if (r < 0)
			return err_trace(r);
		report->frames++;
		expected = h.sequence + 1;
		at += frame_room(h.size);
	}
	report->torn_bytes = at < m->size ? nonzero_bytes(m, at) : 0;
	return 0;
}

int segment_scan(int dirfd, uint64_t generation, segment_frame_fn frame, void *arg,
		 struct segment_report *report)
{
	struct image m = {.generation = generation};
	char name[SEGMENT_NAME_MAX];
	_cleanup_(close_fdp) int fd = -1;
	struct stat st;
	void *map;
	int r;

	segment_name(name, generation, "wal");
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_origin(-errno);
	*report = (struct segment_report){0};
	if (st.st_size == 0)
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_origin(-errno);
	m.data = map;
	m.size = (uint64_t)st.st_size;
	r = scan_image(&m, frame, arg, report);
	munmap(map, (size_t)st.st_size);
	return err_trace(r);
}
