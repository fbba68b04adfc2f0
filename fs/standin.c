/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   in the table, refs > 0    used; not in the list
 *   in the table, refs == 0   idle; in the list, the least recently used one first
 *   out of the table          forgotten while used: goes with its last reference
 */
#include "fs/standin.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <uthash.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

struct standin {
	uint64_t ino;
	void *file;
	standin_close_fn close;
	unsigned int refs;
	bool known; /* in the table */
	struct list idle;
	UT_hash_handle hh;
};

struct standins {
	struct lock lock; /* everything below */
	struct standin *table;
	struct list idle;
	unsigned int idle_count;
	unsigned int idle_max;
};

int standins_new(unsigned int idle_max, struct standins **out)
{
	struct standins *t = calloc(1, sizeof(*t));

	if (!t)
		return err_origin(-ENOMEM);
	lock_init(&t->lock);
	list_init(&t->idle);
	t->idle_max = idle_max;
	*out = t;
	return 0;
}

static void discard(struct standin *s)
{
	if (!s)
		return;
	s->close(s->file);
	free(s);
}

static void remove_locked(struct standins *t, struct standin *s)
{
	HASH_DEL(t->table, s);
	s->known = false;
	if (s->refs == 0) {
		list_remove(&s->idle);
		t->idle_count--;
	}
}

struct standins *standins_free(struct standins *t)
{
	struct standin *s, *next;

	if (!t)
		return NULL;
	HASH_ITER (hh, t->table, s, next) {
		check(s->refs == 0);
		remove_locked(t, s);
		discard(s);
	}
	lock_fini(&t->lock);
	free(t);
	return NULL;
}

static struct standin *find_locked(struct standins *t, uint64_t ino)
{
	struct standin *s;

	HASH_FIND(hh, t->table, &ino, sizeof(ino), s);
	if (s && s->refs++ == 0) {
		list_remove(&s->idle);
		t->idle_count--;
	}
	return s;
}

struct standin *standin_get(struct standins *t, uint64_t ino)
{
	lock_scope(&t->lock);
	return find_locked(t, ino);
}

struct standin *standin_add(struct standins *t, uint64_t ino, void *file,
			    standin_close_fn close_file)
{
	struct standin *fresh = calloc(1, sizeof(*fresh)), *s;

	if (!fresh) {
		close_file(file);
		return NULL;
	}
	*fresh = (struct standin){
		.ino = ino, .file = file, .close = close_file, .refs = 1, .known = true};
	list_init(&fresh->idle);
	lock_take(&t->lock);
	s = find_locked(t, ino);
	if (!s) {
		HASH_ADD(hh, t->table, ino, sizeof(fresh->ino), fresh);
		s = fresh;
		fresh = NULL;
	}
	lock_drop(&t->lock);
	discard(fresh);
	return s;
}

void standin_put(struct standins *t, struct standin *s)
{
	struct standin *gone = NULL;

	if (!s)
		return;
	lock_take(&t->lock);
	check(s->refs > 0);
	if (--s->refs == 0 && !s->known) {
		gone = s;
	} else if (s->refs == 0) {
		list_push_back(&t->idle, &s->idle);
		if (++t->idle_count > t->idle_max) {
			gone = list_first(&t->idle, struct standin, idle);
			remove_locked(t, gone);
		}
	}
	lock_drop(&t->lock);
	discard(gone);
}

void *standin_file(const struct standin *s)
{
	return s->file;
}

void standin_forget(struct standins *t, uint64_t ino)
{
	struct standin *s;
	bool used = false;

	lock_take(&t->lock);
	HASH_FIND(hh, t->table, &ino, sizeof(ino), s);
	if (s) {
		used = s->refs > 0;
		remove_locked(t, s);
	}
	lock_drop(&t->lock);
	if (!used)
		discard(s);
}

unsigned int standins_count(struct standins *t)
{
	lock_scope(&t->lock);
	return HASH_COUNT(t->table);
}
