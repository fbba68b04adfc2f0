/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/exit.h"
#include "fs/base/opt.h"
#include "runner/view.h"

struct status_options {
	bool json;
};

static const struct opt_spec options[] = {
	{"json", 0, OPT_FLAG, offsetof(struct status_options, json), NULL, 0, 0, NULL,
	 "as JSON", NULL},
	{0},
};

static void print_replica(const struct status *s, size_t i)
{
	const struct status_replica *r = &s->replicas[i];
	char name[64], took[24], code[16] = "-";

	snprintf(name, sizeof(name), "%s-%u", r->role, r->index);
	view_took(r->started_ms, r->ended_ms, took);
	if (r->state >= REPLICA_EXITED)
		snprintf(code, sizeof(code), "%d", r->exit_code);
	printf("  %-24s %-8s %8s %5s%s%s\n", name, replica_state_name(r->state), took,
	       code, r->oom ? "  out of memory" : "",
	       s->first_failure == (int)i ? "  <- failed first" : "");
}

static void print_text(const struct view *v)
{
	const struct status *s = &v->status;
	char began[24], took[24];

	view_time(s->started_ms, began);
	view_took(s->started_ms, s->ended_ms, took);
	printf("job        %s\nphase      %s\n", v->job->name, view_phase(v));
	if (v->lost)
		printf("           its supervisor was killed: \"runner stop %s\" cleans "
		       "up\n",
		       v->job->name);
	printf("started    %s\n", began);
	if (!v->lost)
		printf("took       %s\n", took);
	if (status_is_over(s))
		printf("exit code  %d\n", s->exit_code);
	if (*s->message.text)
		printf("result     %s\n", s->message.text);
	if (*s->commit)
		printf("code       commit %s\n", s->commit);
	if (s->output != OUTPUT_NONE)
		printf("output     %s%s%s\n", output_state_name(s->output),
		       *s->output_message.text ? ": " : "", s->output_message.text);
	printf("files      %s\n\n  %-24s %-8s %8s %5s\n", v->job->dir, "CONTAINER",
	       "STATE", "TOOK", "EXIT");
	for (size_t i = 0; i < s->replica_count; i++)
		print_replica(s, i);
}

static int run(void *options_, int argc, char **argv)
{
	const struct status_options *o = options_;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct view v;
	int code;

	code = view_open(argc ? argv[0] : NULL, &v);
	if (code)
		return code;
	if (!v.readable) {
		fprintf(stderr, "runner: %s has no readable status%s\n", v.job->name,
			v.lost ? "" : " yet");
		code = EXIT_UNAVAILABLE;
	} else if (o->json) {
		status_format(&v.status, v.lost, &b);
		printf("%s\n", b.data);
	} else {
		print_text(&v);
	}
	view_close(&v);
	return code;
}

const struct command cmd_status = {
	.name = "status",
	.args = "[NAME]",
	.summary = "show how a job and each of its containers stand",
	.examples = "  runner status\n"
		    "  runner status fashion --json | jq .phase\n",
	.options = options,
	.options_size = sizeof(struct status_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
