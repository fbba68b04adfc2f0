/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd on one side, struct ossd_request on the other.
 *
 * Happy path: log_uri() sees the raw target (the library's own is decoded and would not do
 * for signatures); handle() is called with the headers, once per piece of the body, and at
 * the end, when the operation runs and the reply is queued; completed() frees.
 *
 * A refusal known before the body is sent at once when the client waits for "100 Continue";
 * else the body is read and thrown away first, up to DISCARD_MAX, because a client that is
 * still writing would not see an answer on a connection that is being closed.
 *
 * On close: `stopping` wakes what sleeps, then the library joins its threads.
 */
#include "tools/ossd_http.h"

#include <microhttpd.h>

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_dispatch.h"
#include "tools/ossd_op.h"
#include "tools/ossd_request.h"
#include "tools/ossd_s3.h"
#include "tools/ossd_stats.h"

#define CONNECTION_MEMORY (256u << 10) /* headers, and the buffer bodies arrive in */
#define IDLE_TIMEOUT_S 120
#define DISCARD_MAX (64ull << 20)

struct ossd_http {
	struct MHD_Daemon *daemon;
	const struct ossd_context *context;
	atomic_bool stopping;
	char address[128];
};

/* A request and what only the listener knows of it. */
struct exchange {
	struct ossd_request req;
	struct ossd_sending sending;
	char *raw_target;
	bool begun;
	bool refused; /* the reply stands, the body is thrown away */
	uint64_t body_bytes;
};

/* ---- one request ----------------------------------------------------------------------- */

static void *log_uri(void *cls, const char *uri, struct MHD_Connection *connection)
{
	struct exchange *x = xcalloc(1, sizeof(*x));

	(void)cls;
	(void)connection;
	x->raw_target = xstrdup(uri);
	x->req.spool.fd = -1;
	x->req.reply.fd = -1;
	x->req.reply.code = "";
	return x;
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
				   const char *value)
{
	struct ossd_request *req = cls;

	(void)kind;
	if (req->header_count == OSSD_HEADERS_MAX)
		return MHD_NO;
	req->headers[req->header_count++] = (struct oss_pair){name, value};
	return MHD_YES;
}

static void begin(struct ossd_http *http, struct exchange *x,
		  struct MHD_Connection *connection, const char *method)
{
	x->begun = true;
	x->req.context = http->context;
	x->req.method = method;
	x->sending = (struct ossd_sending){
		.req = &x->req,
		.connection_fd = MHD_get_connection_info(
					 connection, MHD_CONNECTION_INFO_CONNECTION_FD)
					 ->connect_fd,
		.stopping = &http->stopping,
	};
	MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, &x->req);
	x->refused = !ossd_dispatch_begin(&x->req, x->raw_target);
}

static enum MHD_Result send_reply(struct exchange *x, struct MHD_Connection *connection)
{
	struct MHD_Response *response;
	enum MHD_Result r;

	ossd_dispatch_finish(&x->req);
	response = ossd_send_response(&x->sending);
	if (!response)
		return MHD_NO;
	r = MHD_queue_response(connection, (unsigned int)x->req.reply.status, response);
	MHD_destroy_response(response);
	return r;
}

/* What faults do before the operation and instead of an answer. MHD_NO ends the connection. */
static enum MHD_Result run(struct exchange *x, struct MHD_Connection *connection)
{
	const struct ossd_faults *f = &x->req.faults;

	if (f->latency_ms && !ossd_pause(&x->sending, f->latency_ms))
		return MHD_NO;
	if (ossd_faults_has(f, OSSD_FAULT_DROP))
		return MHD_NO;
	if (!x->refused)
		ossd_dispatch_run(&x->req);
	if (ossd_faults_has(f, OSSD_FAULT_RESET) && f->reset_after == 0) {
		ossd_reset(x->sending.connection_fd);
		return MHD_NO;
	}
	return send_reply(x, connection);
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
	const struct ossd_faults *f = &x->req.faults;

	x->body_bytes += n;
	if (ossd_faults_has(f, OSSD_FAULT_RESET_UPLOAD) &&
	    x->body_bytes >= f->reset_upload_after) {
		ossd_reset(x->sending.connection_fd);
		return MHD_NO;
	}
	if (!ossd_pace(&x->sending, x->req.start_ns, x->body_bytes, f->rate))
		return MHD_NO;
	if (x->refused)
		return x->body_bytes > DISCARD_MAX ? MHD_NO : MHD_YES;
	x->refused = !ossd_dispatch_body(&x->req, data, n);
	return MHD_YES;
}

/* Whether the body of a refused request is read before the answer is sent. */
static bool worth_reading(const struct ossd_request *req)
{
	const char *expect = ossd_request_header(req, "expect");
	const char *length = ossd_request_header(req, "content-length");

	return !(expect && !strcasecmp(expect, "100-continue")) &&
	       !(length && strtoull(length, NULL, 10) > DISCARD_MAX);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection,
			      const char *url, const char *method, const char *version,
			      const char *data, size_t *n, void **req_cls)
{
	struct exchange *x = *req_cls;

	(void)url;
	(void)version;
	if (!x->begun) {
		begin(cls, x, connection, method);
		return x->refused && !worth_reading(&x->req) ? run(x, connection)
							     : MHD_YES;
	}
	if (*n) {
		size_t piece = *n;

		*n = 0;
		return take_body(x, data, piece);
	}
	return run(x, connection);
}

static void log_request(const struct exchange *x)
{
	const struct ossd_request *req = &x->req;

	log_debug(LOG_OSSD,
		  "%s bucket=%s key=%s range=%s status=%d code=%s in=%" PRIu64
		  " out=%" PRIu64 " ms=%" PRIu64,
		  req->op ? req->op->name : req->method, req->target.bucket,
		  req->target.key.len ? req->target.key.data : "",
		  req->header_count && ossd_request_header(req, "range")
			  ? ossd_request_header(req, "range")
			  : "",
		  req->reply.status, req->reply.code, x->body_bytes, x->sending.sent,
		  (clock_mono_ns() - req->start_ns) / 1000000);
}

static void completed(void *cls, struct MHD_Connection *connection, void **req_cls,
		      enum MHD_RequestTerminationCode how)
{
	struct exchange *x = *req_cls;
	struct ossd_request *req;

	(void)cls;
	(void)connection;
	(void)how;
	if (!x)
		return;
	req = &x->req;
	*req_cls = NULL;
	if (x->begun)
		log_request(x);
	if (x->begun)
		ossd_stats_end(req->context->stats, req->reply.status, req->reply.code,
			       x->body_bytes, x->sending.sent);
	ossd_spool_close(&req->spool);
	buf_fini(&req->body);
	buf_fini(&req->error_extra);
	buf_fini(&req->reply.headers);
	buf_fini(&req->reply.body);
	close_fdp(&req->reply.fd);
	req->s3 = ossd_s3_free(req->s3);
	ossd_target_fini(&req->target);
	ossd_faults_fini(&req->faults);
	free(x->raw_target);
	free(x);
}

static void connection_changed(void *cls, struct MHD_Connection *connection,
			       void **socket_context,
			       enum MHD_ConnectionNotificationCode what)
{
	struct ossd_http *http = cls;

	(void)connection;
	(void)socket_context;
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		ossd_stats_connection(http->context->stats);
}

/* The library decodes its own copy of the target, which nobody looks at. */
static size_t leave_encoded(void *cls, struct MHD_Connection *connection, char *text)
{
	(void)cls;
	(void)connection;
	return strlen(text);
}

/* ---- listening ------------------------------------------------------------------------- */

/* "HOST:PORT" in two; brackets of IPv6 are taken off. */
static int split_address(const char *address, char *host, size_t host_size, char *port,
			 size_t port_size)
{
	const char *colon = strrchr(address, ':');
	size_t n = colon ? (size_t)(colon - address) : 0;

	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strlen(colon + 1) >= port_size)
		return -EINVAL;
	if (n >= 2 && address[0] == '[' && address[n - 1] == ']') {
		address++;
		n -= 2;
	}
	if (n >= host_size)
		return -EINVAL;
	snprintf(host, host_size, "%.*s", (int)n, address);
	snprintf(port, port_size, "%s", colon + 1);
	return 0;
}

static int show_address(int fd, char *shown, size_t shown_size)
{
	struct sockaddr_storage bound;
	socklen_t size = sizeof(bound);
	char host[64], port[16];

	if (getsockname(fd, (struct sockaddr *)&bound, &size) < 0 ||
	    getnameinfo((struct sockaddr *)&bound, size, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return err_origin(-EIO);
	snprintf(shown, shown_size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

static int bind_and_listen(const struct addrinfo *info)
{
	_cleanup_(close_fdp) int fd =
		socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
		return err_origin(-errno);
	return steal_fd(&fd);
}

int ossd_listen(const char *address, char *shown, size_t shown_size, struct why *why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *found = NULL;
	char host[256], port[16];
	int fd, r;

	if (split_address(address, host, sizeof(host), port, sizeof(port)) < 0)
		return why_set(why, err_origin(-EINVAL),
			       "%s: not an address; write HOST:PORT", address);
	r = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (r)
		return why_set(why, err_origin(-EINVAL), "%s: %s", address,
			       gai_strerror(r));
	fd = bind_and_listen(found);
	freeaddrinfo(found);
	if (fd < 0)
		return why_set(why, fd, "%s: %s%s", address, strerror(-fd),
			       fd == -EADDRINUSE ? "; choose another port, or 0 for any"
						 : "");
	r = show_address(fd, shown, shown_size);
	if (r < 0)
		close(fd);
	return r < 0 ? err_trace(r) : fd;
}

int ossd_http_start(struct ossd_http **out, const char *address,
		    const struct ossd_context *context, struct why *why)
{
	struct ossd_http *http = xcalloc(1, sizeof(*http));
	int fd = ossd_listen(address, http->address, sizeof(http->address), why);

	if (fd < 0) {
		free(http);
		return err_trace(fd);
	}
	http->context = context;
	http->daemon = MHD_start_daemon(
		MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD |
			MHD_USE_THREAD_PER_CONNECTION | MHD_USE_TURBO,
		0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_URI_LOG_CALLBACK, log_uri, http, MHD_OPTION_UNESCAPE_CALLBACK,
		leave_encoded, NULL, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
		MHD_OPTION_NOTIFY_CONNECTION, connection_changed, http,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)OSSD_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_TIMEOUT_S,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)(512u << 10), MHD_OPTION_END);
	if (!http->daemon) {
		close(fd);
		free(http);
		return why_set(why, err_origin(-EIO), "%s: the listener does not start",
			       address);
	}
	*out = http;
	return 0;
}

struct ossd_http *ossd_http_stop(struct ossd_http *http)
{
	if (!http)
		return NULL;
	http->stopping = true;
	MHD_stop_daemon(http->daemon);
	free(http);
	return NULL;
}

const char *ossd_http_address(const struct ossd_http *http)
{
	return http->address;
}
