/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /input: a read-only tree over the cache (contract: design.md, "The contract of /input").
 *
 * Every function may be called from any thread. Calls with `flags` never block on the
 * network when TREE_NOWAIT is set: what is warm is answered at once, in the thread that
 * took the request; the rest returns TREE_E_WAIT and is called again, without the flag,
 * from a worker.
 *
 * Errors: -ENOENT, -ENOTDIR, -EISDIR, -EACCES, -ESTALE (the object was replaced or removed
 * under an open file), -EIO (the store did not deliver a verified byte within the
 * deadline), -EROFS, -ENOMEM, -EINTR (input_interrupt()).
 */
#pragma once

#include "cache/object.h"
#include "fs/base/err.h"
#include "fs/tree.h"

struct buf;
struct cache;
struct handover;
struct input;
struct input_file;
struct order_log;
struct origin;
struct warm;

struct input_config {
	struct handover *handover;   /* NULL: none */
	struct origin *origin;       /* borrowed; outlives the tree */
	struct cache *cache;         /* borrowed; outlives the tree */
	uint64_t ttl_ms;             /* freshness of attributes and listings */
	uint64_t deadline_ms;        /* of one read or look-up; 0: 60 s */
	struct order_log *order_log; /* borrowed: what is read is written there; NULL */
	uint64_t inodes_max;         /* files the kernel may hold, about; 0: any number */
	uint32_t requests_max;       /* for what no reader waits for; 0: a default */
	bool immutable;              /* the source never changes: ttl for ever */
	enum object_verify verify;   /* when bytes of large files are shown */
	bool posix; /* ask for the objects' own mode, owner and times (one request
				* a file) instead of the defaults below */
	uid_t uid;
	gid_t gid;
	mode_t file_mode, dir_mode; /* permission bits; 0: 0444 and 0555 */
};

int input_new(const struct input_config *config, struct input **out, struct why *why);
struct input *input_free(struct input *in); /* all files released */

/* Look-up references: each successful lookup (and each entry of a readdir with
 * with_lookup) adds one to the inode, forget takes n away. */
int input_lookup(struct input *in, uint64_t parent, const char *name, unsigned int flags,
		 struct tree_attr *attr);
void input_forget(struct input *in, uint64_t ino, uint64_t n);

/* Inodes that the kernel should let go of (session_forget_files()), because it holds more
 * files than inodes_max: what it forgets is forgotten here, too. Returns how many. */
size_t input_spare(struct input *in, uint64_t *out, uint64_t *parents, size_t max);
/* The name of a file, for session_forget_name(). -ESTALE. */
struct inodes_name;
int input_name(struct input *in, uint64_t ino, struct inodes_name *out);
bool input_is_over(struct input *in); /* whether to call it; cheap */
int input_getattr(struct input *in, uint64_t ino, unsigned int flags,
		  struct tree_attr *attr);
int input_readlink(struct input *in, uint64_t ino, unsigned int flags, char *target,
		   size_t target_size);

/* A snapshot of the listing, paged to the reader while it is still being fetched. Cookies
 * start at 0 and stay valid until closedir. "." and ".." are not among the entries. */
struct input_dir;
int input_opendir(struct input *in, uint64_t ino, unsigned int flags,
		  struct input_dir **out);
int input_readdir(struct input_dir *dir, uint64_t cookie, bool with_lookup,
		  unsigned int flags, tree_fill_fn fill, void *arg);
void input_closedir(struct input_dir *dir);

/* An open file is one version (ETag). */
int input_open(struct input *in, uint64_t ino, unsigned int flags,
	       struct input_file **out);
void input_close(struct input_file *file);

/* From now on, what is to be told of an inode whose readers may have seen wrong bytes: what
 * is kept of it elsewhere must go. Called with locks held: it must not call back, nor wait. */
void input_on_wrong(struct input *in, void (*fn)(void *arg, uint64_t ino), void *arg);

/* Up to n bytes at off into p, *got less than n only at the end of the file. */
int input_read(struct input_file *file, uint64_t off, void *p, size_t n,
	       unsigned int flags, size_t *got);

/* A descriptor of the cache file when the whole object is local and verified, for
 * passthrough: the caller closes it. -ENODATA when it is not (yet). TREE_E_WAIT: it may be
 * soon, but must be verified first. */
int input_backing_fd(struct input_file *file, unsigned int flags, int *fd);

/* Whether it lies among others in the cache, so that it never has a backing file. */
bool input_is_small(const struct input_file *file);

/* Wakes what blocks in the store on behalf of this caller's token (the FUSE request id);
 * the call returns -EINTR. Harmless when nothing does. */
void input_set_token(
	uint64_t token); /* of calls this thread makes from now on; 0: none */
void input_interrupt(struct input *in, uint64_t token);

/* Jobs that fetch ahead of use. */
struct warm *input_warm(struct input *in);

struct input_stats {
	uint64_t reads, bytes_read; /* asked by readers */
	uint64_t hits, bytes_hit;   /* answered from the cache */
	uint64_t bytes_fetched;     /* from the store */
	uint64_t hidden_keys;       /* listed keys that cannot be paths */
	uint64_t stale;             /* reads refused with ESTALE */
	uint64_t inodes, files_open;
};
void input_stats(struct input *in, struct input_stats *stats);
void input_status_json(struct input *in, struct buf *b); /* members of an open object */
