/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/entries.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/path.h"

#define MAGIC 0x31534c53u /* "SLS1" */
#define ALIGN 8

enum {
	FLAG_DIR = 1,
	FLAG_POSIX = 2,
	FLAG_SYMLINK = 4
};

/* One entry; name and ETag follow, each with a NUL, then zeros up to a multiple of 8. */
struct entry {
	uint64_t size;
	int64_t mtime_ns;
	uint16_t name_len;
	uint8_t etag_len;
	uint8_t flags;
	char text[];
};

#define HEAD offsetof(struct entry, text)

/* Ahead of the name when FLAG_POSIX. */
struct posix {
	uint32_t mode, uid, gid;
};

struct entries {
	atomic_uint refs;
	_Atomic uint32_t count;
	uint32_t used, room;
	uint16_t *at; /* where each begins, in units of ALIGN */
	uint32_t at_room;
	_Alignas(8) unsigned char data[];
};

struct image {
	uint32_t magic;
	uint32_t count;
	uint32_t used;
	uint32_t crc; /* CRC-32C of the two above and what follows */
};

static uint32_t count_for(uint32_t room)
{
	return room / 24 + 1;
}

struct entries *entries_new(uint32_t room)
{
	struct entries *e;

	if (room > ENTRIES_BYTES_MAX)
		room = ENTRIES_BYTES_MAX;
	e = malloc(sizeof(*e) + room);
	if (!e)
		return NULL;
	*e = (struct entries){.refs = 1, .room = room, .at_room = count_for(room)};
	e->at = malloc(e->at_room * sizeof(*e->at));
	if (!e->at) {
		free(e);
		return NULL;
	}
	return e;
}

struct entries *entries_get(struct entries *e)
{
	atomic_fetch_add(&e->refs, 1);
	return e;
}

void entries_put(struct entries *e)
{
	if (!e || atomic_fetch_sub(&e->refs, 1) > 1)
		return;
	free(e->at);
	free(e);
}

uint32_t entries_count(const struct entries *e)
{
	return atomic_load_explicit(&e->count, memory_order_acquire);
}

uint32_t entries_used(const struct entries *e)
{
	return e->used;
}

size_t entries_memory(const struct entries *e)
{
	return sizeof(*e) + e->room + e->at_room * sizeof(*e->at);
}

static const struct entry *entry_at(const struct entries *e, uint32_t i)
{
	return (const struct entry *)(const void *)(e->data + (size_t)e->at[i] * ALIGN);
}

static size_t posix_size(const struct entry *x)
{
	return x->flags & FLAG_POSIX ? sizeof(struct posix) : 0;
}

static size_t size_of(const struct entry *x)
{
	size_t n = HEAD + posix_size(x) + x->name_len + 1 + x->etag_len + 1;

	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

bool entries_add(struct entries *e, const char *name, size_t n,
		 const struct origin_attr *attr)
{
	uint32_t count = atomic_load_explicit(&e->count, memory_order_relaxed);
	struct posix posix = {attr->mode, attr->uid, attr->gid};
	struct entry head = {
		.size = attr->is_dir ? 0 : attr->size,
		.mtime_ns = attr->mtime_ns,
		.name_len = (uint16_t)n,
		.etag_len = (uint8_t)strlen(attr->etag),
		.flags = (uint8_t)((attr->is_dir ? FLAG_DIR : 0) |
				   (attr->has_posix ? FLAG_POSIX : 0) |
				   (attr->is_symlink ? FLAG_SYMLINK : 0)),
	};
	size_t size = size_of(&head);
	unsigned char *at = e->data + e->used;

	if (e->room - e->used < size || count == e->at_room)
		return false;
	memset(at + size - ALIGN, 0, ALIGN);
	at = mempcpy(at, &head, HEAD);
	at = mempcpy(at, &posix, posix_size(&head));
	at = mempcpy(at, name, n);
	*at++ = '\0';
	memcpy(at, attr->etag, head.etag_len + 1u);
	e->at[count] = (uint16_t)(e->used / ALIGN);
	e->used += (uint32_t)size;
	atomic_store_explicit(&e->count, count + 1, memory_order_release);
	return true;
}

struct entries *entries_copy(const struct entries *e, uint32_t room)
{
	struct entries *copy = entries_new(room > e->used ? room : e->used);
	uint32_t count = entries_count(e);

	if (!copy)
		return NULL;
	memcpy(copy->data, e->data, e->used);
	memcpy(copy->at, e->at, count * sizeof(*e->at));
	copy->used = e->used;
	atomic_store(&copy->count, count);
	return copy;
}

static const char *name_of(const struct entry *x)
{
	return x->text + posix_size(x);
}

const char *entries_name(const struct entries *e, uint32_t i, size_t *n, bool *is_dir)
{
	const struct entry *x = entry_at(e, i);

	*n = x->name_len;
	*is_dir = x->flags & FLAG_DIR;
	return name_of(x);
}

void entries_attr(const struct entries *e, uint32_t i, struct origin_attr *attr)
{
	const struct entry *x = entry_at(e, i);
	struct posix posix = {0};

	memcpy(&posix, x->text, posix_size(x));
	/* The ETag is long; it is not cleared only to be written. */
	attr->size = x->size;
	attr->mtime_ns = x->mtime_ns;
	attr->crc64 = 0;
	attr->has_crc64 = false;
	attr->is_dir = x->flags & FLAG_DIR;
	attr->is_symlink = x->flags & FLAG_SYMLINK;
	attr->has_posix = x->flags & FLAG_POSIX;
	attr->mode = posix.mode;
	attr->uid = posix.uid;
	attr->gid = posix.gid;
	memcpy(attr->etag, name_of(x) + x->name_len + 1, x->etag_len + 1u);
}

/* The bytes of two keys: a directory's name counts with its '/'. */
static int compare(const char *a, size_t an, bool a_dir, const char *b, size_t bn,
		   bool b_dir)
{
	size_t n = an < bn ? an : bn;
	int r = memcmp(a, b, n), x, y;

	if (r)
		return r;
	x = an > n ? (unsigned char)a[n] : a_dir ? '/' : 0;
	y = bn > n ? (unsigned char)b[n] : b_dir ? '/' : 0;
	/* Names have no '/': where one key goes on in its name, that decides. */
	return x - y;
}

int entries_compare(const struct entries *e, uint32_t i, const char *name, size_t n,
		    bool is_dir)
{
	const struct entry *x = entry_at(e, i);

	return compare(name, n, is_dir, name_of(x), x->name_len, x->flags & FLAG_DIR);
}

uint32_t entries_lower_bound(const struct entries *e, const char *name, size_t n,
			     bool is_dir)
{
	uint32_t low = 0, high = entries_count(e);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (entries_compare(e, mid, name, n, is_dir) > 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* ---- on disk ---- */

static uint32_t image_crc(const struct image *head, const unsigned char *rest, size_t n)
{
	uint32_t crc = crc32c(0, &head->count, sizeof(head->count));

	crc = crc32c(crc, &head->used, sizeof(head->used));
	return crc32c(crc, rest, n);
}

size_t entries_encode(const struct entries *e, void *image)
{
	struct image head = {.magic = MAGIC, .count = entries_count(e), .used = e->used};
	size_t table = head.count * sizeof(*e->at);
	unsigned char *at = (unsigned char *)image + sizeof(head);

	memcpy(at, e->data, e->used);
	memcpy(at + e->used, e->at, table);
	head.crc = image_crc(&head, at, e->used + table);
	memcpy(image, &head, sizeof(head));
	return sizeof(head) + e->used + table;
}

/* One entry where it must be, within the block and behind the one before it. */
static bool is_sound(const struct entries *e, uint32_t i, uint32_t off)
{
	const struct entry *x;
	const char *name;

	if ((uint32_t)e->at[i] * ALIGN != off || e->used - off < sizeof(*x))
		return false;
	x = entry_at(e, i);
	if (size_of(x) > e->used - off || x->etag_len >= ORIGIN_ETAG_MAX)
		return false;
	name = name_of(x);
	if (path_name_check(name, x->name_len) != PATH_OK || name[x->name_len] ||
	    name[x->name_len + 1 + x->etag_len])
		return false;
	return i == 0 ||
	       entries_compare(e, i - 1, name, x->name_len, x->flags & FLAG_DIR) > 0;
}

int entries_decode(const void *image, size_t n, struct entries **out)
{
	const unsigned char *rest = (const unsigned char *)image + sizeof(struct image);
	struct entries *e;
	struct image head;
	uint32_t off = 0;

	if (n < sizeof(head))
		return err_origin(-EBADMSG);
	memcpy(&head, image, sizeof(head));
	if (head.magic != MAGIC || head.used > ENTRIES_BYTES_MAX ||
	    head.count > ENTRIES_COUNT_MAX ||
	    n != sizeof(head) + head.used + head.count * sizeof(*e->at) ||
	    head.crc != image_crc(&head, rest, n - sizeof(head)))
		return err_origin(-EBADMSG);
	e = entries_new(head.used);
	if (!e)
		return err_origin(-ENOMEM);
	if (head.count > e->at_room) {
		entries_put(e);
		return err_origin(-EBADMSG);
	}
	e->used = head.used;
	memcpy(e->data, rest, head.used);
	memcpy(e->at, rest + head.used, head.count * sizeof(*e->at));
	for (uint32_t i = 0; i < head.count; i++) {
		if (!is_sound(e, i, off)) {
			entries_put(e);
			return err_origin(-EBADMSG);
		}
		off += (uint32_t)size_of(entry_at(e, i));
	}
	atomic_store(&e->count, head.count);
	*out = e;
	return 0;
}
