/* SPDX-License-Identifier: Apache-2.0 */
/* From the description of a container to one that waits to be started. */
#pragma once

#include "runner/runc_cgroup.h"

struct engine_container;
struct runc;
struct runc_containers;
struct runc_net;
struct why;

struct runc_create {
	const struct runc *runc;
	const struct runc_cgroup_support *support;
	const struct runc_net *net; /* NULL: the job has none, which is refused */
	struct runc_containers *list;
};

/* What cannot be created at all, before anything is done. */
int runc_create_check(const struct runc_create *r, const struct engine_container *c,
		      struct why *why) __attribute__((warn_unused_result));

/* Adds it to the list. After a failure its files and what runc made of it are still there. */
int runc_create_run(const struct runc_create *r, const struct engine_container *c,
		    struct why *why) __attribute__((warn_unused_result));
