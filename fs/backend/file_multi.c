/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts. The bytes lie in a draft beside the object's place,
 * FILE_TMP_PREFIX "up-" ID; a record (file_record.h) says for which key and with which
 * metadata. Both outlive the process: a part that was
 * acknowledged is synced, and its ETag says where it lies and what its bytes sum up to, so
 * that the end needs no other memory.
 *
 * Order: record, draft, parts, rename, record removed. After a crash a record without a
 * draft is an upload that never began or has ended; the listing clears it away.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/file_impl.h"
#include "fs/backend/file_record.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"

static int no_upload(struct origin_req *req)
{
	return why_set(&req->why, err_origin(-ENOENT), "no upload %s of %s",
		       req->upload_id, req->key);
}

/* ---- drafts --------------------------------------------------------------------------- */

static int open_draft(const struct file_origin *f, struct origin_req *req,
		      struct file_place *place, struct file_draft *draft)
{
	int r = file_place_find(f, req->key, place);

	*draft = (struct file_draft){.place = place, .fd = -1};
	if (r == -ENOENT || !file_upload_id_ok(req->upload_id))
		return no_upload(req);
	if (r < 0)
		return err_trace(r);
	file_upload_draft_name(req->upload_id, draft->name);
	draft->fd = openat(place->dir_fd, draft->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (draft->fd < 0 && errno == ENOENT)
		return no_upload(req);
	return draft->fd < 0 ? err_origin(file_error(errno)) : 0;
}

/* Closed only: it stays until the upload ends. */
static void draft_leave(struct file_draft *draft)
{
	draft->name[0] = '\0';
	file_draft_close(draft);
}

int file_multi_begin(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	char id[FILE_ID_LEN + 1], name[64];
	int fd, r;

	snprintf(id, sizeof(id), "%016" PRIx64, clock_random());
	file_upload_draft_name(id, name);
	r = file_place_make(f, req->key, &place, &req->why);
	if (r == 0 && place.is_dir)
		r = why_set(&req->why, err_origin(-EINVAL),
			    "%s: a directory is not uploaded in parts", req->key);
	if (r == 0)
		r = file_record_write(f, req, id);
	if (r < 0)
		return err_trace(r);
	fd = openat(place.dir_fd, name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		r = err_origin(file_error(errno));
	else
		close(fd);
	if (r == 0)
		r = io_fsync_dir(place.dir_fd);
	if (r < 0) {
		file_record_remove(f, id);
		file_prune(f, req->key);
		return err_trace(r);
	}
	memcpy(req->upload_id_result, id, sizeof(id));
	return 0;
}

/* ---- parts ---------------------------------------------------------------------------- */

static void part_etag(char out[ORIGIN_ETAG_MAX], uint64_t off, uint64_t size,
		      uint64_t crc)
{
	snprintf(out, ORIGIN_ETAG_MAX, "%" PRIx64 "-%" PRIx64 "-%016" PRIx64, off, size,
		 crc);
}

static int part_done(struct origin_req *req, const struct file_draft *draft, uint64_t off,
		     uint64_t size, uint64_t crc)
{
	if (fdatasync(draft->fd) < 0)
		return err_origin(file_error(errno));
	req->part_result =
		(struct origin_part){.number = req->part, .size = size, .crc64 = crc};
	part_etag(req->part_result.etag, off, size, crc);
	return 0;
}

int file_multi_part(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = file_write_body(req, draft.fd, req->off, &crc);
	if (r == 0)
		r = part_done(req, &draft, req->off, req->body.len, crc);
	if (r < 0)
		return err_trace(r);
	lock_scope(&f->lock);
	f->stats.bytes_out += req->body.len;
	return 0;
}

int file_multi_copy(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	_cleanup_(close_fdp) int from = -1;
	struct origin_attr attr, after;
	struct stat st;
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = file_key_check(req->source, &req->why);
	if (r < 0)
		return err_trace(r);
	from = file_open_beneath(f, req->source, O_RDONLY | O_NONBLOCK);
	if (from < 0)
		return err_trace(from);
	if (fstat(from, &st) < 0)
		return err_origin(file_error(errno));
	if (!S_ISREG(st.st_mode))
		return err_origin(-ENOENT);
	file_attr_fill(from, "", &st, &attr);
	r = file_match(req, req->source, &attr);
	if (r == 0 && (req->off > attr.size || req->len > attr.size - req->off))
		r = why_set(&req->why, err_origin(-EINVAL), "the range is outside of %s",
			    req->source);
	if (r == 0)
		r = file_copy_bytes(req, from, req->off, draft.fd, req->target_off,
				    req->len);
	if (r == 0)
		r = file_checksum(req, draft.fd, req->target_off, req->len, &crc);
	if (r == 0 && fstat(from, &st) == 0) {
		file_attr_fill(from, "", &st, &after);
		if (strcmp(after.etag, attr.etag) != 0)
			r = why_set(&req->why, err_origin(-ESTALE),
				    "%s changed while it was copied", req->source);
	}
	return r < 0 ? err_trace(r)
		     : err_trace(part_done(req, &draft, req->target_off, req->len, crc));
}

/* ---- end ------------------------------------------------------------------------------ */

/* The ETags say where each part lies: the sum of them is the object. */
static int check_parts(struct origin_req *req, uint64_t *crc)
{
	uint64_t off = 0;

	for (size_t i = 0; i < req->part_count; i++) {
		const struct origin_part *part = &req->parts[i];
		char want[ORIGIN_ETAG_MAX];

		part_etag(want, off, part->size, part->crc64);
		if (strcmp(want, part->etag) != 0)
			return why_set(&req->why, err_origin(-EINVAL),
				       "part %u is not the one that was sent",
				       part->number);
		*crc = crc64_combine(*crc, part->crc64, part->size);
		off += part->size;
	}
	if (req->has_expect_crc64 && req->expect_crc64 != *crc)
		return why_set(&req->why, err_origin(-EBADMSG),
			       "%s: the parts add up to another checksum", req->key);
	return 0;
}

static int finish(struct file_origin *f, struct origin_req *req, struct file_draft *draft,
		  const struct buf *record)
{
	struct file_posix posix;
	struct stat st;
	int r;

	if (fstat(draft->fd, &st) < 0)
		return err_origin(file_error(errno));
	if ((uint64_t)st.st_size < req->size)
		return why_set(&req->why, err_origin(-EINVAL), "%s: bytes are missing",
			       req->key);
	/* A part that was sent again may have been longer at first. */
	if (ftruncate(draft->fd, (off_t)req->size) < 0)
		return err_origin(file_error(errno));
	file_record_posix(record, &posix);
	r = file_posix_apply(f, &posix, draft->fd, -1, NULL);
	return r < 0 ? r
		     : file_draft_publish(draft, req->if_none_match, req->key, &req->why);
}

int file_multi_end(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	_cleanup_(draft_leave) struct file_draft draft = {.fd = -1};
	_cleanup_(buf_fini) struct buf record = BUF_INIT;
	uint64_t crc = 0;
	int r = open_draft(f, req, &place, &draft);

	if (r == 0)
		r = file_record_read(f, req->upload_id, &record);
	if (r == -ENOENT || (r == 0 && strcmp(record.data, req->key) != 0))
		return no_upload(req);
	if (r == 0)
		r = check_parts(req, &crc);
	if (r == 0)
		r = finish(f, req, &draft, &record);
	if (r == 0)
		r = file_fill_result(&place, draft.fd, &req->attr);
	if (r < 0)
		return err_trace(r);
	file_record_remove(f, req->upload_id);
	req->attr.crc64 = crc;
	req->attr.has_crc64 = true;
	return 0;
}

int file_multi_abort(struct file_origin *f, struct origin_req *req)
{
	_cleanup_(file_place_close) struct file_place place = FILE_PLACE_INIT;
	struct file_draft draft;
	int r = open_draft(f, req, &place, &draft);

	if (r == -ENOENT && file_upload_id_ok(req->upload_id))
		file_record_remove(f, req->upload_id);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_trace(r);
	file_draft_close(&draft);
	file_record_remove(f, req->upload_id);
	file_prune(f, req->key);
	return 0;
}
