/* SPDX-License-Identifier: Apache-2.0 */
/* A mount name space for a test that mounts. */
#pragma once

#include <stdbool.h>

/* Moves the process into one of its own: nothing of it is left behind or seen outside. Other
 * tests' FUSE mounts are not in it, for a copy would keep those alive. False: not root. */
bool lib_apart(void);
