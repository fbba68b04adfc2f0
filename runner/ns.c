/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "fs/base/err.h"

struct call {
	int (*fn)(void *arg);
	void *arg;
	int result;
};

static void *run(void *p)
{
	struct call *c = p;

	/* A thread that shares its root and current directory may not change its
	 * mount namespace. */
	c->result = unshare(CLONE_FS) ? err_origin(-errno) : c->fn(c->arg);
	return NULL;
}

int ns_call(int (*fn)(void *arg), void *arg)
{
	struct call c = {.fn = fn, .arg = arg};
	sigset_t all, old;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, run, &c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_origin(-r);
	pthread_join(thread, NULL);
	return c.result;
}

int ns_enter_new(int flag)
{
	int fd;

	if (unshare(flag))
		return err_origin(-errno);
	fd = open(flag == CLONE_NEWNET ? "/proc/thread-self/ns/net"
				       : "/proc/thread-self/ns/mnt",
		  O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_origin(-errno) : fd;
}
