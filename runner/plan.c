/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/units.h"
#include "fs/base/xalloc.h"
#include "runner/env.h"

static const char *const kind_names[] = {"prepare",      "code", "share",   "mount-input",
					 "mount-output", "logs", "network", "create",
					 "start",        "wait"};
static_assert(sizeof(kind_names) / sizeof(*kind_names) == STEP_KIND_N, "step kinds");

const char *step_kind_name(enum step_kind kind)
{
	return kind_names[kind];
}

/* job_root() leaves room below it, so a name that does not fit is our own mistake. */
static void path(char out[PATH_MAX], const char *dir, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void path(char out[PATH_MAX], const char *dir, const char *format, ...)
{
	size_t n = (size_t)snprintf(out, PATH_MAX, "%s/", dir);
	va_list args;
	int added;

	check(n < PATH_MAX);
	va_start(args, format);
	added = vsnprintf(out + n, PATH_MAX - n, format, args);
	va_end(args);
	check(added >= 0);
	check((size_t)added < PATH_MAX - n);
}

/* ---- containers -------------------------------------------------------------------------- */

static void add_mount(struct plan_replica *r, const char *source, const char *target,
		      bool read_only, bool slave)
{
	r->mounts[r->container.mount_count++] =
		(struct engine_mount){source, target, read_only, slave};
}

static char **expand_argv(const struct spec *spec, const struct plan_replica *r)
{
	const struct spec_command *command =
		r->role->command.count ? &r->role->command : &spec->command;
	const struct env_task task = {.role = r->role, .index = r->index};
	char **argv = xcalloc(command->count + 1, sizeof(char *));

	for (size_t i = 0; i < command->count; i++) {
		struct buf word = BUF_INIT;

		/* The spec's check has expanded the same words before. */
		check(env_expand(spec, &task, command->argv[i], &word, NULL) == 0);
		check(buf_error(&word) == 0);
		argv[i] = word.data ? buf_steal(&word) : xstrdup("");
	}
	return argv;
}

static void fill_container(struct plan *p, struct plan_replica *r)
{
	const struct spec *spec = p->spec;

	r->argv = expand_argv(spec, r);
	r->container = (struct engine_container){
		.job = spec->name,
		.name = r->name,
		.hostname = r->hostname,
		.image = r->role->image,
		.argv = (const char *const *)r->argv,
		.workdir = spec->workdir,
		.mounts = r->mounts,
		.memory_bytes = r->role->memory_bytes,
		.cpu_millis = r->role->cpu_millis,
		.state_dir = r->state_dir,
		.hide = p->hide,
		.log_fd = -1,
	};
	add_mount(r, p->files_dir, ENV_FILES_DIR, true, false);
	if (spec->code.target)
		add_mount(r, p->code_dir, spec->code.target, false, false);
	if (spec->input.source)
		add_mount(r, p->input_dir, "/input", true, true);
	if (spec->output.source)
		add_mount(r, p->output_dir, "/output", false, true);
}

static void add_replicas(struct plan *p)
{
	p->replicas = xcalloc(spec_replica_count(p->spec), sizeof(*p->replicas));
	for (size_t i = 0; i < p->spec->role_count; i++) {
		const struct spec_role *role = &p->spec->roles[i];

		for (size_t j = 0; j < role->count; j++) {
			struct plan_replica *r = &p->replicas[p->replica_count++];

			r->role = role;
			r->index = j;
			env_hostname(r->hostname, sizeof(r->hostname), role, j);
			snprintf(r->name, sizeof(r->name), "%s-%s", p->spec->name,
				 r->hostname);
			path(r->state_dir, p->job_dir, "engine/%s", r->hostname);
			path(r->log_path, p->job_dir, "logs/%s.log", r->hostname);
			fill_container(p, r);
		}
	}
}

/* ---- what image "host" must not show ------------------------------------------------------- */

static void hide(struct plan *p, const char *file, size_t n)
{
	if (!file)
		return;
	p->hide_owned = xrealloc(p->hide_owned, p->hide_count + 1, sizeof(char *));
	p->hide_owned[p->hide_count] = xstrndup(file, n);
	p->hide = xrealloc(p->hide, p->hide_count + 2, sizeof(char *));
	p->hide[p->hide_count] = p->hide_owned[p->hide_count];
	p->hide[++p->hide_count] = NULL;
}

static void hide_secret(struct plan *p, const struct spec_secret *secret)
{
	if (secret->file)
		hide(p, secret->file, strlen(secret->file));
}

static void hide_store(struct plan *p, const struct spec_store *store)
{
	const char *file = store->credentials.reference;

	hide_secret(p, &store->credentials.id);
	hide_secret(p, &store->credentials.secret);
	hide_secret(p, &store->credentials.token);
	file = file ? strstr(file, ":/") : NULL;
	if (file && file[2] != '/') /* no URL */
		hide(p, file + 1, strcspn(file + 1, "#"));
}

static void hide_secrets(struct plan *p, const struct plan_host *host)
{
	hide(p, host->state_root, strlen(host->state_root));
	hide_secret(p, &p->spec->code.password);
	hide_secret(p, &p->spec->code.token);
	hide_store(p, &p->spec->input);
	hide_store(p, &p->spec->output);
}

/* ---- steps ------------------------------------------------------------------------------- */

static struct step *add_step(struct plan *p, enum step_kind kind, char *what,
			     const char *undo)
{
	struct step *step;

	p->steps = xrealloc(p->steps, p->step_count + 1, sizeof(*p->steps));
	step = &p->steps[p->step_count++];
	*step = (struct step){kind, 0, what, undo ? xstrdup(undo) : NULL};
	return step;
}

static char *describe_code(const struct spec_code *code)
{
	if (code->dir)
		return xasprintf("copy %s for %s", code->dir, code->target);
	return xasprintf("fetch %s%s%s for %s", code->git,
			 code->commit || code->branch ? " at " : "",
			 code->commit   ? code->commit
			 : code->branch ? code->branch
					: "",
			 code->target);
}

static char *describe_container(const struct plan_replica *r)
{
	char cpu[40] = "", memory[64] = "", size[16];

	if (r->role->cpu_millis)
		snprintf(cpu, sizeof(cpu), ", %g cores",
			 (double)r->role->cpu_millis / 1000);
	if (r->role->memory_bytes)
		snprintf(memory, sizeof(memory), ", %s",
			 units_format_size(size, sizeof(size), r->role->memory_bytes));
	return xasprintf("create %s from %s%s%s", r->hostname, r->role->image, cpu,
			 memory);
}

static void add_data_steps(struct plan *p)
{
	const struct spec *spec = p->spec;

	if (spec->code.target)
		add_step(p, STEP_CODE, describe_code(&spec->code), "remove the code");
	if (!spec->input.source && !spec->output.source)
		return;
	add_step(p, STEP_SHARE, xasprintf("share mounts below %s", p->mount_dir),
		 "unshare them");
	if (spec->input.source)
		add_step(p, STEP_MOUNT_INPUT,
			 xasprintf("mount %s for /input", spec->input.source),
			 "unmount /input");
	if (spec->output.source)
		add_step(p, STEP_MOUNT_OUTPUT,
			 xasprintf("mount %s for /output", spec->output.source),
			 "flush /output: all of it to the store; unmount it");
}

/* Services first, so that they listen when the workers come. */
static void add_start_steps(struct plan *p, bool service)
{
	char grace[24];

	units_format_duration(grace, sizeof(grace), p->spec->grace_ms);
	for (size_t i = 0; i < p->replica_count; i++) {
		const struct plan_replica *r = &p->replicas[i];
		char *undo;

		if ((bool)r->role->service != service)
			continue;
		undo = xasprintf("stop %s: SIGTERM, and SIGKILL after %s", r->hostname,
				 grace);
		add_step(p, STEP_START, xasprintf("start %s", r->hostname), undo)
			->replica = i;
		free(undo);
	}
}

static void add_steps(struct plan *p)
{
	add_step(p, STEP_PREPARE, xasprintf("make the job's folders in %s", p->job_dir),
		 "remove all of them but the logs, the status and the receipt");
	add_data_steps(p);
	add_step(p, STEP_LOGS, xasprintf("collect logs in %s/logs", p->job_dir),
		 "show and store what is left of the logs");
	add_step(p, STEP_NETWORK,
		 xasprintf("make a network with %zu names", p->replica_count),
		 "remove the network");
	for (size_t i = 0; i < p->replica_count; i++) {
		char *undo = xasprintf("remove %s", p->replicas[i].hostname);

		add_step(p, STEP_CREATE, describe_container(&p->replicas[i]), undo)
			->replica = i;
		free(undo);
	}
	add_start_steps(p, true);
	add_start_steps(p, false);
	add_step(
		p, STEP_WAIT,
		xstrdup(p->spec->finish == SPEC_FINISH_FIRST_WORKER
				? "wait until the first worker has ended, or one has "
				  "failed"
				: "wait until all workers have ended, or one has failed"),
		NULL);
}

/* ---- together ---------------------------------------------------------------------------- */

/* FNV-1a: tells the outputs of two sources apart, nothing more. */
static uint32_t hash(const char *text)
{
	uint32_t h = 2166136261u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 16777619u;
	return h;
}

static void fill_paths(struct plan *p, const struct plan_host *host)
{
	const struct spec *spec = p->spec;

	snprintf(p->job_dir, sizeof(p->job_dir), "%s", host->job_dir);
	path(p->code_dir, p->job_dir, "code");
	path(p->files_dir, p->job_dir, "run");
	path(p->mount_dir, p->job_dir, "mnt");
	path(p->input_dir, p->job_dir, "mnt/input");
	path(p->output_dir, p->job_dir, "mnt/output");
	path(p->network_dir, p->job_dir, "net");
	path(p->input_log, p->job_dir, "logs/gateway-input.log");
	path(p->output_log, p->job_dir, "logs/gateway-output.log");
	if (spec->input.state_dir)
		snprintf(p->input_state_dir, sizeof(p->input_state_dir), "%s",
			 spec->input.state_dir);
	else
		path(p->input_state_dir, p->job_dir, "gateway");
	if (spec->output.state_dir)
		snprintf(p->output_state_dir, sizeof(p->output_state_dir), "%s",
			 spec->output.state_dir);
	else if (spec->output.source)
		path(p->output_state_dir, host->state_root, "outputs/%s-%08" PRIx32,
		     spec->name, hash(spec->output.source));
}

struct plan *plan_new(const struct spec *spec, const struct plan_host *host)
{
	struct plan *p = xcalloc(1, sizeof(*p));
	const struct gateway_place in = {p->input_dir, p->input_state_dir, p->input_log};
	const struct gateway_place out = {p->output_dir, p->output_state_dir,
					  p->output_log};

	p->spec = spec;
	fill_paths(p, host);
	hide_secrets(p, host);
	if (spec->input.source)
		gateway_mount_command(&p->mount_input, host->gateway, &spec->input,
				      "input", &in);
	if (spec->output.source)
		gateway_mount_command(&p->mount_output, host->gateway, &spec->output,
				      "output", &out);
	add_replicas(p);
	add_steps(p);
	return p;
}

struct plan *plan_free(struct plan *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->replica_count; i++) {
		for (char **word = p->replicas[i].argv; *word; word++)
			free(*word);
		free(p->replicas[i].argv);
	}
	for (size_t i = 0; i < p->step_count; i++) {
		free(p->steps[i].what);
		free(p->steps[i].undo);
	}
	for (size_t i = 0; i < p->hide_count; i++)
		free(p->hide_owned[i]);
	gateway_command_fini(&p->mount_input);
	gateway_command_fini(&p->mount_output);
	free(p->hide);
	free(p->hide_owned);
	free(p->replicas);
	free(p->steps);
	free(p);
	return NULL;
}
