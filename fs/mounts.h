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
	bool read_only;
};

/* The uppermost mount on exactly this directory. */
enum {
	MOUNTS_E_NONE = 1
};
int mounts_find(const char *dir, struct mounts_entry *out);

/* Each mount of ours in this mount name space; a non-zero return ends the walk. */
typedef int (*mounts_fn)(void *arg, const struct mounts_entry *entry);
int mounts_each(mounts_fn fn, void *arg);

/* Ends the connection of a mount whose daemon does not answer: every process that waits
 * for it gets an error. Needs the owner's or root's rights. */
int mounts_abort(unsigned int minor);

/* Names of up to three processes that use the mount ("1234 python3, ..."), or "". */
void mounts_users(const char *dir, char *out, size_t size);
