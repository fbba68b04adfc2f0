/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/exit.h"
#include "fs/base/json.h"
#include "fs/base/opt.h"
#include "runner/view.h"

struct list_options {
	bool json;
};

static const struct opt_spec options[] = {
	{"json", 0, OPT_FLAG, offsetof(struct list_options, json), NULL, 0, 0, NULL,
	 "as a JSON array of what status --json prints", NULL},
	{0},
};

static void print_row(const struct view *v)
{
	char began[24], took[24], code[16] = "-";

	view_time(v->status.started_ms, began);
	view_took(v->status.started_ms,
		  v->lost ? v->status.started_ms : v->status.ended_ms, took);
	if (v->readable && status_is_over(&v->status))
		snprintf(code, sizeof(code), "%d", v->status.exit_code);
	printf("%-24s %-10s %-11s %10zu  %-19s %8s %5s\n", v->job->name, view_phase(v),
	       v->status.framework, v->status.replica_count, began, v->lost ? "-" : took,
	       code);
}

static int run(void *options_, int argc, char **argv)
{
	const struct list_options *o = options_;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct job_names names;
	struct why why = {""};

	(void)argc;
	(void)argv;
	if (job_list(&names, &why) < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	json_begin_array(&b, NULL);
	if (!o->json)
		printf("%-24s %-10s %-11s %10s  %-19s %8s %5s\n", "NAME", "PHASE",
		       "FRAMEWORK", "CONTAINERS", "STARTED", "TOOK", "EXIT");
	for (size_t i = 0; i < names.count; i++) {
		struct view v = {0};

		if (job_open(names.items[i], &v.job, NULL) < 0)
			continue;
		view_refresh(&v);
		if (!o->json && !v.empty)
			print_row(&v);
		else if (v.readable)
			status_format(&v.status, v.lost, &b);
		view_close(&v);
	}
	json_end_array(&b);
	if (o->json)
		printf("%s\n", b.data);
	job_names_fini(&names);
	return EXIT_OK;
}

const struct command cmd_list = {
	.name = "list",
	.args = "",
	.summary = "list the jobs of this machine",
	.examples = "  runner list\n"
		    "  runner list --json | jq -r '.[] | select(.phase == "
		    "\"failed\").name'\n",
	.options = options,
	.options_size = sizeof(struct list_options),
	.args_min = 0,
	.args_max = 0,
	.run = run,
};
