/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store has of us since the mount, key by key: for the receipt of a drain.
 *
 * A file of the state directory to which changes are appended (JOURNAL.md, "Ledger"); memory
 * is taken only while it is read. Changes gather in memory that may outlive the process, and
 * are written by whoever has no lock; where that memory is handed over, the next process has
 * them all. Of anything else the file says nothing: a new mount begins a new one, and it is
 * never synced.
 *
 * What could not be noted or read is counted, and never keeps anybody from anything.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_FILE "ledger"
#define LEDGER_FILE_MAX                                                                  \
	(1ull << 30) /* bytes of it; a million lines, however long the keys */

struct ledger;
struct ledger_view;

struct ledger_line {
	const char *key; /* PATH_KEY_MAX bytes at most */
	const char *etag;
	uint64_t size, crc64;
};

/* Of the memory that is handed over: zeroes at first. */
size_t ledger_memory_size(void);

/* `dirfd` is borrowed, and so is `memory`; NULL: nothing is handed over. `goes_on`: a process
 * before this one had this memory and this file. Never fails for the file's sake. */
int ledger_open(int dirfd, void *memory, bool goes_on, struct ledger **out);
/* At the end of the mount: removes the file, too. NULL. */
struct ledger *ledger_close(struct ledger *l);

/* The key has this object now; or has none of ours any more. Thread-safe, no disk: the caller
 * may hold any lock. In the order of these calls, which is the caller's. */
void ledger_note(struct ledger *l, const struct ledger_line *line);
void ledger_forget(struct ledger *l, const char *key);

/* Writes what has gathered, if that is much and nobody else does; no lock held. */
void ledger_write(struct ledger *l);

/* What has been noted by now. It stays as it is, whatever becomes of the ledger. Waits for the
 * disk. -ENOMEM. */
int ledger_look(struct ledger *l, struct ledger_view **out);
struct ledger_view *ledger_view_free(struct ledger_view *v);
/* Changes that it does not show. */
uint64_t ledger_view_left_out(const struct ledger_view *v);
/* Calls fn for each key once, in the order in which they were noted, until it says other than
 * 0. Thread-safe. Returns what fn said, or the error of the file. */
int ledger_view_each(const struct ledger_view *v,
		     int (*fn)(void *arg, const struct ledger_line *line), void *arg);
uint64_t ledger_view_count(const struct ledger_view *v);
