/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to stop, as something to wait for. SIGINT, SIGTERM and SIGHUP are blocked and
 * read from a descriptor, so that no step is torn in the middle: each one that takes long
 * waits here and ends in its own order.
 */
#pragma once

#include <stdint.h>

struct signals {
	int fd;
	unsigned int count; /* requests so far: one asks to stop, two to hurry */
	int first;          /* the signal that came first */
};

enum {
	SIGNALS_E_TIMEOUT = 1,
	SIGNALS_E_STOP = 2
};

/* Before any thread starts: all of them inherit the blocked signals. SIGPIPE is ignored. */
int signals_open(struct signals *s);
void signals_close(struct signals *s);

/* Waits until `fd` (-1: none) is readable or hung up: 0; or a request to stop has come
 * during this call: SIGNALS_E_STOP; or the deadline (clock_mono_ms(); UINT64_MAX: never):
 * SIGNALS_E_TIMEOUT. */
int signals_wait(struct signals *s, int fd, uint64_t deadline_ms);

/* Counts what has come meanwhile, without waiting. */
void signals_poll(struct signals *s);
