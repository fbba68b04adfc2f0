/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/control.h"
#include "fs/mounts.h"
#include "fs/progress.h"

#define ANSWER_MAX (64u << 20)  /* a receipt may name many files */
#define FOLLOW_SILENCE_MS 30000 /* progress comes several times a second */

struct client {
	int fd;
	struct buf in; /* read and not yet consumed */
	size_t at;
};

int client_open_socket(const char *run_dir, const char *name, struct client **out)
{
	int fd = control_connect(run_dir, name);
	struct client *c;

	if (fd < 0)
		return err_trace(fd);
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return err_origin(-ENOMEM);
	}
	c->fd = fd;
	*out = c;
	return 0;
}

int client_open(const char *dir, struct client **out, struct why *why)
{
	char run_dir[PATH_MAX], name[MOUNTS_SOCKET_NAME_MAX];
	int r;

	r = mounts_run_dir(run_dir, sizeof(run_dir), why);
	if (r < 0)
		return r;
	mounts_socket_name(dir, name);
	r = client_open_socket(run_dir, name, out);
	if (r == -ENOENT || r == -ECONNREFUSED)
		return CLIENT_E_NOBODY;
	if (r < 0)
		return why_set(why, r, "%s: control socket in %s: %s", dir, run_dir,
			       strerror(-r));
	return 0;
}

struct client *client_close(struct client *c)
{
	if (c) {
		close(c->fd);
		buf_fini(&c->in);
		free(c);
	}
	return NULL;
}

pid_t client_peer(const struct client *c)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ? 0
									    : peer.pid;
}

int client_send(struct client *c, const char *command, uint64_t timeout_ms)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	json_put_string(&b, "command", command);
	if (timeout_ms != UINT64_MAX)
		json_put_uint(&b, "timeout_ms", timeout_ms);
	json_end_object(&b);
	buf_putc(&b, '\n');
	if (buf_error(&b) < 0)
		return err_trace(buf_error(&b));
	/* A request is far smaller than the socket's buffer: one send takes it whole. */
	if (send(c->fd, b.data, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
		return err_origin(errno ? -errno : -EIO);
	return 0;
}

int client_send_json(struct client *c, const char *request, int fd)
{
	union {
		struct cmsghdr align;
		char data[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec parts[2] = {{(void *)(uintptr_t)request, strlen(request)},
				 {(void *)(uintptr_t) "\n", 1}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	struct cmsghdr *h;

	if (fd >= 0) {
		m.msg_control = control.data;
		m.msg_controllen = sizeof(control.data);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	if (sendmsg(c->fd, &m, MSG_NOSIGNAL) != (ssize_t)(strlen(request) + 1))
		return err_origin(errno ? -errno : -EIO);
	return 0;
}

/* More bytes into c->in. */
static int fill(struct client *c, uint64_t until_ms)
{
	uint64_t now = clock_mono_ms();
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	char *room;
	ssize_t n;

	if (now >= until_ms)
		return err_origin(-ETIMEDOUT);
	if (poll(&p, 1, (int)(until_ms - now)) < 0)
		return errno == EINTR ? 0 : err_origin(-errno);
	if (!p.revents)
		return 0;
	room = buf_reserve(&c->in, 65536);
	if (!room)
		return err_origin(-ENOMEM);
	n = recv(c->fd, room, 65536, 0);
	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return CLIENT_E_END;
	if (n < 0)
		return errno == EINTR ? 0 : err_origin(-errno);
	c->in.len += (size_t)n;
	return c->in.len > ANSWER_MAX ? err_origin(-EMSGSIZE) : 0;
}

int client_read(struct client *c, uint64_t silence_ms, json_t **out)
{
	uint64_t until = clock_mono_ms() + silence_ms;
	size_t looked = c->at;
	char *end;
	int r;

	for (;;) {
		end = c->in.len > looked
			      ? memchr(c->in.data + looked, '\n', c->in.len - looked)
			      : NULL;
		if (end)
			break;
		looked = c->in.len;
		r = fill(c, until);
		if (r != 0)
			return r;
	}
	*out = json_loadb(c->in.data + c->at, (size_t)(end - c->in.data) - c->at, 0,
			  NULL);
	c->at = (size_t)(end - c->in.data) + 1;
	if (c->at == c->in.len) {
		buf_reset(&c->in);
		c->at = 0;
	}
	return *out ? 0 : err_origin(-EPROTO);
}

static uint64_t member(const json_t *o, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(o, name));

	return value > 0 ? (uint64_t)value : 0;
}

int client_follow(struct client *c, bool quiet, json_t **result)
{
	struct progress bar;
	int r = 0;

	progress_init(&bar, quiet);
	while (r == 0) {
		json_t *line, *progress;

		r = client_read(c, FOLLOW_SILENCE_MS, &line);
		if (r != 0)
			break;
		progress = json_object_get(line, "progress");
		if (!progress) {
			*result = line;
			break;
		}
		progress_show(&bar, member(progress, "files_stored"),
			      member(progress, "files_pending"),
			      member(progress, "bytes_stored"),
			      member(progress, "bytes_pending"));
		json_decref(line);
	}
	progress_end(&bar);
	return r;
}
