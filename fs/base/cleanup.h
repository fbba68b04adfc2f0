/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound cleanup: `_cleanup_(close_fdp) int fd = -1;` and steal() to hand over. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void close_fdp(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* The pointer leaves this scope; what remains is NULL. */
#define steal(p)                                                                         \
	({                                                                               \
		__typeof__(p) _p = (p);                                                  \
		(p) = NULL;                                                              \
		_p;                                                                      \
	})

static inline int steal_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}
