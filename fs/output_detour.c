/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large upload goes on to the key at which it was begun although its file has been
 * renamed since: what it becomes is then moved like any stored object, which is a request or
 * two instead of all bytes once more.
 *
 *   upload ──rename──→ detour ──END──→ stored where it is not: displaced ──COPY, DELETE──→
 *                        └── new version, removed, exchanged, the store knows the upload no
 *                            more, the old key is someone else's ──→ ABANDON, sent anew
 *
 * The old key is kept for it: its claim is the file's own (a former version is there), or
 * that of garbage (name_leave_traces()), which hides what may appear there and is not
 * deleted before the fate of the upload is known; `detour` of both is the other one. In the
 * journal a detour is an upload of the file's version to another key than its path's,
 * with such a claim: nothing else is recorded.
 *
 * A new file at the old key waits while requests for it fly, as always, and goes first
 * otherwise: then the claim is lost, and with it the detour. So nobody waits in a circle.
 */
#include <string.h>

#include "fs/output_task.h"

#define WORTH 16 /* of so many bytes one was sent: less is sent anew instead of moved */

/* The unfinished upload of the acknowledged version. */
static const struct resume *upload_of_version(const struct node *n)
{
	const struct resume *u = n->resume;

	return u && !u->append && u->upload_id[0] && n->acked &&
			       u->version == n->version && u->size == n->acked_size
		       ? u
		       : NULL;
}

static bool is_worth(struct output *o, const struct node *n)
{
	const struct resume *u = n->resume;
	uint64_t sent = 0;

	if (n->task)
		sent = uploader_sent(o->uploader, &n->task->job);
	for (size_t i = 0; !n->task && i < u->part_count; i++)
		sent += u->parts[i].part.size;
	return sent > 0 && sent >= u->size / WORTH;
}

/* The claim of the key is kept for the upload, if it is not in use. */
static void take_claim(struct output *o, struct node *n, const char *key)
{
	struct node *claim = node_claim(o, key);

	if (claim && claim != n && !claim->parent && !claim->detour) {
		detour_end(n);
		n->detour = claim;
		claim->detour = n;
	}
}

static const struct resume *upload_ahead(const struct node *n)
{
	return n->kind == RECORD_FILE && n->ahead ? n->ahead->upload->resume : NULL;
}

bool detour_may_begin(const struct node *n, const char *key)
{
	const struct resume *u = upload_ahead(n);

	return u && strcmp(u->key, key) == 0;
}

void detour_begin(struct output *o, struct node *n, const char *key)
{
	const struct resume *u = upload_of_version(n);

	lock_assert_held(&o->lock);
	if (detour_may_begin(n, key)) {
		take_claim(o, n, key);
		return;
	}
	if (!u || strcmp(u->key, key) != 0 || (n->task && n->task->op != SYNC_CONTENT) ||
	    !is_worth(o, n))
		return;
	n->resume->detour = true;
	take_claim(o, n, key);
}

void detour_take_ahead(struct output *o, struct node *n)
{
	lock_assert_held(&o->lock);
	n->resume->detour = upload_of_version(n) && is_worth(o, n);
}

bool detour_keeps(struct output *o, const struct node *n, const char *key)
{
	const struct node *claim = node_claim(o, key);

	return claim && (claim == n || claim->detour == n) && !source_blocks(o, key);
}

void detour_restore(struct output *o, struct node *n)
{
	char key[PATH_KEY_MAX + 1];

	lock_assert_held(&o->lock);
	if (!n->parent || !upload_of_version(n) || node_key(n, key) < 0 ||
	    strcmp(n->resume->key, key) == 0)
		return;
	n->resume->detour = true;
	take_claim(o, n, n->resume->key);
}

bool detour_is_on(struct output *o, const struct node *n)
{
	const struct resume *u = upload_of_version(n);
	char key[PATH_KEY_MAX + 1];

	return u && u->detour && n->parent && node_key(n, key) == 0 &&
	       strcmp(key, u->key) != 0 && detour_keeps(o, n, u->key) && is_worth(o, n) &&
	       !plan_is_barred(o, u->key);
}

bool detour_is_near(struct output *o, const struct node *keeper)
{
	const struct node *n = keeper->detour;
	const struct resume *u = n ? upload_of_version(n) : NULL;

	if (u && !u->detour)
		u = NULL;
	if (!u && n)
		u = upload_ahead(n);
	return u && n->parent && strcmp(u->key, keeper->stored.key) == 0 &&
	       !plan_is_barred(o, u->key);
}

void detour_end(struct node *n)
{
	if (!n->detour)
		return;
	n->detour->detour = NULL;
	n->detour = NULL;
}
