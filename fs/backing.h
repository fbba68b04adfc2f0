/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an open file is served: by the kernel itself from a local file (passthrough), from
 * the kernel's page cache, or by requests past it.
 *
 * The kernel's rules: passthrough and page-cache opens of one inode exclude each other
 * (EIO for the second), all passthrough opens of an inode must share one backing id, and
 * direct opens go with either, unless they are mapped shared: then they count as page-cache
 * opens, and nobody is told. This table keeps them: it grants each open a mode that fits
 * those that are already there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum backing_mode {
	BACKING_DIRECT,
	BACKING_CACHED,
	BACKING_PASS,
	BACKING_MODE_N
};
const char *backing_mode_name(enum backing_mode mode);

/* The kernel's half, a parameter so that the rules can be tested without a mount. `ctx` is
 * what the caller of backing_open() and backing_close() passed. */
struct backing_kernel {
	int (*open)(void *ctx, int fd); /* an id > 0, or a negative errno */
	void (*close)(void *ctx, int id);
};

struct backing;

/* `fixed`: what an inode shows never changes. Then every open of an inode that is passed
 * through shares its file, whatever `fd` is, and direct opens keep passthrough out, as they
 * may be mapped. */
int backing_new(const struct backing_kernel *kernel, bool fixed, struct backing **out);
/* Ids that are still granted go with the connection. Takes NULL, returns NULL. */
struct backing *backing_free(struct backing *b);

/* Grants a mode to one open of `ino`. `fd` (borrowed) is the local file to pass through
 * or -1; `cached` whether the page cache may serve it otherwise. *id is set for
 * BACKING_PASS. Never fails: BACKING_DIRECT always works. */
enum backing_mode backing_open(struct backing *b, void *ctx, uint64_t ino, int fd,
			       bool cached, int *id);

/* A grant of the last daemon's (handover.h): the kernel still has it. */
void backing_restore(struct backing *b, uint64_t ino, enum backing_mode mode, int id,
		     uint64_t file_dev, uint64_t file_ino);
/* Whether a grant stands on this id. */
bool backing_knows(struct backing *b, int id);

/* Gives a grant back, at the last close of that open. */
void backing_close(struct backing *b, void *ctx, uint64_t ino, enum backing_mode mode);

struct backing_stats {
	uint64_t opens[BACKING_MODE_N];
	uint64_t refused; /* backing files the kernel did not take */
	int last_error;   /* of those: a negative errno */
	uint64_t passed;  /* inodes that are open in passthrough now */
};
void backing_stats(struct backing *b, struct backing_stats *stats);
