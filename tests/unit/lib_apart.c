/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_apart.h"

#include <mntent.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "fs/base/check.h"

/* One of them; what cannot be taken away is passed over. */
static bool drop_one(void)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	struct mntent *e;
	bool dropped = false;

	check(f);
	while (!dropped && (e = getmntent(f)))
		dropped = (strcmp(e->mnt_type, "fuse") == 0 ||
			   strncmp(e->mnt_type, "fuse.", 5) == 0) &&
			  umount2(e->mnt_dir, MNT_DETACH) == 0;
	endmntent(f);
	return dropped;
}

bool lib_apart(void)
{
	if (unshare(CLONE_NEWNS))
		return false;
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	while (drop_one())
		;
	return true;
}
