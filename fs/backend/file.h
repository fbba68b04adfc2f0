/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree as a store: "file:///path". The path of a NAS that the host has mounted
 * is one, too.
 *
 * A key is a path below the root; what is not a regular file, a directory or a symbolic
 * link does not exist here, and nothing is reached through a link. An ETag is the file's
 * handle, size and mtime. An object appears by rename after its bytes and its directory
 * are synced; names that start with FILE_TMP_PREFIX are such objects in the making and are
 * hidden. Directories that a key needs are made as needed, marked (FILE_MARK, where the
 * file system has user attributes) and removed with their last key; all others are as if
 * made by a key "dir/".
 *
 * Of the metadata, mode, mtime, and as root uid and gid, become the file's own; the rest is
 * not stored. APPEND is in place: a power cut may leave a part of the tail.
 */
#pragma once

#include <stdbool.h>

#define FILE_TMP_PREFIX ".sluice-tmp-"
#define FILE_MARK "user.sluice.implicit"

struct origin;
struct why;

/* -ENOENT, -ENOTDIR, -EACCES with a sentence: no such directory, or not writable (unless
 * read_only). */
int file_origin_open(const char *root, bool read_only, struct origin **out,
		     struct why *why);
