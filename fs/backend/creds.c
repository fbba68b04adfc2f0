/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials that stay fresh.
 *
 * States of the set, under the lock:
 *   GOOD       given out; expires_ms says until when
 *   REFUSED    the store said no; a renewal is due. -EKEYEXPIRED
 *   CONFIRMED  renewed, and the source still says the same. -EACCES until lift_ms, then
 *              GOOD again
 * A set past its expiry is -EKEYEXPIRED in whatever state.
 *
 * Happy path: open loads a set; the thread wakes at renew_ms, loads another, swaps it in.
 * Failure modes: a load that fails leaves the set as it is and is tried again after a
 * growing pause (RETRY_*), for ever: a service that is down for an hour costs nothing
 * while the old set lives. A store that refuses each new set cannot drive the thread
 * faster than FORCED_PAUSE_MS.
 * On close: the thread finishes the load it is in (bounded by its time-outs).
 * Threads: one, only for sources that can change. Time is the monotonic clock: a life is
 * measured from the moment of the load, so that a wall clock that jumps expires nothing.
 */
#include "fs/backend/creds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "fs/backend/creds_source.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

enum {
	RETRY_BASE_MS = 500,
	RETRY_CAP_MS = 15000,
	FORCED_PAUSE_MS = 1000,
	CONFIRMED_MS = 5000,
	RENEW_LEAST_S = 180, /* protocol.md §7.7 */
	RENEW_MOST_S = 1200,
};

enum set_state {
	GOOD,
	REFUSED,
	CONFIRMED
};

/* What must not reach a core dump or the swap: a mapping of its own. */
struct vault {
	struct creds_set current; /* under the lock */
	struct creds_reply fresh; /* the loader's */
};

struct creds {
	struct lock lock; /* vault->current and everything up to `stopping` */
	pthread_cond_t cond;
	enum set_state state;
	uint64_t expires_ms;   /* UINT64_MAX: never */
	uint64_t renew_ms;     /* when to load ahead of expiry; UINT64_MAX: never */
	uint64_t lift_ms;      /* CONFIRMED: end of it */
	uint64_t pause_ms;     /* no load before this */
	unsigned int failures; /* loads in a row that brought nothing new */
	bool stopping;

	struct lock watch_lock; /* the two below; held during the call; before `lock` */
	creds_watch_fn watch_fn;
	void *watch_arg;

	struct vault *vault;
	struct creds_source source; /* constant once open */
	bool has_thread;
	pthread_t thread;
};

void creds_set_wipe(struct creds_set *set)
{
	explicit_bzero(set, sizeof(*set));
}

static bool set_equal(const struct creds_set *a, const struct creds_set *b)
{
	return !strcmp(a->id, b->id) && !strcmp(a->secret, b->secret) &&
	       !strcmp(a->token, b->token);
}

/* Only the used part of a 4 KiB token is worth copying for each request. */
static void set_copy(struct creds_set *out, const struct creds_set *in)
{
	strcpy(out->id, in->id);
	strcpy(out->secret, in->secret);
	strcpy(out->token, in->token);
}

static int ready_locked(const struct creds *c)
{
	uint64_t now = clock_mono_ms();

	if (now >= c->expires_ms || c->state == REFUSED)
		return -EKEYEXPIRED;
	if (c->state == CONFIRMED && now < c->lift_ms)
		return -EACCES;
	return 0;
}

/* ---- renewal -------------------------------------------------------------------------- */

static uint64_t next_load_locked(const struct creds *c)
{
	uint64_t due = c->state == REFUSED ? 0 : c->renew_ms;

	return due > c->pause_ms ? due : c->pause_ms;
}

static void set_times_locked(struct creds *c, int64_t lifetime_s)
{
	uint64_t now = clock_mono_ms(), ahead_s, life_s = (uint64_t)lifetime_s;

	if (!lifetime_s) {
		c->expires_ms = c->renew_ms = UINT64_MAX;
		return;
	}
	ahead_s = life_s / 5;
	if (ahead_s < RENEW_LEAST_S)
		ahead_s = RENEW_LEAST_S;
	if (ahead_s > RENEW_MOST_S)
		ahead_s = RENEW_MOST_S;
	c->expires_ms = now + life_s * 1000;
	/* A set that lives no longer than that is renewed at half its life. */
	c->renew_ms = now + (ahead_s < life_s ? life_s - ahead_s : 0) * 1000;
	if (ahead_s >= life_s)
		c->renew_ms = now + life_s * 500;
}

/* Half of the pause is fixed: many hosts that lost one service spread out, and none of
 * them hammers. */
static void pause_locked(struct creds *c)
{
	uint64_t jitter =
		clock_backoff_ms(c->failures, RETRY_BASE_MS / 2, RETRY_CAP_MS / 2);
	uint64_t fixed = RETRY_BASE_MS / 2;

	for (unsigned int i = 0; i < c->failures && fixed < RETRY_CAP_MS / 2; i++)
		fixed *= 2;
	c->failures++;
	c->pause_ms = clock_mono_ms() + fixed + jitter;
}

static void adopt_locked(struct creds *c)
{
	bool same = set_equal(&c->vault->current, &c->vault->fresh.set);

	set_times_locked(c, c->vault->fresh.lifetime_s);
	if (!same) {
		creds_set_wipe(&c->vault->current);
		set_copy(&c->vault->current, &c->vault->fresh.set);
		c->state = GOOD;
		c->failures = 0;
		c->pause_ms = clock_mono_ms() + FORCED_PAUSE_MS;
		log_info("credentials renewed source=\"%s\"", c->source.text);
		return;
	}
	if (c->state == REFUSED) {
		c->state = CONFIRMED;
		c->lift_ms = clock_mono_ms() + CONFIRMED_MS;
	}
	/* Metadata services roll their set late: ask again before it is too late. */
	pause_locked(c);
}

static void renew(struct creds *c)
{
	struct why why = {0};
	int r = creds_source_load(&c->source, &c->vault->fresh, &why);

	lock_take(&c->lock);
	if (r == 0) {
		adopt_locked(c);
	} else {
		if (!c->failures)
			log_warn("credentials not renewed source=\"%s\" reason=\"%s\"",
				 c->source.text, why.text);
		pause_locked(c);
	}
	explicit_bzero(&c->vault->fresh, sizeof(c->vault->fresh));
	pthread_cond_broadcast(&c->cond);
	lock_drop(&c->lock);

	lock_scope(&c->watch_lock);
	if (c->watch_fn)
		c->watch_fn(c->watch_arg);
}

static void *renew_thread(void *arg)
{
	struct creds *c = arg;

	prctl(PR_SET_NAME, "creds");
	lock_take(&c->lock);
	while (!c->stopping) {
		uint64_t when = next_load_locked(c);

		if (clock_mono_ms() < when) {
			lock_wait(&c->lock, &c->cond, when);
			continue;
		}
		lock_drop(&c->lock);
		renew(c);
		lock_take(&c->lock);
	}
	lock_drop(&c->lock);
	return NULL;
}

/* ---- open, close ---------------------------------------------------------------------- */

static struct vault *vault_new(void)
{
	struct vault *v = mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (v == MAP_FAILED)
		return NULL;
	/* Both are extra walls: an unprivileged limit of locked memory is no reason to
	 * refuse work. */
	madvise(v, sizeof(*v), MADV_DONTDUMP);
	if (mlock(v, sizeof(*v)) < 0)
		log_debug(LOG_ORIGIN, "credentials may be swapped errno=%d", errno);
	return v;
}

static int start(struct creds *c)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&c->thread, NULL, renew_thread, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return err_origin(-r);
	c->has_thread = true;
	return 0;
}

int creds_open(const char *reference, struct creds **out, struct why *why)
{
	return creds_open_for(NULL, reference, out, why);
}

int creds_open_for(const char *bucket, const char *reference, struct creds **out,
		   struct why *why)
{
	struct creds *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_origin(-ENOMEM);
	lock_init(&c->lock);
	lock_init(&c->watch_lock);
	lock_cond_init(&c->cond);
	c->vault = vault_new();
	r = c->vault ? 0 : err_origin(-ENOMEM);
	if (r == 0 && reference) {
		r = creds_source_parse(reference, &c->source, why);
		snprintf(c->source.bucket, sizeof(c->source.bucket), "%s",
			 bucket ? bucket : "");
		if (r == 0)
			r = creds_source_load(&c->source, &c->vault->fresh, why);
	} else if (r == 0) {
		r = creds_source_find(bucket, &c->source, &c->vault->fresh, why);
	}
	if (r == 0) {
		set_copy(&c->vault->current, &c->vault->fresh.set);
		set_times_locked(c, c->vault->fresh.lifetime_s);
		explicit_bzero(&c->vault->fresh, sizeof(c->vault->fresh));
		if (creds_source_renewable(&c->source))
			r = start(c);
	}
	if (r < 0) {
		creds_close(c);
		return err_trace(r);
	}
	*out = c;
	return 0;
}

struct creds *creds_close(struct creds *c)
{
	if (!c)
		return NULL;
	if (c->has_thread) {
		lock_take(&c->lock);
		c->stopping = true;
		pthread_cond_broadcast(&c->cond);
		lock_drop(&c->lock);
		pthread_join(c->thread, NULL);
	}
	if (c->vault) {
		explicit_bzero(c->vault, sizeof(*c->vault));
		munmap(c->vault, sizeof(*c->vault));
	}
	pthread_cond_destroy(&c->cond);
	lock_fini(&c->watch_lock);
	lock_fini(&c->lock);
	free(c);
	return NULL;
}

/* ---- use ------------------------------------------------------------------------------ */

int creds_get(struct creds *c, struct creds_set *out)
{
	int r;

	lock_scope(&c->lock);
	r = ready_locked(c);
	if (r == 0)
		set_copy(out, &c->vault->current);
	return err_trace(r);
}

int creds_ready(struct creds *c)
{
	lock_scope(&c->lock);
	return ready_locked(c);
}

int creds_invalidate(struct creds *c, const struct creds_set *refused)
{
	if (!c->has_thread)
		return err_origin(-EACCES);
	lock_scope(&c->lock);
	if (!set_equal(refused, &c->vault->current))
		return err_origin(-EKEYEXPIRED);
	if (c->state != REFUSED && ready_locked(c) != -EACCES) {
		c->state = REFUSED;
		pthread_cond_broadcast(&c->cond);
	}
	return err_origin(c->state == REFUSED ? -EKEYEXPIRED : -EACCES);
}

int creds_wait_refresh(struct creds *c, uint64_t deadline_ms)
{
	lock_scope(&c->lock);
	while (ready_locked(c) == -EKEYEXPIRED)
		if (lock_wait(&c->lock, &c->cond, deadline_ms) == LOCK_E_TIMEOUT)
			break;
	return ready_locked(c);
}

void creds_watch(struct creds *c, creds_watch_fn fn, void *arg)
{
	lock_scope(&c->watch_lock);
	c->watch_fn = fn;
	c->watch_arg = arg;
}

bool creds_is_anonymous(const struct creds *c)
{
	return c->source.kind == CREDS_ANONYMOUS;
}

const char *creds_describe(const struct creds *c)
{
	return c->source.text;
}

int64_t creds_remaining_s(struct creds *c)
{
	lock_scope(&c->lock);
	if (c->expires_ms == UINT64_MAX)
		return INT64_MAX;
	return ((int64_t)c->expires_ms - (int64_t)clock_mono_ms()) / 1000;
}
