/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache directory as a whole: its lock, how much of it is used, and whether the disk
 * under it can be relied on right now. Layout and formats: cache/README.md.
 *
 * The directory may be open in several processes. What they share is one page of memory
 * (`usage`): bytes in use, counted before they are written, so that the limit holds at
 * every instant.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct disk;
struct why;

struct disk_config {
	const char *dir;
	uint64_t size_max;
	uint64_t free_min;
};

/* Opens or makes the directory. -EPERM (someone else's), -EROFS, -ENOSPC and what else the
 * system says, with a sentence. Recounts what is in use after an unclean end, if no other
 * process has the directory open. */
int disk_open(const struct disk_config *config, struct disk **out, struct why *why);
struct disk *disk_close(struct disk *d);

/* No access times for a new file: reading it must not cost a look at the clock. Where the
 * file system has no such flag, it does. */
void disk_set_noatime(int fd);

int disk_fd(const struct disk *d);     /* of the directory; borrowed */
bool disk_alone(const struct disk *d); /* no other process had it open at disk_open() */

/* Counts n bytes before they are written; false: they do not fit (the limit, or the free
 * space that must remain). disk_release() when they are removed, or were not written. */
bool disk_reserve(struct disk *d, uint64_t n);
void disk_release(struct disk *d, uint64_t n);
uint64_t disk_used(struct disk *d);
uint64_t disk_limit(struct disk *d); /* of disk_used(), as things stand */

/* Whether to try the disk at all: not within the pause after a fault, nor while an
 * operation hangs. A fault is logged when the state changes, not each time. */
bool disk_usable(struct disk *d);
void disk_fault(struct disk *d, int r, const char *doing);

/* Brackets around what may hang; the slot goes from begin to end. */
#define DISK_HANG_MS 2000
int disk_begin(struct disk *d);
void disk_end(struct disk *d, int slot);

/* Looks for operations that hang. Called a few times a second by the janitor. */
void disk_watch(struct disk *d);
