/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receipt of a drain: a JSON object with a member "files", which may be long and is told
 * in pieces. Does not change and needs nothing of the mount that gave it: any threads may
 * read it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct buf;
struct ledger_view;
struct receipt;

/* `object` has the members but "files" and "files_left_out", without the closing brace; its
 * text is taken. `files` is taken, also on failure; NULL: there are none. -ENOMEM. */
int receipt_new(struct buf *object, struct ledger_view *files, struct receipt **out);
struct receipt *receipt_free(struct receipt *r); /* NULL, returns NULL */

/* Calls fn with the elements of the array, each time some with commas between them, until it
 * says other than 0, which is returned then. *unread: lines that cannot be read. */
int receipt_files(const struct receipt *r,
		  int (*fn)(void *arg, const char *text, size_t n), void *arg,
		  uint64_t *unread);
/* Appends elements to those that lie in the file, for whoever reads them later. -EIO and the
 * like. */
int receipt_keep(FILE *files, const char *text, size_t n);
/* Appends the object without "files". */
void receipt_object(const struct receipt *r, uint64_t unread, struct buf *b);
