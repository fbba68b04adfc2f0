/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies on the wire. Without a fault that touches the body the kernel sends the file
 * (sendfile) or the library sends the buffer; with one, every byte goes through read_body().
 */
#include <microhttpd.h>

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_http.h"
#include "tools/ossd_request.h"

#define SLICE_MS 200 /* how soon a sleeper notices that the server stops */
#define BLOCK_BYTES (128u << 10)
#define DRAIN_MS 1000

bool ossd_pause(const struct ossd_sending *s, uint64_t ms)
{
	uint64_t until = clock_mono_ms() + ms, now;

	while (!*s->stopping) {
		struct pollfd p = {s->connection_fd, POLLRDHUP, 0};
		uint64_t left = SLICE_MS;

		now = clock_mono_ms();
		if (ms && now >= until)
			return true;
		if (ms && until - now < left)
			left = until - now;
		if (poll(&p, 1, (int)left) > 0 &&
		    (p.revents & (POLLHUP | POLLERR | POLLRDHUP)))
			return false;
	}
	return false;
}

void ossd_reset(int connection_fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	/* What was sent before is to arrive: a reset throws away what still waits. */
	for (int waited = 0; waited < DRAIN_MS; waited += 5) {
		int waiting = 0;

		if (ioctl(connection_fd, SIOCOUTQ, &waiting) < 0 || waiting == 0)
			break;
		clock_sleep_ms(5);
	}
	/* Dissolving the association resets at once. Lingering for no time would not do: the
	 * library shuts the connection down in the polite way before it closes. */
	if (connect(connection_fd, &nobody, sizeof(nobody)) < 0)
		log_debug(LOG_OSSD, "reset: %s", strerror(errno));
}

bool ossd_pace(const struct ossd_sending *s, uint64_t start_ns, uint64_t bytes,
	       uint64_t rate)
{
	uint64_t due_ms, spent_ms = (clock_mono_ns() - start_ns) / 1000000;

	if (rate == 0)
		return true;
	due_ms = bytes / rate * 1000 + bytes % rate * 1000 / rate;
	return due_ms <= spent_ms || ossd_pause(s, due_ms - spent_ms);
}

/* ---- a body with faults ---------------------------------------------------------------- */

struct sender {
	struct ossd_sending *s;
	struct ossd_reply reply; /* its own: the body and the descriptor */
	uint64_t total;          /* with what a fault adds */
	uint64_t start_ns;
	uint64_t rate;
	bool stalled;
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* At most `max` bytes at `pos`; behind the end zeros. */
static ssize_t read_at(const struct sender *sender, uint64_t pos, char *to, size_t max)
{
	const struct ossd_reply *reply = &sender->reply;
	uint64_t length = reply->fd >= 0 ? reply->length : reply->body.len;
	size_t n;

	if (pos >= length) {
		memset(to, 0, max);
		return (ssize_t)max;
	}
	n = (size_t)smaller(max, length - pos);
	if (reply->fd >= 0)
		return io_pread(reply->fd, to, n, reply->offset + pos);
	memcpy(to, reply->body.data + pos, n);
	return (ssize_t)n;
}

static void flip(const struct sender *sender, uint64_t pos, char *data, size_t n)
{
	const struct ossd_faults *f = &sender->s->req->faults;
	uint64_t at = f->flip_at == UINT64_MAX ? sender->total / 2 : f->flip_at;

	if (ossd_faults_has(f, OSSD_FAULT_FLIP) && at >= pos && at < pos + n)
		data[at - pos] ^= 1;
}

/* How far the next piece may go: every fault happens at its own byte. */
static uint64_t piece_end(const struct sender *sender, uint64_t pos)
{
	const struct ossd_faults *f = &sender->s->req->faults;
	uint64_t end = sender->total;

	if (ossd_faults_has(f, OSSD_FAULT_RESET))
		end = smaller(end, f->reset_after);
	if (ossd_faults_has(f, OSSD_FAULT_TRUNCATE))
		end = smaller(end, f->truncate_after);
	if (ossd_faults_has(f, OSSD_FAULT_STALL) && pos < f->stall_after)
		end = smaller(end, f->stall_after);
	if (sender->rate) /* a twentieth of a second's worth */
		end = smaller(end, pos + sender->rate / 20 + 1);
	return end;
}

static ssize_t read_body(void *cls, uint64_t pos, char *to, size_t max)
{
	struct sender *sender = cls;
	struct ossd_sending *s = sender->s;
	const struct ossd_faults *f = &s->req->faults;
	uint64_t end;
	ssize_t n;

	if (ossd_faults_has(f, OSSD_FAULT_RESET) && pos >= f->reset_after) {
		ossd_reset(s->connection_fd);
		return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	if (ossd_faults_has(f, OSSD_FAULT_TRUNCATE) && pos >= f->truncate_after)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (pos >= sender->total)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (ossd_faults_has(f, OSSD_FAULT_STALL) && !sender->stalled &&
	    pos >= f->stall_after) {
		sender->stalled = true;
		if (!ossd_pause(s, f->stall_ms))
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	if (!ossd_pace(s, sender->start_ns, pos, sender->rate))
		return MHD_CONTENT_READER_END_WITH_ERROR;
	end = piece_end(sender, pos);
	n = read_at(sender, pos, to, (size_t)smaller(max, end - pos));
	if (n <= 0)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	flip(sender, pos, to, (size_t)n);
	s->sent = pos + (uint64_t)n;
	return n;
}

static void free_sender(void *cls)
{
	struct sender *sender = cls;

	if (sender->reply.fd >= 0)
		close(sender->reply.fd);
	buf_fini(&sender->reply.body);
	free(sender);
}

/* ---- choosing -------------------------------------------------------------------------- */

static bool touches_body(const struct ossd_faults *f)
{
	static const enum ossd_fault kinds[] = {
		OSSD_FAULT_RESET,     OSSD_FAULT_TRUNCATE, OSSD_FAULT_EXTRA,
		OSSD_FAULT_FLIP,      OSSD_FAULT_SLOW,     OSSD_FAULT_STALL,
		OSSD_FAULT_BANDWIDTH,
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (ossd_faults_has(f, kinds[i]))
			return true;
	return false;
}

static struct MHD_Response *faulty_response(struct ossd_sending *s, uint64_t length)
{
	const struct ossd_faults *f = &s->req->faults;
	struct sender *sender = xcalloc(1, sizeof(*sender));
	struct MHD_Response *response;

	sender->s = s;
	sender->reply = s->req->reply;
	s->req->reply.fd = -1;
	s->req->reply.body = BUF_INIT;
	sender->total = length + f->extra;
	sender->start_ns = clock_mono_ns();
	sender->rate = f->rate && f->slow_rate ? smaller(f->rate, f->slow_rate)
					       : f->rate + f->slow_rate;
	response = MHD_create_response_from_callback(sender->total, BLOCK_BYTES,
						     read_body, sender, free_sender);
	if (!response)
		free_sender(sender);
	return response;
}

/* A HEAD answer: the library wants a length and never asks for a byte. */
static ssize_t read_nothing(void *cls, uint64_t pos, char *to, size_t max)
{
	(void)cls;
	(void)pos;
	(void)to;
	(void)max;
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

static struct MHD_Response *new_response(struct ossd_sending *s)
{
	struct ossd_reply *reply = &s->req->reply;
	uint64_t length =
		reply->fd >= 0 || !reply->body.len ? reply->length : reply->body.len;
	struct MHD_Response *response;

	if (!strcmp(s->req->method, "HEAD"))
		return MHD_create_response_from_callback(length, BLOCK_BYTES,
							 read_nothing, NULL, NULL);
	if (touches_body(&s->req->faults))
		return faulty_response(s, length);
	s->sent = length;
	if (reply->fd < 0)
		return MHD_create_response_from_buffer(reply->body.len, reply->body.data,
						       MHD_RESPMEM_MUST_COPY);
	response =
		MHD_create_response_from_fd_at_offset64(length, reply->fd, reply->offset);
	if (response)
		reply->fd = -1;
	return response;
}

struct MHD_Response *ossd_send_response(struct ossd_sending *s)
{
	const struct ossd_reply *reply = &s->req->reply;
	struct MHD_Response *response = new_response(s);
	const char *at = reply->headers.data;
	const char *end = at + reply->headers.len;

	while (response && at < end) {
		const char *value = at + strlen(at) + 1;

		/* Refused only when the value is empty or has a line break in it. */
		if (*value && MHD_add_response_header(response, at, value) != MHD_YES) {
			MHD_destroy_response(response);
			return NULL;
		}
		at = value + strlen(value) + 1;
	}
	return response;
}
