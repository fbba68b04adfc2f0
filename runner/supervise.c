/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "runner/engine.h"
#include "runner/gateway.h"
#include "runner/job.h"
#include "runner/mistakes.h"
#include "runner/plan.h"
#include "runner/run.h"
#include "runner/signals.h"
#include "runner/spec.h"

/* ---- what every way needs ------------------------------------------------------------------ */

/* Everything a run needs that is not the job itself. */
struct session {
	struct signals signals;
	struct engine *engine;
	struct plan *plan;
};

static int open_session(struct session *s, struct job *job, const struct spec *spec,
			struct why *why)
{
	char root[PATH_MAX], gateway[PATH_MAX] = "sluice";
	struct plan_host host = {job->dir, root, gateway};
	int r;

	*s = (struct session){.signals.fd = -1};
	r = job_root(root, why);
	if (r == 0 && (spec->input.source || spec->output.source))
		r = gateway_find(gateway, why);
	if (r == 0)
		r = engine_open(spec->engine, &s->engine, why);
	if (r == 0) {
		r = signals_open(&s->signals);
		if (r < 0)
			why_set(why, r, "no signals: %s", strerror(-r));
	}
	if (r == 0)
		s->plan = plan_new(spec, &host);
	return err_trace(r);
}

static void close_session(struct session *s)
{
	s->plan = plan_free(s->plan);
	s->engine = engine_free(s->engine);
	signals_close(&s->signals);
}

static int fail(const struct why *why, int code)
{
	fprintf(stderr, "runner: %s\n", why->text);
	return code;
}

/* ---- what is kept beside the job ----------------------------------------------------------- */

static int keep_spec(struct job *job, const struct spec *spec)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(fclosep) FILE *f = NULL;
	size_t n = 0;
	int r;

	f = open_memstream(&text, &n);
	if (!f)
		return err_origin(-errno);
	r = spec_write(spec, f);
	if (r == 0 && fflush(f) != 0)
		r = err_origin(-errno);
	if (r == 0)
		r = io_replace_file(job->dirfd, "spec.yaml", text, n, 0600);
	return err_trace(r);
}

static int keep_plan(struct job *job, const struct plan *plan)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r;

	plan_format_json(plan, &b);
	buf_putc(&b, '\n');
	r = buf_error(&b);
	if (r == 0)
		r = io_replace_file(job->dirfd, "plan.json", b.data, b.len, 0600);
	return err_trace(r);
}

static int keep_files(struct job *job, const struct spec *spec, const struct plan *plan,
		      struct why *why)
{
	int r = job_sign(job, why);

	if (r < 0)
		return err_trace(r);
	r = keep_spec(job, spec);
	if (r == 0)
		r = keep_plan(job, plan);
	if (r < 0)
		return why_set(why, r, "%.200s cannot be written: %s", job->dir,
			       strerror(-r));
	return 0;
}

/* ---- here -------------------------------------------------------------------------------- */

struct start_report {
	void (*started)(void *arg);
	void *arg;
};

static int supervise(struct job *job, const struct spec *spec, int terminal_fd,
		     FILE *progress, const struct start_report *report,
		     struct why *message)
{
	struct session s;
	struct run run = {.job = job, .terminal_fd = terminal_fd, .progress = progress};
	int code = EXIT_INTERNAL, r;

	r = open_session(&s, job, spec, message);
	if (r == 0)
		r = keep_files(job, spec, s.plan, message);
	if (r < 0) {
		fail(message, code);
	} else {
		run.plan = s.plan;
		run.engine = s.engine;
		run.signals = &s.signals;
		if (report) {
			run.started = report->started;
			run.started_arg = report->arg;
		}
		code = run_job(&run);
		*message = run.status.message;
		status_fini(&run.status);
	}
	close_session(&s);
	return code;
}

int supervise_here(struct job *job, const struct spec *spec, bool quiet)
{
	struct why message = {""};

	return supervise(job, spec, quiet ? -1 : STDOUT_FILENO, quiet ? NULL : stderr,
			 NULL, &message);
}

/* ---- detached ------------------------------------------------------------------------------ */

/* What the child tells the parent, once. */
struct verdict {
	bool started;
	int code;
	struct why message;
};

static void tell_started(void *arg)
{
	const int *fd = arg;
	const struct verdict v = {.started = true};

	/* A parent that is gone needs no answer. */
	if (io_write(*fd, &v, sizeof(v)) < 0)
		log_debug(LOG_RUNNER, "nobody waits for the start");
}

static int redirect(struct job *job)
{
	_cleanup_(close_fdp) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	_cleanup_(close_fdp) int log =
		openat(job->dirfd, "supervisor.log",
		       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (null < 0 || log < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
		return err_origin(-errno);
	return 0;
}

static void detached_child(struct job *job, const struct spec *spec, int to)
{
	struct start_report report = {tell_started, &to};
	struct verdict v = {0};
	int r;

	setsid();
	r = chdir("/") < 0 ? -errno : redirect(job);
	if (r < 0) {
		v.code = EXIT_INTERNAL;
		why_set(&v.message, r, "cannot detach: %s", strerror(-r));
	} else {
		v.code = supervise(job, spec, -1, stderr, &report, &v.message);
	}
	/* The parent has gone when the job had started. */
	if (io_write(to, &v, sizeof(v)) < 0)
		log_debug(LOG_RUNNER, "nobody waits for the end");
	_exit(v.code);
}

static int read_verdict(int from, struct verdict *v)
{
	size_t got = 0;

	while (got < sizeof(*v)) {
		ssize_t n = read(from, (char *)v + got, sizeof(*v) - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_origin(-EPIPE);
		got += (size_t)n;
	}
	return 0;
}

static int await_start(pid_t pid, int from, struct signals *signals)
{
	struct verdict v = {0};
	int r;

	while ((r = signals_wait(signals, from, UINT64_MAX)) == SIGNALS_E_STOP)
		kill(pid, signals->first == SIGHUP ? SIGTERM : signals->first);
	if (r == 0)
		r = read_verdict(from, &v);
	if (r < 0) {
		fprintf(stderr,
			"runner: the job's supervisor ended without a word; its log "
			"is supervisor.log in the job's folder\n");
		return EXIT_INTERNAL;
	}
	if (v.started)
		return EXIT_OK;
	waitpid(pid, NULL, 0);
	if (v.code)
		fprintf(stderr, "runner: %s\n", v.message.text);
	return v.code;
}

int supervise_detached(struct job *job, const struct spec *spec)
{
	struct signals signals;
	int fds[2], code;
	pid_t pid;

	if (signals_open(&signals) < 0 || pipe2(fds, O_CLOEXEC) < 0) {
		fprintf(stderr, "runner: cannot detach: %s\n", strerror(errno));
		return EXIT_INTERNAL;
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		close(signals.fd);
		detached_child(job, spec, fds[1]);
	}
	close(fds[1]);
	if (pid < 0) {
		fprintf(stderr, "runner: cannot detach: %s\n", strerror(errno));
		code = EXIT_INTERNAL;
	} else {
		code = await_start(pid, fds[0], &signals);
	}
	close(fds[0]);
	signals_close(&signals);
	return code;
}

/* ---- after a supervisor that was killed ---------------------------------------------------- */

/* The spec as the job was started with. */
static int kept_spec(struct job *job, struct spec **out, struct why *why)
{
	struct mistakes mistakes;
	char path[PATH_MAX];
	int r;

	mistakes_init(&mistakes);
	job_path(job, path, "spec.yaml");
	r = spec_load(path, NULL, 0, out, &mistakes);
	if (r < 0)
		why_set(why, r, "%.200s",
			mistakes.count ? mistakes.items[0].text : "its spec is lost");
	mistakes_fini(&mistakes);
	return err_trace(r);
}

int supervise_clean_up(struct job *job, bool quiet)
{
	struct session s;
	struct spec *spec = NULL;
	struct why why = {""};
	struct run run = {
		.job = job, .terminal_fd = -1, .progress = quiet ? NULL : stderr};
	int code, r;

	r = kept_spec(job, &spec, &why);
	if (r < 0)
		return fail(&why, EXIT_INTERNAL);
	r = open_session(&s, job, spec, &why);
	if (r == 0)
		r = job_sign(job, &why);
	if (r < 0) {
		code = fail(&why, EXIT_INTERNAL);
	} else {
		run.plan = s.plan;
		run.engine = s.engine;
		run.signals = &s.signals;
		code = run_clean_up(&run);
		status_fini(&run.status);
	}
	close_session(&s);
	spec_free(spec);
	return code;
}
