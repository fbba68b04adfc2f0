/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries lie in one array, names and ETags one after another in another, 32-bit offsets
 * between them: about 60 bytes and the two texts for an entry. Chains of a hash table run
 * through the entries.
 *
 * Threads: one fetcher, any number of readers; `lock` covers everything.
 */
#include "cache/listing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/wait.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"

#define NONE UINT32_MAX
#define TEXT_MAX (UINT32_MAX - 4096)

struct entry {
	uint64_t size;
	int64_t mtime_ns;
	uint32_t name, etag; /* in text */
	uint32_t next;       /* in the chain */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	bool is_dir, has_posix, is_symlink;
};

struct listing {
	atomic_uint refs;
	uint64_t born_ms;
	size_t dir_len;

	struct lock lock; /* everything below */
	pthread_cond_t moved;
	struct entry *entries;
	uint32_t count, room;
	char **blocks; /* of text, TEXT_BLOCK bytes each: names never move */
	uint32_t text_len, block_count;
	uint32_t *heads;
	uint32_t head_count; /* a power of two */
	uint64_t hidden, shadowed;
	uint32_t pages;
	bool unordered;              /* the store does not keep to byte order */
	char last[PATH_KEY_MAX + 1]; /* how far it has come: the last key below dir */
	bool complete;
	int error;
};

#define TEXT_BLOCK (64u << 10)

int listing_new(const char *dir, uint64_t born_ms, struct listing **out)
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l)
		return err_origin(-ENOMEM);
	atomic_store(&l->refs, 1);
	lock_init(&l->lock);
	lock_cond_init(&l->moved);
	l->born_ms = born_ms;
	l->dir_len = strlen(dir);
	*out = l;
	return 0;
}

struct listing *listing_get(struct listing *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

void listing_put(struct listing *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) > 1)
		return;
	for (uint32_t i = 0; i < l->block_count; i++)
		free(l->blocks[i]);
	free(l->blocks);
	free(l->entries);
	free(l->heads);
	pthread_cond_destroy(&l->moved);
	lock_fini(&l->lock);
	free(l);
}

static const char *text_at(const struct listing *l, uint32_t off)
{
	return l->blocks[off / TEXT_BLOCK] + off % TEXT_BLOCK;
}

/* Puts n bytes and a NUL into a block that has room for them; NONE: no memory. */
static uint32_t add_text(struct listing *l, const char *s, size_t n)
{
	uint32_t at = l->text_len;
	char **blocks;

	if (at > TEXT_MAX)
		return NONE;
	if (at / TEXT_BLOCK == l->block_count || at % TEXT_BLOCK + n + 1 > TEXT_BLOCK) {
		blocks = realloc(l->blocks, (l->block_count + 1) * sizeof(*blocks));
		if (!blocks)
			return NONE;
		l->blocks = blocks;
		blocks[l->block_count] = malloc(TEXT_BLOCK);
		if (!blocks[l->block_count])
			return NONE;
		at = l->block_count++ * TEXT_BLOCK;
	}
	memcpy(l->blocks[at / TEXT_BLOCK] + at % TEXT_BLOCK, s, n);
	l->blocks[at / TEXT_BLOCK][at % TEXT_BLOCK + n] = '\0';
	l->text_len = at + (uint32_t)n + 1;
	return at;
}

static uint32_t hash(const char *name, size_t n)
{
	uint32_t h = crc32c(0, name, n);

	return h ^ h >> 15;
}

static uint32_t find(const struct listing *l, const char *name, size_t n)
{
	uint32_t i = l->head_count ? l->heads[hash(name, n) & (l->head_count - 1)] : NONE;

	while (i != NONE) {
		const char *have = text_at(l, l->entries[i].name);

		if (!strncmp(have, name, n) && !have[n])
			return i;
		i = l->entries[i].next;
	}
	return NONE;
}

static int grow(struct listing *l)
{
	uint32_t room = l->room ? l->room * 2 : 64, heads = room;
	struct entry *entries = realloc(l->entries, room * sizeof(*entries));
	uint32_t *table;

	if (!entries)
		return err_origin(-ENOMEM);
	l->entries = entries;
	table = malloc(heads * sizeof(*table));
	if (!table)
		return err_origin(-ENOMEM);
	memset(table, 0xff, heads * sizeof(*table));
	free(l->heads);
	l->heads = table;
	l->head_count = heads;
	l->room = room;
	for (uint32_t i = 0; i < l->count; i++) {
		const char *name = text_at(l, l->entries[i].name);
		uint32_t *head = &table[hash(name, strlen(name)) & (heads - 1)];

		l->entries[i].next = *head;
		*head = i;
	}
	return 0;
}

static void fill_entry(struct entry *e, const struct origin_attr *attr)
{
	e->size = attr->is_dir ? 0 : attr->size;
	e->mtime_ns = attr->mtime_ns;
	e->is_dir = attr->is_dir;
	e->has_posix = attr->has_posix;
	e->is_symlink = attr->is_symlink;
	e->mode = attr->mode;
	e->uid = attr->uid;
	e->gid = attr->gid;
}

static int append(struct listing *l, const char *name, size_t n,
		  const struct origin_attr *attr)
{
	struct entry *e;
	uint32_t *head;
	int r;

	if (l->count == l->room) {
		r = grow(l);
		if (r < 0)
			return err_trace(r);
	}
	e = &l->entries[l->count];
	*e = (struct entry){0};
	fill_entry(e, attr);
	e->name = add_text(l, name, n);
	e->etag = add_text(l, attr->etag, strlen(attr->etag));
	if (e->name == NONE || e->etag == NONE)
		return err_origin(-ENOMEM);
	head = &l->heads[hash(name, n) & (l->head_count - 1)];
	e->next = *head;
	*head = l->count++;
	return 0;
}

/* In byte order, what lies behind the last key is decided. */
static void note_progress(struct listing *l, const char *name, size_t n)
{
	if (n > PATH_KEY_MAX)
		return;
	if (strlen(l->last) > n ? memcmp(l->last, name, n) >= 0
				: memcmp(l->last, name, strlen(l->last)) > 0)
		l->unordered = true;
	memcpy(l->last, name, n);
	l->last[n] = '\0';
}

/* Whether neither "name" nor "name/" can still come. */
static bool decided(const struct listing *l, const char *name)
{
	size_t n = strlen(name);
	int order = strncmp(l->last, name, n);

	if (l->complete)
		return true;
	return !l->unordered && (order > 0 || (order == 0 && l->last[n] > '/'));
}

int listing_add(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr)
{
	struct listing *l = arg;
	struct origin_attr as_dir = *attr;
	const char *name = key + l->dir_len;
	size_t n = key_len - l->dir_len;
	uint32_t i;

	if (key_len < l->dir_len)
		return err_origin(-EBADMSG);
	if (n == 0)
		return 0; /* the directory's own marker */
	lock_scope(&l->lock);
	note_progress(l, name, n);
	if (name[n - 1] == '/') {
		as_dir.is_dir = true;
		n--;
	}
	if (path_name_check(name, n) != PATH_OK || key_len > PATH_KEY_MAX) {
		l->hidden++;
		return 0;
	}
	i = find(l, name, n);
	if (i == NONE)
		return err_trace(append(l, name, n, &as_dir));
	/* The same name twice: the directory wins; a real repetition says nothing new. */
	if (l->entries[i].is_dir != as_dir.is_dir) {
		l->shadowed++;
		if (as_dir.is_dir)
			fill_entry(&l->entries[i], &as_dir);
	}
	return 0;
}

void listing_page_done(struct listing *l)
{
	lock_scope(&l->lock);
	l->pages++;
	pthread_cond_broadcast(&l->moved);
}

void listing_done(struct listing *l, int error)
{
	lock_scope(&l->lock);
	l->complete = true;
	l->error = error;
	pthread_cond_broadcast(&l->moved);
}

static void show(const struct listing *l, uint32_t i, struct listing_entry *entry)
{
	const struct entry *e = &l->entries[i];
	const char *etag = text_at(l, e->etag);

	*entry = (struct listing_entry){
		.name = text_at(l, e->name),
		.attr = {.size = e->size,
			 .mtime_ns = e->mtime_ns,
			 .is_dir = e->is_dir,
			 .has_posix = e->has_posix,
			 .is_symlink = e->is_symlink,
			 .mode = e->mode,
			 .uid = e->uid,
			 .gid = e->gid},
	};
	memcpy(entry->attr.etag, etag, strlen(etag) + 1);
}

int listing_at(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
	       struct listing_entry *entry)
{
	int r;

	lock_scope(&l->lock);
	while (position >= l->count && !l->complete) {
		if (nowait)
			return LISTING_E_WAIT;
		r = wait_on(w, &l->lock, &l->moved);
		if (r < 0)
			return err_trace(r);
	}
	if (position < l->count) {
		show(l, (uint32_t)position, entry);
		return 0;
	}
	return l->error < 0 ? err_trace(l->error) : LISTING_E_END;
}

int listing_each(struct listing *l, uint64_t position, bool nowait, const struct wait *w,
		 listing_fn fn, void *arg)
{
	struct listing_entry e;
	uint64_t at = position;
	int r = listing_at(l, at, nowait, w, &e);

	while (r == 0) {
		r = fn(arg, &e, ++at);
		if (r == 0)
			r = listing_at(l, at, true, NULL, &e);
	}
	return err_trace(r);
}

int listing_after(struct listing *l, const char *name, uint64_t *position)
{
	uint32_t i;

	lock_scope(&l->lock);
	i = find(l, name, strlen(name));
	if (i == NONE)
		return LISTING_E_WAIT;
	*position = (uint64_t)i + 1;
	return 0;
}

int listing_find(struct listing *l, const char *name, struct listing_entry *entry)
{
	uint32_t i;

	lock_scope(&l->lock);
	i = find(l, name, strlen(name));
	if (i == NONE)
		return l->error == 0 && decided(l, name) ? LISTING_E_END : LISTING_E_WAIT;
	/* "a/" may still follow "a". */
	if (!l->entries[i].is_dir && !decided(l, name))
		return LISTING_E_WAIT;
	show(l, i, entry);
	return 0;
}

int listing_wait_page(struct listing *l, const struct wait *w)
{
	int r = 0;

	lock_scope(&l->lock);
	while (!l->pages && !l->complete && r == 0)
		r = wait_on(w, &l->lock, &l->moved);
	return err_trace(r);
}

struct listing_facts listing_facts(struct listing *l)
{
	lock_scope(&l->lock);
	return (struct listing_facts){
		.born_ms = l->born_ms,
		.count = l->count,
		.bytes = sizeof(*l) +
			 l->room * (sizeof(struct entry) + sizeof(uint32_t)) +
			 (uint64_t)l->block_count * TEXT_BLOCK,
		.hidden = l->hidden,
		.shadowed = l->shadowed,
		.complete = l->complete,
		.error = l->error,
	};
}
