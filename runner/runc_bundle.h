/* SPDX-License-Identifier: Apache-2.0 */
/* A container in runc's words: config.json of the OCI runtime specification 1.0. */
#pragma once

#include <stdbool.h>

#include "runner/runc_cgroup.h"

struct buf;
struct engine_container;

struct runc_bundle {
	const struct engine_container *container;
	const char *rootfs; /* absolute, in the mount namespace in which runc runs */
	const char *hosts;  /* the job's file of names */
	const char *cgroup; /* "/name" */
	struct runc_cgroup_support support;
	bool seccomp;
};

/* Appends the text. Pure but for the limit of open files, which a container cannot raise
 * above ours. */
void runc_bundle_format(const struct runc_bundle *bundle, struct buf *out);
