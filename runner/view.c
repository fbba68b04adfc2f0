/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/units.h"

void view_refresh(struct view *v)
{
	status_fini(&v->status);
	/* The holder first: a supervisor that ends in between has written its last word by
	 * then, and is not taken for one that was lost. */
	v->held = job_is_held(v->job);
	v->readable = status_read(v->job->dirfd, &v->status) == 0;
	v->empty = !v->held && !v->readable &&
		   faccessat(v->job->dirfd, "spec.yaml", F_OK, 0) < 0;
	v->lost = !v->held && !v->empty && !(v->readable && status_is_over(&v->status));
}

void view_close(struct view *v)
{
	status_fini(&v->status);
	v->job = job_close(v->job);
}

const char *view_phase(const struct view *v)
{
	if (v->lost)
		return "lost";
	return v->readable ? job_phase_name(v->status.phase) : "preparing";
}

static int open_named(const char *name, struct view *out)
{
	struct why why = {""};
	struct job *job;

	if (job_open(name, &job, &why) < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_CONFIG;
	}
	*out = (struct view){.job = job};
	view_refresh(out);
	if (!out->empty)
		return EXIT_OK;
	view_close(out);
	fprintf(stderr, "runner: there is no job \"%s\": \"runner list\" shows all\n",
		name);
	return EXIT_CONFIG;
}

/* Which job is meant when none is named. */
static int choose(const struct job_names *names, char out[SPEC_NAME_MAX + 1])
{
	int64_t latest = -1;
	size_t live = 0;

	for (size_t i = 0; i < names->count; i++) {
		struct view v = {0};
		struct job *job;
		bool is_live;

		if (job_open(names->items[i], &job, NULL) < 0)
			continue;
		v.job = job;
		view_refresh(&v);
		if (v.empty) {
			view_close(&v);
			continue;
		}
		is_live = v.held || v.lost;
		if ((is_live && !live) ||
		    (is_live == (live > 0) && v.status.started_ms > latest)) {
			latest = v.status.started_ms;
			memcpy(out, names->items[i], SPEC_NAME_MAX + 1);
		}
		live += is_live;
		view_close(&v);
	}
	return live > 1 ? -1 : 0;
}

int view_open(const char *name, struct view *out)
{
	char chosen[SPEC_NAME_MAX + 1] = "";
	struct job_names names;
	struct why why = {""};
	int ambiguous;

	if (name)
		return open_named(name, out);
	if (job_list(&names, &why) < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	ambiguous = choose(&names, chosen);
	job_names_fini(&names);
	if (!*chosen) {
		fprintf(stderr, "runner: there is no job: start one with \"runner start "
				"FILE\"\n");
		return EXIT_CONFIG;
	}
	if (ambiguous) {
		fprintf(stderr,
			"runner: several jobs are running: name one; \"runner list\" "
			"shows them\n");
		return EXIT_USAGE;
	}
	return open_named(chosen, out);
}

void view_took(int64_t started_ms, int64_t ended_ms, char out[24])
{
	int64_t end = ended_ms ? ended_ms : clock_real_ns() / 1000000;

	if (!started_ms || end < started_ms)
		snprintf(out, 24, "-");
	else if (end - started_ms < 1000)
		units_format_duration(out, 24, (uint64_t)(end - started_ms));
	else
		units_format_duration(out, 24,
				      (uint64_t)(end - started_ms) / 1000 * 1000);
}

void view_time(int64_t ms, char out[24])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	if (!ms || !localtime_r(&seconds, &tm) ||
	    !strftime(out, 24, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(out, 24, "-");
}
