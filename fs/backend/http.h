/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 exchanges over a pool of kept connections: one curl multi loop on one thread.
 * No policy: no retry, no redirect, no decoding, no credentials, no proxy from the
 * environment.
 *
 * An exchange is the caller's memory, embedded in what it does. http_submit() may be called
 * from any thread, also from within `done`, and never blocks; at most connections_max
 * exchanges are on the wire, the others wait in the order they came, those in the
 * background behind all others; an eighth of the connections is never theirs. All hooks run on the
 * loop's thread: they may write to a local file, they must not wait for the network or for
 * another exchange.
 *
 * TLS: certificate and name are always verified, 1.2 is the oldest version.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"
#include "fs/base/list.h"

#define HTTP_HEADERS_MAX 128        /* sent with one request */
#define HTTP_REPLY_HEADER_MAX 65536 /* bytes of one reply's header */

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	HTTP_PUT,
	HTTP_POST,
	HTTP_DELETE,
	HTTP_METHOD_N
};
const char *http_method_name(enum http_method method);

struct http_header {
	const char *name;
	const char *value; /* CR, LF: the exchange fails with -EINVAL */
};

/* What PUT and POST send; len 0 is sent as "Content-Length: 0". */
struct http_body {
	const void *data; /* in memory; or */
	int fd;           /* read with pread from fd_off on */
	uint64_t fd_off;
	uint64_t len;
};

struct http;
struct http_exchange;

struct http_hooks {
	/* One header line of the final reply; x->status is known. May be NULL. */
	void (*header)(struct http_exchange *x, const char *name, size_t name_len,
		       const char *value, size_t value_len);
	/* Bytes of the reply's body, never n == 0. A negative return cuts the connection
	 * and ends the exchange with that errno. */
	int (*receive)(struct http_exchange *x, const void *data, size_t n);
	/* The bytes just taken from the body, in order, as they go on the wire. data NULL:
	 * forget them, the body starts over (a kept connection had died). May be NULL. */
	void (*sending)(struct http_exchange *x, const void *data, size_t n);
	/* Once, always. The exchange is the caller's again. */
	void (*done)(struct http_exchange *x);
};

struct http_exchange {
	enum http_method method;
	const char *url;
	const struct http_header *headers;
	size_t header_count;
	struct http_body body;
	uint64_t deadline_ms;           /* clock_mono_ms(); UINT64_MAX: none */
	uint64_t stall_ms;              /* without progress; 0: the pool's */
	bool background;                /* waits behind all others */
	const struct http_hooks *hooks; /* static */

	/*
	 * Results. 0: a whole reply came, whatever its status. Else status may be known
	 * already, and
	 *   -ECONNREFUSED, -EHOSTUNREACH, -ECONNRESET  no connection, or it broke
	 *   -ETIMEDOUT  deadline or stall        -ECANCELED  http_cancel()
	 *   -EBADMSG    cut short, or no HTTP    -EINVAL     malformed URL or header
	 *   -EIO        TLS refused, or the body to send could not be read
	 *   others      what a hook returned
	 */
	int result;
	int status; /* 0: none came */
	uint64_t received;
	struct why why;

	/* The loop's own. */
	struct list link;        /* inbox, queue or active */
	struct list cancel_link; /* to be cancelled */
	struct http_slot *slot;
	bool pending; /* between submit and done */
};

struct http_config {
	const char *ca_file;      /* NULL: the system's */
	uint32_t connections_max; /* 1 … 1024 */
	uint64_t connect_ms;      /* name, TCP and TLS together; 0: 5 s */
	uint64_t stall_ms;        /* under 1 KiB/s for that long is an error; 0: 30 s.
				   * Whole seconds, rounded up. */
};

/* Strings are copied. -EINVAL with a sentence for a CA file that cannot be read. */
int http_start(const struct http_config *config, struct http **out, struct why *why);

/* Waits for all exchanges; the caller has seen to it that they end. NULL is fine. */
struct http *http_stop(struct http *h);

void http_submit(struct http *h, struct http_exchange *x);

/* `done` still runs once. Harmless after it as long as x exists. */
void http_cancel(struct http *h, struct http_exchange *x);

/* Connections opened so far: how well they are kept. */
uint64_t http_connect_count(const struct http *h);
