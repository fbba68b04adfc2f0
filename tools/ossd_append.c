/* SPDX-License-Identifier: Apache-2.0 */
/* AppendObject (protocol.md §3.11): data first, behind the end; then the end moves. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "tools/ossd_code.h"
#include "tools/ossd_store_private.h"

static struct lock *append_lock(struct ossd_store *store, const struct ossd_ref *ref)
{
	uint64_t hash = crc64(0, ref->bucket, strlen(ref->bucket));

	return &store->append_locks[crc64(hash, ref->key, ref->key_len) % APPEND_LOCKS];
}

/* Not an MD5, and another after each append. */
static void set_etag(struct ossd_object *o)
{
	snprintf(o->etag, sizeof(o->etag), "%016" PRIX64 "%08" PRIX32 "00000000", o->crc,
		 (uint32_t)o->size);
}

static int create(struct ossd_store *store, const struct ossd_ref *ref,
		  struct ossd_spool *spool, struct ossd_object *object)
{
	struct ossd_put put = {.ref = *ref,
			       .spool = spool,
			       .object = object,
			       .content_known = true,
			       .forbid_overwrite = true};

	object->type = OSSD_APPENDABLE;
	object->crc = spool->crc;
	object->size = spool->size;
	set_etag(object);
	return ossd_store_put(store, &put);
}

struct extension {
	const struct ossd_spool *spool;
	struct ossd_object *out;
	const char
		*acl; /* NULL: as it is; every other attribute counts only at the start */
	uint64_t old_ino, old_size;
	int64_t file_time_ns;
};

static int move_end(struct ossd_object *o, void *arg)
{
	struct extension *e = arg;

	if (o->ino != e->old_ino || o->size != e->old_size)
		return OSSD_E_POSITION; /* replaced meanwhile: we wrote to a file without name */
	if (e->acl)
		ossd_object_set_attr(o, "x-oss-object-acl", e->acl);
	o->crc = crc64_combine(o->crc, e->spool->crc, e->spool->size);
	o->size += e->spool->size;
	o->file_time_ns = e->file_time_ns;
	o->modified_ms = clock_real_ns() / 1000000;
	set_etag(o);
	ossd_object_fini(e->out);
	ossd_object_copy(e->out, o);
	return 0;
}

static int extend(struct ossd_store *store, const struct ossd_ref *ref,
		  struct ossd_spool *spool, const struct ossd_object *old,
		  struct ossd_object *out)
{
	_cleanup_(buf_fini) struct buf path = BUF_INIT;
	_cleanup_(close_fdp) int fd = -1;
	struct extension e = {.spool = spool,
			      .out = out,
			      .old_ino = old->ino,
			      .old_size = old->size,
			      .acl = ossd_object_attr(out, "x-oss-object-acl")};
	struct ossd_object stamp = {0};
	int r;

	ossd_key_path(&path, ref->bucket, ref->key, ref->key_len, old->odd);
	fd = ossd_file_open(store->root_fd, path.data, O_RDWR);
	if (fd < 0)
		return err_trace(fd);
	/* An append that failed may have left bytes behind the end. */
	if (ftruncate(fd, (off_t)old->size) < 0)
		return err_origin(-errno);
	r = ossd_file_copy(spool->fd, 0, fd, old->size, spool->size);
	if (r == 0 && store->sync && fdatasync(fd) < 0)
		r = err_origin(-errno);
	if (r == 0)
		r = ossd_file_stamp(fd, &stamp);
	if (r < 0)
		return err_trace(r);
	e.file_time_ns = stamp.file_time_ns;
	return ossd_store_change(store, ref, move_end, &e);
}

int ossd_store_append(struct ossd_store *store, const struct ossd_ref *ref,
		      struct ossd_spool *spool, struct ossd_object *object,
		      uint64_t *position)
{
	struct ossd_object old = {0};
	uint64_t want = *position;
	int r, fd = -1;

	lock_scope(append_lock(store, ref));
	r = ossd_store_open_object(store, ref, &old, &fd);
	close_fdp(&fd);
	if (r == OSSD_E_NO_SUCH_KEY) {
		*position = 0;
		r = want ? OSSD_E_POSITION : create(store, ref, spool, object);
		if (r == OSSD_E_FILE_EXISTS) /* a PUT was faster */
			r = OSSD_E_NOT_APPENDABLE;
		if (r == 0)
			*position = object->size;
		return r;
	}
	if (r)
		return r;
	*position = old.size;
	if (old.type != OSSD_APPENDABLE)
		r = OSSD_E_NOT_APPENDABLE;
	else if (old.size != want)
		r = OSSD_E_POSITION;
	else
		r = extend(store, ref, spool, &old, object);
	if (r == 0)
		*position = object->size;
	ossd_object_fini(&old);
	return r;
}
