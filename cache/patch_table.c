/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries lie in tables by size. One that is full moves to a larger one, with its ranges
 * merged; for a moment both are there and say the same.
 */
#include "cache/patch_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/slots.h"

#define CLASSES 4
#define CLASS_BYTES (256u << 20)
#define HEAD_BYTES 4096u

/* 64 Ki contents of a hundred pieces, … 16 of half a million. */
static const size_t item_size[CLASSES] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};

/* Of the memory. */
struct head {
	_Atomic uint32_t limit[CLASSES];
};

struct patch_table {
	struct slots slots[CLASSES];
	struct left *left; /* by the last process, by content; until the sweep */
	size_t left_count;
};

struct left {
	uint64_t content;
	struct patch_entry *entry;
	bool found;
};

size_t patch_table_size(void)
{
	return HEAD_BYTES + (size_t)CLASSES * CLASS_BYTES;
}

static size_t room(int class)
{
	return (item_size[class] - sizeof(struct patch_entry)) / sizeof(struct range);
}

static int class_of(const struct patch_table *t, const struct patch_entry *e)
{
	int class = CLASSES - 1;

	/* The tables lie one behind the other. */
	while ((const char *)e < t->slots[class].base)
		class --;
	return class;
}

static bool entry_used(void *arg, uint32_t i)
{
	const struct slots *s = arg;
	const struct patch_entry *e = slots_at(s, i);

	return atomic_load(&e->content) != 0;
}

static int by_content(const void *a, const void *b)
{
	const struct left *x = a, *y = b;

	return (x->content > y->content) - (x->content < y->content);
}

/* Of two of one content (it was about to move) one goes. */
static void drop_doubles(struct patch_table *t)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->left_count; i++) {
		if (kept > 0 && t->left[kept - 1].content == t->left[i].content)
			patch_entry_free(t, t->left[i].entry);
		else
			t->left[kept++] = t->left[i];
	}
	t->left_count = kept;
}

static int gather(struct patch_table *t)
{
	size_t max = 0;

	for (int c = 0; c < CLASSES; c++)
		max += atomic_load(t->slots[c].limit);
	t->left = calloc(max + 1, sizeof(*t->left));
	if (!t->left)
		return err_origin(-ENOMEM);
	for (int c = 0; c < CLASSES; c++) {
		for (uint32_t i = 0; i < atomic_load(t->slots[c].limit); i++) {
			struct patch_entry *e = slots_at(&t->slots[c], i);
			uint64_t content = atomic_load(&e->content);

			if (content)
				t->left[t->left_count++] =
					(struct left){content, e, false};
		}
	}
	qsort(t->left, t->left_count, sizeof(*t->left), by_content);
	drop_doubles(t);
	return 0;
}

int patch_table_new(void *memory, struct patch_table **out)
{
	struct patch_table *t = calloc(1, sizeof(*t));
	struct head *head = memory;
	int r = 0;

	if (!t)
		return err_origin(-ENOMEM);
	for (int c = 0; r == 0 && c < CLASSES; c++) {
		r = slots_attach(&t->slots[c],
				 (char *)memory + HEAD_BYTES + (size_t)c * CLASS_BYTES,
				 item_size[c], (uint32_t)(CLASS_BYTES / item_size[c]),
				 &head->limit[c], entry_used, &t->slots[c]);
		if (r < 0)
			t->slots[c].base = NULL;
	}
	if (r == 0)
		r = gather(t);
	if (r < 0) {
		patch_table_free(t);
		return err_trace(r);
	}
	*out = t;
	return 0;
}

struct patch_table *patch_table_free(struct patch_table *t)
{
	if (!t)
		return NULL;
	for (int c = 0; c < CLASSES; c++) {
		if (t->slots[c].base)
			slots_detach(&t->slots[c]);
	}
	free(t->left);
	free(t);
	return NULL;
}

struct patch_entry *patch_table_find(struct patch_table *t, uint64_t content)
{
	struct left key = {.content = content}, *l;

	l = bsearch(&key, t->left, t->left_count, sizeof(key), by_content);
	if (!l)
		return NULL;
	l->found = true;
	return l->entry;
}

void patch_table_sweep(struct patch_table *t)
{
	for (size_t i = 0; i < t->left_count; i++) {
		if (!t->left[i].found)
			patch_entry_free(t, t->left[i].entry);
	}
	free(t->left);
	t->left = NULL;
	t->left_count = 0;
}

/* A free item with room for so many ranges and as many again. */
static struct patch_entry *take(struct patch_table *t, size_t count)
{
	for (int c = 0; c < CLASSES; c++) {
		uint32_t i = room(c) < 2 * count ? SLOTS_NONE : slots_take(&t->slots[c]);

		if (i != SLOTS_NONE)
			return slots_at(&t->slots[c], i);
	}
	return NULL;
}

/* `from` with these ranges in an item of its own. */
static struct patch_entry *place(struct patch_table *t, const struct patch_entry *from,
				 const struct ranges *own)
{
	struct patch_entry *e = take(t, own->count);

	if (!e)
		return NULL;
	atomic_store(&e->len, atomic_load(&from->len));
	atomic_store(&e->which, atomic_load(&from->which));
	atomic_store(&e->lost, false);
	memcpy(e->object, from->object, sizeof(e->object));
	for (size_t i = 0; i < own->count; i++)
		e->own[i] = own->list[i];
	atomic_store(&e->count, (uint32_t)own->count);
	atomic_store(&e->content, atomic_load(&from->content));
	return e;
}

struct patch_entry *patch_entry_new(struct patch_table *t, uint64_t content,
				    const struct patch_object *object, uint64_t len,
				    const struct ranges *own)
{
	struct patch_entry e = {.content = content, .len = len, .object = {*object}};

	return place(t, &e, own);
}

void patch_entry_free(struct patch_table *t, struct patch_entry *e)
{
	int c = class_of(t, e);

	atomic_store(&e->content, 0);
	if (c > 0)
		(void)!madvise(e, item_size[c], MADV_REMOVE);
	slots_give(&t->slots[c],
		   (uint32_t)(((char *)e - t->slots[c].base) / (ptrdiff_t)item_size[c]));
}

struct patch_entry *patch_entry_add(struct patch_table *t, struct patch_entry *e,
				    uint64_t off, uint64_t end, const struct ranges *own)
{
	uint32_t count = atomic_load(&e->count);
	struct patch_entry *moved;

	if (atomic_load(&e->lost))
		return e;
	if (count < room(class_of(t, e))) {
		e->own[count] = (struct range){off, end};
		atomic_store(&e->count, count + 1);
		return e;
	}
	moved = place(t, e, own);
	if (moved) {
		patch_entry_free(t, e);
		return moved;
	}
	atomic_store(&e->lost, true);
	log_warn("an open file has too many pieces to outlive this process content=%llu",
		 (unsigned long long)atomic_load(&e->content));
	return e;
}

void patch_entry_set_object(struct patch_entry *e, const struct patch_object *object)
{
	uint32_t other = !atomic_load(&e->which);

	e->object[other] = *object;
	atomic_store(&e->which, other);
}

void patch_entry_set_len(struct patch_entry *e, uint64_t len)
{
	atomic_store(&e->len, len);
}

static int by_offset(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

int patch_entry_own(const struct patch_entry *e, struct ranges *out)
{
	size_t count = atomic_load(&e->count);
	_cleanup_(freep) struct range *list = malloc((count + 1) * sizeof(*list));
	int r = 0;

	*out = (struct ranges){0};
	if (!list)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < count; i++)
		list[i] = e->own[i];
	qsort(list, count, sizeof(*list), by_offset);
	for (size_t i = 0; i < count && r == 0; i++)
		r = ranges_add(out, list[i].off, list[i].end);
	if (r < 0)
		ranges_fini(out);
	else
		ranges_cut(out, atomic_load(&e->len));
	return err_trace(r);
}
