/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_create.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/path.h"
#include "runner/engine.h"
#include "runner/mnt.h"
#include "runner/runc.h"
#include "runner/runc_bundle.h"
#include "runner/runc_container.h"
#include "runner/runc_keeper.h"
#include "runner/runc_net.h"
#include "runner/runc_rootfs.h"

#define LOG_FILE_MAX 65536

static bool is_plain_path(const char *path)
{
	return path && path[0] == '/' &&
	       path_key_check(path + 1, strlen(path + 1)) == PATH_OK;
}

static int check_mounts(const struct engine_container *c, struct why *why)
{
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

int runc_create_check(const struct runc_create *how, const struct engine_container *c,
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
	if ((c->memory_bytes && !how->support->memory) ||
	    (c->cpu_millis && !how->support->cpu))
		return why_set(why, err_origin(-EOPNOTSUPP),
			       "%s: this host cannot limit %s (its control group "
			       "controller is not mounted)",
			       c->name,
			       c->memory_bytes && !how->support->memory ? "memory"
									: "cpu");
	if (!how->net || runc_net_ns(how->net, c->hostname) < 0)
		return why_set(why, err_origin(-ENOENT),
			       "%s is not in the network of job %s", c->hostname, c->job);
	if (runc_exists(how->runc, c->name))
		return why_set(why, err_origin(-EEXIST),
			       "a container called %s exists; remove its job first",
			       c->name);
	return err_trace(check_mounts(c, why));
}

static int write_bundle(const struct runc_create *how, const struct engine_container *c,
			const char *rootfs, const char *cgroup, struct why *why)
{
	_cleanup_(close_fdp) int dir = io_open_private_dir(c->state_dir, why);
	char cgroup_path[RUNC_ID_SIZE + 1];
	const struct runc_bundle bundle = {.container = c,
					   .rootfs = rootfs,
					   .hosts = runc_net_hosts_path(how->net),
					   .cgroup = cgroup_path,
					   .support = *how->support,
					   .seccomp = how->runc->seccomp};
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

static int make_words(struct create_words *w, const struct runc *rc,
		      const struct engine_container *c)
{
	const char *const create[] = {
		rc->program,    "--root",    rc->root, "--log",    w->log,
		"--log-format", "json",      "create", "--bundle", c->state_dir,
		"--pid-file",   w->pid_file, c->name};
	const char *const remove[] = {rc->program, "--root",  rc->root,
				      "delete",    "--force", c->name};
	int r = path_join(w->log, sizeof(w->log), c->state_dir, "runc.log");

	r = r ? r : path_join(w->pid_file, sizeof(w->pid_file), c->state_dir, "pid");
	memcpy(w->create, create, sizeof(create));
	memcpy(w->remove, remove, sizeof(remove));
	return err_trace(r);
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

/* The container is on the list before runc works on it: remove() may be called meanwhile. */
static int run_keeper(const struct runc_create *how, const struct engine_container *c,
		      const struct runc_rootfs *rootfs, const char *cgroup,
		      struct why *why)
{
	struct runc_keeper_message m = {0};
	struct create_words w = {.create = {NULL}};
	struct runc_keeper_options o = {.create = w.create,
					.remove = w.remove,
					.pid_file = w.pid_file,
					.mount_ns = rootfs->mount_ns,
					.net_ns = runc_net_ns(how->net, c->hostname),
					.log_fd = c->log_fd};
	struct runc_container *mine;
	pid_t keeper;
	int sock, r = make_words(&w, how->runc, c);

	r = r ? r : runc_keeper_start(&o, &keeper, &sock);
	if (r)
		return why_set(why, r, "cannot start a process for %s: %s", c->name,
			       strerror(-r));
	runc_container_add(how->list, c->name, cgroup, keeper, sock);
	r = runc_keeper_receive(sock, RUNC_CALL_MS, &m);
	if (!r && m.event == RUNC_KEEPER_CREATED)
		return 0;
	r = explain_failure(&w, c->name, r ? -ETIMEDOUT : m.value, why);
	mine = runc_container_take(how->list, c->name);
	if (mine) {
		runc_container_end(mine);
		runc_container_put(how->list, mine);
	}
	return r;
}

int runc_create_run(const struct runc_create *how, const struct engine_container *c,
		    struct why *why)
{
	char cgroup[RUNC_ID_SIZE];
	struct runc_rootfs rootfs;
	int r = runc_rootfs_new(&rootfs, c, how->runc->run_dir, why);

	if (r)
		return err_trace(r);
	runc_cgroup_name(how->runc, c->name, cgroup);
	r = write_bundle(how, c, rootfs.path, cgroup, why);
	r = r ? r : run_keeper(how, c, &rootfs, cgroup, why);
	close_fdp(&rootfs.mount_ns);
	return err_trace(r);
}
