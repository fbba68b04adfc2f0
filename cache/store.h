/* SPDX-License-Identifier: Apache-2.0 */
/* From memory to disk: what a fill becomes when it is ready. */
#pragma once

#include <stdbool.h>

struct cache;
struct fill;

/* Hands a ready fill to the writers; never blocks. Where the disk is out of use or behind,
 * the fill simply stays in memory until that is wanted back. */
void store_fill(struct fill *f);

/* Whether this cache has a disk that can be used now. */
bool store_disk_usable(struct cache *c);
