/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /output: a writable tree over the stage, the journal and the uploader (contract:
 * design.md, "The contract of /output").
 *
 * Every function may be called from any thread; TREE_NOWAIT as in fs/input.h. Success of
 * output_flush() and output_fsync() is the acknowledgement: data and intent are durable on
 * local disk (or verified in the store, with durability remote).
 *
 * Errors: those of POSIX for the call, and -ENOSPC (before any acknowledgement), -EIO (a
 * local sync failed: the file is suspect and says so from then on), -EDQUOT, -ENOTSUP.
 */
#pragma once

#include <stdatomic.h>
#include <sys/statvfs.h>

#include "fs/base/err.h"
#include "fs/tree.h"

struct buf;
struct handover;
struct origin;
struct output;
struct output_file;
struct receipt;

enum output_durability {
	OUTPUT_LOCAL,
	OUTPUT_REMOTE
};

struct output_config {
	struct origin *origin;     /* borrowed; outlives the tree */
	struct handover *handover; /* NULL: none; fs/handover.h */
	const char *state_dir; /* stage, journal, quarantine; 0700; one mount at a time */
	enum output_durability durability;
	uint64_t ttl_ms; /* freshness of what the store holds */
	uint64_t
		settle_ms; /* what the last process sent may land for so long after its end:
			       nothing is changed in the store meanwhile; 0: it cannot */
	uint64_t publish_interval_ms; /* of files that stay open; 0: at close only */
	bool append_objects;          /* files that grow go to objects that grow */
	uint64_t full_timeout_ms;     /* on a full disk: wait so long without an upload */
	uint64_t part_size;           /* 0: 8 MiB */
	uint64_t
		fetch_max; /* larger objects are changed without being fetched; 0: 4 MiB */
	uint32_t upload_parallel; /* parts and small files in flight; 0: 8 */
	uint64_t carry_max;  /* bytes of small files in memory and journal; 0: 64 MiB */
	uint32_t walk_ahead; /* objects of renamed trees in memory at a time; 0: 4000 */
	uint64_t nodes_max;  /* kept of what is in the store and not in use; 0: 100,000 */
	uint64_t stage_size_max; /* 0: what the disk has, less a reserve */
	uid_t uid;
	gid_t gid;
	mode_t file_mode,
		dir_mode; /* of what the store holds without its own; 0: 0644, 0755 */
};

/* Takes the lock of the state directory, replays the journal, starts the uploader.
 * -EBUSY with a sentence when another process holds it. */
int output_new(const struct output_config *config, struct output **out, struct why *why);

/* Stops the uploader at a safe point; what is pending stays on disk. All files released. */
struct output *output_free(struct output *o);

int output_lookup(struct output *o, uint64_t parent, const char *name, unsigned int flags,
		  struct tree_attr *attr);
void output_forget(struct output *o, uint64_t ino, uint64_t n);
/* Files that the kernel should let go of (session_forget_files()), because it knows more than
 * `nodes_max` and has not been asked for these lately; at most `max`. Takes effect when
 * output_forget() comes. */
size_t output_spare(struct output *o, uint64_t *out, size_t max);
bool output_is_over(struct output *o);
/* Where a node is, for session_forget_name(). -ESTALE. */
struct inodes_name;
int output_name(struct output *o, uint64_t ino, struct inodes_name *out);
/* Has `fn` called whenever there is something to be spared. It must not call back, nor block.
 * NULL: no more calls, also none under way. */
void output_on_over(struct output *o, void (*fn)(void *arg), void *arg);
int output_getattr(struct output *o, uint64_t ino, unsigned int flags,
		   struct tree_attr *attr);

enum output_set {
	OUTPUT_SET_MODE = 1 << 0,
	OUTPUT_SET_UID = 1 << 1,
	OUTPUT_SET_GID = 1 << 2,
	OUTPUT_SET_SIZE = 1 << 3,
	OUTPUT_SET_MTIME = 1 << 4,
	OUTPUT_SET_DROP = 1 << 5, /* set-user-id and the like go, as with an owner */
	OUTPUT_SET_OPEN = 1 << 6, /* through an open file, whose close acknowledges it */
};
/* `attr` brings the fields named in `set` and takes all of them back. */
int output_setattr(struct output *o, uint64_t ino, unsigned int set,
		   struct tree_attr *attr);

/* Owner of what a call creates. */
struct output_owner {
	uid_t uid;
	gid_t gid;
};
int output_mkdir(struct output *o, uint64_t parent, const char *name, mode_t mode,
		 struct output_owner owner, struct tree_attr *attr);
int output_symlink(struct output *o, uint64_t parent, const char *name,
		   const char *target, struct output_owner owner, struct tree_attr *attr);
int output_readlink(struct output *o, uint64_t ino, unsigned int flags, char *target,
		    size_t target_size);
int output_unlink(struct output *o, uint64_t parent, const char *name);
int output_rmdir(struct output *o, uint64_t parent, const char *name);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE of renameat2(2). */
int output_rename(struct output *o, uint64_t parent, const char *name,
		  uint64_t new_parent, const char *new_name, unsigned int flags);

struct output_dir;
int output_opendir(struct output *o, uint64_t ino, unsigned int flags,
		   struct output_dir **out);
int output_readdir(struct output_dir *dir, uint64_t cookie, bool with_lookup,
		   unsigned int flags, tree_fill_fn fill, void *arg);
int output_fsyncdir(struct output *o, uint64_t ino);
void output_closedir(struct output_dir *dir);

/* open_flags as in open(2): O_TRUNC, O_APPEND, access mode. TREE_E_WAIT with TREE_NOWAIT:
 * only a new name in a directory that is known is made at once. */
int output_create(struct output *o, uint64_t parent, const char *name, mode_t mode,
		  int open_flags, struct output_owner owner, unsigned int flags,
		  struct tree_attr *attr, struct output_file **out);
int output_open(struct output *o, uint64_t ino, int open_flags, unsigned int flags,
		struct output_file **out);
int output_read(struct output_file *file, uint64_t off, void *p, size_t n,
		unsigned int flags, size_t *got);
/* TREE_E_WAIT with TREE_NOWAIT: it has to wait for space, or for a copy of the content.
 * With TREE_AGAIN an append is not put behind itself. */
int output_write(struct output_file *file, uint64_t off, const void *p, size_t n,
		 unsigned int flags);
/* Someone without the right to keep them has written: set-user-id and the like go. */
void output_drop_privileges(struct output_file *file);
int output_flush(struct output_file *file); /* close(2): acknowledges */
int output_fsync(struct output_file *file, bool data_only);

/* output_flush() and output_fsync() for who does not wait for the disk. 0: acknowledged.
 * OUTPUT_E_LATER: `done` will be called once by another thread, which it must not block.
 * TREE_E_WAIT: only the call that waits can do it. */
enum {
	OUTPUT_E_LATER = 2
};
struct output_waiter;
typedef void (*output_done_fn)(void *arg, int result);
int output_flush_later(struct output_file *file, output_done_fn done, void *arg);
void output_release(struct output_file *file); /* last close; uploads begin */
/* Whether output_release() would have to write what no flush has. */
bool output_is_unsaved(struct output_file *file);
int output_fallocate(struct output_file *file, int mode, uint64_t off, uint64_t len);
int output_lseek(struct output_file *file, uint64_t off, int whence, uint64_t *result);

/* The staging file for FUSE passthrough, one per inode: what is written to it behind our
 * back counts from the next flush, fsync or release on. The caller closes it. -ENODATA
 * when this file cannot be passed through (its content is not wholly staged). */
int output_backing_fd(struct output_file *file);

int output_statfs(struct output *o, struct statvfs *st);
/* user.sluice.state (local, uploading, stored), user.sluice.etag. Returns the length. */
ssize_t output_getxattr(struct output *o, uint64_t ino, const char *name, void *value,
			size_t size);
ssize_t output_listxattr(struct output *o, uint64_t ino, void *list, size_t size);

/* Where the upload stands. */
struct output_progress {
	uint64_t files_pending,
		bytes_pending; /* acknowledged, not yet verified in the store */
	uint64_t files_open;   /* open for writing: not counted as pending */
	uint64_t files_stored, bytes_stored; /* since the mount */
	uint64_t files_moved; /* objects that went where they were renamed to, likewise */
	uint64_t
		moving; /* renamed directories below which more may be that is not counted */
	uint64_t bytes_in_flight;
	uint64_t oldest_pending_ms; /* age of the oldest unsent byte; 0: none */
	uint64_t nodes;             /* files and directories in memory */
	uint64_t failures;          /* attempts that failed since the mount */
	struct why last_failure;
};
void output_progress(struct output *o, struct output_progress *progress);

/* Waits until everything acknowledged so far is verified in the store; also publishes what
 * open files hold. deadline_ms: clock_mono_ms() units, UINT64_MAX none. Returns 0, or
 * OUTPUT_E_PENDING, and a receipt for the caller to free, unless `receipt` is NULL: status,
 * files [{key,size,crc64,etag}] stored since the mount, pending [{path,bytes,error}]. */
enum {
	OUTPUT_E_PENDING = 1
};
int output_drain(struct output *o, uint64_t deadline_ms, struct receipt **receipt);
/* Also ends, as at the deadline, soon after *given_up became true. */
int output_drain_unless(struct output *o, uint64_t deadline_ms,
			const atomic_bool *given_up, struct receipt **receipt);

/* The request that this thread works for, and whether one that came again had been done by
 * the last daemon. */
void output_set_request(uint64_t request);
bool output_executed(struct output *o, uint64_t request);
/* The file that was open in the last daemon under this slot of handover_file.h; the
 * caller's. NULL: it could not be opened. Once for each. */
struct output_file *output_restored_file(struct output *o, uint32_t slot);

void output_status_json(struct output *o, struct buf *b); /* members of an open object */
