/* SPDX-License-Identifier: Apache-2.0 */
/* The mount table, and directories whose later mounts appear inside containers. */
#pragma once

#include <stdbool.h>

struct why;

struct mnt_line {
	const char *point; /* where it is mounted */
	const char *fstype;
	const char *options; /* of the file system, comma-separated */
	bool shared;         /* hands mounts on to its peers */
	bool slave;          /* receives them */
};

/* Calls `fn` for every mount of our namespace, in the order of mounting; it may not
 * keep the strings. */
void mnt_each(void (*fn)(const struct mnt_line *m, void *arg), void *arg);

/* Makes `dir` (absolute, existing, not a link) a mount of its own, shared: what is
 * mounted below it from now on reaches every container that binds it with `slave`. Doing
 * it twice is doing it once. */
int mnt_share(const char *dir, struct why *why) __attribute__((warn_unused_result));

/* Takes `dir` and everything below it out of the mount table, lazily, so that a dead
 * FUSE server cannot hold it. Nothing mounted there: 0. The directory stays. */
int mnt_unshare(const char *dir, struct why *why) __attribute__((warn_unused_result));

/* Is `dir` itself a mount point? Reads the mount table; never touches the mount, which
 * may hang. */
bool mnt_is_mounted(const char *dir);

/* Does the mount that holds `dir` hand later mounts on (a shared or a slave mount)? */
bool mnt_propagates(const char *dir);
