/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the staged files of a node have in common with the object that it has in the store
 * (cache/patch.h): contents without all their bytes, and how contents follow their object
 * when a version is stored or the object is moved.
 *
 * All contents of a node that refer to an object refer to `stored`: a newer one is a copy
 * of an older one, so that what they have unchanged is the same. Whoever changes `stored`
 * for something of ours says so here, under the same lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/output_content.h"
#include "fs/output_impl.h"

#define LIVE_TRIES_MAX 8

void content_rebase(struct node *n, const char *etag)
{
	struct content *contents[] = {n->live, n->acked};
	struct patch_object now = {.size = n->stored.size,
				   .crc64 = n->stored.crc64,
				   .has_crc64 = n->stored.has_crc64};

	memcpy(now.etag, n->stored.etag, sizeof(now.etag));
	for (size_t i = 0; i < 2; i++) {
		if (contents[i] && content_patch(contents[i]))
			patch_rebase(content_patch(contents[i]), etag, &now);
	}
}

void content_remember(struct output *o, struct node *n, struct content *c)
{
	struct patch_object now = {.size = n->stored.size,
				   .crc64 = n->stored.crc64,
				   .has_crc64 = n->stored.has_crc64};
	struct patch *p = content_patch(c);

	lock_assert_held(&o->lock);
	memcpy(now.etag, n->stored.etag, sizeof(now.etag));
	if (p) {
		patch_stored(p, &now);
		return;
	}
	if (!store_has_base(o, n) || patch_new(&now, false, &p) < 0)
		return;
	if (n->raced)
		patch_doubt(p);
	n->raced = false;
	(void)!content_set_patch(c, p); /* a whole file's needs no room */
}

/* A copy was made while the version it was made from reached the store: the object that it
 * refers to is another one now. Lock held. */
void content_follow_rebase(struct content *copy, struct content *from)
{
	struct patch *p = content_patch(copy), *q = from ? content_patch(from) : NULL;
	struct patch_object was, now;

	if (!p || !q)
		return;
	patch_object(p, &was);
	patch_object(q, &now);
	patch_rebase(p, was.etag, &now);
}

/* Something for a file whose bytes are in the store, or nowhere yet. */
static int make_live(struct output *o, struct node *n, struct content **out)
{
	bool stored, base;

	lock_take(&o->lock);
	stored = n->stored.key;
	base = store_has_base(o, n);
	lock_drop(&o->lock);
	if (!stored)
		return err_trace(content_create(o, out));
	return base ? err_trace(store_base(o, n, out))
		    : err_trace(store_fetch(o, n, out));
}

/* False: the object of what make_live() made was moved meanwhile, or came home: then what is
 * in the store is about to be somebody else's. */
static bool install(struct output *o, struct node *n, struct content *c)
{
	lock_take(&o->lock);
	if (n->acked || !store_base_is_there(n, c)) {
		lock_drop(&o->lock);
		content_unpin(c);
		content_put(c, 0);
		return false;
	}
	kept_live(n, c);
	n->live = c;
	content_set_time(n);
	n->unsettled = false;
	if (n->opens == 0)
		content_unpin(c);
	content_update_frozen(n);
	lock_drop(&o->lock);
	return true;
}

int content_allocate(struct content *c, int mode, uint64_t off, uint64_t len)
{
	struct patch *patch = content_patch(c);
	int r;

	if (mode && patch)
		return err_trace(patch_zero(patch, content_fd(c), mode, off, len));
	do {
		r = fallocate(content_fd(c), mode, (off_t)off, (off_t)len);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? err_origin(-errno) : 0;
}

bool content_is_home(struct output *o, struct node *n)
{
	lock_scope(&o->lock);
	return n->acked || n->saved;
}

static int take_home(struct output *o, struct node *n)
{
	int r;

	lock_scope(&o->lock);
	r = content_take_acked(o, n);
	if (r == 0)
		content_set_time(n);
	return err_trace(r);
}

int content_make_live(struct output *o, struct node *n)
{
	for (int attempt = 0; attempt < LIVE_TRIES_MAX; attempt++) {
		struct content *c;
		int r;

		if (content_is_home(o, n))
			return err_trace(take_home(o, n));
		r = make_live(o, n, &c);
		if (r == 0 && install(o, n, c))
			return 0;
		if (r < 0 && !(r == -ESTALE && content_is_home(o, n)))
			return err_trace(r);
	}
	return err_origin(-ESTALE);
}

/* What is small is kept whole: its parts would be too small for the store. */
int content_truncate_sparse(struct output *o, struct node *n, uint64_t size)
{
	struct patch *p = content_patch(n->live);
	bool small = size <= o->config.fetch_max;
	int r = small ? store_complete(o, n, n->live, size) : 0;

	if (r == 0 && ftruncate(content_fd(n->live), (off_t)size) < 0)
		r = err_origin(-errno);
	if (r < 0)
		return err_trace(r);
	patch_cut(p, size);
	/* Durable before anyone is told: content_ack() syncs first. */
	if (small) {
		patch_whole(p);
		patch_forget(p);
	}
	return 0;
}

/* Too many pieces to keep apart: the file gets what it lacks. */
int content_unscatter(struct output *o, struct node *n, struct content *c)
{
	struct patch *p = content_patch(c);
	int r;

	if (!p || !patch_is_scattered(p))
		return 0;
	r = store_complete(o, n, c, UINT64_MAX);
	if (r == 0)
		r = content_sync(c);
	if (r == 0)
		patch_whole(p);
	return err_trace(r);
}
