/* SPDX-License-Identifier: Apache-2.0 */
/* What the two trees, input and output, have in common: attributes and directory entries.
 * Neither knows FUSE; fs/ops_*.c translate, and libsluice uses the trees directly. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TREE_ROOT 1 /* inode number of the root, as in FUSE */

struct tree_attr {
	uint64_t ino;
	uint64_t generation; /* of a reused inode number */
	uint64_t size;
	uint64_t blocks; /* of 512 bytes */
	int64_t mtime_ns, ctime_ns;
	mode_t mode; /* with S_IFMT */
	uint32_t nlink;
	uid_t uid;
	gid_t gid;
	uint64_t ttl_ms; /* how long the kernel may keep this attribute and the name */
	bool unsure; /* of an entry: all but the kind (0: that, too) may be otherwise, look it
		      * up */
};

/* Flags of calls that may have to ask the store. */
enum tree_flags {
	TREE_NOWAIT = 1 << 0, /* return TREE_E_WAIT instead of blocking on the network */
	TREE_AGAIN = 1 << 1,  /* it may have been done once, by a process that died */
};

enum tree_condition {
	TREE_E_WAIT =
		1,   /* only with TREE_NOWAIT: call again from a thread that may block */
	TREE_E_FULL, /* returned by a tree_fill_fn: the reader's buffer is full */
};

/* One directory entry. `attr` is complete unless it is `unsure`, and then carries, when
 * with_lookup was asked for, one lookup reference that the callee now owns (unless it
 * returns TREE_E_FULL). `next` is the
 * cookie after this entry. Return 0 or TREE_E_FULL. */
typedef int (*tree_fill_fn)(void *arg, const char *name, const struct tree_attr *attr,
			    uint64_t next);
