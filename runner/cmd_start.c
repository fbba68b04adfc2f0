/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>

#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/opt.h"
#include "runner/job.h"
#include "runner/spec.h"
#include "runner/status.h"
#include "runner/supervise.h"

struct start_options {
	struct opt_strings sets;
	bool detach;
	bool quiet;
};

static const struct opt_spec options[] = {
	{"detach", 'd', OPT_FLAG, offsetof(struct start_options, detach), NULL, 0, 0,
	 NULL, "return once every container runs; the job goes on", NULL},
	{"set", 's', OPT_STRINGS, offsetof(struct start_options, sets), NULL, 0, 0,
	 "KEY=VALUE", "set a field of the job file; may be repeated", NULL},
	{"quiet", 'q', OPT_FLAG, offsetof(struct start_options, quiet), NULL, 0, 0, NULL,
	 "show neither steps nor logs", NULL},
	{0},
};

/* A folder of a run that ended is taken over; one that was not cleaned up is not. */
static int take_over(struct job *job)
{
	struct status status;
	struct why why = {""};
	bool lost;

	if (status_read(job->dirfd, &status) == 0) {
		lost = !status_is_over(&status);
		status_fini(&status);
		if (lost) {
			fprintf(stderr,
				"runner: the last run of %s was killed before it could "
				"clean "
				"up: run \"runner stop %s\" first\n",
				job->name, job->name);
			return EXIT_CONFIG;
		}
	}
	if (job_clear(job, &why) < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	return EXIT_OK;
}

static int start(const struct spec *spec, const struct start_options *o)
{
	struct job *job;
	struct why why = {""};
	int r, code;

	r = job_hold(spec->name, &job, &why);
	if (r == JOB_E_HELD) {
		fprintf(stderr,
			"runner: %s is running already: stop it (runner stop %s) or "
			"choose "
			"another name (--set name=…)\n",
			spec->name, spec->name);
		return EXIT_CONFIG;
	}
	if (r < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	code = take_over(job);
	if (code == EXIT_OK)
		code = o->detach ? supervise_detached(job, spec)
				 : supervise_here(job, spec, o->quiet);
	job_close(job);
	return code;
}

static int run(void *options_, int argc, char **argv)
{
	const struct start_options *o = options_;
	struct spec *spec;
	int code;

	(void)argc;
	code = cmd_load(argv[0], &o->sets, false, &spec);
	if (code)
		return code;
	code = start(spec, o);
	if (code == EXIT_OK && o->detach && !o->quiet)
		printf("%s\n", spec->name);
	spec_free(spec);
	return code;
}

const struct command cmd_start = {
	.name = "start",
	.args = "FILE",
	.summary = "run a job; ends with the job's exit code",
	.examples =
		"  runner start job.yaml\n"
		"  runner start job.yaml --set hyperparameters.lr=0.01 --set name=try-2\n"
		"  runner start job.yaml --detach && runner logs -f\n",
	.options = options,
	.options_size = sizeof(struct start_options),
	.args_min = 1,
	.args_max = 1,
	.run = run,
};
