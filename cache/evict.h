/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes room on disk: the least recently used large objects and packs go, by unlinking,
 * until a little more than what was asked for is free. What someone has open goes on being
 * readable. Objects that this process has open go last.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cache;

/* True when something was removed, or others made room meanwhile. No lock held. */
bool evict_room(struct cache *c, uint64_t want);

/* Keeps the use below the high mark, so that writers seldom have to wait for room. */
void evict_tick(struct cache *c);

/* Enters what the index does not know of (after it was begun anew). */
void evict_relearn(struct cache *c);
