/* SPDX-License-Identifier: Apache-2.0 */
/* The names of one directory, sorted as keys: a directory counts as "name/". Internal to
 * the file: origin's listings. */
#pragma once

#include "fs/backend/file_impl.h"

struct file_snapshot {
	char path[PATH_KEY_MAX + 1]; /* of the directory, "" or "a/b" */
	struct stat st;              /* of the directory, before it was read */
	uint64_t used_ms;
	unsigned int refs; /* under the origin's lock */
	char *text;        /* all names, each with NUL; directories end in '/' */
	size_t text_len, text_room;
	size_t *names; /* offsets into text; sorted */
	size_t count, room;
};

/* Reads the directory, or takes the copy that an earlier page of the same listing left,
 * when `go_on`. Counted: give it back with file_snapshot_put(). */
int file_snapshot_get(struct file_origin *f, const char *path, bool go_on,
		      struct file_snapshot **out);
void file_snapshot_put(struct file_origin *f, struct file_snapshot *s);

const char *file_snapshot_name(const struct file_snapshot *s, size_t i);
/* First index whose name is not below `name`. */
size_t file_snapshot_lower_bound(const struct file_snapshot *s, const char *name);
