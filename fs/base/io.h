/* SPDX-License-Identifier: Apache-2.0 */
/* File input and output that finishes what it starts. All descriptors are O_CLOEXEC. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct buf;
struct why;

/* Reads until n bytes or end of file; EINTR and short reads are handled. Returns the bytes
 * read, or a negative errno. */
ssize_t io_pread(int fd, void *p, size_t n, uint64_t off);

/* All n bytes or a negative errno (-ENOSPC may leave some written). */
int io_pwrite(int fd, const void *p, size_t n, uint64_t off);
int io_write(int fd, const void *p, size_t n); /* at the file position; sockets, pipes */

/* The whole file appended to b; -EFBIG over size_max. */
int io_read_file(int dirfd, const char *path, size_t size_max, struct buf *b);

/* Replaces `name` by the bytes: temporary file, fdatasync, rename, fsync of the directory.
 * After success the new content survives power loss; after failure the old one is there. */
int io_replace_file(int dirfd, const char *name, const void *p, size_t n, mode_t mode);

int io_fsync_dir(int dirfd);
int io_mkdir_p(const char *path, mode_t mode); /* 0 also when it is there already */

/* Creates (0700) or opens a directory of our own state. Refuses with a sentence one that is
 * a symbolic link, belongs to another user, or is writable by group or others. Returns an
 * O_DIRECTORY descriptor the caller closes, or a negative errno. */
int io_open_private_dir(const char *path, struct why *why);

/* Removes a tree however deep it is, following no link and crossing no mount: a mount point
 * inside is -EBUSY, and what is behind it stays untouched. Something that another process
 * adds meanwhile is removed, too, or is -ENOTRECOVERABLE at the end. */
int io_remove_tree(int dirfd, const char *path);
