/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that accepts, and one per caller: callers are few (a person, the runner) and
 * wait long.
 *
 * A caller may send one descriptor with its request.
 *
 * Caller: reading -> status sent -> closed
 *         reading -> draining -> result sent -> closed                        (flush)
 *         reading -> draining -> unmounted -> finish seen -> result sent      (stop)
 *
 * Failure modes: a caller that goes away is noticed at the next write, and what it asked for
 * is given up, unless it is unmounted already. A caller that sends nothing is cut off after
 * REQUEST_TIMEOUT_S. Those who wait leave room for those who only look; who finds none is
 * told so.
 *
 * On close: control_finish() wakes the stops; control_stop() waits a moment for callers and
 * leaves those that still drain to the end of the process.
 */
#include "fs/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/control_send.h"
#include "fs/mounts.h"
#include "fs/receipt.h"

#define CLIENTS_MAX 32
#define WAITING_MAX 16 /* of them, for uploads or a job */
#define REQUEST_TIMEOUT_S 5
#define STOP_GRACE_MS 1000
/* A stop whose unmount is not over yet: the connection ends first, then the kernel forgets
 * inodes, which takes seconds for a million of them; or whose caller is being told as many
 * files. Below the patience of the caller. */
#define UNMOUNT_GRACE_MS 25000

struct control {
	struct lock lock; /* clients, waiting, stopping, finished, result, receipt */
	pthread_cond_t changed;
	unsigned int clients;
	unsigned int waiting;  /* of them, for uploads or a job */
	unsigned int stopping; /* of them, from ops->unmount() on to the result's end */
	bool finished;
	int result;
	struct receipt *receipt;
	const struct control_ops *ops;
	void *arg;
	int run_fd; /* the run directory */
	int listen_fd;
	int wake_fd[2]; /* closing [1] ends the accepting thread */
	char name[MOUNTS_SOCKET_NAME_MAX];
	pthread_t thread;
};

struct client {
	struct control *control;
	int fd;
};

/* A drain under way, watched by the thread of its caller. */
struct drain {
	struct control *control;
	struct lock lock; /* done, result, receipt */
	pthread_cond_t changed;
	bool done;
	int result;
	uint64_t deadline_ms;
	atomic_bool given_up;
	struct receipt *receipt;
};

/* Of "flush" and "stop". */
struct drain_request {
	uint64_t deadline_ms;
	bool files; /* are wanted */
};

/* ---- one caller ------------------------------------------------------------------------ */

static int send_progress(const struct control *c, int fd)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT, object = BUF_INIT;

	c->ops->progress(c->arg, &object);
	if (buf_error(&object) < 0)
		return err_trace(buf_error(&object));
	json_begin_object(&b, NULL);
	json_put_raw(&b, "progress", object.data ? object.data : "{}");
	json_end_object(&b);
	return err_trace(control_send_line(fd, &b));
}

static void *run_drain(void *arg)
{
	struct drain *d = arg;
	int r = d->control->ops->flush(d->control->arg, d->deadline_ms, &d->given_up,
				       &d->receipt);

	lock_take(&d->lock);
	d->result = r;
	d->done = true;
	pthread_cond_broadcast(&d->changed);
	lock_drop(&d->lock);
	return NULL;
}

/* Drains and tells the caller how far it is. -EPIPE: that has left. */
static int drain_with_progress(struct control *c, int fd, uint64_t deadline_ms,
			       struct receipt **receipt)
{
	struct drain d = {.control = c, .deadline_ms = deadline_ms};
	pthread_t thread;
	int r;

	lock_init(&d.lock);
	lock_cond_init(&d.changed);
	r = pthread_create(&thread, NULL, run_drain, &d);
	if (r)
		return err_origin(-r);
	lock_take(&d.lock);
	while (!d.done) {
		lock_wait(&d.lock, &d.changed, clock_mono_ms() + CONTROL_PROGRESS_MS);
		if (d.done)
			break;
		lock_drop(&d.lock);
		if (!d.given_up && send_progress(c, fd) < 0)
			d.given_up = true;
		lock_take(&d.lock);
	}
	lock_drop(&d.lock);
	pthread_join(thread, NULL);
	pthread_cond_destroy(&d.changed);
	lock_fini(&d.lock);
	*receipt = d.receipt;
	return d.given_up ? err_origin(-EPIPE) : d.result;
}

static void do_flush(struct control *c, int fd, const struct drain_request *q)
{
	struct receipt *receipt = NULL;
	int r = drain_with_progress(c, fd, q->deadline_ms, &receipt);

	control_send_receipt(fd, q->files, r, NULL, receipt);
	receipt_free(receipt);
}

/* `*receipt` is of the drain before, and may be replaced. */
static void stop(struct control *c, int fd, const struct drain_request *q,
		 struct receipt **receipt)
{
	_cleanup_(buf_fini) struct buf elsewhere = BUF_INIT;
	int r = c->ops->unmount(c->arg, q->deadline_ms, &elsewhere);

	if (r == CONTROL_E_ELSEWHERE) {
		/* Also what was written here before it was unmounted. */
		*receipt = receipt_free(*receipt);
		r = drain_with_progress(c, fd, q->deadline_ms, receipt);
		control_send_receipt(fd, q->files, r,
				     elsewhere.data ? elsewhere.data : "", *receipt);
		return;
	}
	if (r != 0) {
		control_send_receipt(fd, q->files, r, NULL, *receipt);
		return;
	}
	lock_take(&c->lock);
	while (!c->finished)
		lock_wait(&c->lock, &c->changed, UINT64_MAX);
	lock_drop(&c->lock);
	control_send_receipt(fd, q->files, c->result, NULL, c->receipt);
}

static void do_stop(struct control *c, int fd, const struct drain_request *q)
{
	struct receipt *receipt = NULL;
	int r = drain_with_progress(c, fd, q->deadline_ms, &receipt);

	if (r < 0) {
		control_send_receipt(fd, q->files, r, NULL, receipt);
	} else {
		lock_take(&c->lock);
		c->stopping++;
		lock_drop(&c->lock);
		stop(c, fd, q, &receipt);
		lock_take(&c->lock);
		c->stopping--;
		pthread_cond_broadcast(&c->changed);
		lock_drop(&c->lock);
	}
	receipt_free(receipt);
}

/* Jobs go on without their caller: only the watching ends with it. */
static void watch_warm(struct control *c, int fd, uint64_t id, bool wait)
{
	_cleanup_(buf_fini) struct buf job = BUF_INIT;
	int r = c->ops->warm_wait(c->arg, id, 0, &job);

	while (wait && r == CONTROL_E_BUSY) {
		_cleanup_(buf_fini) struct buf line = BUF_INIT;

		json_begin_object(&line, NULL);
		json_put_raw(&line, "progress", job.data ? job.data : "{}");
		json_end_object(&line);
		if (control_send_line(fd, &line) < 0)
			return;
		buf_reset(&job);
		r = c->ops->warm_wait(c->arg, id, clock_mono_ms() + CONTROL_PROGRESS_MS,
				      &job);
	}
	control_send_result(fd, r == CONTROL_E_BUSY ? 0 : r, NULL, job.data);
}

static void do_warm(struct control *c, int fd, int *passed, bool wait)
{
	struct why why = {""};
	uint64_t id;
	int r;

	if (*passed < 0) {
		control_send_result(fd, -EINVAL, "no list came with the request", NULL);
		return;
	}
	r = c->ops->warm(c->arg, steal_fd(passed), &id, &why);
	if (r < 0)
		control_send_result(fd, r, why.text, NULL);
	else
		watch_warm(c, fd, id, wait);
}

/* The descriptor that came with a message, if one did; of several the first. */
static void take_descriptor(struct msghdr *m, int *passed)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
			if (*passed < 0)
				*passed = fd;
			else
				close(fd);
		}
	}
}

/* One line, without its newline. */
static int read_request(int fd, char *line, int *passed)
{
	size_t n = 0;

	while (n < CONTROL_LINE_MAX) {
		char control[CMSG_SPACE(4 * sizeof(int))];
		struct iovec part = {line + n, CONTROL_LINE_MAX - n};
		struct msghdr m = {.msg_iov = &part,
				   .msg_iovlen = 1,
				   .msg_control = control,
				   .msg_controllen = sizeof(control)};
		ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
		char *end;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_origin(-errno);
		take_descriptor(&m, passed);
		if (got == 0)
			return err_origin(-EPIPE);
		end = memchr(line + n, '\n', (size_t)got);
		n += (size_t)got;
		if (end) {
			*end = '\0';
			return 0;
		}
	}
	return err_origin(-EMSGSIZE);
}

static void send_busy(int fd)
{
	control_send_result(fd, -EBUSY,
			    "busy: too many are waiting for its answers; try again",
			    NULL);
}

static bool take_waiting(struct control *c)
{
	lock_scope(&c->lock);
	if (c->waiting == WAITING_MAX)
		return false;
	c->waiting++;
	return true;
}

/* Where callers wait: false without room for another one. */
static bool dispatch_waiting(struct control *c, int fd, const char *command,
			     const json_t *request, int *passed)
{
	const json_t *timeout = json_object_get(request, "timeout_ms");
	struct drain_request q = {
		.deadline_ms = UINT64_MAX,
		.files = json_is_true(json_object_get(request, "files")),
	};

	if (json_is_integer(timeout) && json_integer_value(timeout) >= 0)
		q.deadline_ms = clock_mono_ms() + (uint64_t)json_integer_value(timeout);
	if (!take_waiting(c))
		return false;
	if (!strcmp(command, "flush"))
		do_flush(c, fd, &q);
	else if (!strcmp(command, "stop"))
		do_stop(c, fd, &q);
	else
		do_warm(c, fd, passed, json_is_true(json_object_get(request, "wait")));
	lock_take(&c->lock);
	c->waiting--;
	lock_drop(&c->lock);
	return true;
}

static void dispatch(struct control *c, int fd, const json_t *request, int *passed)
{
	const char *command = json_string_value(json_object_get(request, "command"));

	if (!command) {
		control_send_result(fd, -EINVAL, "no command in the request", NULL);
	} else if (!strcmp(command, "status")) {
		_cleanup_(buf_fini) struct buf b = BUF_INIT;

		c->ops->status(c->arg, &b);
		if (control_send_line(fd, &b) < 0)
			log_debug(LOG_CONTROL, "caller left before its status");
	} else if (!strcmp(command, "flush") || !strcmp(command, "stop") ||
		   !strcmp(command, "warm")) {
		if (!dispatch_waiting(c, fd, command, request, passed))
			send_busy(fd);
	} else if (!strcmp(command, "warm-cancel")) {
		json_int_t id = json_integer_value(json_object_get(request, "id"));
		int r = c->ops->warm_cancel(c->arg, id > 0 ? (uint64_t)id : 0);

		control_send_result(fd, r, r < 0 ? "no such job runs" : NULL, NULL);
	} else {
		control_send_result(fd, -EINVAL, "unknown command", NULL);
	}
}

static void *serve_client(void *arg)
{
	struct client *client = arg;
	struct control *c = client->control;
	char line[CONTROL_LINE_MAX + 1];
	_cleanup_(close_fdp) int passed = -1;
	json_t *request = NULL;
	bool keep_open;

	if (read_request(client->fd, line, &passed) == 0) {
		request = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		dispatch(c, client->fd, request, &passed);
		json_decref(request);
	}
	lock_take(&c->lock);
	keep_open = c->finished; /* its end tells the caller of "stop" that we are gone */
	if (!keep_open)
		close(client->fd);
	c->clients--;
	pthread_cond_broadcast(&c->changed);
	lock_drop(&c->lock);
	free(client);
	return NULL;
}

/* ---- accepting ------------------------------------------------------------------------- */

static bool may_call(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	if (peer.uid == 0 || peer.uid == geteuid())
		return true;
	log_warn("control socket refused a caller uid=%u pid=%d", (unsigned int)peer.uid,
		 (int)peer.pid);
	return false;
}

enum slot {
	SLOT_TAKEN,
	SLOT_NONE, /* so many are there */
	SLOT_OVER
};

static enum slot take_slot(struct control *c)
{
	lock_scope(&c->lock);
	if (c->finished)
		return SLOT_OVER;
	if (c->clients == CLIENTS_MAX)
		return SLOT_NONE;
	c->clients++;
	return SLOT_TAKEN;
}

static void start_client(struct control *c, int fd)
{
	struct timeval timeout = {.tv_sec = REQUEST_TIMEOUT_S};
	struct client *client;
	pthread_attr_t attr;
	enum slot slot = SLOT_OVER;
	pthread_t thread;
	int r = -1;

	if (may_call(fd))
		slot = take_slot(c);
	if (slot != SLOT_TAKEN) {
		if (slot == SLOT_NONE)
			send_busy(fd); /* one line: the socket's buffer takes it */
		close(fd);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	client = malloc(sizeof(*client));
	if (client) {
		*client = (struct client){c, fd};
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		r = pthread_create(&thread, &attr, serve_client, client);
		pthread_attr_destroy(&attr);
	}
	if (r) {
		free(client);
		close(fd);
		lock_scope(&c->lock);
		c->clients--;
	}
}

static void *accept_loop(void *arg)
{
	struct control *c = arg;

	for (;;) {
		struct pollfd fds[2] = {{.fd = c->listen_fd, .events = POLLIN},
					{.fd = c->wake_fd[0], .events = POLLIN}};
		int fd;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			break;
		if (!fds[0].revents)
			continue;
		fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			start_client(c, fd);
		else if (errno != ECONNABORTED && errno != EINTR && errno != EAGAIN)
			clock_sleep_ms(
				100); /* out of descriptors: others will be closed */
	}
	return NULL;
}

/* sun_path holds 107 bytes: a longer one goes through the directory's descriptor. */
static void make_address(const char *run_dir, int run_fd, const char *name,
			 struct sockaddr_un *address)
{
	size_t size = sizeof(address->sun_path);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (path_join(address->sun_path, size, run_dir, name) < 0)
		snprintf(address->sun_path, size, "/proc/self/fd/%d/%s", run_fd, name);
}

static int connect_at(const char *run_dir, int run_fd, const char *name)
{
	_cleanup_(close_fdp) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	if (fd < 0)
		return err_origin(-errno);
	make_address(run_dir, run_fd, name, &address);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return err_origin(-errno);
	return steal_fd(&fd);
}

int control_connect(const char *run_dir, const char *name)
{
	_cleanup_(close_fdp) int run_fd = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (run_fd < 0)
		return err_origin(-errno);
	return err_trace(connect_at(run_dir, run_fd, name));
}

/* A socket that the last daemon listened at. Whoever connects learns who listens now. */
static bool listen_again(struct control *c)
{
	struct sockaddr_un address;
	socklen_t size = sizeof(address);

	return getsockname(c->listen_fd, (struct sockaddr *)&address, &size) == 0 &&
	       size > sizeof(address.sun_family) &&
	       listen(c->listen_fd, CLIENTS_MAX) == 0;
}

static int listen_at(struct control *c, const char *run_dir, const char *dir,
		     struct why *why)
{
	_cleanup_(close_fdp) int other = connect_at(run_dir, c->run_fd, c->name);
	struct sockaddr_un address;

	if (other >= 0)
		return why_set(why, -EADDRINUSE,
			       "%s: another sluice serves this mount point, see "
			       "\"sluice status %s\"",
			       dir, dir);
	unlinkat(c->run_fd, c->name, 0); /* of a process that is gone */
	make_address(run_dir, c->run_fd, c->name, &address);
	if (bind(c->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(c->listen_fd, CLIENTS_MAX) < 0)
		return why_set(why, -errno, "control socket: %s", strerror(errno));
	return 0;
}

static void control_free(struct control *c)
{
	for (int i = 0; i < 2; i++)
		close_fdp(&c->wake_fd[i]);
	close_fdp(&c->listen_fd);
	close_fdp(&c->run_fd);
	pthread_cond_destroy(&c->changed);
	lock_fini(&c->lock);
	receipt_free(c->receipt);
	free(c);
}

int control_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? err_origin(-errno) : fd;
}

int control_start(const char *run_dir, const char *dir, int fd,
		  const struct control_ops *ops, void *arg, struct control **out,
		  struct why *why)
{
	struct control *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_origin(-ENOMEM);
	*c = (struct control){
		.ops = ops, .arg = arg, .listen_fd = -1, .wake_fd = {-1, -1}};
	lock_init(&c->lock);
	lock_cond_init(&c->changed);
	mounts_socket_name(dir, c->name);
	c->run_fd = io_open_private_dir(run_dir, why);
	r = c->run_fd < 0 ? c->run_fd : 0;
	if (r == 0) {
		c->listen_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : control_socket();
		if (c->listen_fd < 0)
			r = why_set(why, -errno, "control socket: %s", strerror(errno));
	}
	if (r == 0 && !listen_again(c))
		r = listen_at(c, run_dir, dir, why);
	if (r == 0 && pipe2(c->wake_fd, O_CLOEXEC) < 0)
		r = why_set(why, -errno, "control socket: %s", strerror(errno));
	if (r == 0) {
		r = -pthread_create(&c->thread, NULL, accept_loop, c);
		if (r < 0)
			why_set(why, r, "control thread: %s", strerror(-r));
	}
	if (r < 0) {
		control_free(c);
		return err_trace(r);
	}
	*out = c;
	return 0;
}

void control_finish(struct control *c, int result, struct receipt *receipt)
{
	lock_scope(&c->lock);
	c->result = result;
	c->receipt = receipt;
	c->finished = true;
	pthread_cond_broadcast(&c->changed);
}

void control_unlink(struct control *c)
{
	unlinkat(c->run_fd, c->name, 0);
}

int control_stop(struct control *c)
{
	uint64_t patience = clock_mono_ms() + UNMOUNT_GRACE_MS, until;
	bool busy;

	close(steal_fd(&c->wake_fd[1]));
	pthread_join(c->thread, NULL);
	control_unlink(c);
	lock_take(&c->lock);
	check(c->finished);
	while (c->stopping &&
	       lock_wait(&c->lock, &c->changed, patience) != LOCK_E_TIMEOUT)
		;
	until = clock_mono_ms() + STOP_GRACE_MS;
	while (c->clients && lock_wait(&c->lock, &c->changed, until) != LOCK_E_TIMEOUT)
		;
	busy = c->clients > 0;
	lock_drop(&c->lock);
	if (busy)
		return CONTROL_E_BUSY;
	control_free(c);
	return 0;
}
