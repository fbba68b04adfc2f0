/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/path.h"
#include "runner/proc.h"

const char *const runc_env[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};

static int ask_version(struct runc *rc, struct why *why)
{
	const char *const argv[] = {rc->program, "--version", NULL};
	const struct proc_options o = {.argv = argv, .env = runc_env, .in = -1};
	struct buf b = BUF_INIT;
	int status = 0, r = proc_run(&o, &b, RUNC_CALL_MS, &status);

	if (!r && !status)
		rc->seccomp = b.data && strstr(b.data, "libseccomp");
	buf_fini(&b);
	if (r || status)
		return why_set(why, r ? r : err_origin(-ENOEXEC),
			       "%s does not run (exit status %d); reinstall it: apt-get "
			       "install --reinstall runc",
			       rc->program, status);
	return 0;
}

int runc_open(struct runc *rc, struct why *why)
{
	_cleanup_(close_fdp) int run = -1, root = -1;
	const char *dir = getenv("SLUICE_RUN_DIR");
	char real[PATH_MAX];
	int r;

	*rc = (struct runc){0};
	if (geteuid())
		return why_set(why, err_origin(-EPERM),
			       "starting containers needs root: run it with sudo");
	if (proc_find("runc", rc->program))
		return why_set(why, err_origin(-ENOENT),
			       "the program runc is missing: apt-get install runc (or "
			       "scripts/setup)");
	run = io_open_private_dir(dir && *dir ? dir : "/run/sluice", why);
	if (run < 0)
		return err_trace(run);
	if (!realpath(dir && *dir ? dir : "/run/sluice", real))
		return err_origin(-errno);
	memcpy(rc->run_dir, real, strlen(real) + 1);
	r = path_join(rc->root, sizeof(rc->root), rc->run_dir, "runc");
	if (r)
		return err_trace(r);
	root = io_open_private_dir(rc->root, why);
	if (root < 0)
		return err_trace(root);
	snprintf(rc->tag, sizeof(rc->tag), "%08x",
		 (unsigned int)crc64(0, rc->run_dir, strlen(rc->run_dir)));
	return err_trace(ask_version(rc, why));
}

void runc_cgroup_name(const struct runc *rc, const char *name, char out[RUNC_ID_SIZE])
{
	snprintf(out, RUNC_ID_SIZE, "sluice-%.200s-%s", name, rc->tag);
}

bool runc_exists(const struct runc *rc, const char *name)
{
	char path[PATH_MAX];

	return !path_join(path, sizeof(path), rc->root, name) && !access(path, F_OK);
}

static void copy_message(char *out, size_t size, const char *message)
{
	snprintf(out, size, "%s", message);
	out[strcspn(out, "\n")] = '\0';
}

void runc_complaint(const char *log, const char *fallback, char *out, unsigned long size)
{
	const char *line = log;

	copy_message(out, size, fallback);
	while (line && *line) {
		size_t n = strcspn(line, "\n");
		json_t *j = json_loadb(line, n, 0, NULL);
		const char *level = json_string_value(json_object_get(j, "level"));
		const char *msg = json_string_value(json_object_get(j, "msg"));

		if (level && msg && !strcmp(level, "error"))
			copy_message(out, size, msg);
		json_decref(j);
		line += n;
		line += *line == '\n';
	}
}

/* The log goes to the descriptor that collects the output. */
static int run(const struct runc *rc, const char *const *words, struct buf *out,
	       int *status)
{
	const char *argv[16] = {rc->program, "--root", rc->root, "--log-format", "json"};
	const struct proc_options o = {
		.argv = argv, .env = runc_env, .in = -1, .new_session = true};
	int n = 5;

	for (int i = 0; i < 8; i++)
		if (words[i])
			argv[n++] = words[i];
	return err_trace(proc_run(&o, out, RUNC_CALL_MS, status));
}

int runc_call(const struct runc *rc, const char *verb, const char *arg, const char *name,
	      const char *last, struct why *why)
{
	const char *const words[8] = {verb, arg, name, last};
	char text[200];
	struct buf b = BUF_INIT;
	int status = 0, r = run(rc, words, &b, &status);

	if (r)
		why_set(why, r, "runc %s %s: %s", verb, name, strerror(-r));
	if (!r && status) {
		runc_complaint(b.data, b.data ? b.data : "no reason given", text,
			       sizeof(text));
		r = why_set(why, err_origin(-EIO), "runc %s %s: %s", verb, name, text);
	}
	buf_fini(&b);
	return r;
}

int runc_status(const struct runc *rc, const char *name, char out[32], struct why *why)
{
	const char *const words[8] = {"state", name};
	struct buf b = BUF_INIT;
	int status = 0, r = 0;

	out[0] = '\0';
	if (runc_exists(rc, name))
		r = run(rc, words, &b, &status);
	if (r)
		why_set(why, r, "runc state %s: %s", name, strerror(-r));
	if (!r && !status && b.data) {
		json_t *j = json_loads(b.data, 0, NULL);
		const char *s = json_string_value(json_object_get(j, "status"));

		snprintf(out, 32, "%s", s ? s : "");
		json_decref(j);
	}
	buf_fini(&b);
	return r;
}
