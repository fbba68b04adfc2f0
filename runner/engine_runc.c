/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container, by file: runc_net.c gives it a network namespace, runc_rootfs.c a mount
 * namespace with its root (runc_layer.c: what the root shows), runc_bundle.c describes
 * it, runc_keeper.c is the parent of its first process (init.c); runc_create.c does these
 * in turn, runc_container.c remembers it, runc_cgroup.c tells what its limits did.
 *
 *   create    namespaces, config.json, keeper, `runc create`      CREATED
 *   start     `runc start`                                        RUNNING
 *   wait      the keeper's message                                EXITED
 *   remove    the keeper is told to end (it kills), then whatever runc, the control groups
 *             and state_dir still hold of the name, ours or a dead runner's
 *
 * Failure modes: create that fails half-way leaves what remove() takes away. The runner
 * dies: keepers kill the containers; namespaces and mounts are gone with them. A keeper that
 * is killed itself: wait() reports 137, remove() finds the rest by name.
 *
 * Threads: two locks, never both at once: the one of the containers' list and the one of the
 * networks'. No runc and no poll is waited for while one is held.
 */
#include "runner/engine_runc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"
#include "runner/runc.h"
#include "runner/runc_cgroup.h"
#include "runner/runc_container.h"
#include "runner/runc_create.h"
#include "runner/runc_net.h"
#include "runner/runc_rootfs.h"

struct network {
	struct network *next;
	struct runc_net *net;
};

struct engine_runc {
	struct engine engine; /* first */
	struct runc runc;
	struct runc_cgroup_support support;
	struct runc_containers containers;
	struct lock lock;
	struct network *networks; /* lock */
};

static struct engine_runc *runc_of(struct engine *e)
{
	return (struct engine_runc *)e;
}

/* ---- probing --------------------------------------------------------------------------- */

static int probe(struct engine *engine, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	int r = runc_cgroup_probe(&e->support, why);

	if (r)
		return err_trace(r);
	/* Without a lower layer this cannot succeed; it tells whether there is such a
	 * file system, and makes the kernel load it. */
	if (mount("sluice", "/proc", "overlay", 0, NULL) && errno == ENODEV)
		return why_set(
			why, err_origin(-ENODEV),
			"this kernel has no overlay file system; load it: modprobe "
			"overlay");
	return 0;
}

static int check_image(struct engine *engine, const char *image, struct why *why)
{
	(void)engine;
	return err_trace(runc_rootfs_check(image, why));
}

/* ---- networks -------------------------------------------------------------------------- */

static void drop_network(struct engine_runc *e, const char *job)
{
	struct network *found = NULL;

	lock_take(&e->lock);
	for (struct network **at = &e->networks; *at; at = &(*at)->next)
		if (!job || !strcmp(runc_net_job((*at)->net), job)) {
			found = *at;
			*at = found->next;
			break;
		}
	lock_drop(&e->lock);
	if (!found)
		return;
	runc_net_free(found->net);
	free(found);
}

static int network_create(struct engine *engine, const char *job, const char *state_dir,
			  struct engine_peer *peers, size_t count, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	struct network *n;
	struct runc_net *net;
	int r = runc_net_new(&net, job, state_dir, peers, count, why);

	if (r)
		return err_trace(r);
	drop_network(e, job);
	n = xcalloc(1, sizeof(*n));
	n->net = net;
	lock_take(&e->lock);
	n->next = e->networks;
	e->networks = n;
	lock_drop(&e->lock);
	return 0;
}

static int network_remove(struct engine *engine, const char *job, const char *state_dir,
			  struct why *why)
{
	char path[PATH_MAX];

	drop_network(runc_of(engine), job);
	if (path_join(path, sizeof(path), state_dir, "hosts") || !unlink(path) ||
	    errno == ENOENT || errno == ENOTDIR)
		return 0;
	return why_set(why, err_origin(-errno), "%s: %s", path, strerror(errno));
}

/* Networks live until network_remove(), which one thread calls: the result stays good. */
static struct runc_net *find_network(struct engine_runc *e, const char *job)
{
	lock_scope(&e->lock);

	for (struct network *n = e->networks; n; n = n->next)
		if (!strcmp(runc_net_job(n->net), job))
			return n->net;
	return NULL;
}

/* ---- while it runs --------------------------------------------------------------------- */

static int create(struct engine *engine, const struct engine_container *c,
		  struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	const struct runc_create how = {.runc = &e->runc,
					.support = &e->support,
					.net = find_network(e, c->job),
					.list = &e->containers};
	int r = runc_create_check(&how, c, why);

	return err_trace(r ? r : runc_create_run(&how, c, why));
}

static int start(struct engine *engine, const char *name, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	int r = runc_call(&e->runc, "start", NULL, name, NULL, why);
	struct runc_container *c = r ? NULL : runc_container_get(&e->containers, name);

	if (!c)
		return err_trace(r);
	runc_container_set_started(&e->containers, c);
	runc_container_put(&e->containers, c);
	return 0;
}

static int wait_for(struct engine *engine, const char *name, uint64_t timeout_ms,
		    int *status, bool *oom, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	struct runc_container *c = runc_container_get(&e->containers, name);
	struct runc_container_fate fate;

	if (!c)
		return why_set(why, err_origin(-ENOENT),
			       "no container %s was created here", name);
	fate = runc_container_wait(&e->containers, c, timeout_ms);
	runc_container_put(&e->containers, c);
	if (!fate.exited)
		return ENGINE_E_TIMEOUT;
	*status = fate.status;
	*oom = fate.oom;
	return 0;
}

static int state(struct engine *engine, const char *name, enum engine_state *out)
{
	struct engine_runc *e = runc_of(engine);
	struct runc_container *c = runc_container_get(&e->containers, name);
	struct runc_container_fate fate;
	char text[32];
	int r;

	if (c) {
		fate = runc_container_wait(&e->containers, c, 0);
		runc_container_put(&e->containers, c);
		*out = fate.exited    ? ENGINE_EXITED
		       : fate.started ? ENGINE_RUNNING
				      : ENGINE_CREATED;
		return 0;
	}
	r = runc_status(&e->runc, name, text, NULL);
	if (r)
		return err_trace(r);
	*out = !strcmp(text, "running")   ? ENGINE_RUNNING
	       : !strcmp(text, "created") ? ENGINE_CREATED
	       : *text                    ? ENGINE_EXITED
					  : ENGINE_ABSENT;
	return 0;
}

static int send_signal(struct engine *engine, const char *name, int number,
		       struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	enum engine_state now = ENGINE_RUNNING;
	char text[16];
	int r;

	snprintf(text, sizeof(text), "%d", number);
	r = runc_call(&e->runc, "kill", NULL, name, text, why);
	if (!r)
		return 0;
	/* Ended before or just now: that is what was wanted. */
	if (!state(engine, name, &now) &&
	    (now == ENGINE_EXITED || now == ENGINE_ABSENT)) {
		if (why)
			why->text[0] = '\0';
		return 0;
	}
	return err_trace(r);
}

/* ---- the end --------------------------------------------------------------------------- */

static int empty_dir(const char *path, struct why *why)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *entry;
	int fd, r = 0;

	if (access(path, F_OK))
		return 0;
	fd = io_open_private_dir(path, why);
	if (fd < 0)
		return err_trace(fd);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_origin(-ENOMEM);
	}
	while (!r && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			r = io_remove_tree(dirfd(dir), entry->d_name);
	return r ? why_set(why, r, "cannot empty %s: %s", path, strerror(-r)) : 0;
}

/* What runc knows of the name, whoever created it. */
static int remove_from_runc(struct engine_runc *e, const char *name, struct why *why)
{
	_cleanup_(close_fdp) int root = -1;
	int r;

	if (!runc_exists(&e->runc, name))
		return 0;
	r = runc_call(&e->runc, "delete", "--force", name, NULL, why);
	if (!r)
		return 0;
	/* A runc that was killed half-way leaves a directory that no runc understands:
	 * the control group is then emptied below. */
	log_debug(LOG_RUNNER, "runc delete failed container=%s", name);
	root = open(e->runc.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_trace(r);
	r = io_remove_tree(root, name);
	if (!r && why)
		why->text[0] = '\0';
	return err_trace(r);
}

static int remove_container(struct engine *engine, const char *name,
			    const char *state_dir, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	struct runc_container *c = runc_container_take(&e->containers, name);
	char cgroup[RUNC_ID_SIZE];
	int r;

	if (c) {
		/* A look first: the control group still tells why it ended. */
		runc_container_wait(&e->containers, c, 0);
		runc_container_end(c);
		runc_container_put(&e->containers, c);
	}
	runc_cgroup_name(&e->runc, name, cgroup);
	r = remove_from_runc(e, name, why);
	r = r ? r : runc_cgroup_remove(cgroup, why);
	return err_trace(r ? r : empty_dir(state_dir, why));
}

static void free_engine(struct engine *engine)
{
	struct engine_runc *e = runc_of(engine);
	struct runc_container *c;

	while ((c = runc_container_take(&e->containers, NULL))) {
		runc_container_end(c);
		runc_container_put(&e->containers, c);
	}
	while (e->networks)
		drop_network(e, NULL);
	runc_containers_fini(&e->containers);
	lock_fini(&e->lock);
	free(e);
}

static const struct engine_ops runc_ops = {
	.name = "runc",
	.probe = probe,
	.check_image = check_image,
	.network_create = network_create,
	.network_remove = network_remove,
	.create = create,
	.start = start,
	.wait = wait_for,
	.signal = send_signal,
	.state = state,
	.remove = remove_container,
	.free = free_engine,
};

int engine_runc_open(struct engine **out, struct why *why)
{
	struct engine_runc *e = xcalloc(1, sizeof(*e));
	int r = runc_open(&e->runc, why);

	r = r ? r : runc_cgroup_probe(&e->support, why);
	if (r) {
		free(e);
		return err_trace(r);
	}
	e->engine.ops = &runc_ops;
	runc_containers_init(&e->containers);
	lock_init(&e->lock);
	*out = &e->engine;
	return 0;
}
