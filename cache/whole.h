/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an object is whole: every page on disk and checked by this process, and the whole
 * of it right by the store's CRC-64 (combined from its blocks) where the store gives one.
 * Only then may the kernel read the file without us.
 *
 * An object that fails the store's CRC-64 is dropped and fetched again; after
 * OBJECT_FAILURES_MAX times its reads fail.
 */
#pragma once

struct object;

/* Finds out in the background, unless that is under way. */
void whole_start(struct object *o);
