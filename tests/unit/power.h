/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that forgets at a power cut what was not synced, for one process and one
 * directory with its subdirectories of one level.
 *
 * The test program's own openat(), pwrite(), fdatasync() and so on take the place of the C
 * library's. They do what they are asked and keep book: bytes of a file are safe once the
 * file was synced, names once their directory was. At the cut each sector that is not safe
 * is kept or lost by chance, and of the changes of a directory that are not safe, a part
 * from the first on is kept. That is less than ext4 promises.
 *
 * A failed sync forgets as Linux does: the bytes stay readable, and a later sync that
 * succeeds has not written them.
 *
 * Watched are files that are opened relative to a directory's descriptor. Renames between
 * directories, links, and mappings that write are not known here.
 */
#pragma once

#include <stdint.h>

struct power_config {
	const char *dir;       /* watched; it and its subdirectories count as safe */
	const char *image;     /* made at the cut: what the directory holds afterwards */
	uint64_t cut_at;       /* at this change or sync, counted from 1; 0: never */
	uint64_t fail_sync_at; /* this sync of a file ends with EIO; 0: none */
	uint64_t seed;         /* which of the unsafe bytes stay */
};

/* Starts to watch. Strings are borrowed. At the cut the process dies of SIGKILL. */
void power_watch(const struct power_config *config);

/* Cuts now. */
void power_cut(void);

/* Changes and syncs so far, and syncs of files alone. */
uint64_t power_count(void);
uint64_t power_syncs(void);
