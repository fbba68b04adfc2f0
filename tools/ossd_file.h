/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files below the root: paths that cannot leave it (no symbolic link is followed in any
 * component), and bodies that are received beside their place and moved into it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/ossd_object.h"

/* Opens `path` below the root. A descriptor, or a negative errno. */
int ossd_file_open(int root_fd, const char *path, int flags);

/* The folder that `path` lies in, and the last component (points into `path`). With
 * `create` missing folders are made. OSSD_FILE_TAKEN: something that is no folder is in the
 * way, or (only with `create`) the last component is a folder. */
enum {
	OSSD_FILE_TAKEN = 1
};
int ossd_file_parent(int root_fd, const char *path, bool create, int *fd,
		     const char **leaf);

/* Removes the file, 0 also when it is gone, and the folders above that are empty then, up
 * to `keep` components. */
int ossd_file_remove(int root_fd, const char *path, int keep);

/* Reads the whole file and sets size, crc, md5, etag, ino, file_time_ns. */
int ossd_file_describe(int fd, struct ossd_object *o);

/* Only ino and file_time_ns. */
int ossd_file_stamp(int fd, struct ossd_object *o);

/* Whether the file is the one the index describes. */
bool ossd_file_matches(int fd, const struct ossd_object *o);

/* A body on its way. */
struct ossd_spool {
	int dir_fd; /* borrowed: where it lies */
	int fd;     /* -1: not open */
	char name[32];
	uint64_t size, crc;
	void *md5_context;
	unsigned char md5[16]; /* after finish; zero when the content was not hashed */
	bool sync;
	bool moved; /* the file has another place now */
};

int ossd_spool_open(struct ossd_spool *s, int dir_fd, bool sync);
int ossd_spool_write(struct ossd_spool *s, const void *data, size_t n);
/* `n` bytes of another file from `offset`. Without `hash` crc and md5 are the caller's
 * to know; with it they go on. -EIO when the file is shorter. */
int ossd_spool_copy(struct ossd_spool *s, int fd, uint64_t offset, uint64_t n, bool hash);
int ossd_spool_finish(struct ossd_spool *s);
/* Removes the file unless it was moved. Safe twice. */
void ossd_spool_close(struct ossd_spool *s);

/* Copies between files; shares extents where the file system can. */
int ossd_file_copy(int from, uint64_t from_offset, int to, uint64_t to_offset,
		   uint64_t n);
