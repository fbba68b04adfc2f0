/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in for the opens that the kernel does not send: once it has been told that
 * open and opendir are not needed, a read carries nothing but the inode. The file or
 * directory is then opened at the first read and kept for the next ones, the least
 * recently used one closed when there are too many.
 *
 * Thread-safe. The lock is a leaf; files are closed outside it.
 */
#pragma once

#include <stdint.h>

struct standin;
struct standins;
typedef void (*standin_close_fn)(void *file);

int standins_new(unsigned int idle_max, struct standins **out);
/* Nobody uses any of them. Closes all. Takes NULL, returns NULL. */
struct standins *standins_free(struct standins *t);

/* A reference to what is kept for this inode, or NULL. */
struct standin *standin_get(struct standins *t, uint64_t ino);
/* Keeps `file` (taken) for the inode. When another thread was first, it is closed and the
 * other one's returned. A reference; NULL: no memory, closed too. */
struct standin *standin_add(struct standins *t, uint64_t ino, void *file,
			    standin_close_fn close);
void standin_put(struct standins *t, struct standin *s); /* NULL is allowed */
void *standin_file(const struct standin *s);

/* The inode stands for something else from now on, or nothing. */
void standin_forget(struct standins *t, uint64_t ino);

unsigned int standins_count(struct standins *t);
