/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths and inode numbers in front, metadata and cached objects behind; nothing is decided
 * here but who may see what.
 *
 * Happy path: lookup and readdir are answered by meta.c; open pins the version that meta
 * knows; read goes to the object.
 * Failure modes: the store's errors become the few that input.h names; a version that has
 * gone makes reads ESTALE and what meta knew of it forgotten.
 * On close: input_free() ends the metadata's requests, then the origin's fetches.
 * Threads: any.
 */
#include "fs/input.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/ahead.h"
#include "cache/cache.h"
#include "cache/meta.h"
#include "cache/object.h"
#include "cache/origin.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/json.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/inode.h"
#include "fs/input_impl.h"
#include "fs/order_log.h"
#include "fs/warm.h"

#define DEADLINE_DEFAULT_MS 60000
#define TTL_FOREVER_MS (365ull * 24 * 3600 * 1000) /* what the kernel is told */

struct input_file {
	struct input *in;
	struct object *object;
	struct object_reader reader;
	uint64_t ino;
	atomic_bool noted; /* its first read was told */
};

static _Thread_local uint64_t thread_token;

static int new_ahead(struct input *in)
{
	const struct ahead_config config = {
		.cache = in->config.cache,
		.origin = in->config.origin,
		.meta = in->meta,
		.requests_max = in->config.requests_max,
	};

	int r = ahead_new(&config, &in->ahead);
	struct warm_config warm = {
		.ahead = in->ahead,
		.cache = in->config.cache,
		.meta = in->meta,
		.origin = in->config.origin,
		.deadline_ms = in->config.deadline_ms,
	};

	return r < 0 ? err_trace(r) : err_trace(warm_new(&warm, &in->warm));
}

int input_new(const struct input_config *config, struct input **out, struct why *why)
{
	struct input *in = calloc(1, sizeof(*in));
	struct meta_config meta = {
		.origin = config->origin,
		.cache = config->cache,
		.ttl_ms = config->immutable ? META_FOREVER : config->ttl_ms,
		.posix = config->posix,
	};
	int r;

	if (!in)
		return err_origin(-ENOMEM);
	lock_init(&in->lock);
	list_init(&in->blocked);
	in->config = *config;
	if (!in->config.deadline_ms)
		in->config.deadline_ms = DEADLINE_DEFAULT_MS;
	if (!in->config.file_mode)
		in->config.file_mode = 0444;
	if (!in->config.dir_mode)
		in->config.dir_mode = 0555;
	in->born_ns = clock_real_ns();
	r = meta_new(&meta, &in->meta);
	if (r == 0)
		r = inodes_new(config->handover, &in->inodes);
	if (r == 0)
		r = new_ahead(in);
	if (r < 0) {
		input_free(in);
		return why_set(why, err_trace(r), "cannot set up the input tree: %s",
			       strerror(-r));
	}
	*out = in;
	return 0;
}

struct input *input_free(struct input *in)
{
	if (!in)
		return NULL;
	in->warm = warm_free(in->warm);
	in->ahead = ahead_free(in->ahead);
	in->meta = meta_free(in->meta);
	object_forget_origin(in->config.cache, in->config.origin);
	inodes_free(in->inodes);
	lock_fini(&in->lock);
	free(in);
	return NULL;
}

/* ---- waiting and being interrupted ---- */

void input_set_token(uint64_t token)
{
	thread_token = token;
}

const struct wait *input_block_begin(struct input *in, struct blocked *b)
{
	*b = (struct blocked){.token = thread_token};
	b->wait.deadline_ms = clock_mono_ms() + in->config.deadline_ms;
	b->wait.interrupted = &b->interrupted;
	list_init(&b->link);
	if (b->token) {
		lock_scope(&in->lock);
		list_push_back(&in->blocked, &b->link);
		for (int i = 0; i < INPUT_EARLY_MAX; i++)
			if (in->early[i] == b->token)
				atomic_store(&b->interrupted, true);
	}
	return &b->wait;
}

void input_block_end(struct input *in, struct blocked *b)
{
	if (!b->token)
		return;
	lock_scope(&in->lock);
	list_remove(&b->link);
}

void input_interrupt(struct input *in, uint64_t token)
{
	struct list *it;

	lock_scope(&in->lock);
	in->early[in->early_at++ % INPUT_EARLY_MAX] = token;
	list_for_each (it, &in->blocked) {
		struct blocked *b = container_of(it, struct blocked, link);

		if (b->token == token)
			atomic_store(&b->interrupted, true);
	}
}

/* The border: what the layers below say becomes what input.h promises. */
int input_border(int r)
{
	switch (r) {
	case 0:
	case -ENOENT:
	case -ENOTDIR:
	case -EISDIR:
	case -EACCES:
	case -ESTALE:
	case -ENOMEM:
	case -EINTR:
	case -ELOOP:
	case -EINVAL:
	case -ENAMETOOLONG:
		return r;
	case -EKEYEXPIRED:
		return -EACCES;
	default:
		return r > 0 ? r : -EIO;
	}
}

/* ---- attributes ---- */

static uint64_t ttl_left(uint64_t until_ms)
{
	uint64_t now = clock_mono_ms();

	if (until_ms == META_FOREVER)
		return TTL_FOREVER_MS;
	return until_ms > now ? until_ms - now : 0;
}

void input_fill_attr(const struct input *in, const struct origin_attr *from,
		     uint64_t until_ms, struct tree_attr *attr)
{
	const struct input_config *c = &in->config;
	int64_t mtime = from->mtime_ns ? from->mtime_ns : in->born_ns;
	bool own = c->posix && from->has_posix;
	mode_t permissions = from->is_dir ? c->dir_mode : c->file_mode;
	mode_t type = from->is_dir ? S_IFDIR : from->is_symlink ? S_IFLNK : S_IFREG;

	if (own)
		permissions = from->mode & 07777;
	else if (from->is_symlink)
		permissions = 0777;
	*attr = (struct tree_attr){
		.size = from->is_dir ? 0 : from->size,
		.blocks = from->is_dir ? 0 : (from->size + 511) / 512,
		.mtime_ns = mtime,
		.ctime_ns = mtime,
		.mode = type | permissions,
		.nlink = from->is_dir ? 2 : 1,
		.uid = own ? from->uid : c->uid,
		.gid = own ? from->gid : c->gid,
		.ttl_ms = ttl_left(until_ms),
	};
}

/* Which version an attribute speaks of, as cache/ident.h has it: where there is an ETag the
 * time does not count. */
static uint64_t version_id(const struct origin_attr *attr)
{
	uint64_t numbers[3] = {attr->size, 0, attr->is_symlink}, id;

	if (attr->is_dir)
		return 0;
	if (!attr->etag[0])
		numbers[1] = (uint64_t)attr->mtime_ns;
	id = crc64(crc64(0, attr->etag, strlen(attr->etag)), numbers, sizeof(numbers));
	return id ? id : 1;
}

/* The attributes of a version that the store has no more, for those who have it open. */
static void fill_replaced(const struct input *in, const struct inodes_version *v,
			  struct tree_attr *attr)
{
	struct origin_attr was = {
		.size = v->size, .mtime_ns = v->mtime_ns, .is_symlink = S_ISLNK(v->mode)};

	input_fill_attr(in, &was, META_FOREVER, attr);
	attr->mode = v->mode;
	attr->ttl_ms = in->config.immutable ? TTL_FOREVER_MS : in->config.ttl_ms;
}

/* The number of what a name is, with a reference; attr has been filled from `from`. */
int input_enter(struct input *in, uint64_t parent, const char *name,
		const struct origin_attr *from, struct tree_attr *attr)
{
	struct inodes_version version = {.id = version_id(from),
					 .size = attr->size,
					 .mtime_ns = attr->mtime_ns,
					 .mode = attr->mode};

	return err_trace(inodes_enter(in->inodes, parent, name, &version, &attr->ino,
				      &attr->generation));
}

static void fill_root(const struct input *in, struct tree_attr *attr)
{
	struct origin_attr root = {.is_dir = true};

	input_fill_attr(in, &root, META_FOREVER, attr);
	attr->ino = TREE_ROOT;
	attr->ttl_ms = in->config.immutable ? TTL_FOREVER_MS : in->config.ttl_ms;
}

/* meta_lookup() with this call's flags; META_E_NONE and META_E_WAIT pass. */
int input_find(struct input *in, const char *dir, const char *name, unsigned int flags,
	       struct meta_entry *entry)
{
	bool nowait = flags & TREE_NOWAIT;
	struct blocked b;
	int r;

	if (nowait)
		return meta_lookup(in->meta, dir, name, true, NULL, entry);
	r = meta_lookup(in->meta, dir, name, false, input_block_begin(in, &b), entry);
	input_block_end(in, &b);
	return r;
}

/* The key of a directory for its children. */
int input_dir_key(struct input *in, uint64_t ino, char *path)
{
	char name[PATH_KEY_MAX + 2];
	size_t n, m;
	int r = inodes_path(in->inodes, ino, path, name, NULL);

	if (r < 0)
		return err_trace(r);
	if (!name[0])
		return 0;
	n = strlen(path);
	m = strlen(name);
	if (n + m + 1 > PATH_KEY_MAX)
		return err_origin(-ENAMETOOLONG);
	memcpy(path + n, name, m);
	memcpy(path + n + m, "/", 2);
	return 0;
}

/* What the store can have no object for is not there. */
static int find_possible(struct input *in, const char *dir, const char *name,
			 unsigned int flags, struct meta_entry *entry)
{
	char key[PATH_KEY_MAX + 2];
	int n = snprintf(key, sizeof(key), "%s%s", dir, name);

	if ((size_t)n >= sizeof(key))
		return err_origin(-ENAMETOOLONG);
	switch (origin_key_check(in->config.origin, key)) {
	case 0:
		return input_find(in, dir, name, flags, entry);
	case -ENAMETOOLONG:
		return err_origin(-ENAMETOOLONG);
	default:
		return err_origin(-ENOENT);
	}
}

int input_lookup(struct input *in, uint64_t parent, const char *name, unsigned int flags,
		 struct tree_attr *attr)
{
	char path[PATH_KEY_MAX + 2];
	struct meta_entry entry;
	int r, fault = path_name_check(name, strlen(name));

	if (fault == PATH_E_LONG)
		return err_origin(-ENAMETOOLONG);
	if (fault != PATH_OK)
		return err_origin(-ENOENT);
	r = input_dir_key(in, parent, path);
	if (r == 0)
		r = find_possible(in, path, name, flags, &entry);
	if (r == META_E_WAIT)
		return TREE_E_WAIT;
	if (r == META_E_NONE) {
		*attr = (struct tree_attr){.ttl_ms = ttl_left(entry.until_ms)};
		return -ENOENT;
	}
	if (r < 0)
		return input_border(r);
	input_fill_attr(in, &entry.attr, entry.until_ms, attr);
	r = input_enter(in, parent, name, &entry.attr, attr);
	return r < 0 ? input_border(r) : 0;
}

bool input_is_over(struct input *in)
{
	return in->config.inodes_max && inodes_is_over(in->inodes, in->config.inodes_max);
}

size_t input_spare(struct input *in, uint64_t *out, uint64_t *parents, size_t max)
{
	/* Many at a time: each time costs what the kernel was just being told (ops_input.c). */
	return inodes_spare(in->inodes,
			    in->config.inodes_max - in->config.inodes_max / 16, out,
			    parents, max);
}

int input_name(struct input *in, uint64_t ino, struct inodes_name *out)
{
	return err_trace(inodes_name(in->inodes, ino, out));
}

void input_forget(struct input *in, uint64_t ino, uint64_t n)
{
	inodes_forget(in->inodes, ino, n);
}

enum ino_condition {
	INO_E_REPLACED = TREE_E_FULL + 1, /* the name is another version now, or gone */
};

/* What an inode is now. `name` is "" for the root, and entry is not filled then. `version`
 * is what the number stands for. */
static int find_ino(struct input *in, uint64_t ino, unsigned int flags, char *dir,
		    char *name, struct inodes_version *version, struct meta_entry *entry)
{
	int r = inodes_path(in->inodes, ino, dir, name, version);

	if (r < 0 || !name[0])
		return err_trace(r);
	r = input_find(in, dir, name, flags, entry);
	if (r == META_E_WAIT)
		return TREE_E_WAIT;
	if (r == META_E_NONE)
		return INO_E_REPLACED;
	if (r < 0)
		return err_trace(r);
	return version_id(&entry->attr) == version->id ? 0 : INO_E_REPLACED;
}

/* The same where only what is there now will do: -ESTALE makes the kernel look the name up
 * again. */
int input_find_current(struct input *in, uint64_t ino, unsigned int flags, char *dir,
		       char *name, struct meta_entry *entry)
{
	struct inodes_version version;
	int r = find_ino(in, ino, flags, dir, name, &version, entry);

	return r == INO_E_REPLACED ? err_origin(-ESTALE) : r;
}

int input_getattr(struct input *in, uint64_t ino, unsigned int flags,
		  struct tree_attr *attr)
{
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];
	struct inodes_version version;
	struct meta_entry entry;
	int r = find_ino(in, ino, flags, dir, name, &version, &entry);

	if (r == INO_E_REPLACED) {
		if (S_ISDIR(version.mode))
			return err_origin(-ENOENT);
		fill_replaced(in, &version, attr);
		attr->ino = ino;
		return 0;
	}
	if (r != 0)
		return input_border(r);
	if (!name[0]) {
		fill_root(in, attr);
		return 0;
	}
	input_fill_attr(in, &entry.attr, entry.until_ms, attr);
	attr->ino = ino;
	return 0;
}

/* ---- files ---- */

static int open_entry(struct input *in, const char *dir, const char *name,
		      const struct meta_entry *entry, struct object **out)
{
	char key[PATH_KEY_MAX + 2];
	size_t n = strlen(dir), m = strlen(name);
	int r;

	if (n + m > PATH_KEY_MAX)
		return err_origin(-ENAMETOOLONG);
	memcpy(key, dir, n);
	memcpy(key + n, name, m + 1);
	r = object_get(in->config.cache, in->config.origin, key, &entry->attr, out);
	if (r == 0)
		object_current(*out);
	return err_trace(r);
}

/* Under the object's lock. */
static void file_wrong(void *arg)
{
	struct input_file *file = arg;
	struct input *in = file->in;

	if (in->on_wrong)
		in->on_wrong(in->on_wrong_arg, file->ino);
}

void input_on_wrong(struct input *in, void (*fn)(void *arg, uint64_t ino), void *arg)
{
	in->on_wrong = fn;
	in->on_wrong_arg = arg;
}

int input_open(struct input *in, uint64_t ino, unsigned int flags,
	       struct input_file **out)
{
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];
	struct meta_entry entry;
	struct input_file *file;
	int r = input_find_current(in, ino, flags, dir, name, &entry);

	if (r != 0)
		return input_border(r);
	if (!name[0] || entry.attr.is_dir)
		return err_origin(-EISDIR);
	if (entry.attr.is_symlink)
		return err_origin(-ELOOP);
	file = calloc(1, sizeof(*file));
	if (!file)
		return err_origin(-ENOMEM);
	r = open_entry(in, dir, name, &entry, &file->object);
	if (r < 0) {
		free(file);
		return input_border(r);
	}
	file->in = in;
	file->ino = ino;
	object_reader_init(&file->reader, file->object, in->config.verify, file_wrong,
			   file);
	atomic_fetch_add(&in->files_open, 1);
	*out = file;
	return 0;
}

void input_close(struct input_file *file)
{
	if (!file)
		return;
	atomic_fetch_sub(&file->in->files_open, 1);
	object_reader_fini(&file->reader);
	object_put(file->object);
	free(file);
}

/* The store has another version, or none: what we know of the name is wrong too. */
static void note_stale(struct input *in, uint64_t ino)
{
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];

	atomic_fetch_add(&in->stale, 1);
	if (inodes_path(in->inodes, ino, dir, name, NULL) == 0 && name[0])
		meta_invalidate(in->meta, dir, name);
}

/* Whoever fetches ahead learns what is read, slow reads before they begin. */
static void note_read(struct input_file *file, bool slow)
{
	struct input *in = file->in;
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];
	bool follow;

	if (atomic_load_explicit(&file->noted, memory_order_relaxed) ||
	    atomic_exchange(&file->noted, true))
		return;
	follow = ahead_cares(in->ahead, slow);
	if (!follow && !in->config.order_log && !warm_cares(in->warm))
		return;
	if (inodes_path(in->inodes, file->ino, dir, name, NULL) < 0)
		return;
	if (follow)
		ahead_opened(in->ahead, dir, name);
	if (in->config.order_log)
		order_log_read(in->config.order_log, dir, name);
	warm_read(in->warm, dir, name);
}

int input_read(struct input_file *file, uint64_t off, void *p, size_t n,
	       unsigned int flags, size_t *got)
{
	struct input *in = file->in;
	struct blocked b;
	int r;

	if (flags & TREE_NOWAIT) {
		r = object_read(file->object, &file->reader, off, p, n, OBJECT_NOWAIT,
				NULL, got);
	} else {
		/* Waiting for the disk is no reason to fetch ahead. */
		note_read(file, !(object_is_small(file->object) &&
				  object_cached(file->object)));
		r = object_read(file->object, &file->reader, off, p, n, 0,
				input_block_begin(in, &b), got);
		input_block_end(in, &b);
	}
	if (r == OBJECT_E_WAIT)
		return TREE_E_WAIT;
	/* The object was deleted under the file: to its reader the version has gone. */
	if (r == -ENOENT)
		r = -ESTALE;
	if (r == -ESTALE)
		note_stale(in, file->ino);
	if (r < 0)
		return input_border(r);
	note_read(file, false);
	atomic_fetch_add_explicit(&in->reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&in->bytes_read, *got, memory_order_relaxed);
	return 0;
}

int input_backing_fd(struct input_file *file, unsigned int flags, int *fd)
{
	int r = object_backing_fd(file->object, flags & TREE_NOWAIT ? OBJECT_NOWAIT : 0,
				  fd);

	/* What the kernel reads itself is not seen here again. */
	if (r == 0)
		note_read(file, false);
	return r == OBJECT_E_WAIT ? TREE_E_WAIT : r;
}

bool input_is_small(const struct input_file *file)
{
	return object_is_small(file->object);
}

int input_readlink(struct input *in, uint64_t ino, unsigned int flags, char *target,
		   size_t target_size)
{
	char dir[PATH_KEY_MAX + 2], name[PATH_KEY_MAX + 2];
	struct meta_entry entry;
	struct object *o;
	struct blocked b;
	size_t got = 0;
	int r = input_find_current(in, ino, flags, dir, name, &entry);

	if (r != 0)
		return input_border(r);
	if (!name[0] || !entry.attr.is_symlink || target_size == 0)
		return err_origin(-EINVAL);
	r = open_entry(in, dir, name, &entry, &o);
	if (r < 0)
		return input_border(r);
	if (flags & TREE_NOWAIT) {
		r = object_read(o, NULL, 0, target, target_size - 1, OBJECT_NOWAIT, NULL,
				&got);
	} else {
		r = object_read(o, NULL, 0, target, target_size - 1, 0,
				input_block_begin(in, &b), &got);
		input_block_end(in, &b);
	}
	object_put(o);
	if (r == OBJECT_E_WAIT)
		return TREE_E_WAIT;
	if (r == -ESTALE)
		note_stale(in, ino);
	if (r < 0)
		return input_border(r);
	target[got] = '\0';
	return 0;
}

struct warm *input_warm(struct input *in)
{
	return in->warm;
}

/* ---- figures ---- */

void input_stats(struct input *in, struct input_stats *stats)
{
	struct cache_stats cache;
	struct meta_stats meta;

	cache_stats(in->config.cache, &cache);
	meta_stats(in->meta, &meta);
	*stats = (struct input_stats){
		.reads = atomic_load(&in->reads),
		.bytes_read = atomic_load(&in->bytes_read),
		.hits = cache.hits,
		.bytes_hit = cache.bytes_hit,
		.bytes_fetched = cache.bytes_fetched,
		.hidden_keys = meta.hidden_keys,
		.stale = atomic_load(&in->stale),
		.inodes = inodes_count(in->inodes),
		.files_open = atomic_load(&in->files_open),
	};
}

void input_status_json(struct input *in, struct buf *b)
{
	struct input_stats s;
	struct meta_stats meta;
	struct ahead_stats ahead;

	input_stats(in, &s);
	meta_stats(in->meta, &meta);
	ahead_stats(in->ahead, &ahead);
	json_put_uint(b, "reads", s.reads);
	json_put_uint(b, "bytes_read", s.bytes_read);
	json_put_uint(b, "stale", s.stale);
	json_put_uint(b, "inodes", s.inodes);
	json_put_uint(b, "files_open", s.files_open);
	json_put_uint(b, "hidden_keys", meta.hidden_keys);
	json_put_uint(b, "shadowed_keys", meta.shadowed_keys);
	json_put_uint(b, "listings", meta.listings);
	json_put_uint(b, "lookups", meta.lookups);
	json_begin_object(b, "ahead");
	json_put_uint(b, "files", ahead.files);
	json_put_uint(b, "files_read", ahead.hits);
	json_put_uint(b, "bytes_unread", ahead.unread);
	json_put_uint(b, "bytes_wasted", ahead.wasted);
	json_put_uint(b, "requests_under_way", ahead.under_way);
	json_end_object(b);
	json_begin_object(b, "cache");
	cache_status_json(in->config.cache, b);
	json_end_object(b);
}
