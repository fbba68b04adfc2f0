/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of /output's files: what is open, what was acknowledged, what is in the store. */
#pragma once

#include "fs/output_impl.h"

/* ---- output_content.c: without the lock where nothing else is said --------------------- */

/* The acknowledgement: syncs the bytes, makes them a version, syncs the record. */
int content_ack(struct output *o, struct node *n);
/* As content_ack(), without any wait: `*seq` is to become durable. TREE_E_WAIT: it is not a
 * small file, or something is in the way. */
int content_carry(struct output *o, struct node *n, uint64_t *seq);
/* Whether the last version has the bytes that are there now. */
bool content_is_saved(struct output *o, struct node *n);
/* As content_ack(), but the version may be sent while the file stays open. `lingers`: it
 * does so for longer than an fsync or a close takes. */
int content_publish(struct output *o, struct node *n, bool lingers);
/* Readies `live` for a change of bytes from `off` on; io is held for writing. */
int content_prepare(struct output *o, struct node *n, uint64_t off);
int content_truncate(struct output *o, struct node *n, uint64_t size);
/* First open: live is there, pinned. Waits for a descriptor: the lock is dropped then. */
int content_open(struct output *o, struct node *n);
/* Lock held, of an open file: what is on its way to the store, if anything, becomes `live`;
 * pinned. */
int content_take_acked(struct output *o, struct node *n);
void content_close(struct output *o, struct node *n);         /* last close */
void content_update_frozen(struct node *n);                   /* lock held */
void content_drop_retained(struct output *o, struct node *n); /* lock held */
/* Keeps the bytes of a closed, delivered file for whoever opens it next. Lock held. */
void content_retain(struct output *o, struct node *n);

/* ---- output_room.c ---------------------------------------------------------------------- */

/* Waits for space as long as the uploader may free some. -ENOSPC. */
int content_wait_room(struct output *o, uint64_t n);
/* One step of a wait for space, between two tries: frees what is kept for convenience, or
 * waits a while for an upload. -ENOSPC when that has no prospect. */
struct space_wait {
	uint64_t moved; /* output->moved when `since` was set; UINT64_MAX: not yet */
	uint64_t since;
	bool last; /* there was no prospect, and one more look was due */
};
#define SPACE_WAIT_INIT ((struct space_wait){.moved = UINT64_MAX})
int content_wait_space(struct output *o, struct space_wait *w);
/* One step of a wait for a descriptor, after a call that failed by `error`: false when it is
 * not about descriptors, or when there is no prospect of one. Lock held, and dropped while
 * it waits. */
struct descriptor_wait {
	uint64_t since, active; /* ms; 0: not yet */
};
bool content_wait_descriptor(struct output *o, int error, struct descriptor_wait *w);
/* A new staged file, pinned; waits for a descriptor. */
int content_file(struct output *o, struct content **c);
/* As above, and waits for space. */
int content_create(struct output *o, struct content **c);
/* stage_copy(), that waits for a descriptor. */
int content_copy(struct output *o, struct content *from, uint64_t size,
		 struct content **c);

/* ---- output_time.c: lock held ----------------------------------------------------------- */

/* The node's time, set by someone, becomes that of `live`. */
void content_set_time(struct node *n);
/* As above, at the first open: what was acknowledged stays the version that it is. */
void content_begin_time(struct node *n);
/* What it is where the bytes show this one. */
int64_t content_mtime(const struct node *n, int64_t live_mtime_ns);
/* When the file was last changed in any way; `st` is of its bytes. Lock held. */
int64_t content_ctime(const struct node *n, const struct stat *st);
void content_take_time(struct node *n, const struct stat *st); /* theirs; lock held */

/* ---- output_patch.c: contents and their object ------------------------------------------ */

/* fallocate(2); without a mode it changes no byte, but the size. io is held. */
int content_allocate(struct content *c, int mode, uint64_t off, uint64_t len);

/* Makes something live of a file whose bytes are in the store, or nowhere yet; io is held
 * for writing. */
int content_make_live(struct output *o, struct node *n);
/* Whether a version is on its way to the store, as it is when the object was brought home
 * because its key is wanted: what the store has need not be asked. */
bool content_is_home(struct output *o, struct node *n);
/* As ftruncate(2), of a sparse `live`. */
int content_truncate_sparse(struct output *o, struct node *n, uint64_t size);
/* A sparse file of too many pieces gets what it lacks, durably. */
int content_unscatter(struct output *o, struct node *n, struct content *c);
/* `copy` was made of `from` while the object of both may have become another. Lock held. */
void content_follow_rebase(struct content *copy, struct content *from);
/* The node's object is `n->stored` now and was `etag`, with the same bytes where the
 * contents refer to it. Lock held. */
void content_rebase(struct node *n, const char *etag);
/* Its object holds the first n->stored.size bytes of `c`. Lock held. */
void content_remember(struct output *o, struct node *n, struct content *c);
