/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules lie in an array under one lock; a request that finds no rule takes it once. The
 * JSON a rule came from is kept, so that it can be shown as it was given.
 */
#include "tools/ossd_fault.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/suggest.h"
#include "fs/base/xalloc.h"

static const char *const fault_names[] = {
#define OSSD_FAULT_NAME(kind, name) name,
	OSSD_FAULTS(OSSD_FAULT_NAME)
#undef OSSD_FAULT_NAME
};
static_assert(sizeof(fault_names) / sizeof(*fault_names) == OSSD_FAULT_N, "fault names");
static_assert(OSSD_FAULT_N <= 64, "one bit each");

struct rule {
	enum ossd_fault kind;
	json_t *json;    /* as given */
	const char *op;  /* points into json; NULL: every one */
	const char *key; /* glob; NULL: every one */
	uint64_t skip, count;
	double probability;
	uint64_t seen, hits;
};

struct ossd_fault_program {
	struct lock lock; /* covers the rules and their counts */
	struct rule *rules;
	atomic_size_t rule_count; /* read without the lock: usually 0 */
};

struct ossd_fault_program *ossd_fault_program_new(void)
{
	struct ossd_fault_program *program = xcalloc(1, sizeof(*program));

	lock_init(&program->lock);
	return program;
}

static void free_rules(struct rule *rules, size_t count)
{
	for (size_t i = 0; i < count; i++)
		json_decref(rules[i].json);
	free(rules);
}

struct ossd_fault_program *ossd_fault_program_free(struct ossd_fault_program *program)
{
	if (!program)
		return NULL;
	free_rules(program->rules, program->rule_count);
	lock_fini(&program->lock);
	free(program);
	return NULL;
}

/* ---- parsing --------------------------------------------------------------------------- */

static const char *const members[] = {
	"op",     "key",   "skip",  "count", "probability", "fault",
	"status", "code",  "after", "rate",  "ms",          "retry_after",
	"body",   "bytes", "keep",  "name",  "value",
};

static int check_members(const json_t *rule, size_t number, struct why *why)
{
	const size_t n = sizeof(members) / sizeof(*members);
	const char *name, *near;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)rule, name, value)
	{
		bool known = false;

		for (size_t i = 0; i < n; i++)
			known |= !strcmp(members[i], name);
		if (known)
			continue;
		near = suggest_nearest(name, members, n, sizeof(*members));
		return why_set(why, err_origin(-EINVAL),
			       "rule %zu: unknown member \"%s\"%s%s%s", number, name,
			       near ? ", did you mean \"" : "", near ? near : "",
			       near ? "\"?" : "");
	}
	return 0;
}

static int parse_kind(const char *name, enum ossd_fault *out)
{
	for (int i = 0; name && i < OSSD_FAULT_N; i++) {
		if (!strcmp(fault_names[i], name)) {
			*out = (enum ossd_fault)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* A member that is a number >= 0; `init` when absent. */
static int take_uint(const json_t *rule, const char *name, uint64_t init, uint64_t *out)
{
	const json_t *value = json_object_get(rule, name);

	*out = init;
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EINVAL;
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

/* "*" and null both mean every one. */
static const char *pattern(const json_t *rule, const char *name)
{
	const char *text = json_string_value(json_object_get(rule, name));

	return text && strcmp(text, "*") != 0 ? text : NULL;
}

static int parse_rule(struct rule *out, json_t *rule, size_t number, struct why *why)
{
	const json_t *probability = json_object_get(rule, "probability");
	const char *name, *near;
	uint64_t unused;

	if (!json_is_object(rule))
		return why_set(why, err_origin(-EINVAL), "rule %zu: not an object",
			       number);
	if (check_members(rule, number, why) < 0)
		return -EINVAL;
	name = json_string_value(json_object_get(rule, "fault"));
	if (parse_kind(name, &out->kind) < 0) {
		near = suggest_nearest(name ? name : "", fault_names, OSSD_FAULT_N,
				       sizeof(*fault_names));
		return why_set(why, err_origin(-EINVAL),
			       "rule %zu: unknown fault \"%s\"%s%s%s", number,
			       name ? name : "", near ? ", did you mean \"" : "",
			       near ? near : "", near ? "\"?" : "");
	}
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		if (strstr("skip count after rate retry_after bytes keep", members[i]) &&
		    take_uint(rule, members[i], 0, &unused) < 0)
			return why_set(why, err_origin(-EINVAL),
				       "rule %zu: \"%s\" must be a number >= 0", number,
				       members[i]);
	take_uint(rule, "skip", 0, &out->skip);
	take_uint(rule, "count", 0, &out->count);
	out->probability = probability ? json_number_value(probability) : 1;
	out->op = pattern(rule, "op");
	out->key = pattern(rule, "key");
	out->json = json_incref(rule);
	return 0;
}

int ossd_fault_program_set(struct ossd_fault_program *program, const char *json, size_t n,
			   struct why *why)
{
	json_error_t error;
	json_t *array = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
	size_t count = json_array_size(array), parsed = 0;
	struct rule *rules, *old;
	size_t old_count;
	int r = 0;

	if (!json_is_array(array) || count > OSSD_RULES_MAX) {
		json_decref(array);
		return why_set(why, err_origin(-EINVAL), "%s",
			       count > OSSD_RULES_MAX ? "too many rules"
			       : array                ? "not a JSON array of rules"
						      : error.text);
	}
	rules = xcalloc(count + 1, sizeof(*rules));
	for (; parsed < count && r == 0; parsed += r == 0)
		r = parse_rule(&rules[parsed], json_array_get(array, parsed), parsed,
			       why);
	json_decref(array);
	if (r < 0) {
		free_rules(rules, parsed);
		return err_trace(r);
	}
	lock_take(&program->lock);
	old = program->rules;
	old_count = program->rule_count;
	program->rules = rules;
	program->rule_count = count;
	lock_drop(&program->lock);
	free_rules(old, old_count);
	return 0;
}

void ossd_fault_program_format(struct ossd_fault_program *program, struct buf *out)
{
	json_t *shown = json_array();
	char *json;

	lock_take(&program->lock);
	for (size_t i = 0; i < program->rule_count; i++) {
		const struct rule *rule = &program->rules[i];
		json_t *copy = json_copy(rule->json);

		json_object_set_new(copy, "seen", json_integer((json_int_t)rule->seen));
		json_object_set_new(copy, "hits", json_integer((json_int_t)rule->hits));
		json_array_append_new(shown, copy);
	}
	lock_drop(&program->lock);
	json = json_dumps(shown, JSON_COMPACT);
	buf_puts(out, json ? json : "[]");
	free(json);
	json_decref(shown);
}

/* ---- matching -------------------------------------------------------------------------- */

static uint64_t number(const struct rule *rule, const char *name, uint64_t init)
{
	const json_t *value = json_object_get(rule->json, name);

	return json_is_integer(value) ? (uint64_t)json_integer_value(value) : init;
}

static const char *text(const struct rule *rule, const char *name)
{
	return json_string_value(json_object_get(rule->json, name));
}

static void set_answer(struct ossd_faults *f, const struct rule *rule, int status,
		       const char *code)
{
	const char *body = text(rule, "body"), *given = text(rule, "code");

	f->status = (int)number(rule, "status", (uint64_t)status);
	snprintf(f->code, sizeof(f->code), "%s", given ? given : code);
	f->retry_after_s = number(rule, "retry_after", 0);
	free(f->body);
	f->body = body ? xstrdup(body) : NULL;
}

static void add_header(struct ossd_faults *f, const struct rule *rule)
{
	const char *name = text(rule, "name"), *value = text(rule, "value");

	if (!name || f->header_count == OSSD_FAULT_HEADERS_MAX)
		return;
	f->header_names[f->header_count] = xstrdup(name);
	f->header_values[f->header_count++] = xstrdup(value ? value : "");
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a == 0 || b < a ? b : a;
}

static void apply(struct ossd_faults *f, const struct rule *rule)
{
	f->set |= 1ull << rule->kind;
	switch (rule->kind) {
	case OSSD_FAULT_STATUS:
		set_answer(f, rule, 503, "ServiceUnavailable");
		break;
	case OSSD_FAULT_COMMIT_THEN_500:
		set_answer(f, rule, 500, "InternalError");
		break;
	case OSSD_FAULT_EXPIRED_TOKEN:
		set_answer(f, rule, 403, "SecurityTokenExpired");
		break;
	case OSSD_FAULT_RESET:
		f->reset_after = number(rule, "after", 0);
		break;
	case OSSD_FAULT_RESET_UPLOAD:
		f->reset_upload_after = number(rule, "after", 0);
		break;
	case OSSD_FAULT_TRUNCATE:
		f->truncate_after = number(rule, "after", 0);
		break;
	case OSSD_FAULT_EXTRA:
		f->extra = number(rule, "bytes", 1);
		break;
	case OSSD_FAULT_FLIP:
		f->flip_at = number(rule, "after", UINT64_MAX);
		break;
	case OSSD_FAULT_SLOW:
		f->slow_rate = least(f->slow_rate, number(rule, "rate", 1024));
		break;
	case OSSD_FAULT_STALL:
		f->stall_after = number(rule, "after", 0);
		f->stall_ms = number(rule, "ms", 0);
		break;
	case OSSD_FAULT_LATENCY:
		f->latency_ms += number(rule, "ms", 100);
		break;
	case OSSD_FAULT_BANDWIDTH:
		f->rate = least(f->rate, number(rule, "rate", 1 << 20));
		break;
	case OSSD_FAULT_SKEW:
		f->skew_ms = (int64_t)number(rule, "ms", 20 * 60 * 1000);
		break;
	case OSSD_FAULT_SHORT_DELETE:
		f->keep = number(rule, "keep", 1);
		break;
	case OSSD_FAULT_HEADER:
		add_header(f, rule);
		break;
	default:
		break; /* the bit says it all */
	}
}

static bool acts(struct rule *rule, const char *op, const char *key)
{
	if ((rule->op && fnmatch(rule->op, op, 0) != 0) ||
	    (rule->key && fnmatch(rule->key, key, 0) != 0))
		return false;
	if (rule->seen++ < rule->skip || (rule->count && rule->hits >= rule->count))
		return false;
	if (rule->probability < 1 &&
	    (double)clock_random() / 18446744073709551616.0 >= rule->probability)
		return false;
	rule->hits++;
	return true;
}

void ossd_fault_match(struct ossd_fault_program *program, const char *op, const char *key,
		      struct ossd_faults *out)
{
	*out = (struct ossd_faults){0};
	if (program->rule_count == 0)
		return;
	lock_scope(&program->lock);
	for (size_t i = 0; i < program->rule_count; i++)
		if (acts(&program->rules[i], op, key))
			apply(out, &program->rules[i]);
}

void ossd_faults_fini(struct ossd_faults *faults)
{
	free(faults->body);
	for (int i = 0; i < faults->header_count; i++) {
		free(faults->header_names[i]);
		free(faults->header_values[i]);
	}
	*faults = (struct ossd_faults){0};
}
