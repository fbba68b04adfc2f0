/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the kernel: mounting, what it can do, the loop, unmounting. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct fuse_conn_info;
struct fuse_lowlevel_ops;
struct handover;
struct session;
struct why;

struct session_config {
	const char *dir;           /* mount point; all strings borrowed for ever */
	const char *source;        /* shown in the mount table */
	const char *local_dir;     /* where files that may be passed through lie */
	struct handover *handover; /* NULL: none */
	bool read_only, no_exec, allow_other;
	bool passthrough_wanted;
	bool uring_wanted;
	bool uring_enable; /* set the kernel's parameter, as root */
	bool readdirplus_always;
	unsigned int loop_threads;
};

/* Creates the session and mounts it. `user` is what ops get as fuse_req_userdata().
 * Errors come with a sentence. */
int session_open(const struct session_config *config, const struct fuse_lowlevel_ops *ops,
		 void *user, struct session **out, struct why *why);

/* For the init operation: asks for what both sides can do. */
void session_negotiate(struct session *s, struct fuse_conn_info *conn);

/* Whether the kernel takes backing files. Settled once init is over. */
bool session_passes_through(const struct session *s);
/* Whether the kernel gathers writes in the page cache. It then is the one that knows a
 * file's size and time while someone writes it, places appends itself, and reads pages
 * that it writes in part. Never together with passthrough. */
bool session_writes_back(const struct session *s);
/* Whether a file that is opened past the page cache can still be mapped shared. */
bool session_maps_direct(const struct session *s);
/* Tells that a request came over io_uring; cheap. */
void session_saw_uring(struct session *s);

/* Serves until the mount is gone. 0 or a negative errno. */
int session_loop(struct session *s);

enum session_condition {
	SESSION_E_BUSY = 1,
	SESSION_E_ELSEWHERE,
	SESSION_E_BY_NAME
};

/* Asks the kernel to let go of a name and, if nobody uses it, its inode. Waits for who
 * changes or reads the directory: not for threads that they wait for. */
void session_forget_name(struct session *s, uint64_t parent, const char *name);

/* The same of many inodes, by their numbers, without waiting for anybody. Best effort.
 * SESSION_E_BY_NAME: this kernel can only be told names. */
int session_forget_files(struct session *s, const uint64_t *inos, size_t n);
/* false once that has been found out. */
bool session_forgets_files(struct session *s);

/* Has the kernel drop what it keeps of an inode's content, a file's or a directory's. Waits
 * for reads of it that are under way. */
void session_forget_content(struct session *s, uint64_t ino);

/* Takes the mount out of the name space; what still uses it holds it: SESSION_E_BUSY. The
 * loop ends soon, unless the connection is also mounted somewhere else: in another name
 * space, on another directory. SESSION_E_ELSEWHERE: session_elsewhere() says where (as
 * mounts_elsewhere()), and it is served there on. */
int session_unmount(struct session *s);
void session_elsewhere(const struct session *s, char *out, size_t size);

/* The same by force: what uses it gets errors, wherever it is. The loop ends soon. */
void session_detach(struct session *s);

/* After the loop. Takes NULL, returns NULL. */
struct session *session_free(struct session *s);

void session_status_json(const struct session *s,
			 struct buf *b); /* one object's members */
