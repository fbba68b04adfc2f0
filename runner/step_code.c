/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetching the code runs in a child process: a transfer may take minutes and must end at
 * once when the job is stopped, and whatever reading a foreign repository may do to a
 * process, it is not the supervisor. The child alone ever holds the password.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "runner/code.h"
#include "runner/plan.h"
#include "runner/run.h"
#include "runner/secret.h"
#include "runner/signals.h"
#include "runner/step.h"

struct answer {
	int error;
	char commit[CODE_COMMIT_SIZE];
	struct why why;
};

static void fetch(const struct plan *p, struct answer *answer)
{
	const struct spec_code *code = &p->spec->code;
	const struct spec_secret *ref =
		code->token.file || code->token.env ? &code->token : &code->password;
	struct code_source source = {
		.dir = code->dir,
		.git_url = code->git,
		.branch = code->branch,
		.commit = code->commit,
		.user = code->user,
	};
	char *secret;

	answer->error = secret_read(ref, &secret, &answer->why);
	if (answer->error < 0)
		return;
	source.password = secret;
	answer->error = code_fetch(&source, p->code_dir, answer->commit, &answer->why);
	secret_free(secret);
}

static void child(const struct plan *p, int to)
{
	struct answer answer = {0};
	sigset_t none;

	sigemptyset(&none);
	/* Ctrl-C is for the supervisor to decide on. */
	setsid();
	sigprocmask(SIG_SETMASK, &none, NULL);
	fetch(p, &answer);
	_exit(io_write(to, &answer, sizeof(answer)) == 0 ? 0 : 1);
}

static int exit_code_of(int error)
{
	switch (-error) {
	case EACCES:
	case EPERM:
		return EXIT_REFUSED;
	case ENOENT:
	case EINVAL:
	case EFBIG:
		return EXIT_CONFIG;
	case ENOSPC:
	case ENOMEM:
		return EXIT_INTERNAL;
	default:
		return EXIT_UNAVAILABLE;
	}
}

static int take_answer(struct run *r, int from, struct why *why)
{
	struct answer answer = {0};
	size_t got = 0;

	while (got < sizeof(answer)) {
		ssize_t n = read(from, (char *)&answer + got, sizeof(answer) - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	if (got < sizeof(answer))
		return why_set(why, err_origin(-EIO), "fetching the code broke off");
	if (answer.error < 0) {
		r->step_code = exit_code_of(answer.error);
		*why = answer.why;
		return err_trace(answer.error);
	}
	memcpy(r->status.commit, answer.commit, sizeof(answer.commit));
	if (*answer.commit)
		run_say(r, "the code is at commit %s", answer.commit);
	return 0;
}

int step_fetch_code(struct run *r, const struct step *step, struct why *why)
{
	_cleanup_(close_fdp) int from = -1;
	int fds[2], e;
	pid_t pid;

	(void)step;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return why_set(why, err_origin(-errno), "%s", strerror(errno));
	from = fds[0];
	if (r->progress)
		fflush(r->progress);
	pid = fork();
	if (pid == 0)
		child(r->plan, fds[1]);
	close(fds[1]);
	if (pid < 0)
		return why_set(why, err_origin(-EAGAIN), "no process: %s",
			       strerror(errno));
	e = signals_wait(r->signals, from, UINT64_MAX);
	if (e == 0)
		e = take_answer(r, from, why);
	else
		e = e == SIGNALS_E_STOP ? -ECANCELED : e;
	if (e == -ECANCELED)
		kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return e;
}
