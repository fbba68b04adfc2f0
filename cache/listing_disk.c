/* SPDX-License-Identifier: Apache-2.0 */
/* A listing's blocks in its file, and whole listings on the shelf. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/listing_impl.h"
#include "cache/shelf.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define MAGIC 0x315453494c535353ull
#define SPILL_BYTES (128u << 10) /* of entries: from here on they lie in a file */
#define BLOCKS_MAX (4u << 20)
#define HEAD_SIZE 4096u /* of a file; the blocks follow */

/* At the start; the identity follows. In a file: HEAD_SIZE bytes, blocks, table. In a
 * pack: table and blocks follow, and the offsets count from the start. */
struct head {
	uint64_t magic;
	int64_t born_real_ms;
	uint64_t count, hidden, shadowed;
	uint64_t table_off;
	uint32_t block_count;
	uint32_t ident_len;
	uint32_t table_crc; /* CRC-32C of the table and the identity */
	uint32_t crc;       /* CRC-32C of the above */
};

struct row {
	uint64_t off;
	uint32_t len, count;
};

/* ---- blocks of a listing that goes on ---- */

static int write_block(struct listing *l, struct block_ref *b)
{
	_cleanup_(freep) void *image = malloc(ENTRIES_IMAGE_MAX);
	struct entries *e = b->mem; /* only this function ever takes it away */
	uint64_t off;
	size_t n;
	int r;

	if (!image)
		return err_origin(-ENOMEM);
	n = entries_encode(e, image);
	r = shelf_append(l->file, image, n, &off);
	if (r < 0)
		return err_trace(r);
	lock_take(&l->lock);
	b->off = off;
	b->image_len = (uint32_t)n;
	b->mem = NULL;
	l->memory -= entries_memory(e);
	lock_drop(&l->lock);
	entries_put(e);
	return 0;
}

static void begin_file(struct listing *l)
{
	static const char zeros[HEAD_SIZE];
	struct shelf_file *f = NULL;
	int r = shelf_file_new(l->cache, &f);

	if (r == 0)
		r = shelf_write(f, 0, zeros, sizeof(zeros));
	if (r < 0) {
		shelf_file_free(f);
		l->no_file = true;
		return;
	}
	lock_scope(&l->lock);
	l->file = f;
}

static struct block_ref *next_to_write(struct listing *l)
{
	struct block_ref *b = NULL;

	lock_scope(&l->lock);
	if (l->sealed_bytes >= SPILL_BYTES && !list_empty(&l->spill)) {
		b = list_first(&l->spill, struct block_ref, link);
		list_remove(&b->link);
	}
	return b;
}

void listing_spill(struct listing *l)
{
	struct block_ref *b;

	if (!shelf_usable(l->cache))
		return;
	lock_scope(&l->spill_lock);
	while (!l->no_file && (b = next_to_write(l))) {
		if (!l->file)
			begin_file(l);
		/* What was not written stays in memory, and the file is of no use later. */
		if (l->no_file || write_block(l, b) < 0)
			l->no_file = true;
	}
}

int listing_load_block(struct listing *l, const struct block_ref *b, bool nowait,
		       struct entries **out)
{
	_cleanup_(freep) void *image = malloc(b->image_len);
	int r;

	if (!image)
		return err_origin(-ENOMEM);
	r = shelf_read(l->file, b->off, image, b->image_len, nowait);
	if (r == SHELF_E_WAIT)
		return LISTING_E_WAIT;
	if (r == 0)
		r = entries_decode(image, b->image_len, out);
	if (r == 0 && entries_count(*out) != b->count) {
		entries_put(*out);
		r = err_origin(-EBADMSG);
	}
	if (r < 0)
		log_warn("listing damaged on disk dir=%s error=%s", l->dir, strerror(-r));
	return err_trace(r);
}

/* ---- save ---- */

static uint32_t head_crc(const struct head *h)
{
	return crc32c(0, h, offsetof(struct head, crc));
}

static struct head make_head(const struct listing *l, const struct ident *id,
			     const struct row *rows, uint64_t table_off)
{
	uint64_t age = clock_mono_ms() - l->born_ms;
	struct head h = {
		.magic = MAGIC,
		.born_real_ms = clock_real_ns() / 1000000 - (int64_t)age,
		.count = l->count,
		.hidden = l->hidden,
		.shadowed = l->shadowed,
		.table_off = table_off,
		.block_count = (uint32_t)l->settled.count,
		.ident_len = id->len,
	};

	h.table_crc = crc32c(crc32c(0, rows, h.block_count * sizeof(*rows)), id->bytes,
			     id->len);
	h.crc = head_crc(&h);
	return h;
}

static int save_small(struct listing *l, struct ident *id, struct row *rows)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT, images = BUF_INIT;
	uint64_t table_off = sizeof(struct head) + id->len;
	uint64_t off = table_off + l->settled.count * sizeof(*rows);
	struct head h;

	for (size_t i = 0; i < l->settled.count; i++) {
		char *at = buf_reserve(&images, ENTRIES_IMAGE_MAX);
		struct entries *e = l->settled.at[i]->mem;

		if (!at || !e)
			return err_origin(-ENOMEM);
		rows[i] = (struct row){off, (uint32_t)entries_encode(e, at),
				       entries_count(e)};
		images.len += rows[i].len;
		off += rows[i].len;
	}
	h = make_head(l, id, rows, table_off);
	buf_append(&b, &h, sizeof(h));
	buf_append(&b, id->bytes, id->len);
	buf_append(&b, rows, l->settled.count * sizeof(*rows));
	buf_append(&b, images.data, images.len);
	if (buf_error(&b) < 0 || b.len > SHELF_SMALL_MAX)
		return err_origin(-EFBIG);
	return err_trace(shelf_put(l->cache, id, b.data, b.len));
}

static int save_large(struct listing *l, const struct ident *id, struct row *rows)
{
	unsigned char head[HEAD_SIZE] = {0};
	struct head h;
	uint64_t off;
	int r;

	for (size_t i = 0; i < l->settled.count; i++) {
		struct block_ref *b = l->settled.at[i];

		if (b->mem) {
			list_remove(&b->link);
			r = write_block(l, b);
			if (r < 0)
				return err_trace(r);
		}
		rows[i] = (struct row){b->off, b->image_len, b->count};
	}
	r = shelf_append(l->file, rows, l->settled.count * sizeof(*rows), &off);
	if (r < 0)
		return err_trace(r);
	h = make_head(l, id, rows, off);
	memcpy(head, &h, sizeof(h));
	memcpy(head + sizeof(h), id->bytes, id->len);
	r = shelf_write(l->file, 0, head, sizeof(head));
	return r < 0 ? err_trace(r) : err_trace(shelf_file_keep(l->file, id));
}

void listing_save(struct listing *l, const char *source)
{
	_cleanup_(freep) struct ident *id = NULL;
	_cleanup_(freep) struct row *rows = NULL;
	int r;

	if (!shelf_usable(l->cache) || l->error)
		return;
	lock_scope(&l->spill_lock);
	rows = calloc(l->settled.count + 1, sizeof(*rows));
	r = rows ? shelf_ident(source, l->dir, &id) : -ENOMEM;
	if (r == 0 && !l->file)
		r = save_small(l, id, rows);
	else if (r == 0 && !l->no_file)
		r = save_large(l, id, rows);
	if (r < 0)
		log_debug(LOG_CACHE, "listing not kept dir=%s error=%s", l->dir,
			  strerror(-r));
}

/* ---- load ---- */

/* Where a saved listing is read from: a file, or the bytes of a short one. */
struct source {
	struct shelf_file *file;
	const unsigned char *data;
	size_t n;
};

static int get(const struct source *s, uint64_t off, void *p, size_t n)
{
	if (s->file)
		return err_trace(shelf_read(s->file, off, p, n, false));
	if (off > s->n || n > s->n - off)
		return err_origin(-EBADMSG);
	memcpy(p, s->data + off, n);
	return 0;
}

static int get_head(const struct source *s, const struct ident *id, uint64_t ttl_ms,
		    struct head *h)
{
	unsigned char bytes[IDENT_BYTES_MAX];
	int64_t age;
	int r = get(s, 0, h, sizeof(*h));

	if (r < 0)
		return err_trace(r);
	if (h->magic != MAGIC || h->crc != head_crc(h) || h->ident_len != id->len ||
	    h->block_count > BLOCKS_MAX)
		return err_origin(-EBADMSG);
	r = get(s, sizeof(*h), bytes, id->len);
	if (r < 0)
		return err_trace(r);
	if (memcmp(bytes, id->bytes, id->len) != 0)
		return SHELF_E_NONE; /* another directory of the same hash */
	age = clock_real_ns() / 1000000 - h->born_real_ms;
	if (ttl_ms != UINT64_MAX && (age < 0 || (uint64_t)age >= ttl_ms))
		return SHELF_E_NONE;
	return 0;
}

static int get_rows(const struct source *s, const struct ident *id, const struct head *h,
		    struct row **out)
{
	struct row *rows = calloc(h->block_count + 1, sizeof(*rows));
	size_t n = h->block_count * sizeof(*rows);
	int r;

	if (!rows)
		return err_origin(-ENOMEM);
	r = get(s, h->table_off, rows, n);
	if (r == 0 && h->table_crc != crc32c(crc32c(0, rows, n), id->bytes, id->len))
		r = err_origin(-EBADMSG);
	if (r < 0) {
		free(rows);
		return err_trace(r);
	}
	*out = rows;
	return 0;
}

/* Every block is read once: what is damaged must not be found out by a reader. */
static int get_block(struct listing *l, const struct source *s, const struct row *row)
{
	_cleanup_(freep) void *image = NULL;
	struct entries *e = NULL;
	struct block_ref *b;
	int r;

	if (row->len > ENTRIES_IMAGE_MAX)
		return err_origin(-EBADMSG);
	image = malloc(row->len + 1u);
	if (!image)
		return err_origin(-ENOMEM);
	r = get(s, row->off, image, row->len);
	if (r == 0)
		r = entries_decode(image, row->len, &e);
	if (r < 0)
		return err_trace(r);
	if (entries_count(e) != row->count || row->count == 0)
		r = err_origin(-EBADMSG);
	lock_scope(&l->lock);
	if (r == 0)
		r = listing_push_block_locked(l, &l->settled, e);
	if (r < 0) {
		entries_put(e);
		return err_trace(r);
	}
	b = l->settled.at[l->settled.count - 1];
	list_remove(&b->link);
	l->count += row->count;
	if (s->file) {
		b->off = row->off;
		b->image_len = row->len;
		b->mem = NULL;
		entries_put(e);
	} else {
		l->memory += entries_memory(e);
	}
	if (l->settled.count > 1 &&
	    strcmp(l->settled.at[l->settled.count - 2]->first_key, b->first_key) >= 0)
		return err_origin(-EBADMSG);
	return 0;
}

static int fill(struct listing *l, const struct source *s, const struct ident *id,
		uint64_t ttl_ms)
{
	_cleanup_(freep) struct row *rows = NULL;
	struct head h;
	int r = get_head(s, id, ttl_ms, &h);

	if (r != 0)
		return err_trace(r);
	r = get_rows(s, id, &h, &rows);
	for (uint32_t i = 0; i < h.block_count && r == 0; i++)
		r = get_block(l, s, &rows[i]);
	if (r < 0)
		return err_trace(r);
	lock_scope(&l->lock);
	l->hidden = h.hidden;
	l->shadowed = h.shadowed;
	l->born_ms =
		clock_mono_ms() - (uint64_t)(clock_real_ns() / 1000000 - h.born_real_ms);
	return 0;
}

static int load_small(struct listing *l, struct ident *id, uint64_t ttl_ms)
{
	_cleanup_(freep) unsigned char *data = malloc(SHELF_SMALL_MAX);
	struct source s = {.data = data};
	int r = data ? shelf_get(l->cache, id, data, &s.n) : -ENOMEM;

	return r != 0 ? err_trace(r) : err_trace(fill(l, &s, id, ttl_ms));
}

static int load_large(struct listing *l, const struct ident *id, uint64_t ttl_ms)
{
	struct source s = {0};
	int r = shelf_file_open(l->cache, id, &s.file);

	if (r != 0)
		return err_trace(r);
	r = fill(l, &s, id, ttl_ms);
	if (r != 0) {
		shelf_file_free(s.file);
		return err_trace(r);
	}
	l->file = s.file;
	l->no_file = true; /* nothing more is written to it */
	return 0;
}

/* Readers see nothing of it before it is known to be whole. */
static void adopt(struct listing *l, struct listing *from)
{
	lock_scope(&l->lock);
	l->settled = from->settled;
	l->settled_count = from->settled_count;
	l->file = from->file;
	l->no_file = from->no_file;
	l->count = from->count;
	l->memory = from->memory;
	l->hidden = from->hidden;
	l->shadowed = from->shadowed;
	l->born_ms = from->born_ms;
	l->begun = true;
	from->settled = (struct block_refs){0};
	from->file = NULL;
}

static int load(struct listing *l, struct ident *id, uint64_t ttl_ms)
{
	struct listing *draft;
	int r = listing_new(l->dir, 0, l->cache, &draft);

	if (r < 0)
		return err_trace(r);
	r = load_large(draft, id, ttl_ms);
	if (r == SHELF_E_NONE)
		r = load_small(draft, id, ttl_ms);
	if (r == 0)
		adopt(l, draft);
	listing_put(draft);
	return r;
}

int listing_load(struct listing *l, const char *source, uint64_t ttl_ms)
{
	_cleanup_(freep) struct ident *id = NULL;
	int r;

	if (!shelf_usable(l->cache))
		return LISTING_E_END;
	r = shelf_ident(source, l->dir, &id);
	if (r < 0)
		return LISTING_E_END;
	r = load(l, id, ttl_ms);
	if (r == 0) {
		listing_done(l, 0);
		return 0;
	}
	if (r < 0) {
		log_warn("listing on disk is not used dir=%s error=%s", l->dir,
			 strerror(-r));
		shelf_drop(l->cache, id);
	}
	return LISTING_E_END;
}
