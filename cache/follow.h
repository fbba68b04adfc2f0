/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows readers along the listings of their directories: it is told which files are
 * opened and says which are to be fetched ahead (prefetch.h decides how far). Several
 * readers at several places of one directory are several stretches. Not thread-safe; asks
 * nothing of the store.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct follow;

/* Hands out at most `count` names that come after `name` in the listing of `dir`, in its
 * order, as far as they are known now; directories are not among them. A return of false
 * ends it. */
typedef bool (*follow_add_fn)(void *to, const char *name);
typedef void (*follow_names_fn)(void *arg, const char *dir, const char *name,
				uint32_t count, follow_add_fn add, void *to);

struct follow_config {
	follow_names_fn names;
	void *arg;
	uint32_t window_max; /* files ahead of one stretch at most; 0: 512 */
	uint64_t unread_max; /* bytes fetched ahead and not read yet at most */
};

int follow_new(const struct follow_config *config, struct follow **out);
struct follow *follow_free(struct follow *f); /* takes NULL, returns NULL */

/* dir/name (dir "" or ending in '/') is being read for the first time, or once more. */
void follow_opened(struct follow *f, const char *dir, const char *name);

/* The next file to fetch ahead, for the call only; false: none now. */
bool follow_next(struct follow *f, const char **key, size_t *dir_len);

/* What follow_next() gave takes so many bytes (0: it was there already). */
void follow_asked(struct follow *f, const char *key, uint64_t bytes);

struct follow_stats {
	uint64_t asked, hits; /* files fetched ahead; and of these read later */
	uint64_t unread;      /* bytes fetched ahead and not read yet */
	uint64_t wasted;      /* bytes given up unread */
};
struct follow_stats follow_stats(const struct follow *f);
