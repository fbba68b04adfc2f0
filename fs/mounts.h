/* SPDX-License-Identifier: Apache-2.0 */
/* Where mounts are found: the run directory with a control socket per mount, and the
 * kernel's table. Nothing here touches a mount itself, so a hung one cannot hang it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct why;

#define MOUNTS_TYPE "fuse.sluice"
#define MOUNTS_SOCKET_NAME_MAX 32

/* SLUICE_RUN_DIR, else /run/sluice for root, else $XDG_RUNTIME_DIR/sluice. */
int mounts_run_dir(char *out, size_t size, struct why *why);

/* Name of the control socket of a mount point, inside the run directory. */
void mounts_socket_name(const char *dir, char out[MOUNTS_SOCKET_NAME_MAX]);

/* The absolute path of `given`, links followed except in a last component that exists as
 * a mount point already. */
int mounts_path(const char *given, char out[PATH_MAX], struct why *why);

struct mounts_entry {
	char dir[PATH_MAX];
	char source[1280];
	char type[64];
	unsigned int minor; /* of the device: names the FUSE connection */
	unsigned int id;    /* of the mount in this name space */
	unsigned int user;  /* who mounted it, for mounts of ours */
	bool read_only;
};

enum mounts_condition {
	MOUNTS_E_NONE = 1,
	MOUNTS_E_BUSY
};

/* The uppermost mount on exactly this directory. MOUNTS_E_NONE. */
int mounts_find(const char *dir, struct mounts_entry *out);

/* Each mount of ours in this mount name space; a non-zero return ends the walk. */
typedef int (*mounts_fn)(void *arg, const struct mounts_entry *entry);
int mounts_each(mounts_fn fn, void *arg);

/* Ends the connection of a mount whose daemon does not answer: every process that waits
 * for it gets an error. Needs the owner's or root's rights. In two steps for who takes the
 * mount away in between: its number may be another mount's as soon as it is free, and what
 * was opened stays this one's. Opens only for a mount that is still there.
 * mounts_abort_open() returns the descriptor, the caller's to close. -ENOENT. */
int mounts_abort_open(const struct mounts_entry *entry);
/* Of a connection that is known to live, mounted here or not. */
int mounts_abort_open_connection(unsigned int minor);
int mounts_abort(int fd);

/* Takes the uppermost mount on `dir` out of the name space; lazily: also while it is in use,
 * by who keeps it then; else MOUNTS_E_BUSY. 0 also when nothing of ours is there any more.
 * -EPERM: it is another user's. */
int mounts_remove(const char *dir, bool lazily);

/* Where else a connection is mounted, up to three: directories of this mount name space
 * ("/mnt"), and of others, by one of their processes ("1234 python3"), or "". Escaped as
 * log_escape() does. */
void mounts_elsewhere(unsigned int minor, char *out, size_t size);

/* Names of up to three processes that use the mount ("1234 python3, ..."), or ""; escaped as
 * log_escape() does. */
void mounts_users(const char *dir, char *out, size_t size);
