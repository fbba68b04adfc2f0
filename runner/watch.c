/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"

struct watched {
	struct watch *watch;
	const char *name;
	size_t replica;
	pthread_t thread;
};

struct watch {
	struct engine *engine;
	int read_fd,
		write_fd; /* a pipe; events are smaller than PIPE_BUF, so they do not mix */
	struct watched *items;
	size_t count, max;
};

_Static_assert(sizeof(struct watch_event) <= PIPE_BUF, "events are written in one piece");

int watch_new(struct engine *e, size_t replica_max, struct watch **out)
{
	struct watch *w;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_origin(-errno);
	/* The reader asks until there is none; a writer may wait for it. */
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
		close(fds[0]);
		close(fds[1]);
		return err_origin(-errno);
	}
	w = xcalloc(1, sizeof(*w));
	w->engine = e;
	w->read_fd = fds[0];
	w->write_fd = fds[1];
	w->items = xcalloc(replica_max, sizeof(*w->items));
	w->max = replica_max;
	*out = w;
	return 0;
}

static void *wait_for_one(void *arg)
{
	struct watched *item = arg;
	struct watch *w = item->watch;
	struct watch_event event = {.replica = item->replica};
	struct why why;

	event.error = w->engine->ops->wait(w->engine, item->name, UINT64_MAX,
					   &event.status, &event.oom, &why);
	event.ended_ms = clock_real_ns() / 1000000;
	/* The pipe has room for every replica's one event. */
	check(io_write(w->write_fd, &event, sizeof(event)) == 0);
	return NULL;
}

int watch_add(struct watch *w, const char *name, size_t replica)
{
	struct watched *item = &w->items[w->count];
	int r;

	check(w->count < w->max);
	*item = (struct watched){.watch = w, .name = name, .replica = replica};
	r = pthread_create(&item->thread, NULL, wait_for_one, item);
	if (r)
		return err_origin(-r);
	w->count++;
	return 0;
}

int watch_fd(const struct watch *w)
{
	return w->read_fd;
}

int watch_next(struct watch *w, struct watch_event *out)
{
	ssize_t n = read(w->read_fd, out, sizeof(*out));

	if (n == (ssize_t)sizeof(*out))
		return 0;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? WATCH_E_NONE
							    : err_origin(-EIO);
}

struct watch *watch_free(struct watch *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < w->count; i++)
		pthread_join(w->items[i].thread, NULL);
	close(w->read_fd);
	close(w->write_fd);
	free(w->items);
	free(w);
	return NULL;
}
