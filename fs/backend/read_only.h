/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that refuses whatever would change the store: -EROFS, before any request. */
#pragma once

struct origin;

/* Takes `below`, also on failure. */
int read_only_origin_new(struct origin *below, struct origin **out);
