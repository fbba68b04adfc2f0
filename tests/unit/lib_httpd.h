/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted HTTP server: the test says which requests must come and what happens to each,
 * byte by byte. It knows nothing of OSS, so that a mistake of the client cannot hide behind
 * the same mistake of a server.
 *
 * Exchanges are taken from the script in order, whatever connection they come on. Each is a
 * list of actions on that connection. A request that is not expected gets "599" and makes
 * httpd_finish() fail.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/buf.h"

#define HTTPD_EXCHANGES_MAX 64
#define HTTPD_ACTIONS_MAX 6

enum httpd_do {
	HTTPD_END,       /* of the list: keep the connection for the next exchange */
	HTTPD_SEND,      /* bytes, n (0: strlen) */
	HTTPD_TRICKLE,   /* bytes one by one, ms apart */
	HTTPD_REPEAT,    /* bytes again and again until the client has gone (bounded) */
	HTTPD_STALL,     /* ms */
	HTTPD_HOLD,      /* until httpd_let_go(), or until the client has gone */
	HTTPD_CLOSE,     /* orderly */
	HTTPD_RESET,     /* with an RST */
	HTTPD_READ_HEAD, /* first in the list: act before the request's body is read */
};

struct httpd_action {
	enum httpd_do what;
	const char *bytes;
	size_t n;
	int ms;
};

#define DO_SEND(text)                                                                    \
	{                                                                                \
		.what = HTTPD_SEND, .bytes = (text)                                      \
	}
#define DO_TRICKLE(text, pause_ms)                                                       \
	{                                                                                \
		.what = HTTPD_TRICKLE, .bytes = (text), .ms = (pause_ms)                 \
	}
#define DO_REPEAT(text)                                                                  \
	{                                                                                \
		.what = HTTPD_REPEAT, .bytes = (text)                                    \
	}
#define DO_STALL(pause_ms)                                                               \
	{                                                                                \
		.what = HTTPD_STALL, .ms = (pause_ms)                                    \
	}
#define DO_HOLD                                                                          \
	{                                                                                \
		.what = HTTPD_HOLD                                                       \
	}
#define DO_CLOSE                                                                         \
	{                                                                                \
		.what = HTTPD_CLOSE                                                      \
	}
#define DO_RESET                                                                         \
	{                                                                                \
		.what = HTTPD_RESET                                                      \
	}
#define DO_READ_HEAD                                                                     \
	{                                                                                \
		.what = HTTPD_READ_HEAD                                                  \
	}

struct httpd_request {
	int connection;  /* 1 … in the order they were accepted */
	struct buf head; /* up to and without the empty line */
	struct buf body;
};

struct httpd;

/* 127.0.0.1, a port of the system's choice. cert and key: PEM files, NULL: plain. */
struct httpd *httpd_start(const char *cert, const char *key);
const char *httpd_url(const struct httpd *s); /* "http://127.0.0.1:1234" */
int httpd_port(const struct httpd *s);

/* The next exchange: the request line must begin with `expect`. */
void httpd_script(struct httpd *s, const char *expect, const struct httpd_action *actions,
		  size_t count);

/* "HTTP/1.1 STATUS" + header lines (each with \r\n) + Content-Length + body. Copied. */
void httpd_reply(struct httpd *s, const char *expect, const char *status,
		 const char *header, const void *body, size_t n);

/* Ends every HTTPD_HOLD, also those to come. */
void httpd_let_go(struct httpd *s);

/* What has come so far. The pointer lives as long as the server. */
size_t httpd_count(struct httpd *s);
const struct httpd_request *httpd_get(struct httpd *s, size_t i);
int httpd_connections(struct httpd *s);

/* Value of a request's header, or NULL. `out` holds it. */
const char *httpd_header(const struct httpd_request *r, const char *name, char *out,
			 size_t out_size);

/* Stops and frees. False, with a message, when the script was not followed to its end. */
bool httpd_finish(struct httpd *s);
