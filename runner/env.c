/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/env.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/xalloc.h"
#include "runner/env_frameworks.h"
#include "runner/roles.h"
#include "runner/spec.h"

void env_fini(struct env *env)
{
	for (size_t i = 0; i < env->count; i++)
		free(env->items[i]);
	free(env->items);
	*env = (struct env){0};
}

static char **find(const struct env *env, const char *name, size_t n)
{
	for (size_t i = 0; i < env->count; i++)
		if (!strncmp(env->items[i], name, n) && env->items[i][n] == '=')
			return &env->items[i];
	return NULL;
}

const char *env_get(const struct env *env, const char *name)
{
	char **item = find(env, name, strlen(name));

	return item ? *item + strlen(name) + 1 : NULL;
}

/* Takes the item; a later value replaces an earlier one in its place. */
static void put(struct env *env, char *item)
{
	char **old = find(env, item, strcspn(item, "="));

	if (old) {
		free(*old);
		*old = item;
		return;
	}
	env->items = xrealloc(env->items, env->count + 2, sizeof(char *));
	env->items[env->count++] = item;
	env->items[env->count] = NULL;
}

void env_put(struct env *env, const char *name, const char *format, ...)
{
	_cleanup_(buf_fini) struct buf item = BUF_INIT;
	char *value;
	va_list args;

	va_start(args, format);
	check(vasprintf(&value, format, args) >= 0);
	va_end(args);
	put(env, xasprintf("%s=%s", name, value));
	free(value);
}

void env_hostname(char *out, size_t out_size, const struct spec_role *role, size_t index)
{
	snprintf(out, out_size, "%s-%zu", role->name, index);
}

void env_hosts(const struct spec_role *role, struct buf *out)
{
	for (size_t i = 0; i < role->count; i++)
		buf_printf(out, "%s%s-%zu:%" PRIu64, i ? "," : "", role->name, i,
			   role->ports[0]);
}

/* "ROLE" as the middle of a variable's name. */
static void upper(char *out, size_t out_size, const char *name)
{
	size_t i;

	for (i = 0; name[i] && i + 1 < out_size; i++)
		out[i] = (char)toupper((unsigned char)name[i]);
	out[i] = '\0';
}

static size_t rank_of(const struct spec *spec, const struct env_task *task)
{
	size_t rank = task->index;

	for (const struct spec_role *r = spec->roles; r != task->role; r++)
		rank += r->count;
	return rank;
}

static void put_roles(const struct spec *spec, struct env *env)
{
	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		_cleanup_(buf_fini) struct buf hosts = BUF_INIT;
		char name[SPEC_ROLE_NAME_MAX + 1], variable[SPEC_ROLE_NAME_MAX + 16];

		upper(name, sizeof(name), role->name);
		for (size_t j = 0; j < role->count; j++)
			buf_printf(&hosts, "%s%s-%zu", j ? "," : "", role->name, j);
		check(buf_error(&hosts) == 0);
		snprintf(variable, sizeof(variable), "RUNNER_%s_NUM", name);
		env_put(env, variable, "%" PRIu64, role->count);
		snprintf(variable, sizeof(variable), "RUNNER_%s_HOSTS", name);
		env_put(env, variable, "%s", hosts.data ? hosts.data : "");
		snprintf(variable, sizeof(variable), "RUNNER_%s_PORT", name);
		env_put(env, variable, "%" PRIu64, role->ports[0]);
	}
}

static void put_neutral(const struct spec *spec, const struct env_task *task,
			struct env *env)
{
	env_put(env, "RUNNER_JOB", "%s", spec->name);
	env_put(env, "RUNNER_REVISION", "1");
	env_put(env, "RUNNER_ATTEMPT", "1");
	env_put(env, "RUNNER_ROLE", "%s", task->role->name);
	env_put(env, "RUNNER_INDEX", "%zu", task->index);
	put_roles(spec, env);
	env_put(env, "RUNNER_NODE_RANK", "%zu", rank_of(spec, task));
	env_put(env, "RUNNER_NODES", "%zu", spec_replica_count(spec));
	env_put(env, "RUNNER_GPUS", "0");
	if (spec->input.source)
		env_put(env, "RUNNER_INPUT", "/input");
	if (spec->output.source)
		env_put(env, "RUNNER_OUTPUT", "/output");
	if (spec->code.target)
		env_put(env, "RUNNER_CODE", "%s", spec->code.target);
	if (task->commit && *task->commit)
		env_put(env, "RUNNER_CODE_COMMIT", "%s", task->commit);
	if (spec->tensorboard)
		env_put(env, "RUNNER_TENSORBOARD_LOGDIR", "%s", spec->tensorboard);
	env_put(env, "RUNNER_HPARAMS", ENV_FILES_DIR "/hparams.json");
	for (size_t i = 0; i < spec->hyperparameters.count; i++) {
		const struct spec_pair *p = &spec->hyperparameters.items[i];
		char name[128] = "HP_";

		upper(name + 3, sizeof(name) - 3, p->name);
		env_put(env, name, "%s", p->value);
	}
}

static void put_pairs(const struct spec_pairs *pairs, struct env *env)
{
	for (size_t i = 0; i < pairs->count; i++)
		env_put(env, pairs->items[i].name, "%s", pairs->items[i].value);
}

void env_build(const struct spec *spec, const struct env_task *task, struct env *out)
{
	char hostname[SPEC_ROLE_NAME_MAX + 24];

	*out = (struct env){0};
	env_hostname(hostname, sizeof(hostname), task->role, task->index);
	env_put(out, "PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	env_put(out, "HOME", "/root");
	env_put(out, "LANG", "C.UTF-8");
	env_put(out, "HOSTNAME", "%s", hostname);
	env_put(out, "PYTHONUNBUFFERED", "1");
	put_pairs(&spec->env, out);
	put_pairs(&task->role->env, out);
	/* Last, so that nothing above can stand in their place. */
	put_neutral(spec, task, out);
	env_put_framework(spec, task, out);
}

/* ---- names the user may not set ---------------------------------------------------------- */

struct reserved {
	const char *pattern;
	unsigned int frameworks; /* 0: all */
	const char *reason;
};

#define TF (1u << FRAMEWORK_TENSORFLOW | 1u << FRAMEWORK_KERAS)
#define PYTORCH (1u << FRAMEWORK_PYTORCH)
#define MXNET (1u << FRAMEWORK_MXNET)

static const struct reserved reserved[] = {
	{"RUNNER_*", 0, "the runner sets it"},
	{"HP_*", 0, "hyperparameters set it: use the key hyperparameters"},
	{"HOSTNAME", 0, "the runner sets it"},
	{"OSS_ACCESS_KEY_*", 0, "credentials never enter a container"},
	{"OSS_SESSION_TOKEN", 0, "credentials never enter a container"},
	{"TF_CONFIG", TF, "the runner sets it"},
	{"CLUSTER_CONFIG", TF, "the runner sets it"},
	{"POD_NAME", TF, "the runner sets it"},
	{"JOB_NAME", TF, "the runner sets it"},
	{"WORKER_HOSTS", TF, "the runner sets it"},
	{"PS_HOSTS", TF, "the runner sets it"},
	{"MASTER_ADDR", PYTORCH, "the runner sets it"},
	{"MASTER_PORT", PYTORCH, "the runner sets it"},
	{"WORLD_SIZE", PYTORCH, "the runner sets it"},
	{"RANK", PYTORCH, "the runner sets it"},
	{"LOCAL_RANK", PYTORCH, "the runner sets it"},
	{"PET_*", PYTORCH, "the runner sets it"},
	{"DMLC_*", MXNET, "the runner sets it"},
	{"MX_CONFIG", MXNET, "the runner sets it"},
	{"PORT", MXNET, "ps-lite would take it for its own port"},
};

const char *env_name_fault(const struct spec *spec, const char *name)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

	if (!*name || strspn(name, letters) != strlen(name) ||
	    isdigit((unsigned char)*name))
		return "a variable's name has letters, digits and underscores, no digit "
		       "first";
	for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
		const struct reserved *r = &reserved[i];

		if ((!r->frameworks || r->frameworks & 1u << spec->framework) &&
		    fnmatch(r->pattern, name, 0) == 0)
			return r->reason;
	}
	return NULL;
}

/* ---- placeholders ------------------------------------------------------------------------ */

static const struct spec_role *role_of_hosts(const struct spec *spec, const char *word)
{
	size_t n = strlen(word);

	if (n <= 6 || strcmp(word + n - 6, "_hosts") != 0)
		return NULL;
	for (size_t i = 0; i < spec->role_count; i++)
		if (strlen(spec->roles[i].name) == n - 6 &&
		    !strncmp(spec->roles[i].name, word, n - 6))
			return &spec->roles[i];
	return NULL;
}

/* The well-known names are empty rather than unknown where the job has no such role. */
static bool is_known_hosts(const char *word)
{
	return !strcmp(word, "ps_hosts") || !strcmp(word, "worker_hosts");
}

static int expand_word(const struct spec *spec, const struct env_task *task,
		       const char *word, struct buf *out, struct why *why)
{
	const struct spec_role *role = role_of_hosts(spec, word);

	if (!strncmp(word, "hp.", 3)) {
		for (size_t i = 0; i < spec->hyperparameters.count; i++) {
			const struct spec_pair *p = &spec->hyperparameters.items[i];

			if (!strcmp(p->name, word + 3)) {
				buf_puts(out, p->value);
				return 0;
			}
		}
		return why_set(
			why, -EINVAL,
			"{{%s}} names no hyperparameter: add it to hyperparameters",
			word);
	}
	if (role)
		env_hosts(role, out);
	else if (!strcmp(word, "job"))
		buf_puts(out, spec->name);
	else if (!strcmp(word, "role") || !strcmp(word, "job_name"))
		buf_puts(out, task->role->name);
	else if (!strcmp(word, "index") || !strcmp(word, "task_index"))
		buf_printf(out, "%zu", task->index);
	else if (!strcmp(word, "input"))
		buf_puts(out, "/input");
	else if (!strcmp(word, "output"))
		buf_puts(out, "/output");
	else if (!strcmp(word, "code"))
		buf_puts(out, spec->code.target ? spec->code.target : "");
	else if (!is_known_hosts(word))
		return why_set(why, -EINVAL,
			       "unknown {{%s}}: known are hp.NAME, job, role, index, "
			       "ROLE_hosts, input, output and code",
			       word);
	return 0;
}

#define WORD_MAX 64

/* The word of a "{{word}}" at the start of `text`; its length with the braces, or 0. */
static size_t parse_word(const char *text, char word[WORD_MAX])
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
	size_t lead, n;

	if (strncmp(text, "{{", 2) != 0)
		return 0;
	lead = 2 + strspn(text + 2, " ");
	n = strspn(text + lead, allowed);
	if (n == 0 || n >= WORD_MAX)
		return 0;
	memcpy(word, text + lead, n);
	word[n] = '\0';
	n += lead;
	n += strspn(text + n, " ");
	return strncmp(text + n, "}}", 2) ? 0 : n + 2;
}

int env_expand(const struct spec *spec, const struct env_task *task, const char *text,
	       struct buf *out, struct why *why)
{
	while (*text) {
		char word[WORD_MAX];
		size_t n = parse_word(text, word);
		int r;

		if (!n) {
			buf_putc(out, *text++);
			continue;
		}
		r = expand_word(spec, task, word, out, why);
		if (r < 0)
			return err_origin(r);
		text += n;
	}
	return 0;
}
