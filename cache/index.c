/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three tables (format: cache/README.md):
 *
 *   small    hash -> struct small_value
 *   used     item key -> struct used_value, for large objects, packs and listings
 *   members  pack -> hashes (sorted duplicates), so that a pack goes with all it holds
 *
 * Pending changes lie in a hash table keyed by table and key, and are looked at first.
 * index_flush() takes the table, commits it, and only then forgets it, so that a look-up
 * never falls between.
 *
 * Failure modes: a full map or disk loses changes, with one warning; cached data is then
 * not found again, nothing worse. LMDB is used with NOMETASYNC: a power cut may undo the
 * last commits, not break the tree.
 */
#include "cache/index.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

#define MAP_BYTES (1ull << 30) /* address space, not disk: about ten million entries */
#define READERS_MAX 1024
#define PENDING_MAX 20000 /* entries; then the adder flushes */

enum key_kind {
	KEY_SMALL = 's',
	KEY_LARGE = 'l',
	KEY_LIST = 'd',
	KEY_PACK = 'p'
};

struct key {
	unsigned char kind;                /* enum key_kind */
	unsigned char id[IDENT_HASH_SIZE]; /* a hash, or a pack number and zeros */
};

struct small_value {
	struct index_small small;
	uint32_t crc; /* CRC-32C of key and the rest */
	uint32_t pad;
};

struct used_value {
	uint64_t bytes;
	uint64_t used_ms;
	uint32_t crc; /* CRC-32C of key and the two above */
	uint32_t pad;
};

struct change {
	struct key key;
	bool drop;
	struct index_small small; /* KEY_SMALL */
	uint64_t bytes;           /* the others */
	uint64_t used_ms;
	UT_hash_handle hh;
};

struct index {
	MDB_env *env;
	MDB_dbi small, used, members;
	struct lock lock; /* pending, flushing, warned */
	struct change *pending;
	struct change *flushing; /* being committed; still looked at */
	bool warned;
	struct lock flush_lock; /* one flush at a time; taken before `lock` */
};

static int mdb_error(int r)
{
	if (r == 0)
		return 0;
	return err_origin(r > 0 ? -r : r == MDB_MAP_FULL ? -ENOSPC : -EIO);
}

static struct key hash_key(enum key_kind kind, const unsigned char *hash)
{
	struct key k = {.kind = (unsigned char)kind};

	memcpy(k.id, hash, IDENT_HASH_SIZE);
	return k;
}

static struct key pack_key(uint64_t pack)
{
	struct key k = {.kind = KEY_PACK};

	memcpy(k.id, &pack, sizeof(pack));
	return k;
}

/* The checksum covers the key too: a value that strayed to another key is wrong. */
static uint32_t value_crc(const struct key *key, const void *value, size_t n)
{
	return crc32c(crc32c(0, key, sizeof(*key)), value, n);
}

static int open_tables(struct index *x)
{
	MDB_txn *txn;
	int r = mdb_txn_begin(x->env, NULL, 0, &txn);

	if (r)
		return mdb_error(r);
	r = mdb_dbi_open(txn, "small", MDB_CREATE, &x->small);
	if (!r)
		r = mdb_dbi_open(txn, "used", MDB_CREATE, &x->used);
	if (!r)
		r = mdb_dbi_open(txn, "members", MDB_CREATE | MDB_DUPSORT | MDB_DUPFIXED,
				 &x->members);
	if (r) {
		mdb_txn_abort(txn);
		return mdb_error(r);
	}
	return mdb_error(mdb_txn_commit(txn));
}

static int open_env(struct index *x, const char *path)
{
	int dead, r = mdb_env_create(&x->env);

	if (r)
		return mdb_error(r);
	r = mdb_env_set_maxdbs(x->env, 3);
	if (!r)
		r = mdb_env_set_mapsize(x->env, MAP_BYTES);
	if (!r)
		r = mdb_env_set_maxreaders(x->env, READERS_MAX);
	if (!r)
		r = mdb_env_open(x->env, path, MDB_NOMETASYNC | MDB_NOTLS | MDB_NORDAHEAD,
				 0600);
	if (!r)
		r = mdb_reader_check(x->env, &dead);
	if (r)
		r = mdb_error(r);
	else
		r = open_tables(x);
	if (r < 0) {
		mdb_env_close(x->env);
		x->env = NULL;
	}
	return err_trace(r);
}

int index_open(int dir_fd, const char *path, bool alone, struct index **out)
{
	struct index *x = calloc(1, sizeof(*x));
	char full[64];
	int r = 0;

	if (!x)
		return err_origin(-ENOMEM);
	lock_init(&x->lock);
	lock_init(&x->flush_lock);
	/* LMDB takes a path; the descriptor makes it the directory we checked. */
	snprintf(full, sizeof(full), "/proc/self/fd/%d/%s", dir_fd, path);
	if (mkdirat(dir_fd, path, 0700) < 0 && errno != EEXIST)
		r = err_origin(-errno);
	if (r == 0)
		r = open_env(x, full);
	if (r < 0 && alone && r != -ENOSPC && r != -EROFS) {
		log_warn("cache index begun anew error=%s", strerror(-r));
		r = io_remove_tree(dir_fd, path);
		if (r == 0 && mkdirat(dir_fd, path, 0700) < 0)
			r = err_origin(-errno);
		if (r == 0)
			r = open_env(x, full);
	}
	if (r < 0) {
		index_close(x);
		return err_trace(r);
	}
	*out = x;
	return 0;
}

static void forget(struct change **table)
{
	struct change *c, *next;

	HASH_ITER (hh, *table, c, next) {
		HASH_DEL(*table, c);
		free(c);
	}
}

struct index *index_close(struct index *x)
{
	if (!x)
		return NULL;
	if (x->env) {
		if (index_flush(x) < 0)
			log_warn("cache index not flushed at close");
		mdb_env_close(x->env);
	}
	forget(&x->pending);
	lock_fini(&x->flush_lock);
	lock_fini(&x->lock);
	free(x);
	return NULL;
}

static struct change *find_change_locked(struct index *x, const struct key *key)
{
	struct change *c;

	lock_assert_held(&x->lock);
	HASH_FIND(hh, x->pending, key, sizeof(*key), c);
	if (!c)
		HASH_FIND(hh, x->flushing, key, sizeof(*key), c);
	return c;
}

/* Adds to the pending changes, or replaces one. */
static void change(struct index *x, const struct change *what)
{
	struct change *c;
	bool full;

	lock_take(&x->lock);
	HASH_FIND(hh, x->pending, &what->key, sizeof(what->key), c);
	if (!c) {
		c = malloc(sizeof(*c));
		if (c) {
			c->key = what->key;
			HASH_ADD(hh, x->pending, key, sizeof(c->key), c);
		}
	}
	if (c) {
		c->drop = what->drop;
		c->small = what->small;
		c->bytes = what->bytes;
		c->used_ms = what->used_ms;
	}
	full = HASH_COUNT(x->pending) >= PENDING_MAX;
	lock_drop(&x->lock);
	if (full && index_flush(x) < 0)
		log_debug(LOG_CACHE, "index flush failed");
}

static int get(struct index *x, MDB_dbi dbi, const struct key *key, void *value, size_t n)
{
	MDB_val k = {sizeof(*key), (void *)(uintptr_t)key}, v;
	MDB_txn *txn;
	int r = mdb_txn_begin(x->env, NULL, MDB_RDONLY, &txn);

	if (r)
		return mdb_error(r);
	r = mdb_get(txn, dbi, &k, &v);
	if (!r && v.mv_size == n)
		memcpy(value, v.mv_data, n);
	else if (!r)
		r = MDB_NOTFOUND;
	mdb_txn_abort(txn);
	return r == MDB_NOTFOUND ? INDEX_E_NONE : mdb_error(r);
}

int index_find_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		     struct index_small *small)
{
	struct key key = hash_key(KEY_SMALL, hash);
	struct small_value v;
	struct change *c;
	int r;

	lock_take(&x->lock);
	c = find_change_locked(x, &key);
	if (c && !c->drop)
		*small = c->small;
	r = c && c->drop ? INDEX_E_NONE : 0;
	lock_drop(&x->lock);
	if (c)
		return r;
	r = get(x, x->small, &key, &v, sizeof(v));
	if (r != 0)
		return err_trace(r);
	if (v.crc != value_crc(&key, &v.small, sizeof(v.small)))
		return INDEX_E_NONE;
	*small = v.small;
	return 0;
}

void index_add_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		     const struct index_small *small)
{
	change(x, &(struct change){.key = hash_key(KEY_SMALL, hash), .small = *small});
}

void index_drop_small(struct index *x, const unsigned char hash[IDENT_HASH_SIZE])
{
	change(x, &(struct change){.key = hash_key(KEY_SMALL, hash), .drop = true});
}

static uint64_t now_ms(void)
{
	return (uint64_t)(clock_real_ns() / 1000000);
}

void index_touch_large(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		       uint64_t bytes)
{
	change(x, &(struct change){.key = hash_key(KEY_LARGE, hash),
				   .bytes = bytes,
				   .used_ms = now_ms()});
}

void index_touch_pack(struct index *x, uint64_t pack, uint64_t bytes)
{
	change(x, &(struct change){
			  .key = pack_key(pack), .bytes = bytes, .used_ms = now_ms()});
}

void index_touch_list(struct index *x, const unsigned char hash[IDENT_HASH_SIZE],
		      uint64_t bytes)
{
	change(x, &(struct change){.key = hash_key(KEY_LIST, hash),
				   .bytes = bytes,
				   .used_ms = now_ms()});
}

void index_drop_list(struct index *x, const unsigned char hash[IDENT_HASH_SIZE])
{
	change(x, &(struct change){.key = hash_key(KEY_LIST, hash), .drop = true});
}

void index_drop_large(struct index *x, const unsigned char hash[IDENT_HASH_SIZE])
{
	change(x, &(struct change){.key = hash_key(KEY_LARGE, hash), .drop = true});
}

void index_drop_pack(struct index *x, uint64_t pack)
{
	change(x, &(struct change){.key = pack_key(pack), .drop = true});
}

/* ---- commit ---- */

static int put(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_n,
	       const void *value, size_t n, unsigned int flags)
{
	MDB_val k = {key_n, (void *)(uintptr_t)key};
	MDB_val v = {n, (void *)(uintptr_t)value};
	int r = mdb_put(txn, dbi, &k, &v, flags);

	return r == MDB_KEYEXIST ? 0 : r;
}

static int del(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_n)
{
	MDB_val k = {key_n, (void *)(uintptr_t)key};
	int r = mdb_del(txn, dbi, &k, NULL);

	return r == MDB_NOTFOUND ? 0 : r;
}

/* A member's entry goes only if it still points into this pack. */
static int drop_member(struct index *x, MDB_txn *txn, uint64_t pack,
		       const unsigned char *hash)
{
	struct key key = hash_key(KEY_SMALL, hash);
	MDB_val k = {sizeof(key), &key}, v;
	struct index_small small;
	int r = mdb_get(txn, x->small, &k, &v);

	if (r == MDB_NOTFOUND)
		return 0;
	if (r)
		return r;
	if (v.mv_size != sizeof(struct small_value))
		return del(txn, x->small, &key, sizeof(key));
	memcpy(&small, v.mv_data, sizeof(small));
	return small.pack == pack ? del(txn, x->small, &key, sizeof(key)) : 0;
}

static int drop_pack(struct index *x, MDB_txn *txn, const struct change *c)
{
	MDB_cursor *cursor;
	MDB_val k, v;
	uint64_t pack;
	int r = mdb_cursor_open(txn, x->members, &cursor);

	if (r)
		return r;
	memcpy(&pack, c->key.id, sizeof(pack));
	k = (MDB_val){sizeof(pack), &pack};
	for (r = mdb_cursor_get(cursor, &k, &v, MDB_SET); !r;
	     r = mdb_cursor_get(cursor, &k, &v, MDB_NEXT_DUP)) {
		if (v.mv_size == IDENT_HASH_SIZE) {
			r = drop_member(x, txn, pack, v.mv_data);
			if (r)
				break;
		}
	}
	mdb_cursor_close(cursor);
	if (r && r != MDB_NOTFOUND)
		return r;
	r = del(txn, x->members, &pack, sizeof(pack));
	return r ? r : del(txn, x->used, &c->key, sizeof(c->key));
}

static int apply_small(struct index *x, MDB_txn *txn, const struct change *c)
{
	struct small_value v = {.small = c->small};
	int r;

	if (c->drop)
		return del(txn, x->small, &c->key, sizeof(c->key));
	v.crc = value_crc(&c->key, &v.small, sizeof(v.small));
	r = put(txn, x->small, &c->key, sizeof(c->key), &v, sizeof(v), 0);
	return r ? r
		 : put(txn, x->members, &v.small.pack, sizeof(v.small.pack), c->key.id,
		       IDENT_HASH_SIZE, MDB_NODUPDATA);
}

static uint64_t bytes_before(struct index *x, MDB_txn *txn, const struct key *key)
{
	MDB_val k = {sizeof(*key), (void *)(uintptr_t)key}, v;
	struct used_value old;

	if (mdb_get(txn, x->used, &k, &v) || v.mv_size != sizeof(old))
		return 0;
	memcpy(&old, v.mv_data, sizeof(old));
	return old.bytes;
}

static int apply(struct index *x, MDB_txn *txn, const struct change *c)
{
	struct used_value v = {.bytes = c->bytes, .used_ms = c->used_ms};

	if (c->key.kind == KEY_SMALL)
		return apply_small(x, txn, c);
	if (c->drop && c->key.kind == KEY_PACK)
		return drop_pack(x, txn, c);
	if (c->drop)
		return del(txn, x->used, &c->key, sizeof(c->key));
	if (!v.bytes)
		v.bytes = bytes_before(x, txn, &c->key);
	v.crc = value_crc(&c->key, &v, offsetof(struct used_value, crc));
	return put(txn, x->used, &c->key, sizeof(c->key), &v, sizeof(v), 0);
}

static int commit(struct index *x, struct change *changes)
{
	struct change *c;
	MDB_txn *txn;
	int r = mdb_txn_begin(x->env, NULL, 0, &txn);

	if (r)
		return mdb_error(r);
	for (c = changes; c && !r; c = c->hh.next)
		r = apply(x, txn, c);
	if (r) {
		mdb_txn_abort(txn);
		return mdb_error(r);
	}
	return mdb_error(mdb_txn_commit(txn));
}

int index_flush(struct index *x)
{
	bool warn = false;
	int r = 0;

	lock_scope(&x->flush_lock);
	lock_take(&x->lock);
	x->flushing = x->pending;
	x->pending = NULL;
	lock_drop(&x->lock);
	if (x->flushing)
		r = commit(x, x->flushing);
	lock_take(&x->lock);
	forget(&x->flushing);
	if (r < 0 && !x->warned)
		warn = x->warned = true;
	else if (r == 0)
		x->warned = false;
	lock_drop(&x->lock);
	if (warn)
		log_warn("cache index cannot be written error=%s", strerror(-r));
	return err_trace(r);
}

/* ---- candidates ---- */

static bool parse_item(const MDB_val *k, const MDB_val *v, struct index_item *item)
{
	struct used_value value;
	struct key key;

	if (k->mv_size != sizeof(key) || v->mv_size != sizeof(value))
		return false;
	memcpy(&key, k->mv_data, sizeof(key));
	memcpy(&value, v->mv_data, sizeof(value));
	if (value.crc != value_crc(&key, &value, offsetof(struct used_value, crc)))
		return false;
	*item = (struct index_item){
		.is_pack = key.kind == KEY_PACK,
		.is_list = key.kind == KEY_LIST,
		.bytes = value.bytes,
		.used_ms = value.used_ms,
	};
	memcpy(item->hash, key.id, sizeof(item->hash));
	memcpy(&item->pack, key.id, sizeof(item->pack));
	return true;
}

int index_each(struct index *x, index_item_fn fn, void *arg)
{
	struct index_item item;
	MDB_cursor *cursor;
	MDB_val k, v;
	MDB_txn *txn;
	int r = index_flush(x);

	if (r < 0)
		return err_trace(r);
	r = mdb_txn_begin(x->env, NULL, MDB_RDONLY, &txn);
	if (r)
		return mdb_error(r);
	r = mdb_cursor_open(txn, x->used, &cursor);
	if (r) {
		mdb_txn_abort(txn);
		return mdb_error(r);
	}
	while (!(r = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)))
		if (parse_item(&k, &v, &item) && !fn(arg, &item))
			break;
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	return r == MDB_NOTFOUND ? 0 : mdb_error(r);
}
