/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of a container, whatever mixture of version 1 and 2 the host has: which
 * limits it can enforce, what became of them, and their removal. */
#pragma once

#include <stdbool.h>

struct why;

struct runc_cgroup_support {
	bool memory, swap, cpu, pids;
};

/* What the kernel offers. Fails with a sentence where no hierarchy is mounted. */
int runc_cgroup_probe(struct runc_cgroup_support *s, struct why *why)
	__attribute__((warn_unused_result));

/* Did the memory limit kill a process of the group "/<name>"? */
bool runc_cgroup_oom(const char *name);

/* Kills what is left in "/<name>" and removes it from every hierarchy; waits up to
 * RUNC_CGROUP_REMOVE_MS for the kernel to let go of the dead. */
#define RUNC_CGROUP_REMOVE_MS 5000
int runc_cgroup_remove(const char *name, struct why *why)
	__attribute__((warn_unused_result));
