/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: what is absent is asked for, as far as memory goes; whenever a request has
 * ended or a writer has given memory back, more of it; the fill that comes last brings the
 * verdict.
 *
 * Failure modes: a request that fails leaves its pages absent, and they are asked for
 * again, until the caller's deadline. Pages that another process left on disk are summed by
 * the checker. What the disk does not keep is fetched again and again, until the deadline.
 */
#include "cache/guard.h"

#include <errno.h>

#include "cache/object.h"
#include "cache/origin.h"
#include "cache/read.h"
#include "cache/state.h"
#include "cache/wait.h"
#include "cache/whole.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/log.h"

#define REQUEST_BYTES (4ull << 20)

bool guard_wanted_locked(const struct object *o, enum object_verify verify)
{
	if (o->whole || !(o->origin->caps & ORIGIN_CAP_CRC64))
		return false;
	return verify == OBJECT_VERIFY_WHOLE ||
	       (proof_doubts_locked(o) && proof_can_keep(o));
}

bool guard_passes_locked(const struct object *o)
{
	return o->proof.right || (!o->proof.unsummed && !o->has_crc64);
}

static bool passes(struct object *o)
{
	lock_scope(&o->lock);
	return guard_passes_locked(o);
}

/* Asks for what is absent from *at on, and goes there. *all: a look from the start found
 * everything on disk or on its way. */
static int ask(struct object *o, const struct wait *w, uint64_t *at, bool *all)
{
	uint64_t from = *at, stop, reached;
	int r = 0;

	while (*at < o->size && !read_absent_until(o, *at, o->size, &stop)) {
		if (stop <= *at)
			return err_origin(-ENOMEM);
		*at = stop;
	}
	*all = *at >= o->size && from == 0;
	if (*at < o->size)
		r = read_ask(o, *at, o->size, *at + 1, REQUEST_BYTES, w, &reached);
	else
		*at = 0;
	/* Somebody's deadline, or a passing fault: the next round asks again. */
	return origin_is_transient(r) && wait_check(w) == 0 ? 0 : err_trace(r);
}

int guard_wait(struct object *o, const struct wait *w)
{
	struct cache *c = o->cache;
	uint64_t at = 0;
	bool all = false;
	int r;

	while (!passes(o)) {
		uint64_t seen = news_count(&c->news);

		r = read_refused(o);
		if (r == 0)
			r = wait_check(w);
		if (r == 0 && !proof_can_keep(o)) {
			log_warn("object cannot be kept, so not be verified whole key=%s",
				 ident_key(o->ident));
			r = err_origin(-EFBIG);
		}
		if (r == 0)
			r = ask(o, w, &at, &all);
		if (r < 0)
			return err_trace(r);
		/* What another process left on disk is to be summed. */
		if (all && object_settled(o) != OBJECT_SETTLING)
			whole_start(o);
		news_wait(&c->news, seen, clock_mono_ms() + WAIT_SLICE_MS);
	}
	return 0;
}

int guard_fetch(struct object *o, uint64_t at, const struct wait *w)
{
	uint64_t start = at & ~(uint64_t)(BLOCK_BYTES - 1), end = start + BLOCK_BYTES,
		 stop;

	end = end < o->size ? end : o->size;
	return err_trace(read_ask(o, start, end, end, REQUEST_BYTES, w, &stop));
}
