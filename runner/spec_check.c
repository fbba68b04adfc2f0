/* SPDX-License-Identifier: Apache-2.0 */
/* Rules over several fields of a job file, and over the file and the machine. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/units.h"
#include "runner/env.h"
#include "runner/roles.h"
#include "runner/spec_fields.h"

#define CODE_TARGET "/code"

#define refuse(m, spec, path, ...)                                                       \
	mistakes_add((m), spec_place((spec), "%s", (path)), EXIT_USAGE, __VA_ARGS__)

static bool is_given(const struct spec *spec, const char *key)
{
	return node_get(node_root(spec->doc), key) != NULL;
}

/* ---- code -------------------------------------------------------------------------------- */

static bool is_below(const char *path, const char *parent)
{
	size_t n = strlen(parent);

	return !strncmp(path, parent, n) && (!path[n] || path[n] == '/');
}

static void check_target(const struct spec *spec, struct mistakes *m)
{
	static const char *const taken[] = {"/input", "/output", "/proc", "/sys",
					    "/dev",   "/run",    "/etc",  "/usr",
					    "/bin",   "/lib",    "/sbin"};
	const char *target = spec->code.target;

	if (!target)
		return;
	if (!target[1])
		refuse(m, spec, "code.target",
		       "code.target cannot be the root: write /code");
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		if (is_below(target, taken[i]))
			refuse(m, spec, "code.target",
			       "code.target %s would hide the container's own %s: write "
			       "%s",
			       target, taken[i], CODE_TARGET);
}

static void check_code(struct spec *spec, struct mistakes *m)
{
	struct spec_code *code = &spec->code;
	bool token = code->token.file || code->token.env;
	bool password = code->password.file || code->password.env;

	if (!is_given(spec, "code"))
		return;
	if (!code->target)
		code->target = CODE_TARGET;
	check_target(spec, m);
	if (code->dir && code->git)
		refuse(m, spec, "code.git", "give either code.dir or code.git");
	if (!code->dir && !code->git &&
	    !node_get(node_get(node_root(spec->doc), "code"), "git"))
		refuse(m, spec, "code", "code needs dir: PATH or git: URL");
	if (code->branch && code->commit)
		refuse(m, spec, "code.commit", "give either code.branch or code.commit");
	if (code->dir &&
	    (code->branch || code->commit || code->user || password || token))
		refuse(m, spec, "code.dir",
		       "branch, commit, user, password and token go with code.git only");
	if (password && !code->user)
		refuse(m, spec, "code.password",
		       "code.password needs code.user beside it");
	if (token && (password || code->user))
		refuse(m, spec, "code.token",
		       "give either code.token or code.user and code.password");
}

/* ---- environment and commands ------------------------------------------------------------- */

static void check_env(const struct spec *spec, const struct spec_pairs *pairs,
		      const char *path, struct mistakes *m)
{
	for (size_t i = 0; i < pairs->count; i++) {
		const char *name = pairs->items[i].name;
		const char *fault = env_name_fault(spec, name);

		if (fault)
			mistakes_add(m, spec_place(spec, "%s.%s", path, name), EXIT_USAGE,
				     "%s cannot set \"%.60s\": %s", path, name, fault);
	}
}

static void check_hyperparameters(const struct spec *spec, struct mistakes *m)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	const struct spec_pairs *all = &spec->hyperparameters;

	for (size_t i = 0; i < all->count; i++) {
		const char *name = all->items[i].name;
		struct mistake_place place = spec_place(spec, "hyperparameters.%s", name);

		if (!*name || strlen(name) > 60 || strspn(name, allowed) != strlen(name))
			mistakes_add(
				m, place, EXIT_USAGE,
				"\"%.60s\" cannot be a hyperparameter's name: use 1 to "
				"60 letters, digits and underscores",
				name);
		for (size_t j = 0; j < i; j++)
			if (!strcasecmp(all->items[j].name, name))
				mistakes_add(
					m, place, EXIT_USAGE,
					"hyperparameters \"%s\" and \"%s\" would be the "
					"same variable",
					all->items[j].name, name);
	}
}

static void check_command(const struct spec *spec, const struct spec_role *role,
			  const struct spec_command *command, const char *path,
			  struct mistakes *m)
{
	const struct env_task task = {.role = role};

	for (size_t i = 0; i < command->count; i++) {
		_cleanup_(buf_fini) struct buf out = BUF_INIT;
		struct why why;

		if (env_expand(spec, &task, command->argv[i], &out, &why) < 0)
			refuse(m, spec, path, "%s: %s", path, why.text);
	}
}

static void check_roles(const struct spec *spec, struct mistakes *m)
{
	if (spec->role_count)
		check_command(spec, &spec->roles[0], &spec->command, "command", m);
	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		char path[FIELD_PATH_MAX];

		snprintf(path, sizeof(path), "roles.%s.env", role->name);
		check_env(spec, &role->env, path, m);
		snprintf(path, sizeof(path), "roles.%s.command", role->name);
		if (role->command.count)
			check_command(spec, role, &role->command, path, m);
		else if (!is_given(spec, "command"))
			refuse(m, spec, path,
			       "no command for %s: add \"command: …\" to the job or to "
			       "the "
			       "role",
			       role->name);
	}
}

/* ---- stores ------------------------------------------------------------------------------ */

static void check_options(const struct spec *spec, const struct spec_pairs *options,
			  const char *path, struct mistakes *m)
{
	static const char *const own[] = {"role",      "endpoint",  "region",
					  "cache-dir", "state-dir", "foreground",
					  "log-file"};
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	for (size_t i = 0; i < options->count; i++) {
		const char *name = options->items[i].name;
		struct mistake_place place = spec_place(spec, "%s.%s", path, name);

		if (!*name || *name == '-' || strspn(name, allowed) != strlen(name))
			mistakes_add(
				m, place, EXIT_USAGE,
				"%s: \"%.60s\" is no option of sluice mount: write it "
				"without dashes in front",
				path, name);
		for (size_t j = 0; j < sizeof(own) / sizeof(*own); j++)
			if (!strcmp(own[j], name))
				mistakes_add(
					m, place, EXIT_USAGE,
					"%s.%s: the runner sets this option itself, or "
					"has a key of its own for it",
					path, name);
	}
}

static bool has_secret(const struct spec_secret *s)
{
	return s->file || s->env;
}

static void check_store(const struct spec *spec, const struct spec_store *store,
			const char *key, struct mistakes *m)
{
	const struct spec_credentials *c = &store->credentials;
	char path[FIELD_PATH_MAX];

	if (!is_given(spec, key))
		return;
	if (!store->source && node_get(node_root(spec->doc), key)->kind == NODE_MAP &&
	    !node_get(node_get(node_root(spec->doc), key), "source"))
		refuse(m, spec, key, "%s needs a source: oss://bucket/prefix", key);
	snprintf(path, sizeof(path), "%s.options", key);
	check_options(spec, &store->options, path, m);
	snprintf(path, sizeof(path), "%s.credentials", key);
	if (has_secret(&c->id) != has_secret(&c->secret))
		refuse(m, spec, path, "%s needs both id and secret", path);
	if (has_secret(&c->token) && !has_secret(&c->id))
		refuse(m, spec, path, "%s.token goes with id and secret", path);
	if (c->reference && has_secret(&c->id))
		refuse(m, spec, path, "%s: give either a reference or id and secret",
		       path);
}

/* ---- together ---------------------------------------------------------------------------- */

static void drop_empty_roles(struct spec *spec)
{
	size_t kept = 0;

	for (size_t i = 0; i < spec->role_count; i++)
		if (spec->roles[i].count > 0)
			spec->roles[kept++] = spec->roles[i];
	spec->role_count = kept;
}

void spec_check(struct spec *spec, struct mistakes *m)
{
	if (!is_given(spec, "name"))
		refuse(m, spec, "name",
		       "the job has no name: add \"name: …\", 1 to %d letters, digits "
		       "and "
		       "hyphens",
		       SPEC_NAME_MAX);
	if (!is_given(spec, "roles"))
		spec->roles[spec->role_count++] =
			(struct spec_role){.name = "worker", .count = 1, .service = -1};
	if (!spec->image)
		spec->image = "host";
	roles_fill(spec);
	roles_sort(spec);
	roles_check(spec, m);
	drop_empty_roles(spec);
	check_code(spec, m);
	check_env(spec, &spec->env, "env", m);
	check_hyperparameters(spec, m);
	if (!spec->name)
		spec->name = "job"; /* {{job}} stands for something while we look on */
	check_roles(spec, m);
	check_store(spec, &spec->input, "input", m);
	check_store(spec, &spec->output, "output", m);
	for (size_t i = 0; i < spec->role_count; i++)
		if (!spec->roles[i].image)
			spec->roles[i].image = spec->image;
	if (!spec->workdir)
		spec->workdir = spec->code.target ? spec->code.target : "/";
	if (spec->tensorboard && !is_below(spec->tensorboard, "/output"))
		refuse(m, spec, "tensorboard",
		       "tensorboard's logdir must be below /output to be kept: write "
		       "/output/logs");
}

/* ---- the machine ------------------------------------------------------------------------- */

static void check_capacity(const struct spec *spec, const struct spec_host *host,
			   struct mistakes *m)
{
	char want[16], have[16];
	uint64_t sum = 0;
	bool one_too_large = false;

	units_format_size(have, sizeof(have), host->memory_bytes);
	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];

		if (role->memory_bytes > host->memory_bytes) {
			one_too_large = true;
			mistakes_add(
				m, spec_place(spec, "roles.%s.memory", role->name),
				EXIT_CONFIG,
				"roles.%s.memory: %s is more than this machine has "
				"(%s): ask for less",
				role->name,
				units_format_size(want, sizeof(want), role->memory_bytes),
				have);
		}
		if (role->cpu_millis > host->cpu_count * 1000)
			mistakes_add(
				m, spec_place(spec, "roles.%s.cpu", role->name),
				EXIT_CONFIG,
				"roles.%s.cpu: %g cores are more than this machine has "
				"(%" PRIu64 "): ask for less",
				role->name, (double)role->cpu_millis / 1000,
				host->cpu_count);
		/* Each term is far from overflow once it fits the machine. */
		if (!one_too_large)
			sum += role->memory_bytes * role->count;
	}
	if (!one_too_large && sum > host->memory_bytes)
		mistakes_add(
			m, spec_place(spec, "roles"), EXIT_CONFIG,
			"all replicas together ask for %s of memory, this machine has "
			"%s: ask for less, or for fewer replicas",
			units_format_size(want, sizeof(want), sum), have);
}

static void check_directory(const struct spec *spec, const char *key, const char *path,
			    struct mistakes *m)
{
	struct stat st;
	int fault = 0;

	if (stat(path, &st) < 0)
		fault = errno;
	else if (!S_ISDIR(st.st_mode))
		fault = ENOTDIR;
	if (fault)
		mistakes_add(m, spec_place(spec, "%s", key), EXIT_CONFIG, "%s: %s: %s",
			     key, path, strerror(fault));
}

static void check_secret(const struct spec *spec, const struct spec_secret *secret,
			 const char *key, struct mistakes *m)
{
	struct mistake_place place = spec_place(spec, "%s", key);
	struct stat st;

	if (secret->env && !getenv(secret->env))
		mistakes_add(m, place, EXIT_CONFIG,
			     "%s: the variable %s is not set: export it first", key,
			     secret->env);
	if (!secret->file)
		return;
	if (stat(secret->file, &st) < 0)
		mistakes_add(m, place, EXIT_CONFIG, "%s: %s: %s", key, secret->file,
			     strerror(errno));
	else if (!S_ISREG(st.st_mode))
		mistakes_add(m, place, EXIT_CONFIG, "%s: %s is not a file", key,
			     secret->file);
	else if (st.st_mode & 077)
		mistakes_add(m, place, EXIT_REFUSED,
			     "%s: others can read %s: chmod 600 it", key, secret->file);
}

static void check_store_host(const struct spec *spec, const struct spec_store *store,
			     const char *key, struct mistakes *m)
{
	char path[FIELD_PATH_MAX];

	if (!store->source)
		return;
	if (!strncmp(store->source, "file://", 7))
		check_directory(spec, key, store->source + 7, m);
	snprintf(path, sizeof(path), "%s.credentials", key);
	check_secret(spec, &store->credentials.id, path, m);
	check_secret(spec, &store->credentials.secret, path, m);
	check_secret(spec, &store->credentials.token, path, m);
}

void spec_check_host(const struct spec *spec, const struct spec_host *host,
		     struct mistakes *m)
{
	check_capacity(spec, host, m);
	if (spec->code.dir)
		check_directory(spec, "code.dir", spec->code.dir, m);
	check_secret(spec, &spec->code.password, "code.password", m);
	check_secret(spec, &spec->code.token, "code.token", m);
	check_store_host(spec, &spec->input, "input", m);
	check_store_host(spec, &spec->output, "output", m);
}
