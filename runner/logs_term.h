/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal's side of the log pump: a bounded queue of finished lines and a thread
 * that writes them. Whoever adds a line waits for a terminal that is slow, but not for one
 * that stands still: then lines are counted instead of kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct logs_term;

#define LOGS_TERM_QUEUE_MAX (1 << 20) /* bytes */

/* `fd` is borrowed; -1: everything is thrown away. */
int logs_term_new(struct logs_term **out, int fd) __attribute__((warn_unused_result));

/* A name that will be used: lines are indented to the longest. */
void logs_term_expect(struct logs_term *t, const char *name);

/* "name | text", printable. `text` has n bytes of any kind and no newline. */
void logs_term_add(struct logs_term *t, const char *name, const char *text, size_t n);

/* Has everything been written? Waits until clock_mono_ms() == deadline_ms. */
bool logs_term_drain(struct logs_term *t, uint64_t deadline_ms);

/* From now on nothing is shown, and nobody waits in logs_term_add(). */
void logs_term_stop(struct logs_term *t);

/* Ends the thread at once, also in the middle of a write. Takes NULL, returns NULL. */
struct logs_term *logs_term_free(struct logs_term *t);

/* What may be shown of the bytes: printable text and tabs; colours go, the rest becomes
 * \xNN. Pure; for the tests. `out` has 4 * n + 1 bytes; returns what it used. */
size_t logs_term_clean(char *out, const char *text, size_t n);
