/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged files: the bytes of /output on local disk, one file per content, named by a
 * number that is never used twice (cache/JOURNAL.md, "Stage").
 *
 * A content lives as long as someone holds a reference; then its file is removed, but not
 * before the journal has durably forgotten it: stage_reap() does that.
 *
 * A small content needs no file: the journal carries its bytes, and so does memory until
 * the store has them. Thread-safe.
 *
 * Lock order: the owner's lock -> the stage's. No disk input or output under either but
 * where said.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/base/err.h"

struct content;
struct patch;
struct patch_table;
struct stage;

struct stage_config {
	int dirfd;         /* <state>/stage; borrowed */
	int quarantine_fd; /* <state>/quarantine; borrowed */
	uint64_t
		size_max; /* bytes of staged files; 0: what the disk has, less a reserve */
	uint64_t disk_reserve;       /* bytes of the disk never used; 0: 64 MiB */
	uint64_t carry_max;          /* bytes of carried contents; 0: 64 MiB */
	struct patch_table *patches; /* of sparse contents; borrowed. NULL: the next
				      * process need not know them */
};

/* A content that is no larger goes into the journal: what many small files cost is the sync
 * of each, and they can share that one. */
#define STAGE_CARRY_MAX (64u << 10)

int stage_new(const struct stage_config *config, struct stage **out);
struct stage *stage_free(struct stage *s); /* every content put */

/* Returns new, empty, with one reference and one pin. */
int stage_create(struct stage *s, struct content **out);

/* Whether stage_create() need not make a file. */
bool stage_has_spare(struct stage *s);

/* Whether carried contents take half of what they may. */
bool stage_is_laden(struct stage *s);

/* A content of these bytes that has no file, with one reference; `bytes` (malloc'd) are
 * taken on success. With `must` more than carry_max are taken. -ENOBUFS: no room for more. */
int stage_carry(struct stage *s, char *bytes, size_t n, bool must, struct content **out);
/* Its bytes; NULL: it has a file. */
const char *content_carried(const struct content *c);

/* What it holds is carried by another content: its file may serve again. */
void content_spare(struct content *c);

/* The journal names it from now on: its name is to be durable with the next commit, and its
 * file to stay until the journal forgets it. */
void content_record(struct content *c);

#define STAGE_WHOLE UINT64_MAX /* as a size: all of the file's bytes */

/* At recovery, before any stage_create(): the file the journal names, with one reference
 * and no pin. -ENOENT, or -EBADMSG when it is shorter than `size`; bytes behind `size` are
 * cut off: no one was told they were safe. */
int stage_adopt(struct stage *s, uint64_t id, uint64_t size, struct content **out);

/* As above, of what was open in the last process: all of the file, with its patch from the
 * table if it is sparse. -ENODATA: that had no room for it. */
int stage_take_over(struct stage *s, uint64_t id, struct content **out);
/* Whether it came that way: what it says of its holes is newer than what the journal says. */
bool stage_has_taken_over(struct stage *s, uint64_t id);

/* At recovery, after the last stage_adopt(): files that no one adopted were never
 * acknowledged and are removed; with `keep` (the journal was damaged) they are moved to
 * the quarantine. Returns how many. */
int stage_sweep(struct stage *s, bool keep);

struct content *content_get(struct content *c);
/* `after`: journal sequence after which the file may vanish. Takes NULL, returns NULL. */
struct content *content_put(struct content *c, uint64_t after);

uint64_t content_id(const struct content *c);

/* A pin holds the descriptor open. content_pin() may have to open the file: blocks. What is
 * carried can be pinned too, and has no descriptor. */
int content_pin(struct content *c);
void content_unpin(struct content *c);
int content_fd(struct content *c); /* while pinned; borrowed */

/* What the file has in common with an object of the store; NULL: nothing is known. It lives
 * as long as the content and is set at most once. */
struct patch *content_patch(struct content *c);
int content_set_patch(struct content *c, struct patch *patch); /* takes it on success */
bool content_is_sparse(struct content *c); /* bytes of it are only in the store */

/* A new content with the first `size` bytes of this one, holes and patch too; pinned.
 * Blocks. */
int stage_copy(struct stage *s, struct content *from, uint64_t size,
	       struct content **out);

/* fdatasync, once: after a failure the content is dead, and this and every later call
 * returns -EIO. Blocks. */
int content_sync(struct content *c);
/* Whether what was written reads back as it was: 0, or the error of a failed write to the
 * disk, which makes the content dead like a failed sync. Starts no write. */
int content_check(struct content *c);
bool content_is_dead(struct content *c);

/* Makes the names of all files that the journal names durable. Blocks. */
int stage_sync_names(struct stage *s);

/* Removes the files of contents that have no reference and whose `after` is at most
 * `durable`. Blocks. Returns how many files went. */
int stage_reap(struct stage *s, uint64_t durable);
bool stage_has_doomed(struct stage *s);
/* What is known of the disk's space is not to be believed any more. */
void stage_look_again(struct stage *s);

/* Whether `n` more bytes may be staged now. Asks the file system now and then. */
bool stage_has_room(struct stage *s, uint64_t n);
/* What statfs may promise. */
void stage_space(struct stage *s, uint64_t *total, uint64_t *available);
/* The owner says how large the file has become, for the account of the stage. */
void content_count(struct content *c, uint64_t size);
void content_grow(struct content *c, uint64_t size);    /* as above, but never less */
void content_measure(struct content *c, uint64_t size); /* but not its holes; pinned */
uint64_t content_counted(const struct content *c);      /* its bytes in stage_used() */
uint64_t stage_used(struct stage *s);

/* CRC-64 of a range; -EBADMSG when the file is shorter. Blocks. */
int content_crc64(struct content *c, uint64_t off, uint64_t n, uint64_t *crc);
