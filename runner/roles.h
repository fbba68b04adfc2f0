/* SPDX-License-Identifier: Apache-2.0 */
/* Which roles a framework knows, and what the runner must know of each. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct spec;
struct spec_role;
struct mistakes;

/* Replicas of all roles are numbered in this order, and so are ranks: the leading role,
 * the workers, then services. */
void roles_sort(struct spec *spec);

/* Fills service and ports where the file does not say. */
void roles_fill(struct spec *spec);

/* Roles the framework does not know, counts that cannot work. */
void roles_check(const struct spec *spec, struct mistakes *m);

/* NULL when the job has no such role. */
const struct spec_role *roles_find(const struct spec *spec, const char *name);

/* The role whose replica 0 leads: chief, master, or the first that is no service. */
const struct spec_role *roles_leader(const struct spec *spec);
