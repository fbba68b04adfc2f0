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
#include "fs/receipt.h"

#define ANSWER_MAX (64u << 20)  /* one line; a receipt's files come in many */
#define FOLLOW_SILENCE_MS 30000 /* progress comes several times a second */
#define DAEMONS_MAX 100         /* that die one after the other while one call waits */

struct client {
	int fd;
	struct buf in; /* read and not yet consumed */
	size_t at;
	FILE *files; /* of the receipt; NULL: none came, or files_failed */
	bool files_failed;
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
		if (c->files)
			fclose(c->files);
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

/* After a failed send: it may have said why before, which is there to be read. */
static bool has_left(void)
{
	return errno == EPIPE || errno == ECONNRESET;
}

int client_send(struct client *c, const char *command, uint64_t timeout_ms, bool files)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	json_put_string(&b, "command", command);
	if (timeout_ms != UINT64_MAX)
		json_put_uint(&b, "timeout_ms", timeout_ms);
	if (files)
		json_put_bool(&b, "files", true);
	json_end_object(&b);
	buf_putc(&b, '\n');
	if (buf_error(&b) < 0)
		return err_trace(buf_error(&b));
	/* A request is far smaller than the socket's buffer: one send takes it whole. */
	if (send(c->fd, b.data, b.len, MSG_NOSIGNAL) == (ssize_t)b.len || has_left())
		return 0;
	return err_origin(errno ? -errno : -EIO);
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
	if (sendmsg(c->fd, &m, MSG_NOSIGNAL) != (ssize_t)(strlen(request) + 1) &&
	    !has_left())
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

/* What was consumed goes. */
static void move_down(struct client *c)
{
	c->in.len -= c->at;
	memmove(c->in.data, c->in.data + c->at, c->in.len);
	c->at = 0;
}

/* The next line, without its end; good until the next call. */
static int read_line(struct client *c, uint64_t silence_ms, const char **line, size_t *n)
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
		if (c->at > 0)
			move_down(c);
		looked = c->in.len;
		r = fill(c, until);
		if (r != 0)
			return r;
	}
	*line = c->in.data + c->at;
	*n = (size_t)(end - *line);
	c->at += *n + 1;
	return 0;
}

int client_read(struct client *c, uint64_t silence_ms, json_t **out)
{
	const char *line;
	size_t n;
	int r = read_line(c, silence_ms, &line, &n);

	if (r != 0)
		return r;
	*out = json_loadb(line, n, 0, NULL);
	return *out ? 0 : err_origin(-EPROTO);
}

/* Some elements, between the brackets of a line. */
static void keep_files(struct client *c, const char *text, size_t n)
{
	if (c->files_failed)
		return;
	if (!c->files)
		c->files = tmpfile();
	if (c->files && receipt_keep(c->files, text, n) == 0)
		return;
	fprintf(stderr, "sluice: no room for the list of files: %s\n", strerror(errno));
	c->files_failed = true;
	if (c->files)
		fclose(c->files);
	c->files = NULL;
}

FILE *client_files(struct client *c)
{
	return c->files;
}

static uint64_t member(const json_t *o, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(o, name));

	return value > 0 ? (uint64_t)value : 0;
}

static void show(struct progress *bar, const json_t *o)
{
	const struct progress_amount amount = {
		.files_done = member(o, "files_stored") + member(o, "files_moved"),
		.bytes_done = member(o, "bytes_stored"),
		.files_left = member(o, "files_pending"),
		.bytes_left = member(o, "bytes_pending"),
		.moving = member(o, "moving"),
	};

	progress_show(bar, &amount);
}

/* None of the files is in the receipt. */
static void leave_out(const json_t *result)
{
	json_t *receipt = json_object_get(result, "receipt");
	uint64_t n = member(receipt, "files_stored") + member(receipt, "files_moved");

	json_object_set_new(receipt, "files_left_out", json_integer((json_int_t)n));
}

int client_follow(struct client *c, bool quiet, json_t **result)
{
	struct progress bar;
	int r = 0;

	progress_init(&bar, quiet);
	while (r == 0) {
		const size_t prefix = strlen(CONTROL_FILES), suffix = strlen("]}");
		json_t *line, *progress;
		const char *text;
		size_t n;

		r = read_line(c, FOLLOW_SILENCE_MS, &text, &n);
		if (r != 0)
			break;
		if (n > prefix + suffix && !memcmp(text, CONTROL_FILES, prefix)) {
			keep_files(c, text + prefix, n - prefix - suffix);
			continue;
		}
		line = json_loadb(text, n, 0, NULL);
		if (!line) {
			r = err_origin(-EPROTO);
			break;
		}
		progress = json_object_get(line, "progress");
		if (!progress) {
			if (c->files_failed)
				leave_out(line);
			*result = line;
			break;
		}
		show(&bar, progress);
		json_decref(line);
	}
	progress_end(&bar);
	return r;
}

int client_run(const char *dir, const char *command, uint64_t timeout_ms, bool json,
	       struct client **c, json_t **result, struct why *why)
{
	uint64_t begun = clock_mono_ms();
	int r = CLIENT_E_END;

	for (int i = 0; r == CLIENT_E_END && i < DAEMONS_MAX; i++) {
		uint64_t gone = clock_mono_ms() - begun;

		if (i > 0)
			*c = client_close(*c);
		r = *c ? 0 : client_open(dir, c, why);
		if (r != 0)
			return r;
		if (timeout_ms != UINT64_MAX && i > 0)
			timeout_ms = timeout_ms > gone ? timeout_ms - gone : 0;
		r = client_send(*c, command, timeout_ms, json);
		if (r == 0)
			r = client_follow(*c, json, result);
	}
	return r;
}
