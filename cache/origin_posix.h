/* SPDX-License-Identifier: Apache-2.0 */
/* Mode, owner and time as ossfs keeps them in user metadata (protocol.md §5.4). Pure. */
#pragma once

#include <stdbool.h>

#include "cache/origin.h"

/* One pair of an object's metadata (name lower case, without "x-oss-meta-") into attr: mode
 * (sets has_posix and is_symlink), uid, gid, mtime (mtime_ns), and the names other tools
 * use for them. Returns whether the name is one of these and the value makes sense. */
bool origin_posix_parse(struct origin_attr *attr, const char *name, const char *value);

/* The four pairs, ready to send: `out->meta` points into `out`, so do not copy it. */
struct origin_posix {
	struct origin_meta meta;
	const char *pairs[4][2];
	char mode[12], uid[12], gid[12], mtime[32];
};
void origin_posix_format(struct origin_posix *out, mode_t mode, uid_t uid, gid_t gid,
			 int64_t mtime_ns);
/* Without the time: the store's own counts. */
void origin_posix_drop_time(struct origin_posix *out);
