/* SPDX-License-Identifier: Apache-2.0 */
/* fusermount3, the set-user-id program through which users who are not root mount and
 * unmount. Of the environment it gets nothing but the path. */
#pragma once

#include <stdbool.h>

struct why;

/* Mounts on `dir` (absolute) with options as in "ro,fsname=x". The connection to the kernel
 * stays in the pair of sockets, where it lives for as long as some process has that, until
 * fusermount_take() or fusermount_see(). Errors come with a sentence. */
int fusermount_mount(const char *dir, const char *options, const int pair[2],
		     struct why *why);

enum fusermount_condition {
	FUSERMOUNT_E_NONE = 1,
	FUSERMOUNT_E_BUSY
};

/* The connection out of the pair, the caller's; FUSERMOUNT_E_NONE: it is not there.
 * fusermount_see() leaves it there, too, for another process. */
int fusermount_take(const int pair[2], int *fd);
int fusermount_see(const int pair[2], int *fd);

/* Takes the mount on `dir` away; lazily: also while it is in use, which is
 * FUSERMOUNT_E_BUSY else. -EPERM: it is not this user's. */
int fusermount_unmount(const char *dir, bool lazily);
