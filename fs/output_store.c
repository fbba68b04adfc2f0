/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store shows, under what we know better. output_list.c asks it.
 *
 * A listed key that a node claims is that node's, wherever it lives now. Another key
 * becomes a clean node at its path; or, where a source has it (output_source.c), a node
 * that we have to move. So a directory can have several prefixes to be listed. A listed
 * sub-directory below which something of ours is displaced, or belongs to a source, may be
 * a shell whose content has been moved or removed: it is shown only if something below it
 * is nobody's and belongs to its path.
 *
 * While a listing runs, keys that we delete stay claimed (output->lingering), so that a
 * page fetched before the delete does not bring them back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_list.h"

#define LIST_DEADLINE_MS 30000

void page_fini(struct page *page)
{
	for (size_t i = 0; i < page->count; i++)
		free(page->entries[i].key);
	free(page->entries);
	*page = (struct page){0};
}

int page_note(void *arg, const char *key, size_t key_len, const struct origin_attr *attr)
{
	struct page *page = arg;
	char *copy;

	if (page->count == page->size) {
		size_t size = page->size ? page->size * 2 : 64;
		struct entry *grown = realloc(page->entries, size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		page->entries = grown;
		page->size = size;
	}
	copy = strndup(key, key_len);
	if (!copy)
		return err_origin(-ENOMEM);
	page->entries[page->count++] = (struct entry){.key = copy, .attr = *attr};
	return 0;
}

void store_listing_begin(struct output *o)
{
	if (o->listings++ == 0)
		o->listings_epoch = o->epoch;
}

void store_listing_end(struct output *o)
{
	struct list *it, *next;

	if (--o->listings > 0)
		return;
	list_for_each_safe (it, next, &o->lingering) {
		struct node *n = container_of(it, struct node, queued);

		list_remove(it);
		node_set_stored(o, n, NULL, NULL);
		n->gone = false;
		node_settle(o, n);
	}
}

static mode_t default_mode(const struct output *o, enum record_kind kind)
{
	mode_t file = o->config.file_mode ? o->config.file_mode : 0644;
	mode_t dir = o->config.dir_mode ? o->config.dir_mode : 0755;

	if (kind == RECORD_SYMLINK)
		return S_IFLNK | 0777;
	return kind == RECORD_DIR ? S_IFDIR | dir : S_IFREG | file;
}

void store_take_attributes(struct output *o, struct node *n, const struct origin_attr *a)
{
	if (a->has_posix) {
		n->mode = (a->mode & 07777) | (n->mode & S_IFMT);
		n->uid = a->uid;
		n->gid = a->gid;
		n->unverified = false;
	} else if (o->config.origin->caps & ORIGIN_CAP_META) {
		n->unverified = true;
	}
	if (a->mtime_ns) {
		n->mtime_ns = a->mtime_ns;
		n->ctime_ns = a->mtime_ns;
	}
	n->size = a->size;
	kept_attr(n);
}

static struct node *new_from_store(struct output *o, struct node *dir, const char *name,
				   const char *key, const struct origin_attr *attr)
{
	enum record_kind kind = attr->is_dir       ? RECORD_DIR
				: attr->is_symlink ? RECORD_SYMLINK
						   : RECORD_FILE;
	struct node *n = node_new(o, kind, 0);

	if (!n)
		return NULL;
	n->mode = default_mode(o, kind);
	n->uid = o->config.uid;
	n->gid = o->config.gid;
	store_take_attributes(o, n, attr);
	/* A common prefix is not an object: it has no key of its own. */
	if (node_link(o, dir, n, name) < 0 ||
	    (kind != RECORD_DIR && node_set_stored(o, n, key, attr) < 0)) {
		node_free(o, n);
		return NULL;
	}
	if (kind == RECORD_DIR)
		n->mtime_ns = n->ctime_ns = clock_real_ns();
	n->stored.version = n->version;
	return n;
}

static struct node *replace_node(struct output *o, struct node *n, const struct entry *e)
{
	_cleanup_(freep) char *name = strdup(n->name);
	struct node *dir = n->parent;

	if (!name)
		return n;
	node_unlink(o, n);
	node_set_stored(o, n, NULL, NULL);
	node_settle(o, n);
	return new_from_store(o, dir, name, e->key, &e->attr);
}

/* Nobody has it open, and it is the store's alone. */
static bool is_clean(const struct node *n)
{
	return !n->opens && !n->acked && !n->task && !n->journaled && !plan_is_dirty(n);
}

/* A key we hold to be ours: is it still what we put there? Returns the node that shows it.
 * What others put there is another file, with a number of its own: a kernel that writes
 * back believes only itself about the size of one that it knows. */
static struct node *compare(struct output *o, struct node *n, const struct entry *e,
			    uint64_t epoch)
{
	const struct origin_attr *attr = &e->attr;

	/* What we have sent may be what is there: its answer decides. */
	if (n->stored_epoch > epoch || n->task ||
	    (n->stored.unsure && plan_is_dirty(n)) || attr->etag[0] == '\0' ||
	    strcmp(n->stored.etag, attr->etag) == 0)
		return n;
	log_debug(LOG_CACHE, "replaced by someone else key=%s", n->stored.key);
	n->stored_change++;
	memcpy(n->stored.etag, attr->etag, sizeof(n->stored.etag));
	n->stored.size = attr->size;
	n->stored.has_crc64 = attr->has_crc64;
	n->stored.crc64 = attr->crc64;
	n->stored.appendable = attr->is_appendable;
	n->seal.version = 0;
	n->outdated = n->opens > 0 && !n->acked;
	if (n->acked || n->opens > 0)
		return n; /* our version will win, as the last close does */
	content_drop_retained(o, n);
	if (n->kind == RECORD_FILE && n->lookups && is_clean(n))
		return replace_node(o, n, e);
	store_take_attributes(o, n, attr);
	return n;
}

struct node *store_new_dir(struct output *o, struct node *dir, const char *name)
{
	struct origin_attr attr = {.is_dir = true};
	struct node *n = new_from_store(o, dir, name, "", &attr);

	if (n)
		n->passing = true;
	return n;
}

struct node *store_new_file(struct output *o, struct node *dir, const char *name,
			    const char *key, const struct origin_attr *attr)
{
	return new_from_store(o, dir, name, key, attr);
}

int store_take_marker(struct output *o, struct node *dir, const char *key,
		      const struct origin_attr *attr)
{
	int r = node_set_stored(o, dir, key, attr);

	if (r < 0)
		return err_trace(r);
	dir->marker = true;
	return 0;
}

/* The name below `prefix` that the key stands for, without the slash of a directory.
 * Returns false when it can be no name. */
static bool entry_name(const char *key, const char *prefix, char out[PATH_NAME_MAX + 1])
{
	const char *rest = key + strlen(prefix);
	size_t len = strcspn(rest, "/");

	if (path_name_check(rest, len) != PATH_OK || (rest[len] == '/' && rest[len + 1]))
		return false;
	memcpy(out, rest, len);
	out[len] = '\0';
	return true;
}

/* The prefix that a page is of. */
struct part {
	const char *prefix;
	struct source *source; /* whose keys these are; NULL: nobody's */
	bool own;              /* it is the directory's path */
};

/* A name that nobody has. Records of nodes that are to be moved are added to `b`. */
static void take_new(struct output *o, struct node *dir, struct refresh *it,
		     const struct part *part, const char *name, const struct entry *e,
		     struct buf *b)
{
	struct node *n;

	/* What is where it belongs can wait in the store until it is looked up. */
	if (!it->all && part->own && node_are_many(o)) {
		it->lost |= name_set_add(&it->left, name) < 0;
		for (struct node *d = dir; d; d = d->parent)
			d->born = false;
		return;
	}
	n = new_from_store(o, dir, name, e->key, &e->attr);
	/* One object was asked for all of its attributes, listings have not all. */
	if (n && it->id == 0)
		n->unverified = false;
	if (n && n->displaced)
		walk_own(o, b, n);
}

static void merge_entry(struct output *o, struct node *dir, struct refresh *it,
			const struct part *part, struct entry *e, uint64_t epoch,
			struct buf *b)
{
	char name[PATH_NAME_MAX + 1];
	struct node *owner = node_claim(o, e->key), *n;

	if (strcmp(e->key, part->prefix) == 0) {
		/* The marker of this very directory. */
		if (owner || dir == o->root || dir->stored.key)
			return;
		if (store_take_marker(o, dir, e->key, &e->attr) == 0 && dir->displaced)
			walk_own(o, b, dir);
		return;
	}
	if (!entry_name(e->key, part->prefix, name)) {
		o->hidden_keys++;
		return;
	}
	n = node_child(dir, name);
	if (owner && !e->attr.is_dir)
		n = owner == n ? compare(o, n, e, epoch) : NULL;
	else if (!n && e->attr.is_dir && source_of_key(o, e->key) != part->source)
		return; /* a directory that has left */
	else if (!n && e->attr.is_dir &&
		 (displaced_below(o, e->key) > 0 || source_is_below(o, e->key)))
		e->doubtful = true;
	else if (!n)
		take_new(o, dir, it, part, name, e, b);
	if (n && n->seen < it->id)
		n->seen = it->id;
}

void store_sweep(struct output *o, struct node *dir, const struct refresh *it)
{
	struct node *n, *next;

	lock_assert_held(&o->lock);
	HASH_ITER (by_name, dir->children, n, next) {
		if (n->seen >= it->id || n->holds || n->opens || n->task ||
		    n->journaled || n->children || plan_is_dirty(n) ||
		    n->stored_epoch > it->epoch)
			continue;
		if (n->kind == RECORD_DIR && (n->marker || !n->stored.key) && n->lookups)
			continue;
		if (n->kind == RECORD_FILE && !n->stored.key)
			continue; /* new, not yet acknowledged */
		log_debug(LOG_CACHE, "removed by someone else name=%s", n->name);
		node_unlink(o, n);
		node_set_stored(o, n, NULL, NULL);
		node_settle(o, n);
	}
}

struct search {
	struct output *output;
	struct source *source; /* for comparison only */
	bool found;
};

static int look_for_unclaimed(void *arg, const char *key, size_t key_len,
			      const struct origin_attr *attr)
{
	struct search *search = arg;
	struct output *o = search->output;
	char text[PATH_KEY_MAX + 1];

	(void)attr;
	if (key_len > PATH_KEY_MAX)
		return 0;
	memcpy(text, key, key_len);
	text[key_len] = '\0';
	lock_scope(&o->lock);
	search->found = !node_claim(o, text) && source_of_key(o, text) == search->source;
	return search->found ? err_origin(-ECANCELED) : 0;
}

/* Whether anything below the prefix is nobody's, and belongs to the same path as the prefix
 * itself. Called without the lock. */
static int has_unclaimed(struct output *o, const char *prefix, bool *found)
{
	struct origin_req req = {.op = ORIGIN_LIST,
				 .key = prefix,
				 .deadline_ms = clock_mono_ms() + LIST_DEADLINE_MS};
	struct search search = {.output = o};
	int r;

	lock_take(&o->lock);
	search.source = source_of_key(o, prefix);
	lock_drop(&o->lock);
	req.list.recursive = true;
	req.list.entry = look_for_unclaimed;
	req.list.entry_arg = &search;
	r = origin_list_all(o->config.origin, &req);
	*found = search.found;
	return search.found ? 0 : err_trace(r);
}

static int resolve_doubtful(struct output *o, struct node *dir, const char *prefix,
			    const struct page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct entry *e = &page->entries[i];
		char name[PATH_NAME_MAX + 1];
		bool found;
		int r;

		if (!e->doubtful)
			continue;
		r = has_unclaimed(o, e->key, &found);
		if (r < 0)
			return err_trace(r);
		if (!found || !entry_name(e->key, prefix, name))
			continue;
		lock_scope(&o->lock);
		if (!node_child(dir, name))
			new_from_store(o, dir, name, e->key, &e->attr);
	}
	return 0;
}

/* Whether the directory would be listed from the same prefixes now. */
static bool prefixes_hold(struct output *o, const struct node *dir,
			  const struct prefixes *p)
{
	_cleanup_(prefixes_fini) struct prefixes now = {0};

	return (dir->parent || dir == o->root) && source_prefixes(o, dir, &now) == 0 &&
	       prefixes_equal(&now, p);
}

static int merge_page(struct output *o, struct node *dir, struct refresh *it,
		      const char *prefix, struct page *page)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct part part = {.prefix = prefix};
	uint64_t seq;

	lock_scope(&o->lock);
	if (!prefixes_hold(o, dir, &it->prefixes))
		return REFRESH_AGAIN;
	part.source = source_of_key(o, prefix);
	part.own = it->prefixes.own &&
		   strcmp(prefix, it->prefixes.items[it->prefixes.count - 1]) == 0;
	for (size_t i = 0; i < page->count; i++)
		merge_entry(o, dir, it, &part, &page->entries[i], page->epoch, &b);
	if (b.len > 0)
		log_commit(o, &b, &seq);
	return 0;
}

int store_merge(struct output *o, struct node *dir, struct refresh *it,
		const char *prefix, struct page *page)
{
	int r = merge_page(o, dir, it, prefix, page);

	return r != 0 ? r : err_trace(resolve_doubtful(o, dir, prefix, page));
}
