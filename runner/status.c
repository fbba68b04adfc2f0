/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/status.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/base/xalloc.h"

#define STATUS_NAME "status.json"
#define STATUS_SIZE_MAX (1 << 20)

static const char *const phase_names[] = {"preparing", "starting", "running", "stopping",
					  "succeeded", "failed",   "stopped"};
static const char *const replica_names[] = {"pending", "created", "running", "exited",
					    "stopped"};
static const char *const output_names[] = {"none", "open", "stored", "pending"};
static_assert(sizeof(phase_names) / sizeof(*phase_names) == JOB_PHASE_N, "phases");
static_assert(sizeof(replica_names) / sizeof(*replica_names) == REPLICA_STATE_N,
	      "states");
static_assert(sizeof(output_names) / sizeof(*output_names) == OUTPUT_STATE_N, "outputs");

const char *job_phase_name(enum job_phase phase)
{
	return phase_names[phase];
}

const char *replica_state_name(enum replica_state state)
{
	return replica_names[state];
}

const char *output_state_name(enum output_state state)
{
	return output_names[state];
}

void status_init(struct status *s, const struct spec *spec)
{
	size_t at = 0;

	*s = (struct status){.first_failure = -1};
	snprintf(s->name, sizeof(s->name), "%s", spec->name);
	snprintf(s->framework, sizeof(s->framework), "%s",
		 spec_framework_name(spec->framework));
	s->replica_count = spec_replica_count(spec);
	s->replicas = xcalloc(s->replica_count, sizeof(*s->replicas));
	for (size_t i = 0; i < spec->role_count; i++)
		for (size_t j = 0; j < spec->roles[i].count; j++, at++) {
			snprintf(s->replicas[at].role, sizeof(s->replicas[at].role), "%s",
				 spec->roles[i].name);
			s->replicas[at].index = (unsigned int)j;
		}
}

void status_fini(struct status *s)
{
	free(s->replicas);
	*s = (struct status){0};
}

bool status_is_over(const struct status *s)
{
	return s->phase >= JOB_SUCCEEDED;
}

/* ---- writing ----------------------------------------------------------------------------- */

static void put_time(struct buf *b, const char *name, int64_t ms)
{
	if (ms)
		json_put_int(b, name, ms);
	else
		json_put_string(b, name, NULL);
}

static void put_replica(struct buf *b, const struct status_replica *r)
{
	json_begin_object(b, NULL);
	json_put_string(b, "role", r->role);
	json_put_uint(b, "index", r->index);
	json_put_string(b, "state", replica_names[r->state]);
	if (r->state >= REPLICA_EXITED)
		json_put_int(b, "exit_code", r->exit_code);
	else
		json_put_string(b, "exit_code", NULL);
	json_put_bool(b, "oom", r->oom);
	put_time(b, "started_ms", r->started_ms);
	put_time(b, "ended_ms", r->ended_ms);
	json_end_object(b);
}

void status_format(const struct status *s, bool lost, struct buf *b)
{
	json_begin_object(b, NULL);
	json_put_string(b, "name", s->name);
	json_put_string(b, "phase", lost ? "lost" : phase_names[s->phase]);
	json_put_string(b, "framework", s->framework);
	json_put_string(b, "commit", *s->commit ? s->commit : NULL);
	put_time(b, "started_ms", s->started_ms);
	put_time(b, "ended_ms", s->ended_ms);
	if (status_is_over(s))
		json_put_int(b, "exit_code", s->exit_code);
	else
		json_put_string(b, "exit_code", NULL);
	json_put_int(b, "first_failure", s->first_failure);
	json_put_string(b, "message", s->message.text);
	json_put_string(b, "output", output_names[s->output]);
	json_put_string(b, "output_message", s->output_message.text);
	json_begin_array(b, "replicas");
	for (size_t i = 0; i < s->replica_count; i++)
		put_replica(b, &s->replicas[i]);
	json_end_array(b);
	json_end_object(b);
}

int status_write(const struct status *s, int dirfd)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	int r;

	status_format(s, false, &b);
	buf_putc(&b, '\n');
	r = buf_error(&b);
	if (r == 0)
		r = io_replace_file(dirfd, STATUS_NAME, b.data, b.len, 0600);
	return err_trace(r);
}

/* ---- reading ----------------------------------------------------------------------------- */

static void get_text(const json_t *object, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, name));

	snprintf(out, size, "%s", text ? text : "");
}

static int64_t get_int(const json_t *object, const char *name, int64_t missing)
{
	const json_t *value = json_object_get(object, name);

	return json_is_integer(value) ? json_integer_value(value) : missing;
}

/* The index of the word in the table, or -1. */
static int get_word(const json_t *object, const char *name, const char *const *names,
		    size_t count)
{
	const char *text = json_string_value(json_object_get(object, name));

	for (size_t i = 0; text && i < count; i++)
		if (!strcmp(names[i], text))
			return (int)i;
	return -1;
}

static int get_replica(const json_t *object, struct status_replica *r)
{
	int state = get_word(object, "state", replica_names, REPLICA_STATE_N);

	if (state < 0)
		return -EINVAL;
	get_text(object, "role", r->role, sizeof(r->role));
	r->index = (unsigned int)get_int(object, "index", 0);
	r->state = (enum replica_state)state;
	r->exit_code = (int)get_int(object, "exit_code", 0);
	r->oom = json_is_true(json_object_get(object, "oom"));
	r->started_ms = get_int(object, "started_ms", 0);
	r->ended_ms = get_int(object, "ended_ms", 0);
	return 0;
}

static int get_status(const json_t *root, struct status *s)
{
	const json_t *replicas = json_object_get(root, "replicas");
	int phase = get_word(root, "phase", phase_names, JOB_PHASE_N);
	int output = get_word(root, "output", output_names, OUTPUT_STATE_N);

	*s = (struct status){0};
	if (phase < 0 || output < 0 || !json_is_array(replicas) ||
	    json_array_size(replicas) > SPEC_REPLICAS_MAX)
		return err_origin(-EINVAL);
	s->phase = (enum job_phase)phase;
	s->output = (enum output_state)output;
	get_text(root, "name", s->name, sizeof(s->name));
	get_text(root, "framework", s->framework, sizeof(s->framework));
	get_text(root, "commit", s->commit, sizeof(s->commit));
	get_text(root, "message", s->message.text, sizeof(s->message.text));
	get_text(root, "output_message", s->output_message.text,
		 sizeof(s->output_message.text));
	s->started_ms = get_int(root, "started_ms", 0);
	s->ended_ms = get_int(root, "ended_ms", 0);
	s->exit_code = (int)get_int(root, "exit_code", 0);
	s->replica_count = json_array_size(replicas);
	s->first_failure = (int)get_int(root, "first_failure", -1);
	if (s->first_failure < -1 || s->first_failure >= (int)s->replica_count)
		return err_origin(-EINVAL);
	s->replicas = xcalloc(s->replica_count, sizeof(*s->replicas));
	for (size_t i = 0; i < s->replica_count; i++) {
		int r = get_replica(json_array_get(replicas, i), &s->replicas[i]);

		if (r < 0)
			return err_origin(r);
	}
	return 0;
}

int status_read(int dirfd, struct status *out)
{
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	json_t *root;
	int r;

	r = io_read_file(dirfd, STATUS_NAME, STATUS_SIZE_MAX, &text);
	if (r < 0)
		return err_trace(r);
	root = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES,
			  NULL);
	if (!json_is_object(root))
		r = err_origin(-EINVAL);
	else
		r = get_status(root, out);
	if (r < 0 && json_is_object(root))
		status_fini(out);
	json_decref(root);
	return r;
}
