/* SPDX-License-Identifier: Apache-2.0 */
/* Inside fs/ops*.c: what was open in the last daemon. */
#pragma once

struct call;
struct handle;

/* Opens the tree's side of a handle at its first use. Negative errno, or TREE_E_WAIT. */
int ops_reopen(struct call *c, struct handle *h, unsigned int flags);
