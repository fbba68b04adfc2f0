/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `own` is kept only while the file is sparse: the ranges below `len` that it holds; `durable`
 * those of them that a sync has brought to the disk.
 * `changed`: those that differ from the object; it may say too much, never too little. A
 * write that passes an acknowledgement on its way is in the version or not: `late` holds it
 * until that version is stored.
 */
#include "cache/patch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cache/patch_table.h"
#include "fs/base/check.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"

#define FETCH_STEP (8u << 20) /* bytes of one request */

struct patch {
	struct lock lock; /* all below */
	struct patch_object object;
	uint64_t len;
	bool sparse, doubtful;
	struct ranges own, durable, changed;
	uint64_t syncs, durable_since; /* begun; the one that `durable` is from */
	struct ranges late; /* changed while a version was made: it may have either */
	struct patch_table *table;
	struct patch_entry *kept; /* in `table`; NULL: it is not */
};

int patch_new(const struct patch_object *object, bool sparse, struct patch **out)
{
	struct patch *p = calloc(1, sizeof(*p));

	if (!p)
		return err_origin(-ENOMEM);
	lock_init(&p->lock);
	p->object = *object;
	p->len = object->size;
	p->sparse = sparse;
	*out = p;
	return 0;
}

int patch_restore(const struct patch_object *object, uint64_t len,
		  const struct ranges *own, struct patch **out)
{
	uint64_t last = own->count ? own->list[own->count - 1].end : 0;
	struct patch *p;
	int r;

	if (!object->etag[0] || len > object->size || last > len)
		return err_origin(-EINVAL);
	r = patch_new(object, true, &p);
	if (r < 0)
		return err_trace(r);
	p->len = len;
	r = ranges_copy(&p->own, own);
	if (r == 0)
		r = ranges_copy(&p->durable, own);
	if (r == 0)
		r = ranges_copy(&p->changed, own);
	if (r < 0) {
		patch_free(p);
		return err_trace(r);
	}
	*out = p;
	return 0;
}

int patch_clone(struct patch *p, uint64_t size, struct patch **out)
{
	struct patch *copy = NULL;
	int r;

	lock_scope(&p->lock);
	r = patch_new(&p->object, p->sparse, &copy);
	if (r < 0)
		return err_trace(r);
	copy->len = p->len;
	copy->doubtful = p->doubtful;
	r = ranges_copy(&copy->own, &p->own);
	if (r == 0)
		r = ranges_copy(&copy->changed, &p->changed);
	if (r < 0) {
		patch_free(copy);
		return err_trace(r);
	}
	patch_cut(copy, size);
	*out = copy;
	return 0;
}

struct patch *patch_free(struct patch *p)
{
	if (!p)
		return NULL;
	ranges_fini(&p->own);
	ranges_fini(&p->durable);
	ranges_fini(&p->changed);
	ranges_fini(&p->late);
	lock_fini(&p->lock);
	free(p);
	return NULL;
}

static void unkeep_locked(struct patch *p)
{
	if (p->kept)
		patch_entry_free(p->table, p->kept);
	p->kept = NULL;
}

int patch_keep(struct patch *p, struct patch_table *t, uint64_t content)
{
	lock_scope(&p->lock);
	check(p->sparse && !p->kept);
	p->table = t;
	p->kept = patch_entry_new(t, content, &p->object, p->len, &p->own);
	return p->kept ? 0 : err_origin(-ENOMEM);
}

void patch_unkeep(struct patch *p)
{
	lock_scope(&p->lock);
	unkeep_locked(p);
}

int patch_take_over(struct patch_table *t, uint64_t content, struct patch **out)
{
	struct patch_entry *e = patch_table_find(t, content);
	const struct patch_object *object;
	struct ranges own;
	uint64_t len;
	int r;

	*out = NULL;
	if (!e)
		return 0;
	if (atomic_load(&e->lost))
		return err_origin(-ENODATA);
	r = patch_entry_own(e, &own);
	if (r < 0)
		return err_trace(r);
	object = &e->object[atomic_load(&e->which)];
	len = atomic_load(&e->len);
	if (len > object->size)
		len = object->size;
	ranges_cut(&own, len);
	r = patch_restore(object, len, &own, out);
	ranges_fini(&own);
	if (r < 0)
		return err_trace(r);
	(*out)->table = t;
	(*out)->kept = e;
	return 0;
}

void patch_object(struct patch *p, struct patch_object *out)
{
	lock_scope(&p->lock);
	*out = p->object;
}

bool patch_is_sparse(struct patch *p)
{
	lock_scope(&p->lock);
	return p->sparse;
}

bool patch_is_doubtful(struct patch *p)
{
	lock_scope(&p->lock);
	return p->doubtful;
}

uint64_t patch_len(struct patch *p)
{
	lock_scope(&p->lock);
	return p->len;
}

int patch_own(struct patch *p, struct ranges *out)
{
	lock_scope(&p->lock);
	return err_trace(ranges_copy(out, &p->durable));
}

int patch_sync_begin(struct patch *p, struct patch_sync *sync)
{
	lock_scope(&p->lock);
	sync->number = ++p->syncs;
	return err_trace(ranges_copy(&sync->own, &p->own));
}

void patch_sync_end(struct patch *p, struct patch_sync *sync, bool done)
{
	lock_take(&p->lock);
	/* One that began later has seen more. */
	if (done && p->sparse && sync->number > p->durable_since) {
		ranges_fini(&p->durable);
		p->durable = sync->own;
		p->durable_since = sync->number;
		sync->own = (struct ranges){0};
		ranges_cut(&p->durable, p->len);
	}
	lock_drop(&p->lock);
	ranges_fini(&sync->own);
}

int patch_trust(struct patch *p, const struct patch *journal)
{
	int r;

	lock_scope(&p->lock);
	if (!p->sparse)
		return 0;
	ranges_fini(&p->durable);
	r = ranges_copy(&p->durable, &journal->durable);
	ranges_cut(&p->durable, p->len);
	return err_trace(r);
}

bool patch_is_scattered(struct patch *p)
{
	lock_scope(&p->lock);
	return p->own.count > PATCH_RANGES_MAX;
}

static void forget_locked(struct patch *p)
{
	check(!p->sparse);
	p->doubtful = false;
	p->len = 0;
	ranges_fini(&p->changed);
	/* Not `late`: the version may become an object that the file starts with again. */
}

static bool owns_all(const struct patch *p, uint64_t off, uint64_t end)
{
	uint64_t stop;

	return ranges_at(&p->own, off, &stop) && stop >= end;
}

/* Ranges that are the file's own now and were not before. */
static int own_locked(struct patch *p, uint64_t off, uint64_t end)
{
	int r = 0;

	if (off >= end || owns_all(p, off, end))
		return 0;
	r = ranges_add(&p->own, off, end);
	if (r == 0 && p->kept)
		p->kept = patch_entry_add(p->table, p->kept, off, end, &p->own);
	return err_trace(r);
}

static int durable_locked(struct patch *p, uint64_t off, uint64_t end)
{
	return off < end ? err_trace(ranges_add(&p->durable, off, end)) : 0;
}

static int mark_locked(struct patch *p, uint64_t off, uint64_t end)
{
	int r = 0;

	lock_assert_held(&p->lock);
	if (end > p->len)
		end = p->len;
	if (off >= end)
		return 0;
	if (p->doubtful) {
		forget_locked(p);
		return 0;
	}
	if (p->sparse)
		r = own_locked(p, off, end);
	if (r == 0)
		r = ranges_add(&p->changed, off, end);
	if (r == 0 && p->changed.count > PATCH_RANGES_MAX)
		ranges_coarsen(&p->changed, PATCH_RANGES_MAX);
	return err_trace(r);
}

int patch_write(struct patch *p, int fd, const void *data, size_t n, uint64_t off)
{
	int r;

	lock_take(&p->lock);
	if (!p->sparse) {
		/* Before the write: whoever publishes in between sends what is there. */
		r = mark_locked(p, off, off + n);
		lock_drop(&p->lock);
		return r < 0 ? err_trace(r) : err_trace(io_pwrite(fd, data, n, off));
	}
	r = io_pwrite(fd, data, n, off);
	if (r == 0)
		r = mark_locked(p, off, off + n);
	lock_drop(&p->lock);
	return err_trace(r);
}

int patch_zero(struct patch *p, int fd, int mode, uint64_t off, uint64_t len)
{
	int r;

	/* What is filled in between would be taken for the file's own. */
	lock_scope(&p->lock);
	do {
		r = fallocate(fd, mode, (off_t)off, (off_t)len);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? err_origin(-errno) : err_trace(mark_locked(p, off, off + len));
}

int patch_mark_late(struct patch *p, uint64_t off, uint64_t end)
{
	int r;

	lock_scope(&p->lock);
	r = mark_locked(p, off, end);
	if (r == 0)
		r = ranges_add(&p->late, off, end);
	if (r == 0 && p->late.count > PATCH_RANGES_MAX)
		ranges_coarsen(&p->late, PATCH_RANGES_MAX);
	return err_trace(r);
}

int patch_mark_all_late(struct patch *p)
{
	int r = 0;

	lock_scope(&p->lock);
	for (size_t i = 0; r == 0 && i < p->own.count; i++)
		r = ranges_add(&p->late, p->own.list[i].off, p->own.list[i].end);
	return r < 0 ? err_trace(r) : err_trace(ranges_add(&p->late, p->len, UINT64_MAX));
}

static void set_len(struct patch *p, uint64_t len)
{
	p->len = len;
	if (p->kept)
		patch_entry_set_len(p->kept, len);
}

static void set_object(struct patch *p, const struct patch_object *object)
{
	p->object = *object;
	if (p->kept)
		patch_entry_set_object(p->kept, object);
}

static void cut_locked(struct patch *p, uint64_t size)
{
	if (size >= p->len)
		return;
	if (p->doubtful) {
		forget_locked(p);
		return;
	}
	set_len(p, size);
	ranges_cut(&p->own, size);
	ranges_cut(&p->durable, size);
	ranges_cut(&p->changed, size);
}

void patch_cut(struct patch *p, uint64_t size)
{
	lock_scope(&p->lock);
	cut_locked(p, size);
}

static bool has_locked(struct patch *p, uint64_t off, uint64_t *end)
{
	bool has;

	*end = UINT64_MAX;
	if (!p->sparse || off >= p->len)
		return true;
	has = ranges_at(&p->own, off, end);
	if (*end > p->len)
		*end = p->len;
	if (!has || *end < p->len)
		return has;
	*end = UINT64_MAX;
	return true;
}

bool patch_has(struct patch *p, uint64_t off, uint64_t *end)
{
	lock_scope(&p->lock);
	return has_locked(p, off, end);
}

bool patch_same(struct patch *p, uint64_t off, uint64_t *end)
{
	bool changed;

	lock_scope(&p->lock);
	*end = UINT64_MAX;
	if (off >= p->len)
		return false;
	changed = ranges_at(&p->changed, off, end);
	if (*end > p->len)
		*end = p->len;
	if (changed && *end == p->len)
		*end = UINT64_MAX;
	return !changed;
}

int patch_fill(struct patch *p, int fd, const void *data, size_t n, uint64_t off)
{
	uint64_t at = off;

	lock_scope(&p->lock);
	while (at < off + n) {
		uint64_t end;
		bool has = has_locked(p, at, &end);
		int r = 0;

		if (end > off + n)
			end = off + n;
		if (!has)
			r = io_pwrite(fd, (const char *)data + (at - off),
				      (size_t)(end - at), at);
		if (r < 0)
			return err_trace(r);
		at = end;
	}
	return 0;
}

void patch_whole(struct patch *p)
{
	lock_scope(&p->lock);
	p->sparse = false;
	ranges_fini(&p->own);
	ranges_fini(&p->durable);
	unkeep_locked(p);
}

bool patch_rebase(struct patch *p, const char *etag, const struct patch_object *now)
{
	lock_scope(&p->lock);
	if (strcmp(p->object.etag, etag) != 0)
		return false;
	set_object(p, now);
	return true;
}

void patch_settle(struct patch *p, const char *etag)
{
	struct patch_object other;

	lock_scope(&p->lock);
	if (!p->kept || strcmp(p->object.etag, etag) == 0)
		return;
	other = p->kept->object[!atomic_load(&p->kept->which)];
	if (!other.etag[0] || strcmp(other.etag, etag) != 0)
		return;
	cut_locked(p, other.size);
	set_object(p, &other);
}

void patch_stored(struct patch *p, const struct patch_object *object)
{
	lock_scope(&p->lock);
	/* What lay behind the former object was the file's own without saying so. */
	if (p->sparse && (own_locked(p, p->len, object->size) < 0 ||
			  durable_locked(p, p->len, object->size) < 0)) {
		/* No memory: it stays out of the object's part, and is sent again. */
		set_object(p, object);
		return;
	}
	set_object(p, object);
	set_len(p, object->size);
	p->doubtful = false;
	ranges_fini(&p->changed);
	p->changed = p->late;
	p->late = (struct ranges){0};
	ranges_cut(&p->changed, p->len);
}

void patch_doubt(struct patch *p)
{
	lock_scope(&p->lock);
	/* Bytes that are known to differ, and nothing that could tell which others do. */
	if (p->changed.count > 0 || p->len < p->object.size || !p->object.has_crc64)
		forget_locked(p);
	else
		p->doubtful = true;
}

void patch_prove(struct patch *p)
{
	lock_scope(&p->lock);
	p->doubtful = false;
}

void patch_forget(struct patch *p)
{
	lock_scope(&p->lock);
	forget_locked(p);
}

struct fetch {
	struct patch *patch;
	int fd;
	uint64_t at;
};

static int fetch_sink(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fetch *f = arg;

	if (off != f->at)
		return err_origin(-EBADMSG);
	f->at += n;
	return err_trace(patch_fill(f->patch, f->fd, data, n, off));
}

int patch_fetch(struct patch *p, int fd, const char *key, uint64_t off, uint64_t end,
		int (*call)(void *arg, struct origin_req *req), void *arg)
{
	struct patch_object object;

	patch_object(p, &object);
	while (off < end) {
		struct fetch f = {.patch = p, .fd = fd, .at = off};
		struct origin_req req = {.op = ORIGIN_GET,
					 .key = key,
					 .off = off,
					 .if_match = object.etag,
					 .sink = fetch_sink,
					 .sink_arg = &f};
		uint64_t stop;
		int r;

		if (patch_has(p, off, &stop)) {
			off = stop;
			continue;
		}
		if (stop > end)
			stop = end;
		req.len = stop - off < FETCH_STEP ? stop - off : FETCH_STEP;
		r = call(arg, &req);
		if (r == 0 && f.at != off + req.len)
			r = err_origin(-EIO);
		if (r < 0)
			return err_trace(r);
		off = f.at;
	}
	return 0;
}
