/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container, by file: runc_net.c gives it a network namespace, runc_rootfs.c a
 * mount namespace with its root, runc_bundle.c describes it, runc_keeper.c is the parent
 * of its first process (init.c) and has runc.c's program start it; runc_cgroup.c tells
 * what its limits did.
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
 * Threads: `lock` covers the two lists, reference counts and what containers became. No
 * runc and no poll is waited for while it is held.
 */
#include "runner/engine_runc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"
#include "runner/mnt.h"
#include "runner/proc.h"
#include "runner/runc.h"
#include "runner/runc_bundle.h"
#include "runner/runc_cgroup.h"
#include "runner/runc_keeper.h"
#include "runner/runc_net.h"
#include "runner/runc_rootfs.h"

#define KEEPER_END_MS 15000 /* from being told to end until it is killed */
#define LOG_FILE_MAX 65536

struct container {
	struct container *next;
	char *name;
	int refs;
	int sock;     /* to the keeper */
	pid_t keeper; /* to be waited for by whoever takes it off the list */
	bool started;
	bool exited; /* then status and oom hold */
	bool oom;
	int status;
};

struct network {
	struct network *next;
	struct runc_net *net;
};

struct engine_runc {
	struct engine engine; /* first */
	struct runc runc;
	struct runc_cgroup_support support;
	struct lock lock;
	struct container *containers; /* lock */
	struct network *networks;     /* lock */
};

static struct engine_runc *runc_of(struct engine *e)
{
	return (struct engine_runc *)e;
}

/* ---- the list of our own containers --------------------------------------------------- */

static struct container *get_container(struct engine_runc *e, const char *name)
{
	struct container *c;
	lock_scope(&e->lock);

	for (c = e->containers; c; c = c->next)
		if (!strcmp(c->name, name)) {
			c->refs++;
			return c;
		}
	return NULL;
}

static void put_container(struct engine_runc *e, struct container *c)
{
	bool last;

	lock_take(&e->lock);
	last = --c->refs == 0;
	lock_drop(&e->lock);
	if (!last)
		return;
	close_fdp(&c->sock);
	free(c->name);
	free(c);
}

/* Off the list; the list's reference becomes the caller's. */
static struct container *take_container(struct engine_runc *e, const char *name)
{
	lock_scope(&e->lock);

	for (struct container **at = &e->containers; *at; at = &(*at)->next) {
		struct container *c = *at;

		if (name && strcmp(c->name, name))
			continue;
		*at = c->next;
		return c;
	}
	return NULL;
}

static void add_container(struct engine_runc *e, const char *name, pid_t keeper, int sock)
{
	struct container *c = xcalloc(1, sizeof(*c));
	lock_scope(&e->lock);

	c->name = xstrdup(name);
	c->refs = 1;
	c->sock = sock;
	c->keeper = keeper;
	c->next = e->containers;
	e->containers = c;
}

/* Kills the container if it lives and collects the keeper. */
static void end_keeper(struct container *c)
{
	int status;

	shutdown(c->sock, SHUT_WR);
	if (proc_wait(c->keeper, KEEPER_END_MS, &status) == 0)
		return;
	log_warn("keeper does not end container=%s pid=%d", c->name, c->keeper);
	proc_end(c->keeper, 0);
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

/* ---- create ---------------------------------------------------------------------------- */

static bool is_plain_path(const char *path)
{
	return path && path[0] == '/' &&
	       path_key_check(path + 1, strlen(path + 1)) == PATH_OK;
}

static int check_container(const struct engine_runc *e, const struct engine_container *c,
			   struct why *why)
{
	size_t n = strspn(c->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789-_");

	if (!n || c->name[n] || n > 200)
		return why_set(why, err_origin(-EINVAL),
			       "container name \"%s\": 1 to 200 letters, digits, hyphens",
			       c->name);
	if (!c->argv || !c->argv[0])
		return why_set(why, err_origin(-EINVAL), "%s has no command", c->name);
	if ((c->memory_bytes && !e->support.memory) || (c->cpu_millis && !e->support.cpu))
		return why_set(why, err_origin(-EOPNOTSUPP),
			       "%s: this host cannot limit %s (its control group "
			       "controller is not mounted)",
			       c->name,
			       c->memory_bytes && !e->support.memory ? "memory" : "cpu");
	for (size_t i = 0; i < c->mount_count; i++) {
		const struct engine_mount *m = &c->mounts[i];

		if (!is_plain_path(m->target) || m->source[0] != '/')
			return why_set(why, err_origin(-EINVAL),
				       "%s: cannot bind %s at %s: both must be absolute",
				       c->name, m->source, m->target);
		if (m->slave && !mnt_propagates(m->source))
			return why_set(
				why, err_origin(-EINVAL),
				"%s: mounts made later below %s would not be seen: "
				"it is not on a shared mount",
				c->name, m->source);
	}
	for (size_t i = 0; i < c->link_count; i++)
		if (!is_plain_path(c->links[i].path))
			return why_set(why, err_origin(-EINVAL),
				       "%s: link %s: not absolute", c->name,
				       c->links[i].path);
	return 0;
}

static int write_bundle(const struct engine_runc *e, const struct engine_container *c,
			const struct runc_net *net, const char *rootfs,
			const char *cgroup, struct why *why)
{
	_cleanup_(close_fdp) int dir = io_open_private_dir(c->state_dir, why);
	char cgroup_path[RUNC_ID_SIZE + 1];
	const struct runc_bundle bundle = {.container = c,
					   .rootfs = rootfs,
					   .hosts = runc_net_hosts_path(net),
					   .cgroup = cgroup_path,
					   .support = e->support,
					   .seccomp = e->runc.seccomp};
	struct buf b = BUF_INIT;
	int r;

	if (dir < 0)
		return err_trace(dir);
	snprintf(cgroup_path, sizeof(cgroup_path), "/%s", cgroup);
	runc_bundle_format(&bundle, &b);
	r = buf_error(&b);
	r = r ? r : io_replace_file(dir, "config.json", b.data, b.len, 0600);
	buf_fini(&b);
	return r ? why_set(why, r, "%s: %s", c->state_dir, strerror(-r)) : 0;
}

struct create_words {
	char log[PATH_MAX];
	char pid_file[PATH_MAX];
	const char *create[16];
	const char *remove[8];
};

static int make_words(struct create_words *w, const struct engine_runc *e,
		      const struct engine_container *c)
{
	const char *const create[] = {
		e->runc.program, "--root",    e->runc.root, "--log",    w->log,
		"--log-format",  "json",      "create",     "--bundle", c->state_dir,
		"--pid-file",    w->pid_file, c->name};
	const char *const remove[] = {e->runc.program, "--root",  e->runc.root,
				      "delete",        "--force", c->name};
	int r = path_join(w->log, sizeof(w->log), c->state_dir, "runc.log");

	r = r ? r : path_join(w->pid_file, sizeof(w->pid_file), c->state_dir, "pid");
	memcpy(w->create, create, sizeof(create));
	memcpy(w->remove, remove, sizeof(remove));
	return err_trace(r);
}

/* The keeper's next message; ENGINE_E_TIMEOUT; its end counts as a message, too. */
static int receive(int sock, uint64_t timeout_ms, struct runc_keeper_message *m)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	uint64_t until =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
	ssize_t n;

	for (;;) {
		uint64_t now = clock_mono_ms(), left = until > now ? until - now : 0;

		if (poll(&p, 1, left > 3600000 ? 3600000 : (int)left) > 0)
			break;
		if (clock_mono_ms() >= until)
			return ENGINE_E_TIMEOUT;
	}
	n = recv(sock, m, sizeof(*m), MSG_DONTWAIT);
	if (n != (ssize_t)sizeof(*m))
		*m = (struct runc_keeper_message){0};
	return 0;
}

static int explain_failure(const struct create_words *w, const char *name, int status,
			   struct why *why)
{
	struct buf b = BUF_INIT;
	char text[200], fallback[64];

	snprintf(fallback, sizeof(fallback), "exit status %d", status);
	if (status < 0)
		snprintf(fallback, sizeof(fallback), "%s", strerror(-status));
	if (io_read_file(AT_FDCWD, w->log, LOG_FILE_MAX, &b))
		buf_reset(&b);
	runc_complaint(b.data, fallback, text, sizeof(text));
	buf_fini(&b);
	return why_set(why, err_origin(-EIO), "runc cannot create %s: %s", name, text);
}

static int run_keeper(struct engine_runc *e, const struct engine_container *c,
		      const struct runc_rootfs *rootfs, int net_ns, struct why *why)
{
	struct runc_keeper_message m = {0};
	struct create_words w = {.create = {NULL}};
	struct runc_keeper_options o = {.create = w.create,
					.remove = w.remove,
					.pid_file = w.pid_file,
					.mount_ns = rootfs->mount_ns,
					.net_ns = net_ns,
					.log_fd = c->log_fd};
	struct container *failed;
	pid_t keeper;
	int sock, r = make_words(&w, e, c);

	r = r ? r : runc_keeper_start(&o, &keeper, &sock);
	if (r)
		return why_set(why, r, "cannot start a process for %s: %s", c->name,
			       strerror(-r));
	add_container(e, c->name, keeper, sock);
	r = receive(sock, RUNC_CALL_MS, &m);
	if (!r && m.event == RUNC_KEEPER_CREATED)
		return 0;
	r = explain_failure(&w, c->name, r ? -ETIMEDOUT : m.value, why);
	failed = take_container(e, c->name);
	if (failed) {
		end_keeper(failed);
		put_container(e, failed);
	}
	return r;
}

static int create(struct engine *engine, const struct engine_container *c,
		  struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	struct runc_net *net = find_network(e, c->job);
	char cgroup[RUNC_ID_SIZE];
	struct runc_rootfs rootfs;
	int net_ns, r = check_container(e, c, why);

	if (r)
		return err_trace(r);
	net_ns = net ? runc_net_ns(net, c->hostname) : -ENOENT;
	if (net_ns < 0)
		return why_set(why, net_ns, "%s is not in the network of job %s",
			       c->hostname, c->job);
	if (runc_exists(&e->runc, c->name))
		return why_set(why, err_origin(-EEXIST),
			       "a container called %s exists; remove its job first",
			       c->name);
	r = runc_rootfs_new(&rootfs, c, e->runc.run_dir, why);
	if (r)
		return err_trace(r);
	runc_cgroup_name(&e->runc, c->name, cgroup);
	r = write_bundle(e, c, net, rootfs.path, cgroup, why);
	r = r ? r : run_keeper(e, c, &rootfs, net_ns, why);
	close_fdp(&rootfs.mount_ns);
	return err_trace(r);
}

/* ---- while it runs --------------------------------------------------------------------- */

static int start(struct engine *engine, const char *name, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	int r = runc_call(&e->runc, "start", NULL, name, NULL, why);
	struct container *c = r ? NULL : get_container(e, name);

	if (!c)
		return err_trace(r);
	lock_take(&e->lock);
	c->started = true;
	lock_drop(&e->lock);
	put_container(e, c);
	return 0;
}

/* Takes the keeper's last word when it is there. Several threads may ask at once: the
 * lock is held from the look to the note. */
static void note_exit(struct engine_runc *e, struct container *c)
{
	struct runc_keeper_message m;
	char cgroup[RUNC_ID_SIZE];
	lock_scope(&e->lock);

	if (c->exited || receive(c->sock, 0, &m))
		return;
	runc_cgroup_name(&e->runc, c->name, cgroup);
	c->status = m.event == RUNC_KEEPER_EXITED ? m.value : 128 + SIGKILL;
	c->oom = c->status && runc_cgroup_oom(cgroup);
	c->exited = true;
}

static int wait_for(struct engine *engine, const char *name, uint64_t timeout_ms,
		    int *status, bool *oom, struct why *why)
{
	struct engine_runc *e = runc_of(engine);
	struct container *c = get_container(e, name);
	struct pollfd p = {.events = POLLIN};
	uint64_t until =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
	bool exited;

	if (!c)
		return why_set(why, err_origin(-ENOENT),
			       "no container %s was created here", name);
	p.fd = c->sock;
	do {
		uint64_t now = clock_mono_ms(), left = until > now ? until - now : 0;

		note_exit(e, c);
		lock_take(&e->lock);
		exited = c->exited;
		if (exited) {
			*status = c->status;
			*oom = c->oom;
		}
		lock_drop(&e->lock);
		if (!exited)
			poll(&p, 1, left > 3600000 ? 3600000 : (int)left);
	} while (!exited && clock_mono_ms() < until);
	put_container(e, c);
	return exited ? 0 : ENGINE_E_TIMEOUT;
}

static int state(struct engine *engine, const char *name, enum engine_state *out)
{
	struct engine_runc *e = runc_of(engine);
	struct container *c = get_container(e, name);
	char text[32];
	int r;

	if (c) {
		note_exit(e, c);
		lock_take(&e->lock);
		*out = c->exited    ? ENGINE_EXITED
		       : c->started ? ENGINE_RUNNING
				    : ENGINE_CREATED;
		lock_drop(&e->lock);
		put_container(e, c);
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
	enum engine_state now;
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
	struct container *c = take_container(e, name);
	char cgroup[RUNC_ID_SIZE];
	int r;

	if (c) {
		note_exit(e, c); /* the control group still tells why */
		end_keeper(c);
		put_container(e, c);
	}
	runc_cgroup_name(&e->runc, name, cgroup);
	r = remove_from_runc(e, name, why);
	r = r ? r : runc_cgroup_remove(cgroup, why);
	return err_trace(r ? r : empty_dir(state_dir, why));
}

static void free_engine(struct engine *engine)
{
	struct engine_runc *e = runc_of(engine);
	struct container *c;

	while ((c = take_container(e, NULL))) {
		end_keeper(c);
		put_container(e, c);
	}
	while (e->networks)
		drop_network(e, NULL);
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
	lock_init(&e->lock);
	*out = &e->engine;
	return 0;
}
