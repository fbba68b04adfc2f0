/* SPDX-License-Identifier: Apache-2.0 */
/* The fetcher's side of a listing: ranges of keys, and the blocks that they fill. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/listing_impl.h"
#include "fs/base/err.h"

#define OPEN_ROOM_FIRST 2048
#define TWINS_MAX 4096

/* ---- blocks ---- */

static int grow(struct block_refs *b, size_t count)
{
	size_t room = b->room ? b->room : 4;
	struct block_ref **at;

	while (room < count)
		room *= 2;
	if (room == b->room)
		return 0;
	at = realloc(b->at, room * sizeof(*at));
	if (!at)
		return err_origin(-ENOMEM);
	b->at = at;
	b->room = room;
	return 0;
}

static void settle(struct listing *l, struct block_ref *b)
{
	b->first = l->settled_count;
	l->settled_count += b->count;
	l->settled.at[l->settled.count++] = b;
}

int listing_push_block_locked(struct listing *l, struct block_refs *to, struct entries *e)
{
	struct block_ref *b;
	const char *name;
	bool is_dir;
	size_t n;
	int r = grow(to, to->count + 1);

	if (r < 0)
		return err_trace(r);
	name = entries_name(e, 0, &n, &is_dir);
	b = calloc(1, sizeof(*b) + n + 2);
	if (!b)
		return err_origin(-ENOMEM);
	memcpy(b->first_key, name, n);
	if (is_dir)
		b->first_key[n] = '/';
	b->count = entries_count(e);
	b->mem = e;
	list_init(&b->link);
	list_push_back(&l->spill, &b->link);
	l->sealed_bytes += entries_used(e);
	if (to == &l->settled)
		settle(l, b);
	else
		to->at[to->count++] = b;
	return 0;
}

/* The open block becomes one of the range's, without the room it did not need. */
static int seal(struct listing_range *range)
{
	struct listing *l = range->listing;
	struct entries *e = range->open, *small = NULL;
	int r;

	if (!e)
		return 0;
	if (entries_used(e) < ENTRIES_BYTES_MAX / 2)
		small = entries_copy(e, 0);
	if (small) {
		l->memory -= entries_memory(e);
		l->memory += entries_memory(small);
		entries_put(e);
		range->open = e = small;
	}
	r = listing_push_block_locked(
		l, listing_is_front(range) ? &l->settled : &range->blocks, e);
	if (r < 0)
		return err_trace(r);
	range->open = NULL;
	return 0;
}

/* Room for another entry: a larger copy of the open block, or a new one. */
static int make_room(struct listing_range *range)
{
	struct listing *l = range->listing;
	struct entries *e = range->open, *larger;
	int r;

	if (e && entries_memory(e) >= ENTRIES_BYTES_MAX) {
		r = seal(range);
		if (r < 0)
			return err_trace(r);
		e = NULL;
		larger = entries_new(ENTRIES_BYTES_MAX);
	} else if (e) {
		larger = entries_copy(e, entries_used(e) * 2 + OPEN_ROOM_FIRST);
	} else {
		larger = entries_new(OPEN_ROOM_FIRST);
	}
	if (!larger)
		return err_origin(-ENOMEM);
	if (e) {
		l->memory -= entries_memory(e);
		entries_put(e);
	}
	l->memory += entries_memory(larger);
	range->open = larger;
	return 0;
}

/* ---- ranges ---- */

static struct listing_range *new_range(struct listing *l, const char *after)
{
	struct listing_range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	range->listing = l;
	list_init(&range->link);
	range->after = strdup(after);
	if (!range->after) {
		free(range);
		return NULL;
	}
	return range;
}

struct listing_range *listing_first_range(struct listing *l)
{
	struct listing_range *range = new_range(l, "");

	lock_scope(&l->lock);
	if (range) {
		list_push_back(&l->ranges, &range->link);
		l->begun = true;
	}
	return range;
}

struct listing_range *listing_split(struct listing_range *range, const char *key)
{
	struct listing *l = range->listing;
	struct listing_range *upper = new_range(l, key + l->dir_len);

	lock_scope(&l->lock);
	if (upper)
		list_push_front(&range->link, &upper->link);
	return upper;
}

/* Keeps `last` and the files whose directories may still come. Whether a file of the
 * directory's name came before. */
static bool note_key(struct listing_range *range, const char *name, size_t n)
{
	size_t name_len = n && name[n - 1] == '/' ? n - 1 : n;
	bool is_dir = name_len < n, shadows = false;

	while (range->pending_count) {
		size_t len = range->pending[range->pending_count - 1];

		if (len <= name_len && !memcmp(range->last, name, len) &&
		    (unsigned char)name[len] <= '/')
			break;
		range->pending_count--;
	}
	if (is_dir && range->pending_count)
		shadows = range->pending[range->pending_count - 1] == name_len;
	else if (!is_dir && n <= PATH_NAME_MAX && range->pending_count <= PATH_NAME_MAX)
		range->pending[range->pending_count++] = (uint16_t)n;
	memcpy(range->last, name, n);
	range->last[n] = '\0';
	range->last_len = n;
	return shadows;
}

/* A directory whose file, if there is one, lies in an earlier range: for listing_done(). */
static void note_twin(struct listing *l, const char *name, size_t n)
{
	char **twins;

	if (n > PATH_NAME_MAX || l->twin_count == TWINS_MAX)
		return;
	twins = realloc(l->twins, (l->twin_count + 1) * sizeof(*twins));
	if (!twins)
		return;
	l->twins = twins;
	twins[l->twin_count] = strndup(name, n);
	l->twin_count += twins[l->twin_count] != NULL;
}

int listing_add(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr)
{
	struct listing_range *range = arg;
	struct listing *l = range->listing;
	struct origin_attr as_dir;
	const char *name = key + l->dir_len;
	size_t n = key_len - l->dir_len;
	bool shadows, is_dir;
	int order, r;

	if (key_len < l->dir_len || key_len > PATH_KEY_MAX)
		return err_origin(-EBADMSG);
	if (n == 0)
		return 0; /* the directory's own marker */
	lock_scope(&l->lock);
	order = strcmp(name, range->last);
	if (order == 0)
		return 0;
	if (order < 0 || strcmp(name, range->after) <= 0)
		return err_origin(-EBADMSG);
	shadows = note_key(range, name, n);
	is_dir = name[n - 1] == '/';
	n -= is_dir;
	if (path_name_check(name, n) != PATH_OK) {
		l->hidden++;
		return 0;
	}
	l->shadowed += shadows;
	if (is_dir && !shadows && !strncmp(range->after, name, n))
		note_twin(l, name, n);
	if (is_dir && !attr->is_dir) {
		as_dir = *attr;
		as_dir.is_dir = true;
		attr = &as_dir;
	}
	while (!range->open || !entries_add(range->open, name, n, attr)) {
		r = make_room(range);
		if (r < 0)
			return err_trace(r);
	}
	l->count++;
	return 0;
}

void listing_page_done(struct listing_range *range)
{
	struct listing *l = range->listing;

	lock_take(&l->lock);
	l->pages++;
	pthread_cond_broadcast(&l->moved);
	lock_drop(&l->lock);
	listing_spill(l);
}

/* What the new front has gathered becomes visible. */
static int unveil(struct listing_range *range)
{
	struct listing *l = range->listing;
	int r = grow(&l->settled, l->settled.count + range->blocks.count);

	if (r < 0)
		return err_trace(r);
	for (size_t i = 0; i < range->blocks.count; i++)
		settle(l, range->blocks.at[i]);
	range->blocks.count = 0;
	return 0;
}

void listing_range_done(struct listing_range *range)
{
	struct listing *l = range->listing;
	int r;

	lock_scope(&l->lock);
	range->done = true;
	r = seal(range);
	while (r == 0 && !list_empty(&l->ranges)) {
		range = list_first(&l->ranges, struct listing_range, link);
		r = unveil(range);
		if (r < 0 || !range->done)
			break;
		listing_free_range(range);
	}
	if (r < 0)
		listing_fail_locked(l, r);
	pthread_cond_broadcast(&l->moved);
}
