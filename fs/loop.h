/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a daemon with a hand-over: like the library's own, but it looks at each
 * request before the library does, and starts with those that the last daemon had not
 * answered.
 */
#pragma once

#include <stdbool.h>

struct fuse_session;
struct handover;
struct loop;

/* writes: the mount takes some, so that requests may be large. */
int loop_new(struct fuse_session *fuse, struct handover *handover,
	     unsigned int threads_max, bool writes, struct loop **out);
struct loop *loop_free(struct loop *l); /* takes NULL, returns NULL */

/* Serves until the connection has ended, or the session was told to and loop_wake() said
 * so. 0 or a negative errno. */
int loop_run(struct loop *l);
void loop_wake(struct loop *l);
