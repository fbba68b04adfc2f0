/* SPDX-License-Identifier: Apache-2.0 */
/* The containers that this process has created, and what became of them. All calls are safe
 * from several threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/base/lock.h"

struct runc_container; /* counted references */

struct runc_containers {
	struct lock lock; /* the list, the counts, and what containers became */
	struct runc_container *first;
};

void runc_containers_init(struct runc_containers *list);
void runc_containers_fini(struct runc_containers *list); /* when empty */

/* `cgroup` tells after the end whether memory ran out; names are copied, the socket is
 * taken, and so is the keeper's pid: whoever takes the container waits for it. */
void runc_container_add(struct runc_containers *list, const char *name,
			const char *cgroup, pid_t keeper, int sock);

/* A reference, or NULL. */
struct runc_container *runc_container_get(struct runc_containers *list, const char *name);
void runc_container_put(struct runc_containers *list, struct runc_container *c);

/* Off the list: the list's reference becomes the caller's. name NULL: any; NULL: none. */
struct runc_container *runc_container_take(struct runc_containers *list,
					   const char *name);

/* Kills it if it lives; returns when its keeper has ended. Only after take. */
void runc_container_end(struct runc_container *c);

void runc_container_set_started(struct runc_containers *list, struct runc_container *c);

struct runc_container_fate {
	bool started, exited;
	int status; /* these two when exited */
	bool oom;
};

/* Waits up to timeout_ms (UINT64_MAX: for ever) for its end, and tells where it stands. */
struct runc_container_fate runc_container_wait(struct runc_containers *list,
					       struct runc_container *c,
					       uint64_t timeout_ms);
