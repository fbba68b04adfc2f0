/* SPDX-License-Identifier: Apache-2.0 */
/* What input.c and input_dir.c share: struct input itself. */
#pragma once

#include <stdatomic.h>

#include "cache/wait.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"
#include "fs/input.h"

struct ahead;
struct inodes;
struct meta;
struct meta_entry;
struct origin_attr;

#define INPUT_EARLY_MAX 16

/* One call that may block, found by its token. */
struct blocked {
	struct list link;
	uint64_t token;
	atomic_bool interrupted;
	struct wait wait;
};

struct input {
	struct input_config config;
	struct meta *meta;
	struct ahead *ahead;
	struct warm *warm;
	struct inodes *inodes;
	int64_t born_ns; /* the time of directories that have none */
	_Atomic uint64_t reads, bytes_read, stale, files_open;
	void (*on_wrong)(void *arg, uint64_t ino);
	void *on_wrong_arg;
	struct lock lock; /* the three below */
	struct list blocked;
	uint64_t early[INPUT_EARLY_MAX]; /* tokens interrupted before their call waited */
	unsigned int early_at;
};

/* Brackets around what may block: found by input_interrupt() meanwhile. */
const struct wait *input_block_begin(struct input *in, struct blocked *b);
void input_block_end(struct input *in, struct blocked *b);

/* The border: what the layers below say becomes what input.h promises. */
int input_border(int r);

void input_fill_attr(const struct input *in, const struct origin_attr *from,
		     uint64_t until_ms, struct tree_attr *attr);
/* The number of what a name is, with a reference; attr has been filled from `from`. */
int input_enter(struct input *in, uint64_t parent, const char *name,
		const struct origin_attr *from, struct tree_attr *attr);

/* meta_lookup() with this call's flags; META_E_NONE and META_E_WAIT pass. */
int input_find(struct input *in, const char *dir, const char *name, unsigned int flags,
	       struct meta_entry *entry);
/* What an inode is now, which must be the version it stands for. */
int input_find_current(struct input *in, uint64_t ino, unsigned int flags, char *dir,
		       char *name, struct meta_entry *entry);
/* The key of a directory for its children: PATH_KEY_MAX + 2 bytes. */
int input_dir_key(struct input *in, uint64_t ino, char *path);
