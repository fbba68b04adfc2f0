/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/heap.h"

#include <malloc.h>
#include <stdbool.h>

#define ARENAS 2 /* one is busy while it is trimmed */

static bool own;

void heap_own(void)
{
	own = true;
	(void)mallopt(M_ARENA_MAX, ARENAS);
}

void heap_trim(void)
{
	if (own)
		(void)malloc_trim(0);
}
