/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/opt.h"
#include "runner/supervise.h"
#include "runner/view.h"

/* A supervisor that holds the job but has not signed yet, or is just ending. */
#define SETTLE_TRIES 100
#define SETTLE_MS 50

struct stop_options {
	bool now;
	bool quiet;
};

static const struct opt_spec options[] = {
	{"now", 0, OPT_FLAG, offsetof(struct stop_options, now), NULL, 0, 0, NULL,
	 "kill at once and leave output that is not stored yet for later", NULL},
	{"quiet", 'q', OPT_FLAG, offsetof(struct stop_options, quiet), NULL, 0, 0, NULL,
	 "say nothing but errors", NULL},
	{0},
};

/* Asks the supervisor to stop and waits for its end. False: there is none to ask. */
static bool ask(const struct view *v, bool now)
{
	pid_t pid;
	_cleanup_(close_fdp) int fd = job_supervisor(v->job, &pid);
	struct pollfd end = {.fd = fd, .events = POLLIN};

	if (fd < 0)
		return false;
	if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0)
		return false;
	if (now) {
		/* A second one must not meet the first still pending: they would be one. */
		clock_sleep_ms(200);
		syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
	}
	while (poll(&end, 1, -1) < 0 && errno == EINTR)
		;
	return true;
}

static int clean_up(const struct view *v, bool quiet)
{
	struct why why = {""};
	struct job *job;
	int r, code;

	r = job_hold(v->job->name, &job, &why);
	if (r == JOB_E_HELD)
		return EXIT_OK; /* somebody else is at it: look again */
	if (r < 0) {
		fprintf(stderr, "runner: %s\n", why.text);
		return EXIT_INTERNAL;
	}
	code = supervise_clean_up(job, quiet);
	job_close(job);
	return code;
}

static void report(const struct view *v, bool quiet)
{
	if (quiet)
		return;
	printf("%s: %s%s%s\n", v->job->name, view_phase(v),
	       *v->status.message.text ? ", " : "", v->status.message.text);
	if (*v->status.output_message.text)
		printf("%s: %s\n", v->job->name, v->status.output_message.text);
}

static int stop(struct view *v, const struct stop_options *o)
{
	for (int i = 0; i < SETTLE_TRIES; i++) {
		int code;

		if (v->readable && !v->held && !v->lost) {
			report(v, o->quiet);
			return v->status.output == OUTPUT_PENDING ? EXIT_PENDING
								  : EXIT_OK;
		}
		if (v->held) {
			if (!ask(v, o->now))
				clock_sleep_ms(SETTLE_MS);
		} else {
			code = clean_up(v, o->quiet);
			if (code && code != EXIT_PENDING)
				return code;
		}
		view_refresh(v);
	}
	fprintf(stderr, "runner: %s does not end; its supervisor holds %s\n",
		v->job->name, v->job->dir);
	return EXIT_INTERNAL;
}

static int run(void *options_, int argc, char **argv)
{
	struct view v;
	int code;

	code = view_open(argc ? argv[0] : NULL, &v);
	if (code)
		return code;
	code = stop(&v, options_);
	view_close(&v);
	return code;
}

const struct command cmd_stop = {
	.name = "stop",
	.args = "[NAME]",
	.summary = "end a job: its containers, then the upload of its output",
	.examples = "  runner stop\n"
		    "  runner stop fashion --now\n",
	.options = options,
	.options_size = sizeof(struct stop_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
