/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multipart uploads (protocol.md §3.14). Parts lie in .ossd/uploads/ID/NUMBER.SERIAL; the
 * serial makes every try of a part a file of its own, so that the index alone decides which
 * one counts. Complete copies the parts together (sharing extents where the file system
 * can) and ends the upload in the transaction that makes the object.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_code.h"
#include "tools/ossd_store_private.h"
#include "tools/ossd_xml.h"

struct part_name {
	char text[OSSD_UPLOAD_ID_LEN + 40];
};

static struct part_name part_file(const char *id, const struct ossd_part *part)
{
	struct part_name name;

	snprintf(name.text, sizeof(name.text), "%s/%05" PRIu32 ".%016" PRIx64, id,
		 part->number, part->serial);
	return name;
}

int ossd_store_upload_create(struct ossd_store *store, struct ossd_upload *upload)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	int64_t now = clock_real_ns();
	struct ossd_bucket bucket;
	int r;

	/* In the order they are begun, as the listing wants them. */
	snprintf(upload->id, sizeof(upload->id), "%016" PRIX64 "%016" PRIX64,
		 (uint64_t)now, clock_random());
	upload->object.modified_ms = now / 1000000;
	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = ossd_index_bucket(&txn, upload->bucket, &bucket);
	if (r)
		return r;
	if (mkdirat(store->uploads_fd, upload->id, 0700) < 0)
		return err_origin(-errno);
	r = ossd_index_upload_put(&txn, upload);
	return r < 0 ? err_trace(r) : err_trace(ossd_store_commit(store, &txn));
}

static int find(struct ossd_txn *txn, const struct ossd_ref *ref, const char *id,
		struct ossd_upload *out)
{
	int r = ossd_index_upload(txn, id, out);

	if (r)
		return r;
	if (!strcmp(out->bucket, ref->bucket) && strlen(out->key) == ref->key_len &&
	    !memcmp(out->key, ref->key, ref->key_len))
		return 0;
	ossd_object_fini(&out->object);
	return OSSD_E_NO_SUCH_UPLOAD;
}

int ossd_store_upload(struct ossd_store *store, const struct ossd_ref *ref,
		      const char *id, struct ossd_upload *out)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	int r = ossd_txn_begin(store->index, false, &txn);

	return r < 0 ? err_trace(r) : find(&txn, ref, id, out);
}

static void fill_part(struct ossd_part *part, const struct ossd_spool *spool)
{
	part->reserved = 0;
	part->size = spool->size;
	part->crc = spool->crc;
	part->serial = clock_random();
	part->modified_ms = clock_real_ns() / 1000000;
	memcpy(part->md5, spool->md5, sizeof(part->md5));
}

int ossd_store_part_put(struct ossd_store *store, const struct ossd_ref *ref,
			const char *id, struct ossd_spool *spool, struct ossd_part *part)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_upload upload = {.id = ""};
	struct ossd_part old;
	struct part_name name;
	int r;

	fill_part(part, spool);
	name = part_file(id, part);
	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = find(&txn, ref, id, &upload);
	if (r)
		return r;
	ossd_object_fini(&upload.object);
	r = ossd_index_part_next(&txn, id, part->number - 1, &old);
	if (r < 0)
		return err_trace(r);
	if (r || old.number != part->number)
		old.number = 0;
	if (renameat(store->tmp_fd, spool->name, store->uploads_fd, name.text) < 0)
		return err_origin(-errno);
	spool->moved = true;
	r = ossd_store_sync_dir(store, store->uploads_fd, id);
	if (r == 0)
		r = ossd_index_part_put(&txn, id, part);
	if (r == 0)
		r = ossd_store_commit(store, &txn);
	if (r < 0) {
		unlinkat(store->uploads_fd, name.text, 0);
		return err_trace(r);
	}
	if (old.number)
		unlinkat(store->uploads_fd, part_file(id, &old).text, 0);
	return 0;
}

/* ---- complete -------------------------------------------------------------------------- */

struct assembly {
	struct ossd_part *parts;
	size_t count;
};

static void part_etag(char out[33], const struct ossd_part *part)
{
	for (int i = 0; i < 16; i++)
		snprintf(out + (ptrdiff_t)2 * i, 3, "%02X", part->md5[i]);
}

/* The parts that were asked for, checked; or all there are. */
static int choose_parts(struct ossd_txn *txn, const char *id,
			const struct ossd_part_ref *refs, size_t count,
			struct assembly *out)
{
	uint32_t last = 0;
	char etag[33];
	int r = 0;

	out->parts = xcalloc(OSSD_PARTS_MAX, sizeof(*out->parts));
	for (size_t i = 0; i < (refs ? count : OSSD_PARTS_MAX); i++) {
		struct ossd_part *part = &out->parts[i];

		if (refs && (refs[i].number <= last || refs[i].number > OSSD_PARTS_MAX))
			return OSSD_E_INVALID_PART_ORDER;
		r = ossd_index_part_next(
			txn, id, refs ? (uint32_t)refs[i].number - 1 : last, part);
		if (r && !refs)
			break;
		if (r)
			return r;
		part_etag(etag, part);
		if (refs && (part->number != refs[i].number ||
			     strcasecmp(etag, refs[i].etag) != 0))
			return OSSD_E_INVALID_PART;
		last = part->number;
		out->count++;
	}
	if (r < 0)
		return err_trace(r);
	return out->count ? 0 : OSSD_E_INVALID_PART;
}

static int multipart_etag(const struct assembly *a, char *out, size_t out_size)
{
	char(*texts)[33] = xcalloc(a->count, sizeof(*texts));
	const char **etags = xcalloc(a->count, sizeof(*etags));
	char etag[OSS_MULTIPART_ETAG_SIZE];
	int r;

	for (size_t i = 0; i < a->count; i++) {
		part_etag(texts[i], &a->parts[i]);
		etags[i] = texts[i];
	}
	r = oss_multipart_etag(etag, etags, a->count);
	if (r == 0)
		snprintf(out, out_size, "%s", etag);
	free(etags);
	free(texts);
	return err_trace(r);
}

/* Amazon's way: over the MD5s themselves. */
static int s3_etag(const struct assembly *a, char *out, size_t out_size)
{
	_cleanup_(buf_fini) struct buf sums = BUF_INIT;
	struct ossd_part all = {.number = 0};
	char text[33];

	for (size_t i = 0; i < a->count; i++)
		buf_append(&sums, a->parts[i].md5, sizeof(a->parts[i].md5));
	if (buf_error(&sums) < 0 ||
	    !EVP_Digest(sums.data, sums.len, all.md5, NULL, EVP_md5(), NULL))
		return err_origin(-ENOMEM);
	part_etag(text, &all);
	snprintf(out, out_size, "%s-%u", text, (unsigned int)a->count);
	return 0;
}

static int copy_parts(struct ossd_store *store, const char *id, const struct assembly *a,
		      struct ossd_spool *spool, uint64_t *crc)
{
	*crc = 0;
	for (size_t i = 0; i < a->count; i++) {
		const struct ossd_part *part = &a->parts[i];
		_cleanup_(close_fdp) int fd =
			openat(store->uploads_fd, part_file(id, part).text,
			       O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		int r;

		if (fd < 0) /* aborted, or the part was sent again, meanwhile */
			return errno == ENOENT ? OSSD_E_NO_SUCH_UPLOAD
					       : err_origin(-errno);
		r = ossd_spool_copy(spool, fd, 0, part->size, false);
		if (r < 0)
			return err_trace(r);
		*crc = crc64_combine(*crc, part->crc, part->size);
	}
	return err_trace(ossd_spool_finish(spool));
}

static int assemble(struct ossd_store *store, const struct ossd_complete *c,
		    const struct assembly *a, struct ossd_object *object)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_put put = {.ref = c->ref,
			       .spool = &spool,
			       .object = object,
			       .content_known = true,
			       .forbid_overwrite = c->forbid_overwrite,
			       .upload_id = c->id};
	int r = ossd_store_spool(store, &spool);

	object->type = OSSD_MULTIPART;
	if (c->acl)
		ossd_object_set_attr(object, "x-oss-object-acl", c->acl);
	if (r == 0)
		r = copy_parts(store, c->id, a, &spool, &object->crc);
	if (r == 0)
		r = c->s3_etag ? s3_etag(a, object->etag, sizeof(object->etag))
			       : multipart_etag(a, object->etag, sizeof(object->etag));
	return r ? r : ossd_store_put(store, &put);
}

int ossd_store_upload_complete(struct ossd_store *store, const struct ossd_complete *c,
			       struct ossd_object *out)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_upload upload = {.id = ""};
	struct assembly a = {NULL, 0};
	int r = ossd_txn_begin(store->index, false, &txn);

	if (r == 0)
		r = find(&txn, &c->ref, c->id, &upload);
	if (r)
		return r;
	r = choose_parts(&txn, c->id, c->parts, c->count, &a);
	for (size_t i = 0; r == 0 && i + 1 < a.count; i++)
		if (a.parts[i].size < store->part_min)
			r = OSSD_E_ENTITY_TOO_SMALL;
	ossd_txn_end(&txn);
	if (r == 0)
		r = assemble(store, c, &a, &upload.object);
	free(a.parts);
	if (r) {
		ossd_object_fini(&upload.object);
		return r;
	}
	*out = upload.object;
	if (io_remove_tree(store->uploads_fd, c->id) < 0)
		log_warn("parts stay until the next start upload=%s", c->id);
	return 0;
}

int ossd_store_upload_abort(struct ossd_store *store, const struct ossd_ref *ref,
			    const char *id)
{
	_cleanup_(ossd_txn_end) struct ossd_txn txn = {0};
	struct ossd_upload upload = {.id = ""};
	int r;

	lock_scope(&store->lock);
	r = ossd_store_begin(store, &txn);
	if (r == 0)
		r = find(&txn, ref, id, &upload);
	if (r)
		return r;
	ossd_object_fini(&upload.object);
	r = ossd_index_upload_del(&txn, id);
	if (r == 0)
		r = ossd_store_commit(store, &txn);
	if (r < 0)
		return err_trace(r);
	return err_trace(io_remove_tree(store->uploads_fd, id));
}
