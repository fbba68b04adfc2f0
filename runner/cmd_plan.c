/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/opt.h"
#include "runner/gateway.h"
#include "runner/job.h"
#include "runner/plan.h"
#include "runner/spec.h"

struct plan_options {
	struct opt_strings sets;
	bool json;
};

static const struct opt_spec options[] = {
	{"set", 's', OPT_STRINGS, offsetof(struct plan_options, sets), NULL, 0, 0,
	 "KEY=VALUE", "set a field of the job file; may be repeated", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct plan_options, json), NULL, 0, 0, NULL,
	 "as JSON, with every container's environment and mounts", NULL},
	{0},
};

static int print(const struct spec *spec, bool json)
{
	char root[PATH_MAX], dir[PATH_MAX], gateway[PATH_MAX];
	const struct plan_host host = {dir, root, gateway};
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	struct why why = {""};
	struct plan *plan;

	if (job_root(root, &why) < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	snprintf(dir, sizeof(dir), "%.*s/jobs/%s", PATH_MAX - SPEC_NAME_MAX - 8, root,
		 spec->name);
	if (gateway_find(gateway, &why) < 0)
		snprintf(gateway, sizeof(gateway), "sluice");
	plan = plan_new(spec, &host);
	if (json) {
		plan_format_json(plan, &b);
		printf("%s\n", b.data);
	} else {
		plan_print(plan, stdout);
	}
	plan_free(plan);
	return EXIT_OK;
}

static int run(void *options_, int argc, char **argv)
{
	const struct plan_options *o = options_;
	struct spec *spec;
	int code;

	(void)argc;
	code = cmd_load(argv[0], &o->sets, false, &spec);
	if (code)
		return code;
	code = print(spec, o->json);
	spec_free(spec);
	return code;
}

const struct command cmd_plan = {
	.name = "plan",
	.args = "FILE",
	.summary = "print what start would do, step by step, and touch nothing",
	.examples = "  runner plan job.yaml\n"
		    "  runner plan job.yaml --json | jq '.containers[].env'\n",
	.options = options,
	.options_size = sizeof(struct plan_options),
	.args_min = 1,
	.args_max = 1,
	.run = run,
};
