/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one hard limit on data buffers of a process. Buffers come in powers of two from
 * 4 KiB to 1 MiB, page aligned, and are kept for reuse: what counts against the limit is
 * what is mapped, in use or not.
 *
 * When nothing is left, a caller that must have a buffer waits and one that would only
 * like one (a prefetch) goes without. Nothing here ends in -ENOMEM while the limit itself
 * can be had from the system.
 *
 * Locks: the budget's own is a leaf, except that the reclaim function is called without it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct budget;
struct wait;

#define BUDGET_BUFFER_MIN 4096u
#define BUDGET_BUFFER_MAX (1u << 20)
#define BUDGET_SIZE_MIN (8u << 20) /* a smaller limit is raised to this */

/* Gives back buffers it can do without (with budget_give) until `want` bytes are free or
 * there are no more. Called without locks. */
typedef void (*budget_reclaim_fn)(void *arg, uint64_t want);

int budget_new(struct budget **out, uint64_t bytes_max);
struct budget *budget_free(struct budget *b); /* all buffers are back */
void budget_set_reclaim(struct budget *b, budget_reclaim_fn fn, void *arg);

/* A buffer of at least n bytes (n <= BUDGET_BUFFER_MAX). Waits; -EINTR, -ETIMEDOUT. */
int budget_take(struct budget *b, size_t n, const struct wait *w, void **out);

/* The same without waiting, and only if `leave` bytes stay for others; else NULL. */
void *budget_try(struct budget *b, size_t n, uint64_t leave);

/* n as it was asked for. p NULL is allowed. */
void budget_give(struct budget *b, void *p, size_t n);

uint64_t budget_max(const struct budget *b);
uint64_t budget_in_use(struct budget *b);
uint64_t budget_peak(struct budget *b); /* most ever mapped */
