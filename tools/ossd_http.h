/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP listener: libmicrohttpd with a thread per connection, so that an operation may
 * block on the disk and a fault may sleep. Bodies of objects leave by sendfile.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct MHD_Connection;
struct MHD_Response;
struct ossd_context;
struct ossd_http;
struct ossd_request;
struct why;

#define OSSD_CONNECTIONS_MAX 2048

/* Listens on "HOST:PORT", "[IPV6]:PORT" or ":PORT"; port 0 takes a free one. -EADDRINUSE and
 * others with a sentence. `context` is borrowed until the stop. */
int ossd_http_start(struct ossd_http **out, const char *address,
		    const struct ossd_context *context, struct why *why);

/* Ends what sleeps in a fault, waits for the requests under way. Takes NULL. */
struct ossd_http *ossd_http_stop(struct ossd_http *http);

/* "HOST:PORT" as a client reaches it. */
const char *ossd_http_address(const struct ossd_http *http);

/* A listening socket and its address as text, for this listener and the admin's. */
int ossd_listen(const char *address, char *shown, size_t shown_size, struct why *why);

/* ---- ossd_send.c: the reply on the wire ------------------------------------------------ */

/* Shared with the sending thread; `connection_fd` and `stopping` are looked at. */
struct ossd_sending {
	struct ossd_request *req;
	int connection_fd;
	const atomic_bool *stopping;
	uint64_t sent; /* bytes of the body */
};

/* Sleeps; false when the client left or the server stops. `ms` 0: until then. */
bool ossd_pause(const struct ossd_sending *s, uint64_t ms);

/* Resets the connection once what was sent has left. */
void ossd_reset(int connection_fd);

/* Sleeps as long as `bytes` since `start_ns` are too many for `rate` bytes per second. */
bool ossd_pace(const struct ossd_sending *s, uint64_t start_ns, uint64_t bytes,
	       uint64_t rate);

/* The response for req->reply; takes its descriptor. NULL: no memory. `s` must live as long
 * as the request. */
struct MHD_Response *ossd_send_response(struct ossd_sending *s);
