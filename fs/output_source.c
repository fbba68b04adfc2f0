/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in the store the children of a directory that was renamed still are.
 *
 * A key that no node claims belongs to a path: by itself to the one that it spells. A
 * source says otherwise for all keys below a prefix: they belong below that directory,
 * wherever it is now. The longest prefix that fits decides. So a rename moves a tree that
 * nobody has looked at by one record; output_walk.c then makes nodes of its objects, page
 * by page, and when each key below the prefix has been claimed the source goes.
 *
 * A source is "home" when its prefix is its directory's own path. It is needed only as long
 * as a shorter prefix would give the keys to another directory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/output_impl.h"

/* The source whose prefix is the first `len` bytes of the key. */
static struct source *find(struct output *o, const char *key, size_t len)
{
	struct source *s;

	HASH_FIND(hh, o->sources, key, len, s);
	return s;
}

/* The longest prefix that fits and is shorter than `len`. */
static struct source *find_below(struct output *o, const char *key, size_t len)
{
	lock_assert_held(&o->lock);
	if (!o->sources)
		return NULL;
	while (len > 0) {
		if (key[--len] == '/') {
			struct source *s = find(o, key, len + 1);

			if (s)
				return s;
		}
	}
	return NULL;
}

struct source *source_of_key(struct output *o, const char *key)
{
	return find_below(o, key, strlen(key));
}

struct source *source_around(struct output *o, const struct source *s)
{
	return find_below(o, s->prefix, strlen(s->prefix) - 1);
}

bool source_is_home(const struct source *s)
{
	char key[PATH_KEY_MAX + 1];

	return node_key(s->node, key) == 0 && strcmp(key, s->prefix) == 0;
}

struct source *source_blocks(struct output *o, const char *key)
{
	struct source *s = source_of_key(o, key);

	return s && !source_is_home(s) ? s : NULL;
}

bool source_is_below(struct output *o, const char *prefix)
{
	size_t len = strlen(prefix);

	for (struct source *s = o->sources; s; s = s->hh.next) {
		if (strncmp(s->prefix, prefix, len) == 0 && s->prefix[len] != '\0')
			return true;
	}
	return false;
}

struct source *source_in_the_way(struct output *o, const char *key)
{
	struct source *s = source_blocks(o, key);
	size_t len = strlen(key);

	if (s || !(o->config.origin->caps & ORIGIN_CAP_TREE))
		return s;
	for (s = o->sources; s; s = s->hh.next) {
		if (strncmp(s->prefix, key, len) == 0 && s->prefix[len] == '/')
			return s;
	}
	return NULL;
}

/* ---- the table ------------------------------------------------------------------------- */

static void take_out(struct node *n, struct source *s)
{
	struct source **at = &n->sources;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->next = NULL;
}

static void put_in(struct node *n, struct source *s)
{
	struct source **at = &n->sources;

	while (*at)
		at = &(*at)->next;
	*at = s;
	s->node = n;
}

int source_add(struct output *o, struct node *n, const char *prefix)
{
	size_t len = strlen(prefix);
	struct source *s;

	lock_assert_held(&o->lock);
	if (len == 0 || len > PATH_KEY_MAX || prefix[len - 1] != '/')
		return err_origin(-EINVAL);
	s = find(o, prefix, len);
	if (s) {
		/* In a journal that is read twice the last one has it. */
		take_out(s->node, s);
		put_in(n, s);
		return 0;
	}
	if (HASH_CNT(hh, o->sources) >= OUTPUT_SOURCES_MAX)
		return err_origin(-EBUSY);
	s = calloc(1, sizeof(*s) + len + 1);
	if (!s)
		return err_origin(-ENOMEM);
	memcpy(s->prefix, prefix, len + 1);
	s->id = ++o->last_source;
	HASH_ADD_KEYPTR(hh, o->sources, s->prefix, len, s);
	put_in(n, s);
	walk_count(o, n, false); /* it waits for more than its own object now */
	pthread_cond_broadcast(&o->walk_cond);
	return 0;
}

void source_drop(struct output *o, struct source *s)
{
	lock_assert_held(&o->lock);
	take_out(s->node, s);
	HASH_DELETE(hh, o->sources, s);
	free(s);
	sync_unblock(o);
	pthread_cond_broadcast(&o->walk_cond);
}

void source_drop_all(struct output *o, struct node *n)
{
	while (n->sources)
		source_drop(o, n->sources);
}

/* ---- prefixes -------------------------------------------------------------------------- */

void prefixes_fini(struct prefixes *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->items[i]);
	free(p->items);
	*p = (struct prefixes){0};
}

bool prefixes_equal(const struct prefixes *a, const struct prefixes *b)
{
	if (a->count != b->count || a->own != b->own)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	}
	return true;
}

static int append(struct prefixes *p, const char *prefix)
{
	char **grown = realloc(p->items, (p->count + 1) * sizeof(*grown));

	if (!grown)
		return err_origin(-ENOMEM);
	p->items = grown;
	grown[p->count] = strdup(prefix);
	return grown[p->count++] ? 0 : err_origin(-ENOMEM);
}

/* Those of one directory on the way up; `rest` leads from it to where we started. */
static int append_sources(struct output *o, const struct node *dir, const char *rest,
			  const char *own, struct prefixes *p)
{
	for (struct source *s = dir->sources; s; s = s->next) {
		char key[2 * PATH_KEY_MAX + 2];
		int r;

		if (strlen(s->prefix) + strlen(rest) > PATH_KEY_MAX)
			continue; /* no such key can be */
		strcpy(stpcpy(key, s->prefix), rest);
		/* The own path comes last. */
		if (strcmp(key, own) == 0 || source_of_key(o, key) != s)
			continue;
		r = append(p, key);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

int source_prefixes(struct output *o, const struct node *dir, struct prefixes *p)
{
	char own[PATH_KEY_MAX + 1];
	const char *rest;
	int r = node_key(dir, own);

	lock_assert_held(&o->lock);
	if (r < 0)
		return err_trace(r);
	rest = own + strlen(own);
	for (const struct node *it = dir; o->sources && it != o->root; it = it->parent) {
		if (!it)
			return err_origin(-ENOENT);
		r = append_sources(o, it, rest, own, p);
		if (r < 0)
			return err_trace(r);
		rest -= strlen(it->name) + 1;
	}
	if (source_blocks(o, own))
		return 0;
	p->own = true;
	return err_trace(append(p, own));
}

int source_keep(struct output *o, struct node *dir)
{
	_cleanup_(prefixes_fini) struct prefixes p = {0};
	int r = source_prefixes(o, dir, &p);
	size_t count = p.count;

	/* Nothing is there that has no node. */
	if (p.own && dir->born)
		count--;
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct source *s = find(o, p.items[i], strlen(p.items[i]));

		if (s)
			check(s->node == dir);
		else
			r = source_add(o, dir, p.items[i]);
	}
	return err_trace(r);
}

void source_come_home(struct output *o, struct node *dir)
{
	struct source *s, *next;

	for (s = dir->sources; s; s = next) {
		next = s->next;
		if (!source_is_home(s) || source_around(o, s))
			continue;
		source_drop(o, s);
		for (struct node *it = dir; it; it = it->parent)
			it->born = false;
	}
}
