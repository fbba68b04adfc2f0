/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a child process through its system calls and ends it at a chosen one. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* In the child, first thing: waits until the parent follows. */
void lib_trace_me(void);

/* In the parent, which has no other child: follows `pid`, its threads and its children to
 * their end. Each system call counts twice, when it is entered and when it returns; at
 * count `kill_at` (0: never) the whole process dies of SIGKILL, with the call not begun or
 * just done. Returns the wait status of `pid`; *count is how far it came. */
int lib_trace(pid_t pid, uint64_t kill_at, uint64_t *count);
