/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>

#include "fs/base/exit.h"
#include "fs/base/opt.h"
#include "runner/spec.h"

struct check_options {
	struct opt_strings sets;
	bool json;
	bool fields;
};

static const struct opt_spec options[] = {
	{"set", 's', OPT_STRINGS, offsetof(struct check_options, sets), NULL, 0, 0,
	 "KEY=VALUE", "set a field of the job file; may be repeated", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct check_options, json), NULL, 0, 0, NULL,
	 "print what was found as JSON", NULL},
	{"fields", 0, OPT_FLAG, offsetof(struct check_options, fields), NULL, 0, 0, NULL,
	 "list every field a job file may have", NULL},
	{0},
};

static int run(void *options_, int argc, char **argv)
{
	const struct check_options *o = options_;
	struct spec *spec;
	int code;

	if (o->fields) {
		spec_print_fields(stdout);
		return EXIT_OK;
	}
	if (argc == 0) {
		fprintf(stderr,
			"runner: missing argument: runner check FILE (runner check "
			"--help shows how)\n");
		return EXIT_USAGE;
	}
	code = cmd_load(argv[0], &o->sets, o->json, &spec);
	if (code)
		return code;
	if (!o->json)
		printf("%s: job \"%s\" can run here: %zu containers\n", argv[0],
		       spec->name, spec_replica_count(spec));
	spec_free(spec);
	return EXIT_OK;
}

const struct command cmd_check = {
	.name = "check",
	.args = "FILE",
	.summary = "say whether a job file is right and can run on this machine",
	.examples = "  runner check job.yaml\n"
		    "  runner check job.yaml --set roles.worker.count=4\n"
		    "  runner check --fields\n",
	.options = options,
	.options_size = sizeof(struct check_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
