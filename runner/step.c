/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/step.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"
#include "runner/env.h"
#include "runner/job.h"
#include "runner/logs.h"
#include "runner/mnt.h"
#include "runner/plan.h"
#include "runner/run.h"
#include "runner/signals.h"
#include "runner/watch.h"

#define LOGS_DRAIN_MS 10000

/* ---- the job's folders -------------------------------------------------------------------- */

static const char *const folders[] = {"run", "mnt",  "mnt/input", "mnt/output",
				      "net", "logs", "engine"};
static const char *const passing_folders[] = {"run", "mnt", "net", "engine", "gateway"};

static int make_folder(struct run *r, const char *name, struct why *why)
{
	if (mkdirat(r->job->dirfd, name, 0700) == 0 || errno == EEXIST)
		return 0;
	return why_set(why, err_origin(-errno), "%.160s/%.60s: %s", r->job->dir, name,
		       strerror(errno));
}

static int prepare(struct run *r, const struct step *step, struct why *why)
{
	_cleanup_(close_fdp) int fd = -1;
	int e = 0;

	(void)step;
	for (size_t i = 0; e == 0 && i < sizeof(folders) / sizeof(*folders); i++)
		e = make_folder(r, folders[i], why);
	for (size_t i = 0; e == 0 && i < r->plan->replica_count; i++) {
		char name[64];

		snprintf(name, sizeof(name), "engine/%s", r->plan->replicas[i].hostname);
		e = make_folder(r, name, why);
	}
	if (e < 0)
		return err_trace(e);
	fd = openat(r->job->dirfd, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	e = fd < 0 ? -errno : env_write_files(r->plan->spec, fd);
	/* Programs in the containers need not be root to read it. */
	if (e == 0 && fchmod(fd, 0755) < 0)
		e = -errno;
	if (e < 0)
		return why_set(why, err_trace(e), "%.200s/run: %s", r->job->dir,
			       strerror(-e));
	return 0;
}

static int remove_folder(struct run *r, const char *name, struct why *why)
{
	int e = io_remove_tree(r->job->dirfd, name);

	if (e == 0 || e == -ENOENT)
		return 0;
	return why_set(why, err_trace(e), "%.160s/%.60s: %s", r->job->dir, name,
		       strerror(-e));
}

static int remove_folders(struct run *r, const struct step *step, struct why *why)
{
	int first = 0;

	(void)step;
	for (size_t i = 0; i < sizeof(passing_folders) / sizeof(*passing_folders); i++) {
		int e = remove_folder(r, passing_folders[i], why);

		first = first ? first : e;
	}
	return err_trace(first);
}

static int remove_code(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	return remove_folder(r, "code", why);
}

/* ---- mounts that reach the containers ------------------------------------------------------ */

static int share(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	return err_trace(mnt_share(r->plan->mount_dir, why));
}

static int unshare_mounts(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	if (access(r->plan->mount_dir, F_OK) < 0)
		return 0;
	return err_trace(mnt_unshare(r->plan->mount_dir, why));
}

/* ---- logs -------------------------------------------------------------------------------- */

static int open_logs(struct run *r, const struct step *step, struct why *why)
{
	int e = logs_new(&r->logs, r->terminal_fd);

	(void)step;
	if (e == 0)
		e = watch_new(r->engine, r->plan->replica_count, &r->watch);
	for (size_t i = 0; e == 0 && i < r->plan->replica_count; i++) {
		r->log_fds[i] = open(r->plan->replicas[i].log_path,
				     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (r->log_fds[i] < 0)
			e = -errno;
	}
	if (e < 0)
		return why_set(why, err_trace(e), "%.200s/logs: %s", r->job->dir,
			       strerror(-e));
	return 0;
}

static int close_logs(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	(void)why;
	if (r->logs && logs_drain(r->logs, LOGS_DRAIN_MS) == LOGS_E_TIMEOUT)
		run_say(r, "some output of the containers is still held back; given up");
	r->logs = logs_free(r->logs);
	for (size_t i = 0; r->log_fds && i < r->plan->replica_count; i++)
		close_fdp(&r->log_fds[i]);
	return 0;
}

/* ---- network and containers ---------------------------------------------------------------- */

static int make_network(struct run *r, const struct step *step, struct why *why)
{
	const struct plan *p = r->plan;
	_cleanup_(freep) struct engine_peer *peers =
		xcalloc(p->replica_count, sizeof(*peers));

	(void)step;
	for (size_t i = 0; i < p->replica_count; i++)
		peers[i].hostname = p->replicas[i].hostname;
	return err_trace(r->engine->ops->network_create(
		r->engine, p->spec->name, p->network_dir, peers, p->replica_count, why));
}

static int remove_network(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	return err_trace(r->engine->ops->network_remove(r->engine, r->plan->spec->name,
							r->plan->network_dir, why));
}

static int create(struct run *r, const struct step *step, struct why *why)
{
	const struct plan_replica *p = &r->plan->replicas[step->replica];
	const struct env_task task = {p->role, p->index, r->status.commit};
	struct engine_container c = p->container;
	_cleanup_(close_fdp) int log_fd = -1;
	struct env env;
	int e;

	e = logs_add(r->logs, p->hostname, r->log_fds[step->replica], &log_fd);
	if (e < 0)
		return why_set(why, err_trace(e), "%s: no pipe for its output: %s",
			       p->hostname, strerror(-e));
	env_build(r->plan->spec, &task, &env);
	c.env = (const char *const *)env.items;
	c.log_fd = log_fd;
	e = r->engine->ops->create(r->engine, &c, why);
	env_fini(&env);
	if (e < 0)
		return err_trace(e);
	r->status.replicas[step->replica].state = REPLICA_CREATED;
	return 0;
}

static int remove_container(struct run *r, const struct step *step, struct why *why)
{
	const struct plan_replica *p = &r->plan->replicas[step->replica];

	return err_trace(r->engine->ops->remove(r->engine, p->name, p->state_dir, why));
}

static int start(struct run *r, const struct step *step, struct why *why)
{
	const struct plan_replica *p = &r->plan->replicas[step->replica];
	struct status_replica *s = &r->status.replicas[step->replica];
	int e = r->engine->ops->start(r->engine, p->name, why);

	if (e < 0)
		return err_trace(e);
	s->started_ms = clock_real_ns() / 1000000;
	s->state = REPLICA_RUNNING;
	e = watch_add(r->watch, p->name, step->replica);
	if (e < 0)
		return why_set(why, err_trace(e), "no thread to watch %s: %s",
			       p->hostname, strerror(-e));
	return 0;
}

static int stop_containers(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	(void)why;
	run_stop_containers(r);
	return 0;
}

static int wait_for_result(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	(void)why;
	run_save(r);
	if (r->started)
		r->started(r->started_arg);
	for (;;) {
		int e;

		run_take_events(r);
		if (r->result != RUN_UNDECIDED)
			return 0;
		e = signals_wait(r->signals, watch_fd(r->watch), UINT64_MAX);
		if (e < 0)
			return err_trace(e);
		if (e == SIGNALS_E_STOP)
			return -ECANCELED;
	}
}

/* ---- the table ---------------------------------------------------------------------------- */

typedef int (*step_fn)(struct run *r, const struct step *step, struct why *why);

static const struct {
	step_fn act, undo;
} table[] = {
	[STEP_PREPARE] = {prepare, remove_folders},
	[STEP_CODE] = {step_fetch_code, remove_code},
	[STEP_SHARE] = {share, unshare_mounts},
	[STEP_MOUNT_INPUT] = {step_mount_input, step_unmount_input},
	[STEP_MOUNT_OUTPUT] = {step_mount_output, step_flush_output},
	[STEP_LOGS] = {open_logs, close_logs},
	[STEP_NETWORK] = {make_network, remove_network},
	[STEP_CREATE] = {create, remove_container},
	[STEP_START] = {start, stop_containers},
	[STEP_WAIT] = {wait_for_result, NULL},
};
static_assert(sizeof(table) / sizeof(*table) == STEP_KIND_N, "a row for each kind");

int step_act(struct run *r, const struct step *step, struct why *why)
{
	return table[step->kind].act(r, step, why);
}

int step_undo(struct run *r, const struct step *step, struct why *why)
{
	return table[step->kind].undo ? table[step->kind].undo(r, step, why) : 0;
}
