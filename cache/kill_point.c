/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/kill_point.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool kill_point_armed;
static char armed_name[64];
static atomic_long countdown;

void kill_point_init(void)
{
	const char *at = getenv("SLUICE_KILL_AT");
	const char *colon = at ? strrchr(at, ':') : NULL;
	size_t n = at ? (colon ? (size_t)(colon - at) : strlen(at)) : 0;

	if (kill_point_armed || n == 0 || n >= sizeof(armed_name))
		return;
	memcpy(armed_name, at, n);
	armed_name[n] = '\0';
	atomic_store(&countdown, colon ? strtol(colon + 1, NULL, 10) : 1);
	kill_point_armed = true;
}

void kill_point_arrive(const char *name)
{
	if (strcmp(name, armed_name) != 0)
		return;
	if (atomic_fetch_sub(&countdown, 1) != 1)
		return;
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}
