/* SPDX-License-Identifier: Apache-2.0 */
/* A store in another process: what was asked for before the asker died is still carried out. */
#pragma once

#include <stdint.h>

#include "cache/origin.h"

/* Requests go to who serves the sockets, one at a time over each. `like` says what that store
 * can do. Takes the sockets. For a process that never ends otherwise than at once. */
struct origin *lib_remote_new(const struct origin *like, const int *sockets, int count);

struct lib_remote_hooks {
	/* A request has come whole; and was carried out. */
	void (*begin)(void *arg, enum origin_op op);
	void (*end)(void *arg);
	void *arg;
};
/* Carries out what comes over the socket, until its other end is closed. */
void lib_remote_serve(int socket, struct origin *origin,
		      const struct lib_remote_hooks *hooks);

/* All n bytes; false: the other end is closed. */
bool lib_remote_send(int socket, const void *p, size_t n);
bool lib_remote_receive(int socket, void *p, size_t n);
