/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LMDB environment with one database per kind of record.
 *
 * Objects: the key is the bucket's number (4 bytes, big-endian) and the object's key, so
 * that a walk is in the order the protocol lists in. LMDB takes 511 bytes; an object's key
 * may have 1023. Keys over SHORT_MAX bytes with the same first SHORT_MAX bytes share one
 * record, a "group", under those bytes and 0xFF. UTF-8 has no 0xFF, so a group stands
 * behind the key that is its prefix and before everything greater. A group's value is a
 * row of (key rest, object) in order.
 *
 * Failure modes: MDB_MAP_FULL is -ENOSPC; anything LMDB calls corrupted is -EIO, and the
 * folder .ossd/index may be removed: it is built again from the files (their attributes are
 * lost). Without `sync` a kill -9 loses nothing, a power failure may cost the index.
 *
 * Threads: transactions are not tied to threads (MDB_NOTLS); one belongs to one thread at a
 * time.
 */
#include "tools/ossd_index.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"

#define MAP_BYTES (64ull << 30) /* address space, not memory */
#define READERS_MAX 4096
#define ID_LEN sizeof(uint32_t)
#define SHORT_MAX 505 /* + ID_LEN + 0xFF <= 511 */

static const char *const db_names[] = {"buckets", "objects", "uploads", "parts", "redo"};
static_assert(sizeof(db_names) / sizeof(*db_names) == OSSD_DB_N, "database names");
static const char *const acl_names[] = {"default", "private", "public-read",
					"public-read-write"};
static_assert(sizeof(acl_names) / sizeof(*acl_names) == OSSD_ACL_N, "acl names");

struct ossd_index {
	MDB_env *env;
	MDB_dbi dbi[OSSD_DB_N];
};

const char *ossd_acl_name(enum ossd_acl acl)
{
	return acl_names[acl];
}

int ossd_acl_parse(const char *name, enum ossd_acl *out)
{
	for (int i = 0; i < OSSD_ACL_N; i++) {
		if (!strcmp(acl_names[i], name)) {
			*out = (enum ossd_acl)i;
			return 0;
		}
	}
	return -EINVAL;
}

int ossd_index_error(int r)
{
	if (r == 0)
		return 0;
	if (r == MDB_MAP_FULL)
		return err_origin(-ENOSPC);
	return err_origin(r > 0 ? -r : -EIO);
}

MDB_val ossd_index_view(const void *p, size_t n)
{
	return (MDB_val){n, (void *)(uintptr_t)p};
}

MDB_dbi ossd_index_dbi(const struct ossd_txn *txn, enum ossd_db db)
{
	return txn->ix->dbi[db];
}

/* ---- environment and transactions ------------------------------------------------------ */

static int open_databases(struct ossd_index *ix)
{
	MDB_txn *txn;
	int r = mdb_txn_begin(ix->env, NULL, 0, &txn);

	if (r)
		return r;
	for (int i = 0; i < OSSD_DB_N && r == 0; i++)
		r = mdb_dbi_open(txn, db_names[i], MDB_CREATE, &ix->dbi[i]);
	if (r == 0)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return r;
}

int ossd_index_open(struct ossd_index **out, int root_fd, const char *path, bool sync,
		    struct why *why)
{
	struct ossd_index *ix = xcalloc(1, sizeof(*ix));
	char where[64 + OSSD_KEY_MAX];
	int r;

	if (mkdirat(root_fd, path, 0700) < 0 && errno != EEXIST) {
		r = errno;
		goto undo_index;
	}
	snprintf(where, sizeof(where), "/proc/self/fd/%d/%s", root_fd, path);
	r = mdb_env_create(&ix->env);
	if (r)
		goto undo_index;
	mdb_env_set_maxdbs(ix->env, OSSD_DB_N);
	mdb_env_set_maxreaders(ix->env, READERS_MAX);
	mdb_env_set_mapsize(ix->env, MAP_BYTES);
	r = mdb_env_open(ix->env, where, MDB_NOTLS | (sync ? 0 : MDB_NOSYNC), 0600);
	if (r == 0)
		r = open_databases(ix);
	if (r == 0) {
		*out = ix;
		return 0;
	}
undo_index:
	if (ix->env)
		mdb_env_close(ix->env);
	free(ix);
	return why_set(why, ossd_index_error(r),
		       "index %s: %s; remove the folder to have it "
		       "built again",
		       path, mdb_strerror(r));
}

struct ossd_index *ossd_index_close(struct ossd_index *ix)
{
	if (!ix)
		return NULL;
	mdb_env_sync(ix->env, 1);
	mdb_env_close(ix->env);
	free(ix);
	return NULL;
}

int ossd_txn_begin(struct ossd_index *ix, bool write, struct ossd_txn *txn)
{
	*txn = (struct ossd_txn){.ix = ix};
	return ossd_index_error(
		mdb_txn_begin(ix->env, NULL, write ? 0 : MDB_RDONLY, &txn->mdb));
}

int ossd_txn_commit(struct ossd_txn *txn)
{
	int r = mdb_txn_commit(txn->mdb);

	txn->mdb = NULL;
	return ossd_index_error(r);
}

void ossd_txn_end(struct ossd_txn *txn)
{
	if (txn->mdb)
		mdb_txn_abort(txn->mdb);
	txn->mdb = NULL;
}

/* ---- buckets --------------------------------------------------------------------------- */

static const char next_id_key[] = "\xff"
				  "next"; /* no bucket is called so */

static int take_bucket_id(struct ossd_txn *txn, uint32_t *id)
{
	MDB_dbi dbi = ossd_index_dbi(txn, OSSD_DB_BUCKETS);
	MDB_val key = ossd_index_view(next_id_key, sizeof(next_id_key) - 1), value;
	uint32_t next = 1;
	int r = mdb_get(txn->mdb, dbi, &key, &value);

	if (r == 0 && value.mv_size == sizeof(next))
		memcpy(&next, value.mv_data, sizeof(next));
	else if (r != MDB_NOTFOUND)
		return ossd_index_error(r ? r : MDB_CORRUPTED);
	*id = next++;
	value = (MDB_val){sizeof(next), &next};
	return ossd_index_error(mdb_put(txn->mdb, dbi, &key, &value, 0));
}

int ossd_index_bucket(struct ossd_txn *txn, const char *name, struct ossd_bucket *out)
{
	MDB_val key = ossd_index_view(name, strlen(name)), value;
	int r = mdb_get(txn->mdb, ossd_index_dbi(txn, OSSD_DB_BUCKETS), &key, &value);

	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_BUCKET;
	if (r || value.mv_size != sizeof(*out))
		return ossd_index_error(r ? r : MDB_CORRUPTED);
	memcpy(out, value.mv_data, sizeof(*out));
	return 0;
}

int ossd_index_bucket_put(struct ossd_txn *txn, struct ossd_bucket *bucket)
{
	MDB_val key = {strlen(bucket->name), bucket->name};
	MDB_val value = {sizeof(*bucket), bucket};
	int r = bucket->id ? 0 : take_bucket_id(txn, &bucket->id);

	if (r < 0)
		return err_trace(r);
	return ossd_index_error(
		mdb_put(txn->mdb, ossd_index_dbi(txn, OSSD_DB_BUCKETS), &key, &value, 0));
}

int ossd_index_bucket_del(struct ossd_txn *txn, const char *name)
{
	MDB_val key = ossd_index_view(name, strlen(name));

	return ossd_index_error(
		mdb_del(txn->mdb, ossd_index_dbi(txn, OSSD_DB_BUCKETS), &key, NULL));
}

int ossd_index_bucket_next(struct ossd_txn *txn, const char *after,
			   struct ossd_bucket *out)
{
	char start[OSSD_BUCKET_SIZE + 1];
	MDB_val key, value;
	MDB_cursor *c;
	int r;

	/* "name\0" is the least string greater than "name". */
	snprintf(start, sizeof(start), "%s", after);
	key = (MDB_val){strlen(start) + 1, start};
	r = mdb_cursor_open(txn->mdb, ossd_index_dbi(txn, OSSD_DB_BUCKETS), &c);
	if (r)
		return ossd_index_error(r);
	r = mdb_cursor_get(c, &key, &value, MDB_SET_RANGE);
	if (r == 0 && *(const char *)key.mv_data != next_id_key[0]) {
		if (value.mv_size == sizeof(*out))
			memcpy(out, value.mv_data, sizeof(*out));
		else
			r = MDB_CORRUPTED;
	} else if (r == 0) {
		r = MDB_NOTFOUND;
	}
	mdb_cursor_close(c);
	return r == MDB_NOTFOUND ? OSSD_E_NO_SUCH_BUCKET : ossd_index_error(r);
}

/* ---- keys and groups ------------------------------------------------------------------- */

struct db_key {
	size_t n;
	unsigned char bytes[ID_LEN + SHORT_MAX + 1];
};

static bool is_long(size_t n)
{
	return n > SHORT_MAX;
}

static MDB_val make_key(struct db_key *k, uint32_t bucket, const char *key, size_t n)
{
	uint32_t id = htonl(bucket);
	size_t part = is_long(n) ? SHORT_MAX : n;

	memcpy(k->bytes, &id, ID_LEN);
	memcpy(k->bytes + ID_LEN, key, part);
	k->n = ID_LEN + part;
	if (is_long(n))
		k->bytes[k->n++] = 0xff;
	return (MDB_val){k->n, k->bytes};
}

/* One entry of a group: the key without its first SHORT_MAX bytes, then the object. */
struct entry {
	uint32_t rest_len, value_len;
};

struct group_view {
	const char *data;
	size_t size;
};

/* The entry at `at`; false at the end or where the group makes no sense. */
static bool entry_at(const struct group_view *g, size_t at, struct entry *e)
{
	if (at + sizeof(*e) > g->size)
		return false;
	memcpy(e, g->data + at, sizeof(*e));
	return e->rest_len <= OSSD_KEY_MAX - SHORT_MAX &&
	       e->value_len <= g->size - at - sizeof(*e) - e->rest_len;
}

static const char *entry_rest(const struct group_view *g, size_t at)
{
	return g->data + at + sizeof(struct entry);
}

static size_t entry_size(const struct entry *e)
{
	return sizeof(*e) + e->rest_len + e->value_len;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int r = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return r ? r : a_len < b_len ? -1 : a_len > b_len;
}

/* Offset of the first entry >= the key; *equal tells which. */
static size_t group_find(const struct group_view *g, const char *rest, size_t n,
			 bool *equal)
{
	struct entry e;
	size_t at = 0;

	*equal = false;
	for (; entry_at(g, at, &e); at += entry_size(&e)) {
		int r = compare(entry_rest(g, at), e.rest_len, rest, n);

		if (r >= 0) {
			*equal = r == 0;
			break;
		}
	}
	return at;
}

/* The group with one entry replaced, added (value) or left out (value NULL). */
static int group_change(struct ossd_txn *txn, MDB_val *key, const char *rest, size_t n,
			const struct buf *value)
{
	MDB_dbi dbi = ossd_index_dbi(txn, OSSD_DB_OBJECTS);
	MDB_val old = {0, NULL}, whole;
	struct group_view g;
	struct buf now = BUF_INIT;
	struct entry e;
	bool equal;
	size_t at;
	int r = mdb_get(txn->mdb, dbi, key, &old);

	if (r && r != MDB_NOTFOUND)
		return ossd_index_error(r);
	g = (struct group_view){old.mv_data, r ? 0 : old.mv_size};
	at = group_find(&g, rest, n, &equal);
	buf_append(&now, g.data, at);
	if (value) {
		e = (struct entry){(uint32_t)n, (uint32_t)value->len};
		buf_append(&now, &e, sizeof(e));
		buf_append(&now, rest, n);
		buf_append(&now, value->data, value->len);
	}
	if (equal && entry_at(&g, at, &e))
		at += entry_size(&e);
	buf_append(&now, g.data + at, g.size - at);
	whole = (MDB_val){now.len, now.data};
	if (now.len)
		r = mdb_put(txn->mdb, dbi, key, &whole, 0);
	else
		r = g.size ? mdb_del(txn->mdb, dbi, key, NULL) : 0;
	buf_fini(&now);
	return ossd_index_error(r);
}

/* ---- objects --------------------------------------------------------------------------- */

int ossd_index_get(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n,
		   struct ossd_object *out)
{
	struct db_key k;
	MDB_val db_key = make_key(&k, bucket, key, n), value;
	int r = mdb_get(txn->mdb, ossd_index_dbi(txn, OSSD_DB_OBJECTS), &db_key, &value);

	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_KEY;
	if (r)
		return ossd_index_error(r);
	if (is_long(n)) {
		struct group_view g = {value.mv_data, value.mv_size};
		bool equal;
		size_t at = group_find(&g, key + SHORT_MAX, n - SHORT_MAX, &equal);
		struct entry e;

		if (!equal || !entry_at(&g, at, &e))
			return OSSD_E_NO_SUCH_KEY;
		return err_trace(ossd_object_decode(out, entry_rest(&g, at) + e.rest_len,
						    e.value_len));
	}
	return err_trace(ossd_object_decode(out, value.mv_data, value.mv_size));
}

int ossd_index_put(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n,
		   const struct ossd_object *object)
{
	struct db_key k;
	MDB_val db_key = make_key(&k, bucket, key, n), value;
	struct buf b = BUF_INIT;
	int r;

	ossd_object_encode(&b, object);
	value = (MDB_val){b.len, b.data};
	if (buf_error(&b))
		r = err_origin(-ENOMEM);
	else if (is_long(n))
		r = group_change(txn, &db_key, key + SHORT_MAX, n - SHORT_MAX, &b);
	else
		r = ossd_index_error(mdb_put(txn->mdb,
					     ossd_index_dbi(txn, OSSD_DB_OBJECTS),
					     &db_key, &value, 0));
	buf_fini(&b);
	return r;
}

int ossd_index_del(struct ossd_txn *txn, uint32_t bucket, const char *key, size_t n)
{
	struct db_key k;
	MDB_val db_key = make_key(&k, bucket, key, n);
	int r;

	if (is_long(n))
		return err_trace(
			group_change(txn, &db_key, key + SHORT_MAX, n - SHORT_MAX, NULL));
	r = mdb_del(txn->mdb, ossd_index_dbi(txn, OSSD_DB_OBJECTS), &db_key, NULL);
	return r == MDB_NOTFOUND ? 0 : ossd_index_error(r);
}

/* ---- cursor ---------------------------------------------------------------------------- */

int ossd_cursor_open(struct ossd_txn *txn, uint32_t bucket, struct ossd_cursor *c)
{
	c->mdb = NULL;
	c->bucket = bucket;
	c->in_group = false;
	return ossd_index_error(
		mdb_cursor_open(txn->mdb, ossd_index_dbi(txn, OSSD_DB_OBJECTS), &c->mdb));
}

void ossd_cursor_close(struct ossd_cursor *c)
{
	if (c->mdb)
		mdb_cursor_close(c->mdb);
	c->mdb = NULL;
}

/* Shows the entry at group_at; false when the group has no more. */
static bool show_entry(struct ossd_cursor *c)
{
	struct group_view g = {c->at_value.mv_data, c->at_value.mv_size};
	struct entry e;

	if (!entry_at(&g, c->group_at, &e))
		return false;
	memcpy(c->long_key, (const char *)c->at_key.mv_data + ID_LEN, SHORT_MAX);
	memcpy(c->long_key + SHORT_MAX, entry_rest(&g, c->group_at), e.rest_len);
	c->key = c->long_key;
	c->key_len = SHORT_MAX + e.rest_len;
	c->value = entry_rest(&g, c->group_at) + e.rest_len;
	c->value_len = e.value_len;
	return true;
}

/* After LMDB moved: is it still this bucket, is it a group? */
static int arrive(struct ossd_cursor *c, int r)
{
	uint32_t id = htonl(c->bucket);
	const unsigned char *bytes = c->at_key.mv_data;

	c->in_group = false;
	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_KEY;
	if (r)
		return ossd_index_error(r);
	if (c->at_key.mv_size <= ID_LEN || memcmp(bytes, &id, ID_LEN) != 0)
		return OSSD_E_NO_SUCH_KEY;
	c->key = (const char *)bytes + ID_LEN;
	c->key_len = c->at_key.mv_size - ID_LEN;
	c->value = c->at_value.mv_data;
	c->value_len = c->at_value.mv_size;
	c->group_at = 0;
	c->in_group = c->key_len == SHORT_MAX + 1 && bytes[ID_LEN + SHORT_MAX] == 0xff;
	if (c->in_group && !show_entry(c))
		return ossd_index_error(MDB_CORRUPTED);
	return 0;
}

static int step(struct ossd_cursor *c)
{
	return arrive(c, mdb_cursor_get(c->mdb, &c->at_key, &c->at_value, MDB_NEXT));
}

int ossd_cursor_seek(struct ossd_cursor *c, const char *key, size_t n)
{
	struct db_key k;
	struct group_view g;
	bool equal;
	int r;

	c->at_key = make_key(&k, c->bucket, key, n);
	r = arrive(c, mdb_cursor_get(c->mdb, &c->at_key, &c->at_value, MDB_SET_RANGE));
	if (r || !c->in_group || !is_long(n) || memcmp(c->long_key, key, SHORT_MAX) != 0)
		return r;
	g = (struct group_view){c->at_value.mv_data, c->at_value.mv_size};
	c->group_at = group_find(&g, key + SHORT_MAX, n - SHORT_MAX, &equal);
	return show_entry(c) ? 0 : step(c);
}

int ossd_cursor_next(struct ossd_cursor *c)
{
	struct group_view g = {c->at_value.mv_data, c->at_value.mv_size};
	struct entry e;

	if (c->in_group && entry_at(&g, c->group_at, &e)) {
		c->group_at += entry_size(&e);
		if (show_entry(c))
			return 0;
	}
	return step(c);
}
