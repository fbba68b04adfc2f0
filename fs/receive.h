/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading requests so that a daemon's death costs none of them.
 *
 * A request is copied into the daemon's memory before the kernel counts it among those that
 * it can send again. If the daemon is killed in the middle of the copy and a page of its
 * buffer is not there, the kernel cannot bring it for a process that is dying: the request
 * ends with EIO, and so does the program's call. So buffers are there as a whole, and
 * locked, before anything is read into them; and they are shared memory, of which neither
 * fork() nor the OOM killer's reaper takes pages away.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define RECEIVE_SIZE ((1u << 20) + (64u << 10)) /* more than the largest request */
#define RECEIVE_SMALL                                                                    \
	(64u << 10) /* … than the largest that is answered, without writes */

/* Makes the first `need` bytes of a buffer be there. Those of another process that has the
 * same memory do not count. False: without the right to lock memory, or as much of it, they
 * can be swapped out; nearly always that is enough. */
bool receive_ready(char *buffer, size_t need);

/* The next request into the buffer, and its size. */
enum {
	RECEIVE_E_NONE = 1, /* the descriptor does not wait, or a signal came */
	RECEIVE_E_ENDED     /* the connection has */
};
int receive(int fd, char *buffer, size_t *size);
