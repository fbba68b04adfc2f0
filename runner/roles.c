/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/roles.h"

#include <stdlib.h>
#include <string.h>

#include "fs/base/exit.h"
#include "fs/base/suggest.h"
#include "runner/spec.h"

#define TF (1u << FRAMEWORK_TENSORFLOW | 1u << FRAMEWORK_KERAS)
#define PYTORCH (1u << FRAMEWORK_PYTORCH)
#define MXNET (1u << FRAMEWORK_MXNET)

struct role_rule {
	const char *name;
	unsigned int frameworks; /* that know it; python and custom take any name */
	unsigned int order;
	unsigned int max; /* replicas; 0: any number */
	bool service;
};

#define ORDER_OTHER 3 /* roles with names of the user's own */

static const struct role_rule rules[] = {
	{"chief", TF, 0, 1, false},
	{"master", TF | PYTORCH, 1, 1, false},
	{"worker", TF | PYTORCH | MXNET, 2, 0, false},
	{"scheduler", MXNET, 4, 1, true},
	{"server", MXNET, 5, 0, true},
	{"ps", TF, 6, 0, true},
	{"evaluator", TF, 7, 1, true},
};

#define RULE_COUNT (sizeof(rules) / sizeof(*rules))

static const struct role_rule *find_rule(const char *name)
{
	for (size_t i = 0; i < RULE_COUNT; i++)
		if (!strcmp(rules[i].name, name))
			return &rules[i];
	return NULL;
}

static bool takes_any_role(const struct spec *spec)
{
	return spec->framework == FRAMEWORK_PYTHON || spec->framework == FRAMEWORK_CUSTOM;
}

static unsigned int order_of(const struct spec_role *role)
{
	const struct role_rule *rule = find_rule(role->name);

	if (rule && rule->service == (bool)role->service)
		return rule->order;
	return role->service ? RULE_COUNT + 1 : ORDER_OTHER;
}

/* Insertion: stable, so that roles of one order stay as the file has them. */
void roles_sort(struct spec *spec)
{
	for (size_t i = 1; i < spec->role_count; i++) {
		struct spec_role role = spec->roles[i];
		size_t j = i;

		for (; j > 0 && order_of(&spec->roles[j - 1]) > order_of(&role); j--)
			spec->roles[j] = spec->roles[j - 1];
		spec->roles[j] = role;
	}
}

static uint64_t default_port(const struct spec *spec)
{
	switch (spec->framework) {
	case FRAMEWORK_PYTORCH:
		return 23456;
	case FRAMEWORK_MXNET:
		return 9091;
	default:
		return 2222;
	}
}

void roles_fill(struct spec *spec)
{
	for (size_t i = 0; i < spec->role_count; i++) {
		struct spec_role *role = &spec->roles[i];
		const struct role_rule *rule = find_rule(role->name);

		if (role->service < 0)
			role->service = rule && rule->service;
		if (!role->port_count)
			role->ports[role->port_count++] = default_port(spec);
	}
}

const struct spec_role *roles_find(const struct spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->role_count; i++)
		if (!strcmp(spec->roles[i].name, name))
			return &spec->roles[i];
	return NULL;
}

const struct spec_role *roles_leader(const struct spec *spec)
{
	for (size_t i = 0; i < spec->role_count; i++)
		if (!spec->roles[i].service)
			return &spec->roles[i];
	return NULL;
}

#define refuse(m, spec, role, ...)                                                       \
	mistakes_add((m), spec_place((spec), "roles.%s", (role)), EXIT_USAGE, __VA_ARGS__)

static void check_known(const struct spec *spec, const struct spec_role *role,
			struct mistakes *m)
{
	const struct role_rule *rule = find_rule(role->name);
	const char *names[RULE_COUNT], *near;
	char all[128] = "";
	size_t count = 0;

	if (takes_any_role(spec) || (rule && rule->frameworks & 1u << spec->framework))
		return;
	for (size_t i = 0; i < RULE_COUNT; i++) {
		if (!(rules[i].frameworks & 1u << spec->framework))
			continue;
		names[count++] = rules[i].name;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
			 *all ? ", " : "", rules[i].name);
	}
	near = suggest_nearest(role->name, names, count, sizeof(*names));
	if (near)
		refuse(m, spec, role->name, "%s has no role \"%s\", did you mean \"%s\"?",
		       spec_framework_name(spec->framework), role->name, near);
	else
		refuse(m, spec, role->name, "%s has no role \"%s\": its roles are %s",
		       spec_framework_name(spec->framework), role->name, all);
}

static uint64_t count_of(const struct spec *spec, const char *name)
{
	const struct spec_role *role = roles_find(spec, name);

	return role ? role->count : 0;
}

static void check_sets(const struct spec *spec, struct mistakes *m)
{
	bool leader = count_of(spec, "chief") || count_of(spec, "master");

	if (spec->chief == SPEC_CHIEF_WORKER0 && leader)
		mistakes_add(m, spec_place(spec, "chief"), EXIT_USAGE,
			     "chief: worker0 and a role of its own for the chief exclude "
			     "each other: remove one");
	switch (spec->framework) {
	case FRAMEWORK_TENSORFLOW:
	case FRAMEWORK_KERAS:
		if (count_of(spec, "chief") && count_of(spec, "master"))
			refuse(m, spec, "master",
			       "chief and master mean the same: give one");
		return;
	case FRAMEWORK_PYTORCH:
		if (!count_of(spec, "master") && count_of(spec, "worker") > 1)
			refuse(m, spec, "worker",
			       "several pytorch workers need a master to meet at: add "
			       "master: {count: 1} and take one worker away");
		return;
	case FRAMEWORK_MXNET:
		if (!count_of(spec, "scheduler") != !count_of(spec, "server"))
			refuse(m, spec, "server",
			       "a distributed mxnet job needs both scheduler and server");
		return;
	default:
		return;
	}
}

void roles_check(const struct spec *spec, struct mistakes *m)
{
	bool runs_anything = false;

	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		const struct role_rule *rule = find_rule(role->name);

		check_known(spec, role, m);
		if (!takes_any_role(spec) && rule && rule->max && role->count > rule->max)
			refuse(m, spec, role->name, "roles.%s.count must be %u",
			       role->name, rule->max);
		if (role->count == 0 && !role->service)
			mistakes_add(
				m, spec_place(spec, "roles.%s.count", role->name),
				EXIT_USAGE,
				"roles.%s.count is 0: a job needs at least one %s, write "
				"1 or more",
				role->name, role->name);
		runs_anything |= !role->service;
	}
	if (!runs_anything)
		mistakes_add(m, spec_place(spec, "roles"), EXIT_USAGE,
			     "no role does the work: add worker: {count: 1}");
	if (spec_replica_count(spec) > SPEC_REPLICAS_MAX)
		mistakes_add(m, spec_place(spec, "roles"), EXIT_USAGE,
			     "%zu replicas: at most %d can run on one machine",
			     spec_replica_count(spec), SPEC_REPLICAS_MAX);
	check_sets(spec, m);
}
