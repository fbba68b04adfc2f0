/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/wait.h"

#include <errno.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"

int wait_check(const struct wait *w)
{
	if (!w)
		return 0;
	if (w->interrupted && atomic_load(w->interrupted))
		return err_origin(-EINTR);
	if (w->deadline_ms != UINT64_MAX && clock_mono_ms() >= w->deadline_ms)
		return err_origin(-ETIMEDOUT);
	return 0;
}

int wait_on(const struct wait *w, struct lock *l, pthread_cond_t *c)
{
	uint64_t until;
	int r = wait_check(w);

	if (r < 0)
		return err_trace(r);
	/* Slices, because whoever raises the flag knows neither lock nor condition of the
	 * thread it wants back. */
	until = clock_mono_ms() + WAIT_SLICE_MS;
	if (w && w->deadline_ms < until)
		until = w->deadline_ms;
	r = lock_wait(l, c, until);
	return r == LOCK_E_TIMEOUT ? err_trace(wait_check(w)) : 0;
}
