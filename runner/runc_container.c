/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_container.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "runner/proc.h"
#include "runner/runc_cgroup.h"
#include "runner/runc_keeper.h"

#define KEEPER_END_MS 15000 /* from being told to end until it is killed */

struct runc_container {
	struct runc_container *next; /* lock */
	char *name, *cgroup;
	int refs; /* lock */
	int sock; /* to the keeper */
	pid_t keeper;
	struct runc_container_fate fate; /* lock */
};

void runc_containers_init(struct runc_containers *list)
{
	lock_init(&list->lock);
	list->first = NULL;
}

void runc_containers_fini(struct runc_containers *list)
{
	lock_fini(&list->lock);
}

void runc_container_add(struct runc_containers *list, const char *name,
			const char *cgroup, pid_t keeper, int sock)
{
	struct runc_container *c = xcalloc(1, sizeof(*c));
	lock_scope(&list->lock);

	c->name = xstrdup(name);
	c->cgroup = xstrdup(cgroup);
	c->refs = 1;
	c->sock = sock;
	c->keeper = keeper;
	c->next = list->first;
	list->first = c;
}

struct runc_container *runc_container_get(struct runc_containers *list, const char *name)
{
	lock_scope(&list->lock);

	for (struct runc_container *c = list->first; c; c = c->next)
		if (!strcmp(c->name, name)) {
			c->refs++;
			return c;
		}
	return NULL;
}

void runc_container_put(struct runc_containers *list, struct runc_container *c)
{
	bool last;

	lock_take(&list->lock);
	last = --c->refs == 0;
	lock_drop(&list->lock);
	if (!last)
		return;
	close_fdp(&c->sock);
	free(c->name);
	free(c->cgroup);
	free(c);
}

struct runc_container *runc_container_take(struct runc_containers *list, const char *name)
{
	lock_scope(&list->lock);

	for (struct runc_container **at = &list->first; *at; at = &(*at)->next) {
		struct runc_container *c = *at;

		if (name && strcmp(c->name, name))
			continue;
		*at = c->next;
		return c;
	}
	return NULL;
}

void runc_container_end(struct runc_container *c)
{
	int status;

	shutdown(c->sock, SHUT_WR);
	if (proc_wait(c->keeper, KEEPER_END_MS, &status) == 0)
		return;
	log_warn("keeper does not end container=%s pid=%d", c->name, c->keeper);
	proc_end(c->keeper, 0);
}

void runc_container_set_started(struct runc_containers *list, struct runc_container *c)
{
	lock_scope(&list->lock);

	c->fate.started = true;
}

/* Takes the keeper's last word when it is there. The lock is held from the look to the
 * note: of several threads one gets the message. */
static struct runc_container_fate look(struct runc_containers *list,
				       struct runc_container *c)
{
	struct runc_keeper_message m;
	lock_scope(&list->lock);

	if (!c->fate.exited && !runc_keeper_receive(c->sock, 0, &m)) {
		/* A keeper that ended without a word was killed: so is its container. */
		c->fate.status = m.event == RUNC_KEEPER_EXITED ? m.value : 128 + SIGKILL;
		c->fate.oom = c->fate.status && runc_cgroup_oom(c->cgroup);
		c->fate.exited = true;
	}
	return c->fate;
}

struct runc_container_fate runc_container_wait(struct runc_containers *list,
					       struct runc_container *c,
					       uint64_t timeout_ms)
{
	uint64_t until =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
	struct runc_container_fate fate = look(list, c);

	while (!fate.exited && clock_mono_ms() < until) {
		runc_keeper_poll(c->sock, until);
		fate = look(list, c);
	}
	return fate;
}
