/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What patches of sparse files say (patch.h), in memory that outlives the process: without
 * it the next one could not tell a file's holes from its zeros.
 *
 * An entry is of one content. It has the ranges that the file holds itself, as they were
 * added; those below `len` count, and behind that all is the file's own. Which bytes the
 * file holds does not depend on what the object is called: when the object becomes another
 * with the same bytes, the entry has both until it becomes a third. The next process takes
 * the one that its node has, which may be either: the journal is told behind the entry.
 *
 * One process at a time uses the memory and may end between any two instructions: an entry
 * counts from the store of its `content`, a range from that of `count`. A range is added
 * behind the bytes: a write that was cut off in between was not answered and comes again.
 *
 * Each entry has one user at a time; the table is thread-safe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/patch.h"

struct patch_table;

struct patch_entry {
	_Atomic uint64_t content; /* its number; 0: free */
	_Atomic uint64_t len;
	_Atomic uint32_t count; /* of `own` */
	_Atomic uint32_t which; /* of `object` is the newer */
	atomic_bool lost;       /* there was no room for all ranges */
	struct patch_object object[2];
	struct range own[];
};

/* The memory is the caller's, at a page's start, and zeroed before the first use. Of a
 * large shared mapping only what is in use takes memory. */
size_t patch_table_size(void);
/* Finds what the last process left there; patch_table_free() leaves all of it. */
int patch_table_new(void *memory, struct patch_table **out);
struct patch_table *patch_table_free(struct patch_table *t); /* takes NULL */

/* What the last process left of a content, or NULL; the caller's then. */
struct patch_entry *patch_table_find(struct patch_table *t, uint64_t content);
/* Frees what nobody has asked for. Once, before the first patch_entry_new(). */
void patch_table_sweep(struct patch_table *t);

/* NULL: no room. */
struct patch_entry *patch_entry_new(struct patch_table *t, uint64_t content,
				    const struct patch_object *object, uint64_t len,
				    const struct ranges *own);
void patch_entry_free(struct patch_table *t, struct patch_entry *e);

/* The file holds [off, end), too; `own`: all that it holds. Returns the entry, which may
 * have become another. Without room it is lost. */
struct patch_entry *patch_entry_add(struct patch_table *t, struct patch_entry *e,
				    uint64_t off, uint64_t end, const struct ranges *own);
/* The object is this one now, too. */
void patch_entry_set_object(struct patch_entry *e, const struct patch_object *object);
void patch_entry_set_len(struct patch_entry *e, uint64_t len);
/* The ranges that count. */
int patch_entry_own(const struct patch_entry *e, struct ranges *out);
