/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading that shows nothing of a large object before all of it has been fetched and the
 * verdict on it is right (proof.h): where a mount asks for that, and everywhere after a
 * verdict was wrong.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/object.h"

struct wait;

/* Whether this object is to be read so. Lock held. */
bool guard_wanted_locked(const struct object *o, enum object_verify verify);
/* Whether it may be shown now: the verdict is right, or the store gave nothing to compare
 * with. Lock held. */
bool guard_passes_locked(const struct object *o);

/* Fetches what is absent, and waits until the object passes. -EFBIG: it cannot be kept
 * whole; -EIO: it is wrong again and again; -ETIMEDOUT, -EINTR. */
int guard_wait(struct object *o, const struct wait *w);
/* What had passed has gone in part: asks for the block around `at`, which can be compared
 * with what it was. */
int guard_fetch(struct object *o, uint64_t at, const struct wait *w);
