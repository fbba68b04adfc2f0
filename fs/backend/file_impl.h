/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the file: origin share. Internal. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cache/origin.h"
#include "fs/backend/file.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"

#define FILE_COPY_MAX (256u << 10) /* bytes moved between two looks at cancel */
#define FILE_UPLOADS FILE_TMP_PREFIX "uploads"
#define FILE_RACES_MAX 64 /* tries against renames and deletes by others */
#define FILE_ID_LEN 16    /* of an upload id: hex digits */

struct worker_pool;
struct file_snapshot;

#define FILE_SNAPSHOT_COUNT 4

struct file_origin {
	struct origin origin;
	int root_fd;
	bool read_only;
	bool may_chown;
	struct worker_pool *pool;

	struct lock lock;  /* everything below */
	struct list queue; /* struct file_job, oldest first */
	struct origin_stats stats;
	/* Directories read for a listing that goes on, most recent first. */
	struct file_snapshot *snapshots[FILE_SNAPSHOT_COUNT];
};

/* A request that is queued or runs: req->layer[ORIGIN_LAYER_STORE]. */
struct file_job {
	struct list link;
	struct file_origin *f;
	struct origin_req *req;
	atomic_bool cancelled;
};

/* -ECANCELED or -ETIMEDOUT when the request shall end; 0 otherwise. */
int file_interrupted(const struct origin_req *req);

/* ---- file_path.c: keys to descriptors ------------------------------------------------ */

/* -EINVAL with a sentence for a key that cannot be a path here. */
int file_key_check(const char *key, struct why *why);

/* An errno of the kernel as one of origin.h's. */
int file_error(int e);

/* Opens below the root; no link is followed anywhere. Negative errno of origin.h. */
int file_open_beneath(const struct file_origin *f, const char *path, int flags);

/* The directory a key lies in, and its name there. */
struct file_place {
	int dir_fd; /* the caller closes it; -1: none */
	char name[PATH_NAME_MAX + 1];
	bool is_dir; /* the key ends in '/' */
};
#define FILE_PLACE_INIT                                                                  \
	{                                                                                \
		.dir_fd = -1                                                             \
	}
void file_place_close(struct file_place *place);
int file_place_find(const struct file_origin *f, const char *key, struct file_place *out);
/* As find, after making what is missing; a file in the way is -EINVAL with a sentence. */
int file_place_make(const struct file_origin *f, const char *key, struct file_place *out,
		    struct why *why);

/* Directories that exist only because of the keys in them. */
bool file_is_implicit(int dir_fd);
void file_set_implicit(int dir_fd, bool implicit);
/* Removes the implicit directories above the key that are empty now. */
void file_prune(const struct file_origin *f, const char *key);

/* ---- file_attr.c --------------------------------------------------------------------- */

/* What dir_fd/name is ("" : dir_fd itself). */
void file_attr_fill(int dir_fd, const char *name, const struct stat *st,
		    struct origin_attr *attr);
/* One of the three kinds that are shown. */
bool file_is_shown(const struct stat *st);
/* The object at the key: -ENOENT when there is none. The stat buffer may be NULL. */
int file_lookup(const struct file_origin *f, const char *key, struct stat *st,
		struct origin_attr *attr);
/* if_match of the request against attr: -ESTALE with a sentence. */
int file_match(struct origin_req *req, const char *key, const struct origin_attr *attr);

/* POSIX metadata of a request. */
struct file_posix {
	bool has_mode, has_owner, has_mtime;
	struct origin_attr attr;
};
void file_posix_parse(const struct origin_meta *meta, struct file_posix *out);
void file_posix_from_stat(const struct stat *st, struct file_posix *out);
/* To an open file or directory; to a link by name when fd is -1. */
int file_posix_apply(const struct file_origin *f, const struct file_posix *posix, int fd,
		     int dir_fd, const char *name);

/* The attributes of what has just got its name; fd -1: by name. */
int file_fill_result(struct file_place *place, int fd, struct origin_attr *attr);
/* A marker: makes the directory, or keeps it from now on. */
int file_put_dir(struct file_origin *f, struct origin_req *req, struct file_place *place,
		 const struct file_posix *posix);

/* ---- operations: each returns the request's result ----------------------------------- */

int file_stat(struct file_origin *f, struct origin_req *req);
int file_get(struct file_origin *f, struct origin_req *req);
int file_list(struct file_origin *f, struct origin_req *req);
/* Forgets the directories kept for listings of this prefix; "": all. */
void file_snapshots_drop(struct file_origin *f, const char *prefix);

int file_put(struct file_origin *f, struct origin_req *req);
int file_append(struct file_origin *f, struct origin_req *req);
int file_copy(struct file_origin *f, struct origin_req *req);
int file_delete(struct file_origin *f, struct origin_req *req);
int file_delete_many(struct file_origin *f, struct origin_req *req);

int file_multi_begin(struct file_origin *f, struct origin_req *req);
int file_multi_part(struct file_origin *f, struct origin_req *req);
int file_multi_copy(struct file_origin *f, struct origin_req *req);
int file_multi_end(struct file_origin *f, struct origin_req *req);
int file_multi_abort(struct file_origin *f, struct origin_req *req);
int file_multi_list(struct file_origin *f, struct origin_req *req);

/* ---- file_data.c: moving bytes ------------------------------------------------------- */

/* The body to fd at `off`; *crc goes on from what it is. */
int file_write_body(struct origin_req *req, int fd, uint64_t off, uint64_t *crc);
/* n bytes between files, shared or moved by the kernel where it can. -EBADMSG: the source
 * is shorter. */
int file_copy_bytes(const struct origin_req *req, int from_fd, uint64_t from_off,
		    int to_fd, uint64_t to_off, uint64_t n);
/* The checksum of n bytes as they stand in the file. */
int file_checksum(const struct origin_req *req, int fd, uint64_t off, uint64_t n,
		  uint64_t *crc);

/* A new object in the making, next to its place. */
struct file_draft {
	struct file_place *place;
	char name[64];
	int fd; /* -1: a link */
};
int file_draft_new(struct file_place *place, struct file_draft *out);
int file_draft_link(struct file_place *place, const char *target, struct file_draft *out);
/* Sync, rename, sync of the directory. -EEXIST when `only_new` and something is there. The
 * draft stays when it fails. */
int file_draft_publish(struct file_draft *draft, bool only_new, const char *key,
		       struct why *why);
/* Closes; removes it unless it was published. Takes what new() left after a failure. */
void file_draft_close(struct file_draft *draft);
