/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what uploads and closes give back: space of the disk, descriptors.
 *
 * A program that closes one file and opens the next has more than one open for a while: the
 * kernel tells of the close later, and a staged file that nobody needs keeps its descriptor
 * until it is removed. So who finds none waits for a moment before the open fails.
 */
#include <errno.h>

#include "fs/base/clock.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

#define ROOM_WAIT_MS 100
#define DESCRIPTOR_WAIT_MS 5000
#define DESCRIPTOR_IDLE_MS 200 /* of it, while nothing is under way that we know of */
#define DESCRIPTOR_LOOK_MS 20
#define DESCRIPTOR_WAITERS_MAX 16 /* who wait keep threads from those who close */

int content_wait_space(struct output *o, struct space_wait *w)
{
	uint64_t now = clock_mono_ms();

	lock_scope(&o->lock);
	if (!list_empty(&o->retained)) {
		content_drop_retained(o, list_first(&o->retained, struct node, retained));
		pthread_cond_signal(&o->work);
	} else if (o->moved != w->moved) {
		w->moved = o->moved;
		w->since = now;
	} else if (now - w->since > o->config.full_timeout_ms || o->stopping) {
		return err_origin(-ENOSPC);
	} else if (o->pending_count == 0 && !stage_has_doomed(o->stage)) {
		/* All of it may have been freed since the caller looked. */
		if (w->last)
			return err_origin(-ENOSPC);
		w->last = true;
		stage_look_again(o->stage);
		return 0;
	}
	w->last = false;
	lock_wait(&o->lock, &o->changed, now + ROOM_WAIT_MS);
	return 0;
}

int content_wait_room(struct output *o, uint64_t n)
{
	struct space_wait w = SPACE_WAIT_INIT;
	int r = 0;

	while (r == 0 && !stage_has_room(o->stage, n))
		r = content_wait_space(o, &w);
	return err_trace(r);
}

bool content_wait_descriptor(struct output *o, int error, struct descriptor_wait *w)
{
	uint64_t now = clock_mono_ms();

	lock_assert_held(&o->lock);
	if ((error != -EMFILE && error != -ENFILE) || o->stopping ||
	    o->descriptor_waiters == DESCRIPTOR_WAITERS_MAX)
		return false;
	if (!w->since)
		w->since = w->active = now;
	if (o->pending_count > 0 || stage_has_doomed(o->stage))
		w->active = now;
	if (now - w->since > DESCRIPTOR_WAIT_MS || now - w->active > DESCRIPTOR_IDLE_MS)
		return false;
	/* Whatever keeps one for convenience. */
	if (!list_empty(&o->retained))
		content_drop_retained(o, list_first(&o->retained, struct node, retained));
	pthread_cond_signal(&o->work);
	o->descriptor_waiters++;
	lock_wait(&o->lock, &o->changed, now + DESCRIPTOR_LOOK_MS);
	o->descriptor_waiters--;
	return true;
}

static bool wait_descriptor(struct output *o, int error, struct descriptor_wait *w)
{
	lock_scope(&o->lock);
	return content_wait_descriptor(o, error, w);
}

int content_file(struct output *o, struct content **c)
{
	struct descriptor_wait w = {0};
	int r;

	while ((r = stage_create(o->stage, c)) < 0 && wait_descriptor(o, r, &w))
		;
	return err_trace(r);
}

int content_create(struct output *o, struct content **c)
{
	struct space_wait w = SPACE_WAIT_INIT;
	int r = content_wait_room(o, 1);

	/* Without a free inode there can be space. */
	while (r == 0 && (r = content_file(o, c)) == -ENOSPC)
		r = content_wait_space(o, &w);
	return err_trace(r);
}

int content_copy(struct output *o, struct content *from, uint64_t size,
		 struct content **c)
{
	struct descriptor_wait w = {0};
	int r;

	while ((r = stage_copy(o->stage, from, size, c)) < 0 && wait_descriptor(o, r, &w))
		;
	return err_trace(r);
}
