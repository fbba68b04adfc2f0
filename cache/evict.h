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
struct object;

/* True when something was removed, or others made room meanwhile. No lock held. */
bool evict_room(struct cache *c, uint64_t want);

/* Keeps the use below the high mark, so that writers seldom have to wait for room. */
void evict_tick(struct cache *c);

/* An object that nobody holds and whose version the store has no more: the next
 * evict_gone() takes it off the disk. cache->lock held. */
void evict_note_gone_locked(struct cache *c, const struct object *o);
void evict_gone(struct cache *c);

/* Enters what the index does not know of (after it was begun anew). */
void evict_relearn(struct cache *c);
