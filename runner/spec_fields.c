/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/spec_fields.h"

#include <string.h>

#define AT(type, member) .offset = offsetof(struct type, member)

static const char *const framework_names[FRAMEWORK_N + 1] = {
	"tensorflow", "keras", "python", "pytorch", "mxnet", "custom", NULL};
static const char *const engine_names[] = {"runc", NULL};
static const char *const chief_names[SPEC_CHIEF_N + 1] = {"none", "worker0", NULL};
static const char *const finish_names[SPEC_FINISH_N + 1] = {"all-workers", "first-worker",
							    NULL};
static const char *const restart_names[SPEC_RESTART_N + 1] = {"never", NULL};

static const struct field secret_fields[] = {
	{"file", field_bind_file, AT(spec_secret, file), "path",
	 "a file of mode 0600 whose first line is the secret"},
	{"env", field_bind_text, AT(spec_secret, env), "name",
	 "a variable of the runner's own environment", .min = 1, .max = 256},
	{0},
};

static const struct field code_fields[] = {
	{"dir", field_bind_file, AT(spec_code, dir), "path", "a local directory to copy"},
	{"git", field_bind_git, AT(spec_code, git), "url",
	 "a repository over http or https"},
	{"branch", field_bind_text, AT(spec_code, branch), "name",
	 "the branch to take; the repository's default without it", .min = 1, .max = 255},
	{"commit", field_bind_commit, AT(spec_code, commit), "hash",
	 "the commit to take instead of a branch"},
	{"user", field_bind_text, AT(spec_code, user), "name",
	 "the user of a private repository", .min = 1, .max = 255},
	{"password", field_bind_secret, AT(spec_code, password), "secret",
	 "the password of that user", .child = secret_fields},
	{"token", field_bind_secret, AT(spec_code, token), "secret",
	 "an access token instead of user and password", .child = secret_fields},
	{"target", field_bind_target, AT(spec_code, target), "path",
	 "where the code is in the containers [/code]"},
	{0},
};

static const struct field credentials_fields[] = {
	{"reference", field_bind_reference, AT(spec_credentials, reference), "reference",
	 "env, file:PATH, ossutil:PATH, passwd:PATH, ram-role[:NAME], uri:URL, "
	 "anonymous"},
	{"id", field_bind_secret, AT(spec_credentials, id), "secret", "the access key id",
	 .child = secret_fields},
	{"secret", field_bind_secret, AT(spec_credentials, secret), "secret",
	 "the access key secret", .child = secret_fields},
	{"token", field_bind_secret, AT(spec_credentials, token), "secret",
	 "the session token of temporary credentials", .child = secret_fields},
	{0},
};

static const struct field store_fields[] = {
	{"source", field_bind_source, AT(spec_store, source), "source",
	 "oss://bucket[/prefix], nfs://server/export, file:///path or a volume's name"},
	{"endpoint", field_bind_url, AT(spec_store, endpoint), "url",
	 "the store's http or https address"},
	{"region", field_bind_text, AT(spec_store, region), "name", "the store's region",
	 .min = 1, .max = 64},
	{"credentials", field_bind_map, AT(spec_store, credentials), "reference or map",
	 "never in clear; what sluice mount finds by itself without it",
	 .child = credentials_fields, .shorthand = "reference"},
	{"cache_dir", field_bind_file, AT(spec_store, cache_dir), "path",
	 "the gateway's cache [its own default]"},
	{"state_dir", field_bind_file, AT(spec_store, state_dir), "path",
	 "where unsent output is kept [a folder of the job]"},
	{"options", field_bind_pairs, AT(spec_store, options), "map",
	 "further options of sluice mount, such as cache-size: 20G"},
	{"flush_deadline", field_bind_duration, AT(spec_store, flush_deadline_ms),
	 "duration", "how long the last upload may take [no limit]"},
	{0},
};

static const struct field tensorboard_fields[] = {
	{"logdir", field_bind_target, .offset = 0, "path",
	 "where the event files are, below /output"},
	{0},
};

static const struct field restart_fields[] = {
	{"policy", field_bind_choice, .offset = 0, "choice",
	 "what a failure leads to [never]", .names = restart_names},
	{0},
};

const struct field spec_role_fields[] = {
	{"count", field_bind_uint, AT(spec_role, count), "number", "replicas [1]",
	 .max = SPEC_COUNT_MAX},
	{"cpu", field_bind_cpu, AT(spec_role, cpu_millis), "cores",
	 "the most each may use, such as 0.5 [no limit]"},
	{"memory", field_bind_size, AT(spec_role, memory_bytes), "size",
	 "the most each may use, such as 512M [no limit]", .min = 4 << 20},
	{"ports", field_bind_ports, AT(spec_role, ports), "number or list",
	 "the first is the cluster's [2222; pytorch 23456; mxnet 9091]"},
	{"image", field_bind_image, AT(spec_role, image), "image",
	 "instead of the job's"},
	{"command", field_bind_command, AT(spec_role, command), "text or list",
	 "instead of the job's"},
	{"env", field_bind_pairs, AT(spec_role, env), "map", "added to the job's"},
	{"service", field_bind_bool, AT(spec_role, service), "true or false",
	 "is stopped when the workers have ended [true for ps, server, scheduler, "
	 "evaluator]"},
	{0},
};

const struct field spec_fields[] = {
	{"name", field_bind_name, AT(spec, name), "name",
	 "the job's name: 1 to 64 letters, digits and hyphens (required)"},
	{"framework", field_bind_choice, AT(spec, framework), "choice",
	 "which environment the containers get [custom]", .names = framework_names},
	{"engine", field_bind_word, AT(spec, engine), "choice",
	 "what runs the containers [runc]", .names = engine_names},
	{"image", field_bind_image, AT(spec, image), "image",
	 "\"host\" (this machine's own root, read-only) or a directory that holds a root "
	 "file system [host]"},
	{"code", field_bind_map, AT(spec, code), "map", "what is put into the containers",
	 .child = code_fields},
	{"command", field_bind_command, AT(spec, command), "text or list",
	 "what each container runs; a text is given to /bin/sh -c"},
	{"workdir", field_bind_target, AT(spec, workdir), "path",
	 "where it runs [code.target, or /]"},
	{"env", field_bind_pairs, AT(spec, env), "map", "variables for all containers"},
	{"hyperparameters", field_bind_pairs, AT(spec, hyperparameters), "map",
	 "HP_NAME variables, {{hp.NAME}} in commands, a JSON file"},
	{"roles", field_bind_roles, AT(spec, roles), "map",
	 "role: {count, cpu, …} [worker: {count: 1}]", .child = spec_role_fields},
	{"input", field_bind_map, AT(spec, input), "source or map",
	 "the data that is shown at /input, read-only", .child = store_fields,
	 .shorthand = "source"},
	{"output", field_bind_map, AT(spec, output), "source or map",
	 "where all that is written below /output goes", .child = store_fields,
	 .shorthand = "source"},
	{"tensorboard", field_bind_map, AT(spec, tensorboard), "path or map",
	 "TensorBoard's event files", .child = tensorboard_fields, .shorthand = "logdir"},
	{"chief", field_bind_choice, AT(spec, chief), "choice",
	 "worker0 makes the first worker the chief of TF_CONFIG [none]",
	 .names = chief_names},
	{"finish", field_bind_choice, AT(spec, finish), "choice",
	 "whose end is the job's end [all-workers]", .names = finish_names},
	{"restart", field_bind_map, AT(spec, restart), "choice or map",
	 "what a failure leads to", .child = restart_fields, .shorthand = "policy"},
	{"grace", field_bind_duration, AT(spec, grace_ms), "duration",
	 "how long a container may take to end after SIGTERM [30s]", .max = 24 * 3600000},
	{0},
};

const char *spec_framework_name(int framework)
{
	return framework_names[framework];
}

/* The tables nest three deep. */
static void print_table(FILE *out, const struct field *table, const char *prefix,
			int depth)
{
	for (const struct field *f = table; f->name; f++) {
		char path[FIELD_PATH_MAX];

		snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "",
			 f->name);
		fprintf(out, "%-30s %-15s %s\n", path, f->type, f->help);
		if (!f->child || depth == 3)
			continue;
		if (f->bind == field_bind_roles)
			strncat(path, ".ROLE", sizeof(path) - strlen(path) - 1);
		print_table(out, f->child, path, depth + 1);
	}
}

void spec_print_fields(FILE *out)
{
	print_table(out, spec_fields, "", 0);
}
