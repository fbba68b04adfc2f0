/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inode numbers of a read-only tree: which version of which name in which directory a
 * number stands for, as long as someone has looked it up.
 *
 * A number is one version: what the kernel keeps by inode (pages, size, a link's target,
 * the backing file) then never mixes two. When a name is entered with another version, it
 * gets another number, and the old one stays what it was until it is forgotten.
 *
 * A number lives while it has look-up references or children; then it may be given to
 * another name, with the next generation. Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/path.h"
#include "fs/tree.h"

struct handover;
struct inodes;

/* With the root, TREE_ROOT; with `handover` (NULL: none) also with all that the last daemon
 * had told the kernel of. */
int inodes_new(struct handover *handover, struct inodes **out);
struct inodes *inodes_free(struct inodes *t);

/* What a number stands for beside its name. Two are the same version when `id` is. */
struct inodes_version {
	uint64_t id; /* 0 for directories */
	uint64_t size;
	int64_t mtime_ns;
	mode_t mode; /* with S_IFMT */
};

/* The number of this version of `name` in `parent`, with one more look-up reference.
 * -ESTALE: no such parent; -ENOMEM. */
int inodes_enter(struct inodes *t, uint64_t parent, const char *name,
		 const struct inodes_version *version, uint64_t *ino,
		 uint64_t *generation);
/* The same without a reference: 0 when nobody has looked it up. */
uint64_t inodes_peek(struct inodes *t, uint64_t parent, const char *name);
void inodes_forget(struct inodes *t, uint64_t ino, uint64_t n);

/* The key's two halves: the directory ("" or ending in '/') and the name ("" for the
 * root), PATH_KEY_MAX + 2 bytes each; and the version as it was last entered (may be
 * NULL). -ESTALE, -ENAMETOOLONG. */
int inodes_path(struct inodes *t, uint64_t ino, char *dir, char *name,
		struct inodes_version *version);

uint64_t inodes_count(struct inodes *t);

/* Files that someone has looked up, at most `max` of them, in turn, as long as there are
 * more than `keep` inodes: the kernel is to be asked to let go of them, which takes effect
 * later. Their directories go to `parents`. Returns how many; 0 also when all of them were
 * asked for before. */
size_t inodes_spare(struct inodes *t, uint64_t keep, uint64_t *out, uint64_t *parents,
		    size_t max);
/* Whether it is time for that: more than `max`, not counting those asked for before. */
bool inodes_is_over(struct inodes *t, uint64_t max);

/* Where a number is found. -ESTALE: no such number, or the root's. */
struct inodes_name {
	uint64_t parent;
	char name[PATH_NAME_MAX + 1];
};
int inodes_name(struct inodes *t, uint64_t ino, struct inodes_name *out);
