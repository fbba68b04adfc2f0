/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does for one step: the requests, and whether their answers are true.
 *
 * Every byte that is sent has had its CRC-64 computed here or, of parts, by the origin as
 * it read them; the store's own figure is compared with it, part by part and for the whole.
 * Parts sent ahead of the end are compared with the bytes once more when these are final.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kill_point.h"
#include "cache/patch.h"
#include "cache/stage.h"
#include "cache/uploader_impl.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define ABANDON_MAX 64 /* forgotten uploads of one key that are removed in one go */

static struct origin_body body_of(struct upload_job *job, uint64_t off, uint64_t n)
{
	struct origin_body body = {.fd = -1, .len = n};

	if (job->content) {
		body.fd = content_fd(job->content);
		body.fd_off = off;
	} else {
		body.data = job->data ? (const char *)job->data + off : "";
	}
	return body;
}

static int bytes_crc64(struct upload_job *job, uint64_t off, uint64_t n, uint64_t *crc)
{
	if (job->content)
		return err_trace(content_crc64(job->content, off, n, crc));
	*crc = crc64(0, job->data ? (const char *)job->data + off : "", (size_t)n);
	return 0;
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

static int complete_part(struct worker *w, struct upload_job *job, const char *key,
			 uint64_t off, uint64_t n);

static int do_put(struct worker *w, struct upload_job *job)
{
	struct origin_req req = {.op = ORIGIN_PUT, .key = job->key, .meta = job->meta};
	int r = complete_part(w, job, job->source, 0, job->state.size);

	if (r == 0)
		r = bytes_crc64(job, 0, job->state.size, &req.expect_crc64);
	if (r < 0)
		return r;
	req.body = body_of(job, 0, job->state.size);
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

/* Known before it is sent: what the object will be, and that it was we who made it so. */
static int note_append(struct upload_job *job, uint64_t crc)
{
	struct patch *patch = job->content ? content_patch(job->content) : NULL;
	struct origin_part grown = {.size = job->state.size, .crc64 = crc};

	if (!patch || !patch_is_sparse(patch))
		return 0;
	return job->note(job, UPLOAD_NOTE_APPEND, &grown);
}

static int do_append(struct worker *w, struct upload_job *job)
{
	const struct upload_state *s = &job->state;
	struct origin_req req = {.op = ORIGIN_APPEND,
				 .key = job->key,
				 .off = s->append_off,
				 .meta = job->meta,
				 .has_expect_crc64 = true};
	uint64_t tail = s->size - s->append_off, crc;
	int r = bytes_crc64(job, s->append_off, tail, &crc);

	if (r < 0)
		return r;
	req.body = body_of(job, s->append_off, tail);
	req.expect_crc64 = crc64_combine(s->append_crc64, crc, tail);
	r = note_append(job, req.expect_crc64);
	if (r < 0)
		return r;
	kill_point("append.before");
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("append.acked");
	r = verify(w, job, &req.attr, req.expect_crc64);
	job->attr.is_appendable = true;
	return r;
}

/* The object has another length than the append was for. Is it what an earlier append of
 * ours made of it? 0: all of the content. UPLOAD_PREFIX: a part of it. -ESTALE: no. */
static int check_appended(struct worker *w, struct upload_job *job,
			  struct origin_part *prefix)
{
	const struct upload_state *s = &job->state;
	struct origin_req req = {.op = ORIGIN_STAT, .key = job->key};
	uint64_t crc = 0, size;
	int r = upload_call(w, &req);

	if (r == -ENOENT)
		return -ESTALE;
	if (r < 0)
		return r;
	size = req.attr.size;
	if (size > s->size || size < s->append_off ||
	    (size == s->append_off && !s->only_check))
		return -ESTALE;
	if (!req.attr.has_crc64) {
		r = read_crc64(w, job, req.attr.etag, &req.attr.crc64);
		req.attr.has_crc64 = true;
	}
	if (r == 0 && size > s->append_off)
		r = bytes_crc64(job, s->append_off, size - s->append_off, &crc);
	if (r < 0)
		return r;
	crc = crc64_combine(s->append_crc64, crc, size - s->append_off);
	if (crc != req.attr.crc64)
		return -ESTALE;
	*prefix = (struct origin_part){.size = size, .crc64 = crc};
	job->attr = req.attr;
	job->attr.is_appendable = true;
	return size == s->size ? 0 : UPLOAD_PREFIX;
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

static int lost_source(struct upload_job *job, const char *key)
{
	struct patch *patch = content_patch(job->content);

	/* All bytes are here: the next attempt does without. */
	if (!patch_is_sparse(patch))
		patch_forget(patch);
	return why_set(&job->why, err_origin(-ESTALE),
		       "%s was replaced or removed by others while it was being changed "
		       "here: what was written stays staged; write the file anew, or "
		       "remove it",
		       key);
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
		return lost_source(job, job->source);
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

/* Bytes between changed ones come home, from the object at `key`, and go out again. */
static int complete_part(struct worker *w, struct upload_job *job, const char *key,
			 uint64_t off, uint64_t n)
{
	struct patch *patch = job->content ? content_patch(job->content) : NULL;
	int r;

	if (!patch || !patch_is_sparse(patch))
		return 0;
	r = patch_fetch(patch, content_fd(job->content), key, off, off + n, call_arg, w);
	return r == -ESTALE || r == -ENOENT ? lost_source(job, key) : r;
}

static int send_part(struct worker *w, struct upload_job *job, uint32_t number,
		     struct origin_part *part)
{
	struct origin_req req = {.op = ORIGIN_MULTI_PART,
				 .key = job->key,
				 .part = number,
				 .upload_id = job->state.upload_id,
				 .background = job->state.ahead};
	const struct origin_part *claim = upload_part_claim(&job->state, number);
	uint64_t crc, n;
	int r;

	upload_part_range(&job->state, number, &req.off, &n);
	r = complete_part(w, job, job->source, req.off, n);
	if (r == 0 && claim)
		r = bytes_crc64(job, req.off, n, &crc);
	if (r < 0)
		return r;
	if (claim && claim->crc64 == crc) {
		*part = *claim;
		return 0;
	}
	req.body = body_of(job, req.off, n);
	kill_point("multi.part.before");
	r = upload_call(w, &req);
	if (r < 0)
		return r;
	kill_point("multi.part.acked");
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

static bool is_sparse(const struct upload_job *job)
{
	return job->content && content_is_sparse(job->content);
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
	/* If the answer is lost, the object that the parts were copied from, or that their
	 * bytes came from, may be gone. */
	if (!job->state.only_end && (job->state.ranges || is_sparse(job)))
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
static int do_check(struct worker *w, struct upload_job *job, struct origin_part *prefix)
{
	uint64_t crc;

	if (job->state.append)
		return check_appended(w, job, prefix);
	return upload_whole_crc64(&job->state, &crc) ? check_stored(w, job, crc)
						     : -ENOENT;
}

/* The last bytes of the object were written again, perhaps with what they were (the kernel
 * writes whole pages): they are fetched. */
static int prove_end(struct worker *w, struct upload_job *job)
{
	const struct patch_object *object = &job->state.object;
	uint64_t off = job->state.prove_off, n = object->size - off, ours, theirs = 0;
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = job->key,
				 .off = off,
				 .len = n,
				 .if_match = object->etag,
				 .sink = crc_sink,
				 .sink_arg = &theirs};
	int r = complete_part(w, job, job->key, off, n);

	if (r == 0)
		r = bytes_crc64(job, off, n, &ours);
	if (r == 0)
		r = upload_call(w, &req);
	if (r < 0)
		return err_trace(r);
	/* Not -ESTALE: what is elsewhere need not come home to be sent in parts. */
	return ours == theirs ? 0 : err_origin(-EINVAL);
}

/* Writers were out of sight: does the content still start with the object? */
static int do_prove(struct worker *w, struct upload_job *job)
{
	struct patch *patch = job->content ? content_patch(job->content) : NULL;
	const struct patch_object *object = &job->state.object;
	uint64_t crc = 0;
	bool starts;
	int r;

	if (patch && patch_is_sparse(patch))
		return err_trace(prove_end(w, job));
	/* The file may have been cut while the object landed: it is shorter then. */
	starts = object->has_crc64 && object->size <= job->state.size;
	r = starts ? bytes_crc64(job, 0, object->size, &crc) : 0;
	if (r < 0)
		return err_trace(r);
	if (!starts || crc != object->crc64) {
		if (patch)
			patch_forget(patch);
		return err_origin(-ESTALE);
	}
	if (patch)
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
		r = do_check(w, job, &part);
		break;
	case UPLOAD_PROVE:
		r = do_prove(w, job);
		break;
	case UPLOAD_APPEND:
		r = do_append(w, job);
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
	if (r == 0) {
		patch_whole(patch);
		kill_point("fill.done");
	}
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
	struct origin_req req = {.op = ORIGIN_COPY,
				 .key = job->key,
				 .source = job->source,
				 .if_match = job->if_match,
				 .meta = job->meta};
	int r;

	switch (job->kind) {
	case UPLOAD_COPY:
		kill_point("copy.before");
		r = upload_call(w, &req);
		kill_point("copy.acked");
		job->attr = req.attr;
		return r;
	case UPLOAD_FETCH:
		return do_fetch(w, job);
	case UPLOAD_FILL:
		return do_fill(w, job);
	default:
		return job->state.upload_id[0] ? do_abort(w, job, job->state.upload_id)
					       : abandon_forgotten(w, job);
	}
}

/* What a failure leaves open is asked for again, gone or not: that is success too. */
static void delete_many(struct worker *w, struct upload_job *jobs, size_t count,
			struct origin_req *req)
{
	_cleanup_(freep) const char **keys = calloc(count, sizeof(*keys));
	_cleanup_(freep) bool *gone = calloc(count, sizeof(*gone));
	size_t i = 0;
	int r;

	if (!keys || !gone)
		return;
	for (struct upload_job *job = jobs; job; job = job->next)
		keys[i++] = job->key;
	req->op = ORIGIN_DELETE_MANY;
	req->keys = keys;
	req->key_count = count;
	req->keys_gone = gone;
	r = upload_call(w, req);
	i = 0;
	for (struct upload_job *job = jobs; job; job = job->next)
		job->result = gone[i++] ? 0 : r;
}

void upload_do_deletes(struct worker *w, struct upload_job *jobs)
{
	struct origin_req req = {.op = ORIGIN_DELETE, .key = jobs->key};
	size_t count = 0;

	for (struct upload_job *job = jobs; job; job = job->next) {
		job->result = -ENOMEM;
		count++;
	}
	kill_point("delete.before");
	if (count > 1)
		delete_many(w, jobs, count, &req);
	else
		jobs->result = upload_call(w, &req);
	kill_point("delete.acked");
	for (struct upload_job *job = jobs; job; job = job->next) {
		if (job->result < 0)
			job->why = req.why;
	}
}
