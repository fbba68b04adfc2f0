/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stretch is a piece of one directory's listing around a reader: names in a ring, found
 * by their keys in one table. Its positions count from the name it began with. The pieces
 * do not overlap: one that grows into another ends there, unless the other has not proven
 * anything and was left, and is given up. An open far ahead of a proven run is another
 * reader's, who gets the names from there on.
 *
 * Bounds: STRETCHES_MAX stretches of RING names.
 */
#include "cache/follow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "cache/prefetch.h"
#include "fs/base/err.h"
#include "fs/base/list.h"
#include "fs/base/path.h"

#define STRETCHES_MAX 32
#define RING 1024  /* names of a stretch: a power of two */
#define LOOK 32    /* names known ahead of the furthest open, to recognise the next one */
#define CHUNK 64   /* names asked for at once at least */
#define BEHIND 256 /* names kept behind it, for readers that lag */
#define WINDOW_DEFAULT 512
#define IDLE_OPENS 256 /* elsewhere, after which a stretch counts as left */
#define LEFT_OPENS 64  /* the same, for one that has proven nothing */
#define WASTE_FILES 4  /* given up unread, that make us wary */
#define TRUST_OPENS 64 /* a run this long restores trust */

_Static_assert(BEHIND + LOOK + CHUNK + WINDOW_DEFAULT < RING, "ring too small");

struct stretch;

struct name {
	UT_hash_handle hh;
	struct stretch *stretch;
	uint64_t position;
	uint64_t bytes; /* fetched ahead and unread */
	bool opened;
	char key[]; /* directory and name */
};

struct stretch {
	struct list link; /* in follow->stretches, least recently used first */
	struct prefetch run;
	struct name *ring[RING]; /* positions [low, high) */
	uint64_t low, high;
	size_t dir_len;
	uint64_t unread; /* bytes */
	uint32_t unread_files;
	uint64_t used; /* by follow->clock */
	bool dry;      /* no more names for now */
};

struct follow {
	struct follow_config config;
	struct list stretches;
	uint32_t count;
	struct name *names;
	uint32_t need; /* opens that prove a run */
	uint64_t clock;
	struct follow_stats stats;
};

int follow_new(const struct follow_config *config, struct follow **out)
{
	struct follow *f = calloc(1, sizeof(*f));

	if (!f)
		return err_origin(-ENOMEM);
	f->config = *config;
	if (!f->config.window_max || f->config.window_max > WINDOW_DEFAULT)
		f->config.window_max = WINDOW_DEFAULT;
	f->need = PREFETCH_NEED_MIN;
	list_init(&f->stretches);
	*out = f;
	return 0;
}

static struct name *name_at(const struct stretch *s, uint64_t position)
{
	return s->ring[position & (RING - 1)];
}

static void forget(struct follow *f, struct stretch *s, struct name *n)
{
	if (n->bytes) {
		f->stats.unread -= n->bytes;
		f->stats.wasted += n->bytes;
		s->unread -= n->bytes;
		s->unread_files--;
	}
	HASH_DEL(f->names, n);
	free(n);
}

/* What a stretch leaves unread makes the next ones prove more. */
static void give_up(struct follow *f, struct stretch *s)
{
	if (s->unread_files > WASTE_FILES && f->need < PREFETCH_NEED_MAX)
		f->need *= 2;
	while (s->low < s->high)
		forget(f, s, name_at(s, s->low++));
	list_remove(&s->link);
	f->count--;
	free(s);
}

struct follow *follow_free(struct follow *f)
{
	if (!f)
		return NULL;
	while (!list_empty(&f->stretches))
		give_up(f, list_first(&f->stretches, struct stretch, link));
	free(f);
	return NULL;
}

/* ---- names ---- */

struct growth {
	struct follow *f;
	struct stretch *s;
};

static bool blocked(struct follow *f, struct stretch *s, const struct name *n)
{
	if (n->stretch == s)
		return true; /* the order changed under us */
	if (n->stretch->run.opens >= f->need || f->clock - n->stretch->used < LEFT_OPENS)
		return true;
	give_up(f, n->stretch);
	return false;
}

static bool add_name(void *to, const char *name)
{
	struct growth *g = to;
	struct stretch *s = g->s;
	const char *dir = name_at(s, s->low)->key;
	char key[PATH_KEY_MAX + 2];
	size_t n = strlen(name);
	struct name *made, *other;

	if (s->high - s->low == RING || s->dir_len + n > PATH_KEY_MAX)
		return false;
	memcpy(key, dir, s->dir_len);
	memcpy(key + s->dir_len, name, n + 1);
	HASH_FIND_STR(g->f->names, key, other);
	if (other && blocked(g->f, s, other))
		return false;
	made = calloc(1, sizeof(*made) + s->dir_len + n + 1);
	if (!made)
		return false;
	memcpy(made->key, key, s->dir_len + n + 1);
	made->stretch = s;
	made->position = s->high++;
	s->ring[made->position & (RING - 1)] = made;
	HASH_ADD_STR(g->f->names, key, made);
	return true;
}

/* Sees to it that names before `until` are known. */
static void grow(struct follow *f, struct stretch *s, uint64_t until)
{
	struct growth g = {f, s};
	const char *last;
	char dir[PATH_KEY_MAX + 2];

	if (s->dry || until <= s->high)
		return;
	while (s->low < s->high - 1 && s->low + BEHIND < s->run.head)
		forget(f, s, name_at(s, s->low++));
	last = name_at(s, s->high - 1)->key;
	memcpy(dir, last, s->dir_len);
	dir[s->dir_len] = '\0';
	f->config.names(f->config.arg, dir, last + s->dir_len,
			(uint32_t)(until - s->high + CHUNK), add_name, &g);
	s->dry = s->high < until;
}

static struct stretch *new_stretch(struct follow *f, size_t dir_len)
{
	struct stretch *s;

	if (f->count == STRETCHES_MAX)
		give_up(f, list_first(&f->stretches, struct stretch, link));
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->dir_len = dir_len;
	s->used = f->clock;
	prefetch_init(&s->run, 0);
	list_push_back(&f->stretches, &s->link);
	f->count++;
	return s;
}

static struct stretch *begin(struct follow *f, const char *key, size_t dir_len)
{
	size_t len = strlen(key);
	struct stretch *s;
	struct name *n = calloc(1, sizeof(*n) + len + 1);

	s = n ? new_stretch(f, dir_len) : NULL;
	if (!s) {
		free(n);
		return NULL;
	}
	memcpy(n->key, key, len + 1);
	n->stretch = s;
	n->opened = true;
	HASH_ADD_STR(f->names, key, n);
	s->ring[0] = n;
	s->high = 1;
	return s;
}

/* The names from `at` on become a stretch of their own that begins with it. */
static void split(struct follow *f, struct stretch *s, uint64_t at)
{
	struct stretch *right;

	/* Making room must not take this one. */
	list_remove(&s->link);
	list_push_back(&f->stretches, &s->link);
	right = new_stretch(f, s->dir_len);
	if (!right)
		return;
	for (uint64_t i = at; i < s->high; i++) {
		struct name *n = name_at(s, i);

		n->stretch = right;
		n->position = i - at;
		right->ring[right->high++] = n;
		if (n->bytes) {
			s->unread -= n->bytes;
			s->unread_files--;
			right->unread += n->bytes;
			right->unread_files++;
		}
	}
	s->high = at;
	s->dry = true;
}

/* ---- what is read, what is next ---- */

static void note(struct follow *f, struct name *n)
{
	struct stretch *s = n->stretch;

	if (prefetch_is_other(&s->run, n->position))
		split(f, s, n->position);
	s = n->stretch;
	n->opened = true;
	if (n->bytes) {
		f->stats.hits++;
		f->stats.unread -= n->bytes;
		s->unread -= n->bytes;
		s->unread_files--;
		n->bytes = 0;
	}
	prefetch_note(&s->run, n->position);
	if (s->run.opens >= TRUST_OPENS)
		f->need = PREFETCH_NEED_MIN;
	list_remove(&s->link);
	list_push_back(&f->stretches, &s->link);
}

void follow_opened(struct follow *f, const char *dir, const char *name)
{
	char key[PATH_KEY_MAX + 2];
	size_t dir_len = strlen(dir), n = strlen(name);
	struct stretch *s;
	struct name *known;

	if (dir_len + n > PATH_KEY_MAX)
		return;
	memcpy(key, dir, dir_len);
	memcpy(key + dir_len, name, n + 1);
	f->clock++;
	HASH_FIND_STR(f->names, key, known);
	if (known)
		note(f, known);
	s = known ? known->stretch : begin(f, key, dir_len);
	if (!s)
		return;
	s->used = f->clock;
	s->dry = false;
	grow(f, s, s->run.head + 1 + LOOK);
}

/* A file of the stretch to fetch, or NULL. */
static struct name *next_of(struct follow *f, struct stretch *s)
{
	uint64_t at;

	while ((at = prefetch_want(&s->run, f->need, f->config.window_max)) !=
	       PREFETCH_NONE) {
		grow(f, s, at + LOOK);
		if (at >= s->high)
			return NULL;
		prefetch_asked(&s->run, at);
		if (at >= s->low && !name_at(s, at)->opened && !name_at(s, at)->bytes)
			return name_at(s, at);
	}
	return NULL;
}

/* Stretches that readers have left make room. */
static bool give_up_idle(struct follow *f)
{
	struct list *it;

	list_for_each (it, &f->stretches) {
		struct stretch *s = container_of(it, struct stretch, link);

		if (f->clock - s->used <= IDLE_OPENS)
			return false;
		if (s->unread) {
			give_up(f, s);
			return true;
		}
	}
	return false;
}

bool follow_next(struct follow *f, const char **key, size_t *dir_len)
{
	struct list *it;

	while (f->stats.unread >= f->config.unread_max)
		if (!give_up_idle(f))
			return false;
	for (it = f->stretches.prev; it != &f->stretches; it = it->prev) {
		struct stretch *s = container_of(it, struct stretch, link);
		struct name *n = next_of(f, s);

		if (n) {
			*key = n->key;
			*dir_len = s->dir_len;
			return true;
		}
	}
	return false;
}

void follow_asked(struct follow *f, const char *key, uint64_t bytes)
{
	struct name *n;

	HASH_FIND_STR(f->names, key, n);
	if (!n || n->opened || n->bytes || !bytes)
		return;
	n->bytes = bytes;
	n->stretch->unread += bytes;
	n->stretch->unread_files++;
	f->stats.unread += bytes;
	f->stats.asked++;
}

struct follow_stats follow_stats(const struct follow *f)
{
	return f->stats;
}
