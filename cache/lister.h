/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches listings from the store, a long one by several ranges of keys at once.
 *
 * The first pages come one after another. A listing that goes on after LISTER_ALONE pages
 * is cut: where, is a guess from the keys so far (split.h), and what proves long is cut
 * again. Ranges never overlap and leave nothing out, whatever the keys are. The requests
 * that bring less than a page stay under LISTER_WASTE plus a quarter of those that an
 * undivided listing would have cost.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

#define LISTER_ALONE 3
#define LISTER_WASTE 8
#define LISTER_PARALLEL 16 /* requests at once, of all listings */

struct lister;
struct listing;

int lister_new(struct origin *o, struct lister **out); /* o is borrowed */
struct lister *lister_free(struct lister *x);          /* cancels, waits */

/* Fetches `dir` into the listing, to which it takes a reference. `before` (NULL: none) may
 * fill it from elsewhere: 0 ends it there; `after` is called when all has come (0) or not
 * (errno), before readers are told. Both run on the lister's threads, with `arg`. false:
 * too much to do, nothing was begun. */
typedef int (*lister_before_fn)(void *arg, struct listing *l);
typedef void (*lister_after_fn)(void *arg, const char *dir, struct listing *l, int r);
bool lister_start(struct lister *x, struct listing *l, const char *dir,
		  lister_before_fn before, lister_after_fn after, void *arg);

uint64_t lister_pages(struct lister *x); /* requests sent */
