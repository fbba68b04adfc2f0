/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job from its plan to its end.
 *
 *   phase      until                          leads to
 *   preparing  all containers are made        starting
 *   starting   all containers run             running
 *   running    the result is known            stopping
 *   stopping   every step is undone           succeeded, failed or stopped
 *
 * Happy path: every step in order; the last one waits for the result; then backwards.
 * Failure modes: a step fails, a replica fails, a person asks to stop: the first of them
 * decides the result, and the way back is the same. What cannot be undone is named, the
 * rest is undone all the same, and the next `runner stop` tries again.
 * On the way back output is flushed before it is unmounted, whatever the result.
 * Threads: this one decides; the log pump and one watcher a container feed it.
 */
#include "runner/run.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"
#include "runner/job.h"
#include "runner/plan.h"
#include "runner/signals.h"
#include "runner/step.h"
#include "runner/watch.h"

static int64_t now_ms(void)
{
	return clock_real_ns() / 1000000;
}

void run_say(struct run *r, const char *format, ...)
{
	char raw[1024], line[2048];
	va_list args;

	if (!r->progress)
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	fprintf(r->progress, "runner: %s\n", log_escape(line, sizeof(line), raw));
	fflush(r->progress);
}

void run_save(struct run *r)
{
	int e = status_write(&r->status, r->job->dirfd);

	if (e < 0)
		log_warn("status not written job=%s error=%s", r->job->name,
			 strerror(-e));
}

void run_set_phase(struct run *r, enum job_phase phase)
{
	if (r->status.phase == phase)
		return;
	r->status.phase = phase;
	run_save(r);
}

void run_decide(struct run *r, enum run_result result, int exit_code, const char *format,
		...)
{
	char text[sizeof(r->status.message.text)];
	va_list args;

	if (r->result != RUN_UNDECIDED)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r->result = result;
	r->status.exit_code = exit_code;
	why_set(&r->status.message, 0, "%s", text);
	run_say(r, "%s", r->status.message.text);
}

/* "cannot …" */
static const char *const failures[] = {
	[STEP_PREPARE] = "make the job's folders",
	[STEP_CODE] = "fetch the code",
	[STEP_SHARE] = "share the job's mounts",
	[STEP_MOUNT_INPUT] = "mount /input",
	[STEP_MOUNT_OUTPUT] = "mount /output",
	[STEP_LOGS] = "collect logs",
	[STEP_NETWORK] = "make the job's network",
	[STEP_CREATE] = "create a container",
	[STEP_START] = "start a container",
	[STEP_WAIT] = "wait for the containers",
};
static_assert(sizeof(failures) / sizeof(*failures) == STEP_KIND_N, "step kinds");

/* Steps say more precisely where they can (r->step_code). */
static int exit_code_of(const struct run *r, int error)
{
	if (r->step_code)
		return r->step_code;
	switch (-error) {
	case EACCES:
	case EPERM:
		return EXIT_REFUSED;
	case ENOENT:
	case EINVAL:
	case ENOTDIR:
	case EEXIST:
		return EXIT_CONFIG;
	default:
		return EXIT_INTERNAL;
	}
}

static void decide_stopped(struct run *r)
{
	const char *name = sigabbrev_np(r->signals->first);

	run_decide(r, RUN_STOPPED, 128 + r->signals->first, "stopped on request (SIG%s)",
		   name ? name : "?");
}

static enum job_phase phase_of(enum step_kind kind)
{
	switch (kind) {
	case STEP_START:
		return JOB_STARTING;
	case STEP_WAIT:
		return JOB_RUNNING;
	default:
		return JOB_PREPARING;
	}
}

/* Returns how many steps are to be undone: those that were begun. */
static size_t walk_forwards(struct run *r)
{
	for (size_t i = 0; i < r->plan->step_count; i++) {
		const struct step *step = &r->plan->steps[i];
		struct why why = {""};
		int e;

		signals_poll(r->signals);
		if (r->signals->count) {
			decide_stopped(r);
			return i;
		}
		run_set_phase(r, phase_of(step->kind));
		run_say(r, "%s", step->what);
		r->step_code = 0;
		e = step_act(r, step, &why);
		if (e == -ECANCELED && r->signals->count)
			decide_stopped(r);
		else if (e < 0)
			run_decide(r, RUN_FAILED, exit_code_of(r, e), "cannot %s: %.180s",
				   failures[step->kind],
				   *why.text ? why.text : strerror(-e));
		if (r->result != RUN_UNDECIDED)
			return i + 1;
	}
	check(!"the last step decides");
}

static void walk_backwards(struct run *r, size_t begun)
{
	for (size_t i = begun; i-- > 0;) {
		struct why why = {""};
		int e;

		if (!r->plan->steps[i].undo)
			continue;
		e = step_undo(r, &r->plan->steps[i], &why);
		if (e == 0)
			continue;
		r->leftovers = true;
		run_say(r, "cannot %s: %s", r->plan->steps[i].undo,
			*why.text ? why.text : strerror(-e));
	}
}

static void finish(struct run *r)
{
	static const enum job_phase phases[] = {JOB_FAILED, JOB_SUCCEEDED, JOB_FAILED,
						JOB_STOPPED};
	struct status *s = &r->status;

	if (s->output == OUTPUT_PENDING && r->result == RUN_SUCCEEDED)
		s->exit_code = EXIT_PENDING;
	if (r->leftovers && s->exit_code == EXIT_OK)
		s->exit_code = EXIT_INTERNAL;
	if (*s->output_message.text)
		run_say(r, "%s", s->output_message.text);
	if (r->leftovers)
		run_say(r, "something of the job is left: \"runner stop %s\" tries again",
			r->job->name);
	s->ended_ms = now_ms();
	/* Left in "stopping" while something is left, so that stop takes it up again. */
	if (!r->leftovers)
		s->phase = phases[r->result];
	run_save(r);
}

int run_job(struct run *r)
{
	size_t begun;

	status_init(&r->status, r->plan->spec);
	r->status.started_ms = now_ms();
	r->result = RUN_UNDECIDED;
	r->log_fds = xcalloc(r->plan->replica_count, sizeof(int));
	for (size_t i = 0; i < r->plan->replica_count; i++)
		r->log_fds[i] = -1;
	run_save(r);
	begun = walk_forwards(r);
	run_set_phase(r, JOB_STOPPING);
	walk_backwards(r, begun);
	r->watch = watch_free(r->watch);
	free(r->log_fds);
	r->log_fds = NULL;
	finish(r);
	return r->status.exit_code;
}

int run_clean_up(struct run *r)
{
	struct status *s = &r->status;

	r->leftovers = false;
	if (status_read(r->job->dirfd, s) < 0) {
		status_init(s, r->plan->spec);
		s->output = r->plan->spec->output.source ? OUTPUT_OPEN : OUTPUT_NONE;
	}
	for (size_t i = 0; i < s->replica_count; i++)
		if (s->replicas[i].state == REPLICA_RUNNING)
			s->replicas[i].state = REPLICA_STOPPED;
	r->result = s->ended_ms ? RUN_STOPPED : RUN_UNDECIDED;
	run_decide(r, RUN_STOPPED, EXIT_INTERNAL, "its supervisor was killed");
	walk_backwards(r, r->plan->step_count);
	finish(r);
	if (r->leftovers)
		return EXIT_INTERNAL;
	return s->output == OUTPUT_PENDING ? EXIT_PENDING : EXIT_OK;
}
