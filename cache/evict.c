/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/evict.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/index.h"
#include "cache/object.h"
#include "cache/pack.h"
#include "cache/shelf.h"
#include "cache/state.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define HIGH_PER_MILLE 960 /* of the limit: begin */
#define LOW_PER_MILLE 920  /* down to this */
#define CANDIDATES_MAX 4096
#define GONE_MAX 1024 /* from one tick to the next; others wait for their turn */

struct gone {
	struct list link;
	unsigned char hash[IDENT_HASH_SIZE];
	bool small;
};

/* The oldest CANDIDATES_MAX items, as a heap with the youngest of them on top, so that one
 * pass over an index of any size needs bounded memory. Pure. */
struct heap {
	struct index_item *items;
	size_t count;
};

static void swap(struct index_item *a, struct index_item *b)
{
	struct index_item t = *a;

	*a = *b;
	*b = t;
}

static void sift_down(struct heap *h)
{
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= h->count)
			return;
		if (child + 1 < h->count &&
		    h->items[child + 1].used_ms > h->items[child].used_ms)
			child++;
		if (h->items[i].used_ms >= h->items[child].used_ms)
			return;
		swap(&h->items[i], &h->items[child]);
		i = child;
	}
}

static bool offer(void *arg, const struct index_item *item)
{
	struct heap *h = arg;
	size_t i;

	if (h->count == CANDIDATES_MAX) {
		if (item->used_ms < h->items[0].used_ms) {
			h->items[0] = *item;
			sift_down(h);
		}
		return true;
	}
	i = h->count++;
	h->items[i] = *item;
	while (i && h->items[i].used_ms > h->items[(i - 1) / 2].used_ms) {
		swap(&h->items[i], &h->items[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	return true;
}

static int older(const void *a, const void *b)
{
	const struct index_item *x = a, *y = b;

	return (x->used_ms > y->used_ms) - (x->used_ms < y->used_ms);
}

/* Objects of this hash that this process has in use, one per origin, with references. */
static struct object *in_use(struct cache *c, const unsigned char *hash)
{
	struct object *o, *next;

	lock_scope(&c->lock);
	HASH_ITER (hh, c->objects, o, next) {
		if (o->refs && !memcmp(o->key.hash, hash, IDENT_HASH_SIZE)) {
			o->refs++;
			return o;
		}
	}
	return NULL;
}

static uint64_t remove_large(struct cache *c, const struct index_item *item,
			     bool open_too)
{
	struct object *o = in_use(c, item->hash);
	uint64_t freed = 0;
	int r;

	if (o && !open_too) {
		object_put(o);
		return 0;
	}
	r = datafile_remove(c->disk, item->hash, &freed);
	if (r >= 0)
		index_drop_large(c->index, item->hash);
	if (o) {
		lock_take(&o->lock);
		object_detach_locked(o);
		lock_drop(&o->lock);
		object_put(o);
	}
	return r == 0 ? freed : 0;
}

static uint64_t remove_item(struct cache *c, const struct index_item *item, bool open_too)
{
	uint64_t freed = 0, current_bytes;
	int r;

	if (item->is_list) {
		r = shelf_remove(c, item->hash, &freed);
		if (r < 0)
			return 0;
		index_drop_list(c->index, item->hash);
	} else if (!item->is_pack) {
		freed = remove_large(c, item, open_too);
	} else {
		if (!open_too && pack_current(c->packs, &current_bytes) == item->pack)
			return 0;
		r = pack_remove(c->packs, item->pack, &freed);
		if (r < 0)
			return 0;
		index_drop_pack(c->index, item->pack);
	}
	disk_release(c->disk, freed);
	return freed;
}

static uint64_t evict_item(struct cache *c, const struct index_item *item, bool open_too)
{
	uint64_t freed = remove_item(c, item, open_too);

	if (!freed)
		return 0;
	cache_count(&c->count.evicted, 1);
	cache_count(&c->count.bytes_evicted, freed);
	log_debug(LOG_CACHE, "evicted pack=%d bytes=%llu", item->is_pack,
		  (unsigned long long)freed);
	return freed;
}

/* One round over the oldest; false when nothing could be removed. */
static bool round_trip(struct cache *c, uint64_t want)
{
	struct heap h = {.items = calloc(CANDIDATES_MAX, sizeof(*h.items))};
	uint64_t freed = 0;

	if (!h.items)
		return false;
	if (index_each(c->index, offer, &h) < 0)
		h.count = 0;
	qsort(h.items, h.count, sizeof(*h.items), older);
	for (int open_too = 0; open_too < 2 && freed < want; open_too++)
		for (size_t i = 0; i < h.count && freed < want; i++) {
			uint64_t n = evict_item(c, &h.items[i], open_too);

			if (n)
				h.items[i].bytes = 0;
			freed += n;
		}
	free(h.items);
	return freed > 0;
}

static uint64_t above(struct cache *c, uint64_t per_mille)
{
	uint64_t used = disk_used(c->disk);
	uint64_t mark = disk_limit(c->disk) / 1000 * per_mille;

	return used > mark ? used - mark : 0;
}

bool evict_room(struct cache *c, uint64_t want)
{
	uint64_t limit = disk_limit(c->disk), spare;

	/* What can never fit must not sweep the cache. */
	if (want > limit)
		return false;
	lock_scope(&c->evict_lock);
	/* Someone may have made room while we waited for the lock. */
	if (disk_used(c->disk) + want <= disk_limit(c->disk))
		return true;
	spare = above(c, LOW_PER_MILLE);
	return round_trip(c, want > spare ? want : spare);
}

void evict_tick(struct cache *c)
{
	uint64_t spare;

	if (!above(c, HIGH_PER_MILLE))
		return;
	lock_scope(&c->evict_lock);
	spare = above(c, LOW_PER_MILLE);
	if (spare)
		round_trip(c, spare);
}

void evict_note_gone_locked(struct cache *c, const struct object *o)
{
	struct gone *g;

	lock_assert_held(&c->lock);
	if (!c->disk || c->gone_count == GONE_MAX)
		return;
	g = calloc(1, sizeof(*g));
	if (!g)
		return;
	memcpy(g->hash, o->ident->hash, sizeof(g->hash));
	g->small = o->small;
	list_push_back(&c->gone, &g->link);
	c->gone_count++;
}

static struct gone *next_gone(struct cache *c)
{
	struct gone *g;

	lock_scope(&c->lock);
	if (list_empty(&c->gone))
		return NULL;
	g = list_first(&c->gone, struct gone, link);
	list_remove(&g->link);
	c->gone_count--;
	return g;
}

void evict_gone(struct cache *c)
{
	struct index_item item = {0};
	struct object *o;
	struct gone *g;

	lock_scope(&c->evict_lock);
	while ((g = next_gone(c))) {
		memcpy(item.hash, g->hash, sizeof(item.hash));
		if (!g->small) {
			remove_item(c, &item, false);
		} else if ((o = in_use(c, g->hash))) {
			object_put(o);
		} else {
			/* Its bytes go with their pack. */
			index_drop_small(c->index, g->hash);
		}
		free(g);
	}
}

static void relearn_pack(void *arg, uint64_t pack, uint64_t bytes)
{
	struct cache *c = arg;

	index_touch_pack(c->index, pack, bytes);
}

static void relearn_dir(struct cache *c, const char *path)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	unsigned char hash[IDENT_HASH_SIZE];
	struct dirent *entry;
	struct stat st;
	int fd = openat(disk_fd(c->disk), path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		char name[IDENT_NAME_SIZE];
		size_t n = strlen(entry->d_name);

		if (n != IDENT_NAME_SIZE - 1 + 4 || strcmp(entry->d_name + n - 4, ".map"))
			continue;
		memcpy(name, entry->d_name, IDENT_NAME_SIZE - 1);
		name[IDENT_NAME_SIZE - 1] = '\0';
		if (ident_parse_name(name, hash) == 0 &&
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			index_touch_large(c->index, hash, (uint64_t)st.st_size);
	}
}

static void relearn_lists(struct cache *c)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	unsigned char hash[IDENT_HASH_SIZE];
	struct dirent *entry;
	struct stat st;
	int fd = openat(disk_fd(c->disk), "lists",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (strlen(entry->d_name) == IDENT_NAME_SIZE - 1 &&
		    ident_parse_name(entry->d_name, hash) == 0 &&
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			index_touch_list(c->index, hash, (uint64_t)st.st_size);
}

void evict_relearn(struct cache *c)
{
	char path[32];

	if (packs_each(c->packs, relearn_pack, c) < 0)
		log_warn("cache packs cannot be listed");
	relearn_lists(c);
	for (unsigned int i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "objects/%02x", i);
		relearn_dir(c, path);
	}
}
