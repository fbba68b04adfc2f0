/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as text for people and as JSON. */
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "runner/env.h"
#include "runner/plan.h"

static void print_escaped(FILE *out, const char *text)
{
	char safe[4096];

	fputs(log_escape(safe, sizeof(safe), text), out);
}

static const struct gateway_command *command_of(const struct plan *p,
						const struct step *step)
{
	if (step->kind == STEP_MOUNT_INPUT)
		return &p->mount_input;
	if (step->kind == STEP_MOUNT_OUTPUT)
		return &p->mount_output;
	return NULL;
}

static void print_words(FILE *out, char *const *words)
{
	for (; *words; words++) {
		fputc(' ', out);
		print_escaped(out, *words);
	}
	fputc('\n', out);
}

static void print_step(const struct plan *p, const struct step *step, size_t number,
		       FILE *out)
{
	const struct gateway_command *command = command_of(p, step);

	fprintf(out, "%4zu  ", number);
	print_escaped(out, step->what);
	fputc('\n', out);
	if (command) {
		fprintf(out, "        $");
		print_words(out, command->words);
	}
	if (step->kind == STEP_START) {
		fprintf(out, "        $");
		print_words(out, p->replicas[step->replica].argv);
	}
}

void plan_print(const struct plan *p, FILE *out)
{
	fprintf(out, "job %s: %zu containers, framework %s\n\n", p->spec->name,
		p->replica_count, spec_framework_name(p->spec->framework));
	for (size_t i = 0; i < p->step_count; i++)
		print_step(p, &p->steps[i], i + 1, out);
	fprintf(out, "\nThen, and after any failure or stop, backwards:\n");
	for (size_t i = p->step_count; i-- > 0;) {
		if (!p->steps[i].undo)
			continue;
		fprintf(out, "%4zu  ", i + 1);
		print_escaped(out, p->steps[i].undo);
		fputc('\n', out);
	}
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void put_words(struct buf *b, const char *name, char *const *words)
{
	json_begin_array(b, name);
	for (; words && *words; words++)
		json_put_string(b, NULL, *words);
	json_end_array(b);
}

static void put_mounts(struct buf *b, const struct engine_container *c)
{
	json_begin_array(b, "mounts");
	for (size_t i = 0; i < c->mount_count; i++) {
		json_begin_object(b, NULL);
		json_put_string(b, "source", c->mounts[i].source);
		json_put_string(b, "target", c->mounts[i].target);
		json_put_bool(b, "read_only", c->mounts[i].read_only);
		json_put_bool(b, "slave", c->mounts[i].slave);
		json_end_object(b);
	}
	json_end_array(b);
}

static void put_container(const struct plan *p, const struct plan_replica *r,
			  struct buf *b)
{
	const struct env_task task = {.role = r->role, .index = r->index};
	struct env env;

	env_build(p->spec, &task, &env);
	json_begin_object(b, NULL);
	json_put_string(b, "name", r->name);
	json_put_string(b, "role", r->role->name);
	json_put_uint(b, "index", r->index);
	json_put_string(b, "hostname", r->hostname);
	json_put_string(b, "image", r->container.image);
	json_put_string(b, "workdir", r->container.workdir);
	json_put_uint(b, "memory_bytes", r->container.memory_bytes);
	json_put_uint(b, "cpu_millis", r->container.cpu_millis);
	put_words(b, "command", r->argv);
	put_words(b, "env", env.items);
	put_mounts(b, &r->container);
	json_end_object(b);
	env_fini(&env);
}

void plan_format_json(const struct plan *p, struct buf *b)
{
	json_begin_object(b, NULL);
	json_put_string(b, "job", p->spec->name);
	json_put_string(b, "framework", spec_framework_name(p->spec->framework));
	json_put_string(b, "engine", p->spec->engine ? p->spec->engine : "runc");
	json_begin_array(b, "steps");
	for (size_t i = 0; i < p->step_count; i++) {
		const struct step *step = &p->steps[i];
		const struct gateway_command *command = command_of(p, step);

		json_begin_object(b, NULL);
		json_put_string(b, "kind", step_kind_name(step->kind));
		json_put_string(b, "what", step->what);
		json_put_string(b, "undo", step->undo);
		if (command)
			put_words(b, "command", command->words);
		if (step->kind == STEP_CREATE || step->kind == STEP_START)
			json_put_string(b, "container", p->replicas[step->replica].name);
		json_end_object(b);
	}
	json_end_array(b);
	json_begin_array(b, "containers");
	for (size_t i = 0; i < p->replica_count; i++)
		put_container(p, &p->replicas[i], b);
	json_end_array(b);
	json_end_object(b);
}
