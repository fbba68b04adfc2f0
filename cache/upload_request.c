/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does for one step: the requests, and whether their answers are true.
 *
 * Every byte that is sent has had its CRC-64 computed here, from the staged file, and the
 * store's own figure is compared with it, part by part and for the whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "cache/patch.h"
#include "cache/stage.h"
#include "cache/uploader_impl.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define ABANDON_MAX 64 /* forgotten uploads of one key that are removed in one go */

static int body_of(struct upload_job *job, uint64_t off, uint64_t n,
		   struct origin_body *body, uint64_t *crc)
{
	*body = (struct origin_body){.fd = -1, .len = n};
	if (!job->content) {
		body->data = job->data ? (const char *)job->data + off : "";
		*crc = crc64(0, body->data, (size_t)n);
		return 0;
	}
	body->fd = content_fd(job->content);
	body->fd_off = off;
	return err_trace(content_crc64(job->content, off, n, crc));
}

static int mismatch(struct upload_job *job, uint64_t ours, uint64_t theirs)
{
	return why_set(&job->why, err_origin(-EBADMSG),
		       "the store's checksum of %s differs: %016llx here, %016llx there",
		       job->key, (unsigned long long)ours, (unsigned long long)theirs);
}

static int crc_sink(void *arg, uint64_t off, const void *data, size_t n)
{
	uint64_t *crc = arg;

	(void)off;
	*crc = crc64(*crc, data, n);
	return 0;
}

/* A store without checksums is read: rare, and nothing else can tell. */
static int read_crc64(struct worker *w, struct upload_job *job, const char *etag,
		      uint64_t *crc)
{
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = job->key,
				 .len = ORIGIN_TO_END,
				 .if_match = etag[0] ? etag : NULL,
				 .sink = crc_sink,
				 .sink_arg = crc};

	*crc = 0;
	return upload_call(w, &req);
}

/* Whether the key holds just these bytes. -ENOENT: something else, or nothing. */
static int check_stored(struct worker *w, struct upload_job *job, uint64_t crc)
{
	struct origin_req req = {.op = ORIGIN_STAT, .key = job->key};
	int r = upload_call(w, &req);

	if (r < 0)
		return r;
	if (req.attr.size != job->state.size)
		return -ENOENT;
	/* Without a plan all bytes are here to be sent again. */
	if (!req.attr.has_crc64 && job->state.ranges) {
		r = read_crc64(w, job, req.attr.etag, &req.attr.crc64);
		if (r < 0)
			return r == -ESTALE ? -ENOENT : r;
		req.attr.has_crc64 = true;
	}
	if (!req.attr.has_crc64 || req.attr.crc64 != crc)
		return -ENOENT;
	job->attr = req.attr;
	return 0;
}

/* A store that promises checksums but gave none with its answer is asked again. */
static int verify(struct worker *w, struct upload_job *job,
		  const struct origin_attr *attr, uint64_t crc)
{
	int r;

	job->attr = *attr;
	job->attr.size = job->state.size;
	if (attr->has_crc64)
		return attr->crc64 == crc ? 0 : mismatch(job, crc, attr->crc64);
	if (!(w->uploader->origin->caps & ORIGIN_CAP_CRC64)) {
		job->attr.crc64 = crc;
		job->attr.has_crc64 = true;
		return 0;
	}
	r = check_stored(w, job, crc);
	if (r == -ENOENT)
		return why_set(&job->why, err_origin(-EBADMSG),
			       "the store does not show what was sent to %s", job->key);
	return r;
}

static int complete_part(struct worker *w, struct upload_job *job, uint64_t off,
			 uint64_t n);

static int do_put(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_PUT, .key = job->key, .meta = job->meta};
	int r = complete_part(w, job, 0, job->state.size);

	if (r == 0)
		r = body_of(job, 0, job->state.size, &req.body, &req.expect_crc64);
	if (r < 0)
		return r;
	if (job->is_known && job->known.has_crc64 && job->known.size == job->state.size &&
	    job->known.crc64 == req.expect_crc64) {
		job->attr = job->known;
		return 0;
	}
	req.has_expect_crc64 = true;
	kill_point("put.before");
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("put.acked");
	return verify(w, job, &req.attr, req.expect_crc64);
}

static int do_begin(struct worker *w, struct upload_job *job, char *upload_id)
{
	struct origin_req req = {.op = ORIGIN_MULTI_BEGIN,
				 .key = job->key,
				 .meta = job->meta,
				 .size = job->state.size};
	int r = job->note(job, UPLOAD_NOTE_BEGIN, NULL);

	if (r < 0)
		return r;
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.begin.after");
	memcpy(upload_id, req.upload_id_result, ORIGIN_UPLOAD_ID_MAX);
	/* Written down before the first part; no one else reads the id in this phase. */
	memcpy(job->state.upload_id, upload_id, ORIGIN_UPLOAD_ID_MAX);
	r = job->note(job, UPLOAD_NOTE_ID, NULL);
	kill_point("multi.id.recorded");
	return r;
}

static int call_arg(void *worker, struct origin_req *req)
{
	return upload_call(worker, req);
}

static int lost_source(struct upload_job *job, struct patch *patch)
{
	/* All bytes are here: the next attempt does without. */
	if (!patch_is_sparse(patch))
		patch_forget(patch);
	return why_set(&job->why, err_origin(-ESTALE),
		       "%s was replaced or removed by others while it was being changed "
		       "here: what was written stays staged; write the file anew, or "
		       "remove it",
		       job->source);
}

/* The object to copy from is not the one we know. Ours in another shape (its attributes
 * were changed, the answer was lost)? Then `etag` becomes what it is called now. */
static int find_source(struct worker *w, struct upload_job *job,
		       char etag[static ORIGIN_ETAG_MAX])
{
	const struct patch_object *object = &job->state.object;
	struct origin_req req = {.op = ORIGIN_STAT, .key = job->source};
	int r = upload_call(w, &req);

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && strcmp(req.attr.etag, object->etag) == 0)
		return 0;
	if (r < 0 || !object->has_crc64 || !req.attr.has_crc64 ||
	    req.attr.crc64 != object->crc64 || req.attr.size != object->size)
		return lost_source(job, content_patch(job->content));
	memcpy(etag, req.attr.etag, ORIGIN_ETAG_MAX);
	return 0;
}

static int copy_part(struct worker *w, struct upload_job *job, uint32_t number,
		     struct origin_part *part)
{
	char etag[ORIGIN_ETAG_MAX];
	struct origin_req req = {.op = ORIGIN_MULTI_COPY,
				 .key = job->key,
				 .source = job->source,
				 .part = number,
				 .upload_id = job->state.upload_id,
				 .if_match = etag};
	int r, found;

	upload_part_range(&job->state, number, &req.off, &req.len);
	req.target_off = req.off;
	memcpy(etag, job->state.object.etag, sizeof(etag));
	kill_point("multi.copy.before");
	r = upload_call(w, &req);
	if (r == -ESTALE || r == -ENOENT) {
		/* -ENOENT: the source, or the upload; with the source there, the latter. */
		found = find_source(w, job, etag);
		if (found < 0)
			return found;
		if (r == -ESTALE)
			r = upload_call(w, &req);
	}
	if (r < 0)
		return r;
	kill_point("multi.copy.acked");
	*part = req.part_result;
	part->number = number;
	part->size = req.len;
	return job->note(job, UPLOAD_NOTE_PART, part);
}

/* Bytes of the object between changed ones come home and go out again. */
static int complete_part(struct worker *w, struct upload_job *job, uint64_t off,
			 uint64_t n)
{
	struct patch *patch = job->content ? content_patch(job->content) : NULL;
	int r;

	if (!patch || !patch_is_sparse(patch))
		return 0;
	r = patch_fetch(patch, content_fd(job->content), job->source, off, off + n,
			call_arg, w);
	return r == -ESTALE || r == -ENOENT ? lost_source(job, patch) : r;
}

static int send_part(struct worker *w, struct upload_job *job, uint32_t number,
		     struct origin_part *part)
{
	struct origin_req req = {.op = ORIGIN_MULTI_PART,
				 .key = job->key,
				 .part = number,
				 .upload_id = job->state.upload_id};
	const struct origin_part *claim = upload_part_claim(&job->state, number);
	uint64_t crc, n;
	int r;

	upload_part_range(&job->state, number, &req.off, &n);
	r = complete_part(w, job, req.off, n);
	if (r == 0)
		r = body_of(job, req.off, n, &req.body, &crc);
	if (r < 0)
		return r;
	if (claim && claim->crc64 == crc) {
		*part = *claim;
		return 0;
	}
	kill_point("multi.part.before");
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.part.acked");
	/* Ahead of the end the bytes may change while they are sent; at the end they are
	 * compared with what the store says it got. */
	if (req.part_result.crc64 != crc && !job->state.ahead)
		return mismatch(job, crc, req.part_result.crc64);
	*part = req.part_result;
	part->number = number;
	part->size = n;
	return job->note(job, UPLOAD_NOTE_PART, part);
}

static int do_part(struct worker *w, struct upload_job *job, uint32_t number,
		   struct origin_part *part)
{
	*part = (struct origin_part){.number = number};
	return upload_part_copied(&job->state, number) ? copy_part(w, job, number, part)
						       : send_part(w, job, number, part);
}

static int do_end(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = job->key,
				 .upload_id = job->state.upload_id,
				 .parts = job->state.parts,
				 .part_count = job->state.part_count,
				 .size = job->state.size};
	int r = 0;

	req.has_expect_crc64 = upload_whole_crc64(&job->state, &req.expect_crc64);
	/* If the answer is lost, the object that the parts were copied from may be gone. */
	if (job->state.ranges && !job->state.only_end)
		r = job->note(job, UPLOAD_NOTE_END, NULL);
	if (r < 0)
		return r;
	kill_point("multi.end.before");
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.end.acked");
	if (req.has_expect_crc64)
		return verify(w, job, &req.attr, req.expect_crc64);
	/* Size and ETag, which is made of those of the parts, were checked by the origin. */
	job->attr = req.attr;
	job->attr.size = job->state.size;
	return 0;
}

/* A lost answer to END, and nothing is known of the whole but the sizes: the origin, which
 * knows the parts, has said no. */
static int do_check(struct worker *w, struct upload_job *job)
{
	uint64_t crc;

	return upload_whole_crc64(&job->state, &crc) ? check_stored(w, job, crc)
						     : -ENOENT;
}

/* Writers were out of sight: does the content still start with the object? */
static int do_prove(struct upload_job *job)
{
	struct patch *patch = content_patch(job->content);
	const struct patch_object *object = &job->state.object;
	uint64_t crc;
	int r = content_crc64(job->content, 0, object->size, &crc);

	if (r < 0)
		return err_trace(r);
	if (!object->has_crc64 || crc != object->crc64) {
		patch_forget(patch);
		return err_origin(-ESTALE);
	}
	patch_prove(patch);
	if (!job->is_known || object->size != job->state.size ||
	    strcmp(job->known.etag, object->etag) != 0)
		return 0;
	job->attr = job->known;
	job->unchanged = true;
	return UPLOAD_SAME;
}

static int do_abort(struct worker *w, struct upload_job *job, const char *upload_id)
{
	struct origin_req req = {
		.op = ORIGIN_MULTI_ABORT, .key = job->key, .upload_id = upload_id};

	return upload_call(w, &req);
}

void upload_do_action(struct worker *w, struct upload_job *job, enum upload_action action,
		      uint32_t number)
{
	struct uploader *u = w->uploader;
	char upload_id[ORIGIN_UPLOAD_ID_MAX] = "";
	struct origin_part part = {.number = number};
	int r;

	switch (action) {
	case UPLOAD_PUT:
		r = do_put(w, job);
		break;
	case UPLOAD_BEGIN:
		r = do_begin(w, job, upload_id);
		break;
	case UPLOAD_PART:
		r = do_part(w, job, number, &part);
		break;
	case UPLOAD_END:
		r = do_end(w, job);
		break;
	case UPLOAD_CHECK:
		r = do_check(w, job);
		break;
	case UPLOAD_PROVE:
		r = do_prove(job);
		break;
	default:
		r = do_abort(w, job, job->state.upload_id);
		break;
	}
	log_debug(LOG_UPLOAD, "%s key=%s part=%u result=%d", upload_action_name(action),
		  job->key, number, r);
	lock_take(&u->lock);
	part.number = number;
	upload_landed(&job->state, action, r, upload_id, &part);
	lock_drop(&u->lock);
}

/* ---- the kinds that are one request --------------------------------------------------- */

struct fetch {
	struct upload_job *job;
	uint64_t crc;
	uint64_t size;
};

static int fetch_sink(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fetch *f = arg;

	f->crc = crc64(f->crc, data, n);
	f->size += n;
	return err_trace(io_pwrite(content_fd(f->job->content), data, n, off));
}

static int do_fetch(struct worker *w, struct upload_job *job)
{
	struct fetch f = {.job = job};
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = job->key,
				 .len = ORIGIN_TO_END,
				 .if_match = job->if_match,
				 .sink = fetch_sink,
				 .sink_arg = &f};
	int r = upload_call(w, &req);

	if (r < 0)
		return r;
	if (f.size != req.attr.size || (req.attr.has_crc64 && req.attr.crc64 != f.crc))
		return mismatch(job, f.crc, req.attr.crc64);
	job->attr = req.attr;
	job->attr.crc64 = f.crc;
	return 0;
}

static int do_fill(struct worker *w, struct upload_job *job)
{
	struct patch *patch = content_patch(job->content);
	int r = patch_fetch(patch, content_fd(job->content), job->key, 0,
			    patch_len(patch), call_arg, w);

	if (r == 0)
		r = content_sync(job->content);
	if (r == 0)
		patch_whole(patch);
	return r;
}

struct forgotten {
	struct upload_job *job;
	size_t count;
	char ids[ABANDON_MAX][ORIGIN_UPLOAD_ID_MAX];
};

static int note_forgotten(void *arg, const char *key, size_t key_len,
			  const struct origin_attr *attr)
{
	struct forgotten *f = arg;

	/* The clock of the store may differ by a little; a second is also its grain. */
	if (strlen(f->job->key) != key_len || memcmp(f->job->key, key, key_len) != 0 ||
	    attr->mtime_ns + 60000000000ll < f->job->since_ns || f->count == ABANDON_MAX)
		return 0;
	memccpy(f->ids[f->count++], attr->etag, '\0', ORIGIN_ETAG_MAX);
	return 0;
}

/* The crash came between asking for an upload id and writing it down. */
static int abandon_forgotten(struct worker *w, struct upload_job *job)
{
	struct forgotten *f = calloc(1, sizeof(*f));
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = job->key};
	int r;

	if (!f)
		return err_origin(-ENOMEM);
	f->job = job;
	req.list.entry = note_forgotten;
	req.list.entry_arg = f;
	r = upload_call(w, &req);
	for (size_t i = 0; r == 0 && i < f->count; i++)
		r = do_abort(w, job, f->ids[i]);
	free(f);
	return r == -ENOTSUP ? 0 : r;
}

int upload_do_request(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_DELETE, .key = job->key};
	int r;

	switch (job->kind) {
	case UPLOAD_COPY:
		req.op = ORIGIN_COPY;
		req.source = job->source;
		req.if_match = job->if_match;
		req.meta = job->meta;
		kill_point("copy.before");
		r = upload_call(w, &req);
		kill_point("copy.acked");
		job->attr = req.attr;
		return r;
	case UPLOAD_FETCH:
		return do_fetch(w, job);
	case UPLOAD_FILL:
		return do_fill(w, job);
	case UPLOAD_ABANDON:
		return job->state.upload_id[0] ? do_abort(w, job, job->state.upload_id)
					       : abandon_forgotten(w, job);
	default:
		kill_point("delete.before");
		r = upload_call(w, &req);
		kill_point("delete.acked");
		return r;
	}
}
