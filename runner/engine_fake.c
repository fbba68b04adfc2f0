/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: one lock for everything; wait() sleeps on the condition variable. */
#include "runner/engine_fake.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"

#define CONTAINERS_MAX 256
#define FAULTS_MAX 16

struct fake_container {
	char *name;
	char *env;
	enum engine_state state;
	bool scripted, oom, ignores_term;
	int status;          /* of the script, then of the end */
	uint64_t delay_ms;   /* of the script */
	uint64_t ends_at_ms; /* clock_mono_ms(); UINT64_MAX: not by itself */
	bool removed;        /* a wait() for it returns */
};

struct fault {
	char *op, *name;
	int error;
};

struct fake {
	struct engine base;
	struct lock lock;
	pthread_cond_t changed;
	struct fake_container items[CONTAINERS_MAX];
	size_t count;
	struct fault faults[FAULTS_MAX];
	size_t fault_count;
	struct buf calls;
};

static struct fake *fake_of(struct engine *e)
{
	return container_of(e, struct fake, base);
}

static struct fake_container *find_locked(struct fake *f, const char *name)
{
	struct fake_container *new;

	for (size_t i = 0; i < f->count; i++)
		if (!strcmp(f->items[i].name, name))
			return &f->items[i];
	check(f->count < CONTAINERS_MAX);
	new = &f->items[f->count++];
	new->name = xstrdup(name);
	new->ends_at_ms = UINT64_MAX;
	return new;
}

/* Notes the call; the error that was ordered for it, or 0. */
static int enter_locked(struct fake *f, const char *op, const char *name, struct why *why)
{
	buf_printf(&f->calls, "%s %s\n", op, name);
	for (size_t i = 0; i < f->fault_count; i++) {
		struct fault *fault = &f->faults[i];
		int error = fault->error;

		if (!error || strcmp(fault->op, op) != 0 ||
		    strcmp(fault->name, name) != 0)
			continue;
		fault->error = 0;
		return why_set(why, err_origin(error), "%s of %s was made to fail", op,
			       name);
	}
	return 0;
}

static int fake_probe(struct engine *e, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	return enter_locked(f, "probe", "-", why);
}

static int fake_check_image(struct engine *e, const char *image, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	return enter_locked(f, "check_image", image, why);
}

static int fake_network_create(struct engine *e, const char *job, const char *state_dir,
			       struct engine_peer *peers, size_t count, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	(void)state_dir;
	for (size_t i = 0; i < count; i++)
		snprintf(peers[i].address, sizeof(peers[i].address), "10.0.0.%zu", i + 2);
	return enter_locked(f, "network_create", job, why);
}

static int fake_network_remove(struct engine *e, const char *job, const char *state_dir,
			       struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	(void)state_dir;
	return enter_locked(f, "network_remove", job, why);
}

static int fake_create(struct engine *e, const struct engine_container *c,
		       struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, c->name);
	struct buf env = BUF_INIT;
	int r = enter_locked(f, "create", c->name, why);

	if (r < 0)
		return r;
	for (const char *const *word = c->env; *word; word++)
		buf_printf(&env, "%s\n", *word);
	free(item->env);
	item->env = buf_steal(&env);
	item->state = ENGINE_CREATED;
	return 0;
}

static int fake_start(struct engine *e, const char *name, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);
	int r = enter_locked(f, "start", name, why);

	if (r < 0)
		return r;
	item->state = ENGINE_RUNNING;
	if (item->scripted)
		item->ends_at_ms = clock_mono_ms() + item->delay_ms;
	return 0;
}

static int fake_wait(struct engine *e, const char *name, uint64_t timeout_ms, int *status,
		     bool *oom, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);
	uint64_t deadline =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;

	while (item->state == ENGINE_RUNNING && clock_mono_ms() < item->ends_at_ms) {
		if (clock_mono_ms() >= deadline)
			return ENGINE_E_TIMEOUT;
		lock_wait(&f->lock, &f->changed,
			  item->ends_at_ms < deadline ? item->ends_at_ms : deadline);
	}
	if (item->removed)
		return why_set(why, err_origin(-ENOENT), "%s was removed", name);
	item->state = ENGINE_EXITED;
	*status = item->status;
	*oom = item->oom;
	return 0;
}

static int fake_signal(struct engine *e, const char *name, int signal, struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);
	int r = enter_locked(f, signal == SIGKILL ? "kill" : "term", name, why);

	if (r < 0)
		return r;
	if (item->state != ENGINE_RUNNING || (signal == SIGTERM && item->ignores_term))
		return 0;
	item->status = 128 + signal;
	item->oom = false;
	item->ends_at_ms = 0;
	pthread_cond_broadcast(&f->changed);
	return 0;
}

static int fake_state(struct engine *e, const char *name, enum engine_state *state)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	*state = find_locked(f, name)->state;
	return 0;
}

static int fake_remove(struct engine *e, const char *name, const char *state_dir,
		       struct why *why)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);
	int r = enter_locked(f, "remove", name, why);

	(void)state_dir;
	if (r < 0)
		return r;
	item->removed = item->state == ENGINE_RUNNING;
	item->state = ENGINE_ABSENT;
	pthread_cond_broadcast(&f->changed);
	return 0;
}

static void fake_free(struct engine *e)
{
	struct fake *f = fake_of(e);

	for (size_t i = 0; i < f->count; i++) {
		free(f->items[i].name);
		free(f->items[i].env);
	}
	for (size_t i = 0; i < f->fault_count; i++) {
		free(f->faults[i].op);
		free(f->faults[i].name);
	}
	buf_fini(&f->calls);
	pthread_cond_destroy(&f->changed);
	lock_fini(&f->lock);
	free(f);
}

static const struct engine_ops ops = {
	.name = "fake",
	.probe = fake_probe,
	.check_image = fake_check_image,
	.network_create = fake_network_create,
	.network_remove = fake_network_remove,
	.create = fake_create,
	.start = fake_start,
	.wait = fake_wait,
	.signal = fake_signal,
	.state = fake_state,
	.remove = fake_remove,
	.free = fake_free,
};

struct engine *engine_fake_new(void)
{
	struct fake *f = xcalloc(1, sizeof(*f));

	f->base.ops = &ops;
	lock_init(&f->lock);
	lock_cond_init(&f->changed);
	return &f->base;
}

void engine_fake_exits(struct engine *e, const char *name, int status, uint64_t delay_ms)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);

	item->scripted = true;
	item->status = status;
	item->delay_ms = delay_ms;
}

void engine_fake_oom(struct engine *e, const char *name, uint64_t delay_ms)
{
	struct fake *f = fake_of(e);

	engine_fake_exits(e, name, 137, delay_ms);
	lock_scope(&f->lock);
	find_locked(f, name)->oom = true;
}

void engine_fake_ignores_term(struct engine *e, const char *name)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	find_locked(f, name)->ignores_term = true;
}

void engine_fake_fails(struct engine *e, const char *op, const char *name, int error)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	check(f->fault_count < FAULTS_MAX);
	f->faults[f->fault_count++] = (struct fault){xstrdup(op), xstrdup(name), error};
}

char *engine_fake_calls(struct engine *e)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);

	return xstrdup(f->calls.data ? f->calls.data : "");
}

char *engine_fake_env(struct engine *e, const char *name)
{
	struct fake *f = fake_of(e);
	lock_scope(&f->lock);
	struct fake_container *item = find_locked(f, name);

	return xstrdup(item->env ? item->env : "");
}
