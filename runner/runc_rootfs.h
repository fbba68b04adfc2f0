/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root file system of a container: an overlay with the image as its read-only lower
 * layer, so that the image stays as it is. The overlay is mounted in a mount namespace
 * of its own that only a descriptor holds: the host's mount table never shows it, and it is
 * gone when the descriptor and the container are.
 *
 * Of image "host" only programs and their configuration are shown: /usr, /opt, /etc and the
 * links beside them. Every other directory is empty and the container's own. In
 * /etc whatever not everybody may read is absent; so are the paths in `hide` (of
 * struct engine_container) and all of the runner's own.
 */
#pragma once

#include <limits.h>

struct engine_container;
struct why;

struct runc_rootfs {
	int mount_ns;        /* the namespace that has it; the caller closes it */
	char path[PATH_MAX]; /* where, in that namespace */
};

#define RUNC_INIT_PATH "/.sluice-init" /* the container's process 1, in the overlay */

/* Uses c->state_dir/layer and c->state_dir/rootfs. `run_dir` is hidden, too. */
int runc_rootfs_new(struct runc_rootfs *out, const struct engine_container *c,
		    const char *run_dir, struct why *why)
	__attribute__((warn_unused_result));

/* "host", or an absolute directory that holds a root file system. */
int runc_rootfs_check(const char *image, struct why *why)
	__attribute__((warn_unused_result));
