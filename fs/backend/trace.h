/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that writes one debug line (area origin) for each request: what was asked, what
 * came of it, how long it took. */
#pragma once

struct origin;

/* Takes `below`, also on failure. */
int trace_origin_new(struct origin *below, struct origin **out);
