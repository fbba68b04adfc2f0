/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/gateway.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"
#include "runner/proc.h"
#include "runner/secret.h"
#include "runner/signals.h"
#include "runner/spec.h"

#define PROGRAM "sluice"
#define OUTPUT_MAX (1 << 20)
#define END_GRACE_MS 5000

extern char **environ;

int gateway_find(char out[PATH_MAX], struct why *why)
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - sizeof(PROGRAM) - 1);
	char *slash;

	if (n > 0) {
		out[n] = '\0';
		slash = strrchr(out, '/');
		memcpy(slash + 1, PROGRAM, sizeof(PROGRAM));
		if (access(out, X_OK) == 0)
			return 0;
	}
	if (proc_find(PROGRAM, out) == 0)
		return 0;
	return why_set(
		why, err_origin(-ENOENT),
		"the storage gateway (sluice) is not installed: put it beside runner "
		"or into PATH");
}

/* ---- command lines ------------------------------------------------------------------------ */

void gateway_add(struct gateway_command *c, const char *word)
{
	check(c->count < GATEWAY_WORDS_MAX);
	c->words[c->count++] = xstrdup(word);
	c->words[c->count] = NULL;
}

static void add_option(struct gateway_command *c, const char *name, const char *value)
{
	if (!value)
		return;
	gateway_add(c, name);
	gateway_add(c, value);
}

void gateway_command_init(struct gateway_command *c, const char *program,
			  const char *verb)
{
	c->count = 0;
	gateway_add(c, program);
	gateway_add(c, verb);
}

void gateway_command_fini(struct gateway_command *c)
{
	while (c->count)
		free(c->words[--c->count]);
}

void gateway_mount_command(struct gateway_command *c, const char *program,
			   const struct spec_store *store, const char *role,
			   const struct gateway_place *place)
{
	gateway_command_init(c, program, "mount");
	gateway_add(c, store->source);
	gateway_add(c, place->dir);
	add_option(c, "--role", role);
	add_option(c, "--endpoint", store->endpoint);
	add_option(c, "--region", store->region);
	add_option(c, "--cache-dir", store->cache_dir);
	add_option(c, "--state-dir", place->state_dir);
	add_option(c, "--log-file", place->log_file);
	add_option(c, "--credentials",
		   store->credentials.id.file || store->credentials.id.env
			   ? "env"
			   : store->credentials.reference);
	for (size_t i = 0; i < store->options.count; i++) {
		const struct spec_pair *p = &store->options.items[i];
		char *word = p->quoted || strcmp(p->value, "true")
				     ? xasprintf("--%s=%s", p->name, p->value)
				     : xasprintf("--%s", p->name);

		gateway_add(c, word);
		free(word);
	}
}

/* ---- its environment ---------------------------------------------------------------------- */

static const char *const credential_names[] = {
	"OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"};

struct environment {
	char **items; /* ours first (owned), then what is inherited (borrowed) */
	size_t owned;
};

static void free_environment(struct environment *e)
{
	for (size_t i = 0; i < e->owned; i++)
		secret_free(e->items[i]);
	free(e->items);
}

static bool is_credential(const char *item)
{
	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(credential_names[i]);

		if (!strncmp(item, credential_names[i], n) && item[n] == '=')
			return true;
	}
	return false;
}

/* Where the job file names a key of its own, it replaces all three of the caller's: an id
 * of one and a token of the other would never fit together. */
static int build_environment(const struct spec_store *store, struct environment *e,
			     struct why *why)
{
	const struct spec_secret *refs[] = {&store->credentials.id,
					    &store->credentials.secret,
					    &store->credentials.token};
	size_t count = 0, own = 0;

	while (environ[count])
		count++;
	e->items = xcalloc(count + 4, sizeof(char *));
	for (size_t i = 0; i < 3; i++) {
		char *secret;
		int r = secret_read(refs[i], &secret, why);

		if (r < 0)
			return err_trace(r);
		if (!secret)
			continue;
		e->items[e->owned++] = xasprintf("%s=%s", credential_names[i], secret);
		secret_free(secret);
	}
	own = e->owned;
	for (size_t i = 0, at = own; i < count; i++)
		if (!own || !is_credential(environ[i]))
			e->items[at++] = environ[i];
	return 0;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The last line that is not empty. */
static void last_line(int fd, struct why *why)
{
	char text[4096], *end, *line;
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) - 1 ? size - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = size < 0 ? 0 : io_pread(fd, text, sizeof(text) - 1, (uint64_t)from);

	if (n <= 0)
		return;
	text[n] = '\0';
	for (end = text + n; end > text && strchr(" \n\r", end[-1]); end--)
		;
	*end = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (!strncmp(line, PROGRAM ": ", sizeof(PROGRAM) + 1))
		line += sizeof(PROGRAM) + 1;
	why_set(why, 0, "%.250s", line);
}

static int wait_for(pid_t pid, struct signals *signals, uint64_t timeout_ms, int *status)
{
	uint64_t deadline =
		timeout_ms == UINT64_MAX ? UINT64_MAX : clock_mono_ms() + timeout_ms;
	_cleanup_(close_fdp) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int r = pidfd < 0 ? -errno : 0;

	if (r == 0 && signals)
		r = signals_wait(signals, pidfd, deadline);
	if (r == 0)
		r = proc_wait(pid, signals ? UINT64_MAX : timeout_ms, status);
	else
		r = r == SIGNALS_E_STOP      ? -ECANCELED
		    : r == SIGNALS_E_TIMEOUT ? -ETIMEDOUT
					     : r;
	if (r == 0)
		return 0;
	proc_end(pid, END_GRACE_MS);
	return err_origin(r == PROC_E_TIMEOUT ? -ETIMEDOUT : r);
}

static int run_with(const struct gateway_command *c, const struct environment *e,
		    struct signals *signals, uint64_t timeout_ms, int err_fd,
		    struct gateway_result *result)
{
	_cleanup_(close_fdp) int out = memfd_create("sluice-out", MFD_CLOEXEC);
	_cleanup_(close_fdp) int err = memfd_create("sluice-err", MFD_CLOEXEC);
	const struct proc_options o = {
		.argv = (const char *const *)c->words,
		.env = (const char *const *)e->items,
		.in = -1,
		.out = out,
		.err = err_fd >= 0 ? err_fd : err,
		.new_session = true,
	};
	pid_t pid;
	int r;

	if (out < 0 || err < 0)
		return why_set(result->why, err_origin(-errno), "%s", strerror(errno));
	r = proc_spawn(&o, &pid);
	if (r < 0)
		return why_set(result->why, err_trace(r), "%.180s: %s", c->words[0],
			       strerror(-r));
	r = wait_for(pid, signals, timeout_ms, &result->exit_code);
	last_line(err, result->why);
	if (r == 0 && result->output) {
		off_t size = lseek(out, 0, SEEK_END);
		char *to = size > 0 && size < OUTPUT_MAX
				   ? buf_reserve(result->output, (size_t)size + 1)
				   : NULL;
		ssize_t n = to ? io_pread(out, to, (size_t)size, 0) : 0;

		if (n > 0) {
			result->output->len += (size_t)n;
			to[n] = '\0';
		}
	}
	return err_trace(r);
}

int gateway_run(const struct gateway_command *c, const struct spec_store *store,
		struct signals *signals, uint64_t timeout_ms, int err_fd,
		struct gateway_result *result)
{
	struct environment e = {0};
	int r;

	result->exit_code = 0;
	result->why->text[0] = '\0';
	r = build_environment(store, &e, result->why);
	if (r == 0)
		r = run_with(c, &e, signals, timeout_ms, err_fd, result);
	free_environment(&e);
	return err_trace(r);
}
