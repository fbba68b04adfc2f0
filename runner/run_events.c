/* SPDX-License-Identifier: Apache-2.0 */
/* What the ends of containers mean for the job, and how the others are made to end. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/units.h"
#include "runner/engine.h"
#include "runner/plan.h"
#include "runner/roles.h"
#include "runner/run.h"
#include "runner/signals.h"
#include "runner/watch.h"

/* After SIGKILL a container is gone at once, unless the kernel holds a process in a
 * system call; then remove() has the last word. */
#define KILL_WAIT_MS 10000

static bool all_workers_ended(const struct run *r)
{
	for (size_t i = 0; i < r->plan->replica_count; i++)
		if (!r->plan->replicas[i].role->service &&
		    r->status.replicas[i].state != REPLICA_EXITED)
			return false;
	return true;
}

static void decide_by_success(struct run *r, size_t replica)
{
	const struct plan_replica *p = &r->plan->replicas[replica];

	if (p->role->service)
		return;
	if (r->plan->spec->finish == SPEC_FINISH_FIRST_WORKER) {
		if (p->role == roles_leader(r->plan->spec) && p->index == 0)
			run_decide(r, RUN_SUCCEEDED, EXIT_OK, "%s has finished",
				   p->hostname);
	} else if (all_workers_ended(r)) {
		run_decide(r, RUN_SUCCEEDED, EXIT_OK, "all workers have finished");
	}
}

static void decide_by_failure(struct run *r, size_t replica)
{
	const struct plan_replica *p = &r->plan->replicas[replica];
	const struct status_replica *s = &r->status.replicas[replica];
	char size[16];

	if (r->status.first_failure < 0 && r->result == RUN_UNDECIDED)
		r->status.first_failure = (int)replica;
	if (s->oom && p->role->memory_bytes)
		run_decide(r, RUN_FAILED, s->exit_code,
			   "%s was killed for want of memory (OOM): it may use %s; exit "
			   "code %d",
			   p->hostname,
			   units_format_size(size, sizeof(size), p->role->memory_bytes),
			   s->exit_code);
	else if (s->oom)
		run_decide(r, RUN_FAILED, s->exit_code,
			   "%s was killed for want of memory (OOM); exit code %d",
			   p->hostname, s->exit_code);
	else if (s->exit_code == 127)
		run_decide(r, RUN_FAILED, s->exit_code,
			   "%s failed with exit code 127: command not found (%.100s)",
			   p->hostname, p->argv[0]);
	else if (s->exit_code > 128 && s->exit_code < 128 + NSIG)
		run_decide(r, RUN_FAILED, s->exit_code,
			   "%s was ended by signal %d (%s); exit code %d", p->hostname,
			   s->exit_code - 128, strsignal(s->exit_code - 128),
			   s->exit_code);
	else
		run_decide(r, RUN_FAILED, s->exit_code, "%s failed with exit code %d",
			   p->hostname, s->exit_code);
}

static void take_event(struct run *r, const struct watch_event *event)
{
	struct status_replica *s = &r->status.replicas[event->replica];

	s->ended_ms = event->ended_ms;
	s->exit_code = event->status;
	s->oom = event->oom;
	if (r->stopped_containers) {
		s->state = REPLICA_STOPPED;
		return;
	}
	s->state = REPLICA_EXITED;
	if (event->error < 0) {
		s->exit_code = EXIT_INTERNAL;
		run_decide(r, RUN_FAILED, EXIT_INTERNAL, "%s is lost to the engine: %s",
			   r->plan->replicas[event->replica].hostname,
			   strerror(-event->error));
	} else if (event->status == 0) {
		decide_by_success(r, event->replica);
	} else {
		decide_by_failure(r, event->replica);
	}
}

void run_take_events(struct run *r)
{
	struct watch_event event;
	bool changed = false;

	for (; r->watch && watch_next(r->watch, &event) == 0; changed = true)
		take_event(r, &event);
	if (changed)
		run_save(r);
}

static size_t send_to_running(struct run *r, int signal)
{
	size_t running = 0;

	for (size_t i = 0; i < r->plan->replica_count; i++) {
		const char *name = r->plan->replicas[i].name;
		struct why why = {""};

		if (r->status.replicas[i].state != REPLICA_RUNNING)
			continue;
		running++;
		if (r->engine->ops->signal(r->engine, name, signal, &why) < 0)
			run_say(r, "%s: %s", name, why.text);
	}
	return running;
}

static bool any_running(const struct run *r)
{
	for (size_t i = 0; i < r->plan->replica_count; i++)
		if (r->status.replicas[i].state == REPLICA_RUNNING)
			return true;
	return false;
}

/* Until all have ended or the deadline; a second request to stop ends the wait too. */
static void wait_for_ends(struct run *r, uint64_t deadline_ms, bool may_hurry)
{
	while (any_running(r)) {
		int e;

		if (may_hurry && r->signals->count > 1)
			return;
		e = signals_wait(r->signals, watch_fd(r->watch), deadline_ms);
		if (e < 0 || e == SIGNALS_E_TIMEOUT)
			return;
		run_take_events(r);
	}
}

void run_stop_containers(struct run *r)
{
	if (r->stopped_containers || !r->watch)
		return;
	run_take_events(r);
	r->stopped_containers = true;
	if (!send_to_running(r, SIGTERM))
		return;
	wait_for_ends(r, clock_mono_ms() + r->plan->spec->grace_ms, true);
	if (!send_to_running(r, SIGKILL))
		return;
	wait_for_ends(r, clock_mono_ms() + KILL_WAIT_MS, false);
}
