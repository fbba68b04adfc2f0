/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container engine must do. All calls block; errors carry a sentence.
 *
 * A container is addressed by its name, "<job>-<role>-<index>", which is unique within one
 * run directory ($SLUICE_RUN_DIR). Every call is idempotent where it removes something: a
 * runner that died half-way is followed by one that removes everything again.
 *
 * Containers do not outlive the engine that created them: when the runner dies, however it
 * dies, they are killed. network_create, create, start and wait are calls of one and the
 * same process; signal, state and the removals may come from any.
 *
 * Threads: wait() runs in a thread of its own per container while another thread calls
 * signal(), state() and remove() for the same or other containers; remove() makes a wait()
 * for the same container return. create() and start() for different containers may run
 * at the same time. All other calls come from one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"

struct engine_mount {
	const char *source; /* absolute path on the host */
	const char *target; /* absolute path in the container */
	bool read_only;
	/* Later mounts below source appear inside (rslave); source must then lie in a
	 * directory that mnt_share() made so (runner/mnt.h). */
	bool slave;
};

/* A symbolic link made in the container's root before it starts. With the parent of a FUSE
 * mount bound (slave) and a link /input to it, a mount that was lost and made again
 * appears in the running container; with the mount point itself bound it never does. */
struct engine_link {
	const char *path; /* absolute; replaces what the image has there */
	const char *to;
};

struct engine_container {
	const char *job;      /* groups containers: network, removal */
	const char *name;     /* "<job>-<role>-<index>" */
	const char *hostname; /* "<role>-<index>": the job's other containers know it */
	const char *image; /* "host", or an absolute directory with a root file system */
	const char *const *argv;
	const char *const *env; /* "NAME=value": all of it, nothing is inherited */
	const char *workdir;    /* absolute, in the container; made when missing */
	const struct engine_mount *mounts;
	size_t mount_count;
	const struct engine_link *links;
	size_t link_count;
	uint64_t memory_bytes; /* 0: no limit */
	uint64_t cpu_millis;   /* 1000 = one core; 0: no limit */
	uint64_t pids_max;     /* 0: 4096 */
	/* The engine's own files of this container: exists, empty, 0700; never visible
	 * in the container. */
	const char *state_dir;
	/* NULL, or absolute paths that image "host" must not show, up to a NULL; on top of
	 * the engine's own list (home directories, /etc files only root may read ...). */
	const char *const *hide;
	int log_fd; /* stdout and stderr go here (borrowed) */
};

struct engine_peer { /* one line of the job's name table */
	const char *hostname;
	char address[64]; /* filled by network_create */
};

enum {
	ENGINE_E_TIMEOUT = 1
};

enum engine_state {
	ENGINE_ABSENT,
	ENGINE_CREATED,
	ENGINE_RUNNING,
	ENGINE_EXITED
};

struct engine;

struct engine_ops {
	const char *name;
	/* Can this engine work here? The sentence says what to install or change. */
	int (*probe)(struct engine *e, struct why *why);
	/* Is the image there and usable? */
	int (*check_image)(struct engine *e, const char *image, struct why *why);
	/* One network for the job, an address for each peer. state_dir exists, 0700. */
	int (*network_create)(struct engine *e, const char *job, const char *state_dir,
			      struct engine_peer *peers, size_t count, struct why *why);
	int (*network_remove)(struct engine *e, const char *job, const char *state_dir,
			      struct why *why);
	/* Everything up to, but not including, running the command. After a failure
	 * remove() is still to be called. */
	int (*create)(struct engine *e, const struct engine_container *c,
		      struct why *why);
	int (*start)(struct engine *e, const char *name, struct why *why);
	/* Waits for the end of a started container; ENGINE_E_TIMEOUT after timeout_ms
	 * (UINT64_MAX: for ever). *status is what the command exited with, 128+n for signal
	 * n, 127 when there is no such command, 126 when it cannot be executed; *oom
	 * whether the memory limit killed it. May be asked again after the end. */
	int (*wait)(struct engine *e, const char *name, uint64_t timeout_ms, int *status,
		    bool *oom, struct why *why);
	/* To the command and what it started, with the usual effect: SIGTERM ends one
	 * that has no handler, although it may be process 1 of its namespace. 0 also when
	 * the container has ended. */
	int (*signal)(struct engine *e, const char *name, int signal, struct why *why);
	int (*state)(struct engine *e, const char *name, enum engine_state *state);
	/* Kills what still runs of it and removes every trace (mounts, cgroup, files).
	 * state_dir itself stays, empty. */
	int (*remove)(struct engine *e, const char *name, const char *state_dir,
		      struct why *why);
	void (*free)(struct engine *e);
};

/* First member of every engine's own struct. */
struct engine {
	const struct engine_ops *ops;
};

/* "runc" (default when NULL). The fake one records calls: for tests and dry runs. */
int engine_open(const char *kind, struct engine **out, struct why *why);
struct engine *engine_free(struct engine *e);
