/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an object is whole: every page on disk and checked, and the verdict on it right
 * (proof.h) where the store gives a CRC-64. Only then may the kernel read the file without
 * us.
 *
 * Checked by this process, that is, or by another one that has marked the file since it
 * was last written to (datafile_mark()).
 */
#pragma once

#include <stdbool.h>

struct datafile;
struct object;

/* Finds out in the background, unless that is under way. */
void whole_start(struct object *o);

/* Finds out now, in this thread, for as long as a reader may be kept waiting; what is left
 * goes on in the background. */
bool whole_now(struct object *o);
/* Whether whole_now() may be worth its time. What would take longer is begun in the
 * background. Does not block. */
bool whole_soon(struct object *o, const struct datafile *file);
