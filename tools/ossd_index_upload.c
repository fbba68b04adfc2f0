/* SPDX-License-Identifier: Apache-2.0 */
/* The index's records of multipart uploads and of changes to do again after a crash. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "tools/ossd_code.h"
#include "tools/ossd_index.h"

/* ---- uploads --------------------------------------------------------------------------- */

/* "bucket\0key\0" and the object. */
static int decode_upload(struct ossd_upload *out, const MDB_val *key,
			 const MDB_val *value)
{
	const char *bucket = value->mv_data, *end = bucket + value->mv_size;
	const char *object_key = memchr(bucket, '\0', value->mv_size);
	const char *object;

	if (!object_key || key->mv_size != OSSD_UPLOAD_ID_LEN)
		return err_origin(-EINVAL);
	object_key++;
	object = memchr(object_key, '\0', (size_t)(end - object_key));
	if (!object || strlen(bucket) >= sizeof(out->bucket) ||
	    strlen(object_key) >= sizeof(out->key))
		return err_origin(-EINVAL);
	object++;
	snprintf(out->id, sizeof(out->id), "%.*s", OSSD_UPLOAD_ID_LEN,
		 (const char *)key->mv_data);
	snprintf(out->bucket, sizeof(out->bucket), "%s", bucket);
	snprintf(out->key, sizeof(out->key), "%s", object_key);
	return err_trace(
		ossd_object_decode(&out->object, object, (size_t)(end - object)));
}

int ossd_index_upload(struct ossd_txn *txn, const char *id, struct ossd_upload *out)
{
	MDB_val key = ossd_index_view(id, strlen(id)), value;
	int r;

	if (key.mv_size != OSSD_UPLOAD_ID_LEN)
		return OSSD_E_NO_SUCH_UPLOAD;
	r = mdb_get(txn->mdb, ossd_index_dbi(txn, OSSD_DB_UPLOADS), &key, &value);
	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_UPLOAD;
	return r ? ossd_index_error(r) : err_trace(decode_upload(out, &key, &value));
}

int ossd_index_upload_put(struct ossd_txn *txn, const struct ossd_upload *upload)
{
	MDB_val key = ossd_index_view(upload->id, OSSD_UPLOAD_ID_LEN), value;
	struct buf b = BUF_INIT;
	int r;

	buf_append(&b, upload->bucket, strlen(upload->bucket) + 1);
	buf_append(&b, upload->key, strlen(upload->key) + 1);
	ossd_object_encode(&b, &upload->object);
	value = (MDB_val){b.len, b.data};
	r = buf_error(&b);
	if (r == 0)
		r = ossd_index_error(mdb_put(
			txn->mdb, ossd_index_dbi(txn, OSSD_DB_UPLOADS), &key, &value, 0));
	buf_fini(&b);
	return err_trace(r);
}

/* The first record with a key >= `key` of a database. */
static int seek(struct ossd_txn *txn, enum ossd_db db, MDB_val *key, MDB_val *value)
{
	MDB_cursor *c;
	int r = mdb_cursor_open(txn->mdb, ossd_index_dbi(txn, db), &c);

	if (r)
		return r;
	r = mdb_cursor_get(c, key, value, MDB_SET_RANGE);
	mdb_cursor_close(c);
	return r;
}

int ossd_index_upload_next(struct ossd_txn *txn, const char *after,
			   struct ossd_upload *out)
{
	char start[OSSD_UPLOAD_ID_LEN + 1];
	MDB_val key, value;
	int r;

	snprintf(start, sizeof(start), "%s", after);
	key = (MDB_val){strlen(start) + 1, start};
	r = seek(txn, OSSD_DB_UPLOADS, &key, &value);
	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_UPLOAD;
	return r ? ossd_index_error(r) : err_trace(decode_upload(out, &key, &value));
}

/* ---- parts ----------------------------------------------------------------------------- */

struct part_key {
	char id[OSSD_UPLOAD_ID_LEN];
	uint32_t number; /* big-endian */
};

static struct part_key make_part_key(const char *id, uint32_t number)
{
	struct part_key k;

	check(strlen(id) == OSSD_UPLOAD_ID_LEN);
	memcpy(k.id, id, sizeof(k.id));
	k.number = htonl(number);
	return k;
}

int ossd_index_part_put(struct ossd_txn *txn, const char *id,
			const struct ossd_part *part)
{
	struct part_key k = make_part_key(id, part->number);
	struct ossd_part copy = *part;
	MDB_val key = {sizeof(k), &k}, value = {sizeof(copy), &copy};

	return ossd_index_error(
		mdb_put(txn->mdb, ossd_index_dbi(txn, OSSD_DB_PARTS), &key, &value, 0));
}

int ossd_index_part_next(struct ossd_txn *txn, const char *id, uint32_t after,
			 struct ossd_part *out)
{
	struct part_key k = make_part_key(id, after + 1);
	MDB_val key = {sizeof(k), &k}, value;
	int r = seek(txn, OSSD_DB_PARTS, &key, &value);

	if (r == MDB_NOTFOUND ||
	    (r == 0 && memcmp(key.mv_data, id, OSSD_UPLOAD_ID_LEN) != 0))
		return OSSD_E_INVALID_PART;
	if (r || value.mv_size != sizeof(*out))
		return ossd_index_error(r ? r : MDB_CORRUPTED);
	memcpy(out, value.mv_data, sizeof(*out));
	return 0;
}

int ossd_index_upload_del(struct ossd_txn *txn, const char *id)
{
	MDB_val key = ossd_index_view(id, OSSD_UPLOAD_ID_LEN);
	struct ossd_part part;
	int r = mdb_del(txn->mdb, ossd_index_dbi(txn, OSSD_DB_UPLOADS), &key, NULL);

	if (r)
		return r == MDB_NOTFOUND ? OSSD_E_NO_SUCH_UPLOAD : ossd_index_error(r);
	while ((r = ossd_index_part_next(txn, id, 0, &part)) == 0) {
		struct part_key k = make_part_key(id, part.number);
		MDB_val part_key = {sizeof(k), &k};

		r = mdb_del(txn->mdb, ossd_index_dbi(txn, OSSD_DB_PARTS), &part_key,
			    NULL);
		if (r)
			return ossd_index_error(r);
	}
	return r == OSSD_E_INVALID_PART ? 0 : err_trace(r);
}

/* ---- redo log -------------------------------------------------------------------------- */

int ossd_index_redo_put(struct ossd_txn *txn, const struct ossd_redo *redo)
{
	uint64_t seq = htobe64(redo->seq);
	MDB_val key = {sizeof(seq), &seq}, value;
	struct buf b = BUF_INIT;
	char head[2] = {(char)redo->op, (char)redo->odd};
	int r;

	buf_append(&b, head, sizeof(head));
	buf_append(&b, redo->temp, strlen(redo->temp) + 1);
	buf_append(&b, redo->bucket, strlen(redo->bucket) + 1);
	buf_append(&b, redo->key, strlen(redo->key) + 1);
	value = (MDB_val){b.len, b.data};
	r = buf_error(&b);
	if (r == 0)
		r = ossd_index_error(mdb_put(txn->mdb, ossd_index_dbi(txn, OSSD_DB_REDO),
					     &key, &value, 0));
	buf_fini(&b);
	return err_trace(r);
}

int ossd_index_redo_del(struct ossd_txn *txn, uint64_t seq)
{
	uint64_t number = htobe64(seq);
	MDB_val key = {sizeof(number), &number};
	int r = mdb_del(txn->mdb, ossd_index_dbi(txn, OSSD_DB_REDO), &key, NULL);

	return r == MDB_NOTFOUND ? 0 : ossd_index_error(r);
}

/* The next NUL-terminated string into `out`; NULL when there is none or it is too long. */
static const char *take_string(const char *at, const char *end, char *out, size_t size)
{
	const char *stop = at ? memchr(at, '\0', (size_t)(end - at)) : NULL;

	if (!stop || (size_t)(stop - at) >= size)
		return NULL;
	memcpy(out, at, (size_t)(stop - at) + 1);
	return stop + 1;
}

int ossd_index_redo_next(struct ossd_txn *txn, uint64_t after, struct ossd_redo *out)
{
	uint64_t seq = htobe64(after + 1);
	MDB_val key = {sizeof(seq), &seq}, value;
	int r = seek(txn, OSSD_DB_REDO, &key, &value);
	const char *at, *end;

	if (r == MDB_NOTFOUND)
		return OSSD_E_NO_SUCH_KEY;
	if (r || key.mv_size != sizeof(seq) || value.mv_size < 2)
		return ossd_index_error(r ? r : MDB_CORRUPTED);
	memcpy(&seq, key.mv_data, sizeof(seq));
	at = value.mv_data;
	end = at + value.mv_size;
	*out = (struct ossd_redo){
		.seq = be64toh(seq), .op = (enum ossd_redo_op)at[0], .odd = at[1] != 0};
	at = take_string(at + 2, end, out->temp, sizeof(out->temp));
	at = take_string(at, end, out->bucket, sizeof(out->bucket));
	at = take_string(at, end, out->key, sizeof(out->key));
	return at ? 0 : ossd_index_error(MDB_CORRUPTED);
}
