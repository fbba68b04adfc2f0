/* SPDX-License-Identifier: Apache-2.0 */
/* Inside fs/ops*.c: one request on its way. */
#pragma once

#include <limits.h>
#include <stdatomic.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/inode.h"
#include "fs/ops.h"

#define OPS_BLOCK_SIZE 65536 /* what programs should read at once, as they are told */
#define OPS_TTL_MAX_MS (365ull * 86400 * 1000)

/* Requests of /input, counted. */
enum ops_request {
	OPS_LOOKUP,
	OPS_GETATTR,
	OPS_READLINK,
	OPS_OPENDIR,
	OPS_READDIR,
	OPS_RELEASEDIR,
	OPS_OPEN,
	OPS_READ,
	OPS_RELEASE,
	OPS_STATFS,
	OPS_REQUEST_N
};

/* A name that is another version now. */
struct replaced {
	struct list link;
	struct inodes_name name;
};

struct ops {
	struct ops_config config;
	_Atomic uint64_t requests[OPS_REQUEST_N];
	bool can_skip_open, can_skip_opendir;  /* the kernel knows how; set by init */
	atomic_bool skips_open, skips_opendir; /* it has been told to, for ever */
	_Atomic uint64_t small_opens, large_opens;
	struct standins *standins; /* NULL: of /output */
	struct lock lock;          /* handles */
	struct list handles;       /* all that are open */
	struct handle **slots;     /* by slot of the hand-over; NULL: there is none */
	struct backing *backing;
	struct worker_pool *workers;
	uint32_t replies; /* lock: expected from other threads */
	pthread_cond_t replied;
	struct list replaced; /* lock: struct replaced, for the kernel to look up again */
	bool looking_again;   /* lock: a worker sees to it */
	atomic_bool sparing;  /* a worker asks the kernel to let go of names */
	atomic_bool stopping; /* nobody waits for replies any more */
	_Atomic uint64_t tokens;   /* last interrupt token given out */
	_Atomic uint64_t deferred; /* calls handed to workers */
	_Atomic uint64_t inlined;  /* calls that blocked their thread: queue full */
	_Atomic uint64_t
		errors;         /* replies that mean trouble with the store or the disk */
	_Atomic int last_error; /* of those: an errno */
	_Atomic int64_t last_error_ns;
};

struct call;

/* Does the work and replies. 0: replied; TREE_E_WAIT: only with TREE_NOWAIT, nothing done
 * yet; negative: reply this error. */
typedef int (*call_fn)(struct call *c, unsigned int flags);

struct call {
	call_fn run;
	struct ops *ops;
	fuse_req_t req;
	fuse_ino_t ino; /* the inode, or the directory of `name` */
	fuse_ino_t new_parent;
	const char *name;     /* borrowed from the request; copied when deferred */
	const char *new_name; /* or a link's target, or an attribute's name */
	uint64_t off;
	size_t size;
	mode_t mode;
	unsigned int set; /* rename: flags; setattr: FUSE_SET_ATTR_*; fallocate: mode */
	bool flag;        /* readdir: plus; fsync: data only; write: drop privileges */
	const char *data; /* write: borrowed from the request; copied when deferred */
	bool has_fi;
	struct fuse_file_info fi;
	struct stat attr; /* setattr */
	uint64_t token;   /* for input_interrupt() */
	uint64_t request; /* the kernel's number of it; 0: not known */
	bool again;       /* sent to the last daemon too, which may have done it */
};

/* A call for this request; `fi` may be NULL. */
struct call call_make(fuse_req_t req, call_fn run, fuse_ino_t ino, const char *name,
		      const struct fuse_file_info *fi);

/* Runs it here without blocking on the network, or hands it to a worker. */
void call_start(struct call *c);

/* For what always waits for the disk: runs it here where a pool of threads takes requests,
 * by a worker where one thread per core does (io_uring). */
void call_start_blocking(struct call *c);

/* Has the kernel let go of files that it does not use, whose inodes or nodes take memory here:
 * by a worker, which may be at it already; or in this thread, which must hold nothing that
 * the kernel's look-ups wait for. `arg`: the struct ops, for output_on_over(). */
void ops_spare(void *arg);
void ops_spare_now(struct ops *o);

/* A reply will come from a thread that is not ours: ops_free() waits for it. */
void ops_reply_expected(struct ops *o);
void ops_reply_sent(struct ops *o);

/* Room for the data of a reply: the ring's own where there is one, else this thread's.
 * NULL: no memory. */
char *call_buffer(fuse_req_t req, size_t size);

void call_fail(fuse_req_t req, int r);

/* For input_on_wrong(): arg is the struct ops. */
void ops_input_wrong(void *arg, uint64_t ino);

/* An open file or directory, in fi->fh. */
typedef void (*handle_close_fn)(void *file);
struct handle {
	struct list link;
	atomic_bool ready;      /* the rest is filled */
	enum backing_mode mode; /* of a file */
	void *file;            /* struct input_file, output_file, input_dir, output_dir */
	bool writes;           /* opened for writing: a flush does not say */
	handle_close_fn close; /* for those that are still open at the end */
	uint32_t slot;         /* of the hand-over */
};
/* What the kernel's number stands for. NULL: what a release that is sent again had ended
 * already, or what could not be opened again. */
struct handle *handle_of(struct ops *o, uint64_t fh);
static inline struct handle *call_handle(const struct call *c)
{
	return handle_of(c->ops, c->fi.fh);
}
/* The tree's file or directory of the call's handle, opened anew where the last daemon
 * had it open. Negative errno, or TREE_E_WAIT. */
int call_file(struct call *c, unsigned int flags, void **out);
/* Before a reply, of calls that workers make: the kernel releases a handle behind all answers
 * to other requests with it, which ThreadSanitizer does not see. */
static inline void call_used_file(const struct call *c)
{
#ifdef __SANITIZE_THREAD__
	struct handle *h = call_handle(c);

	if (h)
		__tsan_release(h);
#else
	(void)c;
#endif
}
/* Grants a mode and fills fi. `fd` is taken; -1: none. NULL: no memory. */
struct handle *handle_open(struct call *c, void *file, handle_close_fn close, int fd,
			   bool cached, bool keep);
struct handle *handle_open_dir(struct call *c, void *dir, handle_close_fn close);
void *handle_close_dir(struct call *c, struct handle *h);
void handle_close_all(struct ops *o);      /* no call is under way */
int handle_kernel_open(void *ctx, int fd); /* ctx: a fuse_req_t */
void handle_kernel_close(void *ctx, int id);
/* Gives the mode back and frees the handle; the file is the caller's, NULL when it was
 * never opened again. */
void *handle_close(struct call *c, struct handle *h);
/* After the reply that told of the open, or of the release. */
void handle_told_open(struct call *c);
void handle_told_closed(struct call *c);

void call_stat(const struct tree_attr *attr, struct stat *st);
void call_entry(const struct tree_attr *attr, struct fuse_entry_param *entry);
double call_timeout(uint64_t ttl_ms);
int call_reply_absent(const struct call *c); /* a name that is not there, remembered */

/* Listing: entries go into a buffer of the reply. */
struct listing {
	struct call *call;
	char *data;
	size_t used;
};
int listing_begin(struct call *c, struct listing *l); /* emits "." and ".." */
int listing_fill(void *listing, const char *name, const struct tree_attr *attr,
		 uint64_t next);
/* The tree's cookie to go on from. */
uint64_t listing_cookie(const struct call *c);
/* Replies what is there; `r` is the tree's answer. */
int listing_end(struct listing *l, int r);

void ops_common_init(void *user, struct fuse_conn_info *conn);
