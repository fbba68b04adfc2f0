/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_httpd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/lock.h"

#define CONNECTIONS_MAX 128
#define HEAD_MAX 65536
#define REPEAT_MAX (64u << 20) /* a client that swallows that much has no limit */

struct exchange {
	char expect[1200];
	struct httpd_action actions[HTTPD_ACTIONS_MAX];
	char *copy; /* what httpd_reply() made */
};

struct connection {
	struct httpd *server;
	int fd, number;
	SSL *ssl;
	pthread_t thread;
};

struct httpd {
	struct lock lock; /* everything below */
	struct exchange script[HTTPD_EXCHANGES_MAX];
	size_t scripted, played, unexpected;
	char complaint[512];
	struct httpd_request requests[HTTPD_EXCHANGES_MAX * 2];
	size_t request_count;
	struct connection connections[CONNECTIONS_MAX];
	int connection_count;

	atomic_bool let_go;
	int fd, port; /* constant from here on */
	char url[64];
	SSL_CTX *tls;
	pthread_t acceptor;
};

/* ---- bytes --------------------------------------------------------------------------- */

static ssize_t get_bytes(struct connection *c, void *p, size_t n)
{
	if (c->ssl) {
		int r = SSL_read(c->ssl, p, (int)n);

		return r > 0 ? r : 0;
	}
	return recv(c->fd, p, n, 0);
}

static bool put_bytes(struct connection *c, const char *p, size_t n)
{
	while (n) {
		ssize_t r;

		if (c->ssl)
			r = SSL_write(c->ssl, p, (int)n);
		else
			r = send(c->fd, p, n, MSG_NOSIGNAL);
		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

/* ---- requests ------------------------------------------------------------------------ */

/* The head, byte by byte: what follows it stays in the socket. False: no request came. */
static bool read_head(struct connection *c, struct buf *head)
{
	while (head->len < HEAD_MAX) {
		char byte;

		if (get_bytes(c, &byte, 1) != 1)
			return false;
		buf_putc(head, byte);
		if (head->len >= 4 &&
		    memcmp(head->data + head->len - 4, "\r\n\r\n", 4) == 0) {
			head->len -= 4;
			head->data[head->len] = '\0';
			return true;
		}
	}
	return false;
}

const char *httpd_header(const struct httpd_request *r, const char *name, char *out,
			 size_t out_size)
{
	size_t n = strlen(name);
	const char *line = r->head.data;

	while ((line = strstr(line, "\r\n"))) {
		line += 2;
		if (strncasecmp(line, name, n) || line[n] != ':')
			continue;
		line += n + 1;
		line += strspn(line, " ");
		snprintf(out, out_size, "%.*s", (int)strcspn(line, "\r"), line);
		return out;
	}
	return NULL;
}

static bool read_body(struct connection *c, struct httpd_request *r)
{
	char text[32];
	const char *length = httpd_header(r, "content-length", text, sizeof(text));
	size_t left = length ? strtoull(length, NULL, 10) : 0;

	while (left) {
		char chunk[16384];
		ssize_t n =
			get_bytes(c, chunk, left < sizeof(chunk) ? left : sizeof(chunk));

		if (n <= 0)
			return false;
		buf_append(&r->body, chunk, (size_t)n);
		left -= (size_t)n;
	}
	return true;
}

/* ---- acting -------------------------------------------------------------------------- */

static bool trickle(struct connection *c, const struct httpd_action *a)
{
	size_t n = a->n ? a->n : strlen(a->bytes);

	for (size_t i = 0; i < n; i++) {
		if (!put_bytes(c, a->bytes + i, 1))
			return false;
		clock_sleep_ms((uint64_t)a->ms);
	}
	return true;
}

static bool repeat(struct connection *c, const struct httpd_action *a)
{
	size_t n = a->n ? a->n : strlen(a->bytes);

	for (size_t sent = 0; sent < REPEAT_MAX; sent += n)
		if (!put_bytes(c, a->bytes, n))
			return false;
	return false;
}

static bool hold(const struct connection *c)
{
	struct pollfd gone = {.fd = c->fd, .events = POLLRDHUP};

	while (!atomic_load(&c->server->let_go))
		if (poll(&gone, 1, 5) != 0)
			return false;
	return true;
}

/* False: the connection is over. */
static bool act(struct connection *c, const struct httpd_action *a)
{
	struct linger abort_it = {1, 0};

	switch (a->what) {
	case HTTPD_SEND:
		return put_bytes(c, a->bytes, a->n ? a->n : strlen(a->bytes));
	case HTTPD_TRICKLE:
		return trickle(c, a);
	case HTTPD_REPEAT:
		return repeat(c, a);
	case HTTPD_STALL:
		clock_sleep_ms((uint64_t)a->ms);
		return true;
	case HTTPD_HOLD:
		return hold(c);
	case HTTPD_RESET:
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &abort_it, sizeof(abort_it));
		return false;
	case HTTPD_CLOSE:
		return false;
	case HTTPD_READ_HEAD:
	case HTTPD_END:
		return true;
	}
	return false;
}

/* The script's next exchange, or NULL with a complaint. */
static struct exchange *next_exchange(struct httpd *s, struct httpd_request **request,
				      const struct buf *head, int number)
{
	struct exchange *e;

	lock_scope(&s->lock);
	check(s->request_count < sizeof(s->requests) / sizeof(*s->requests));
	*request = &s->requests[s->request_count++];
	buf_append(&(*request)->head, head->data, head->len);
	(*request)->connection = number;
	e = s->played < s->scripted ? &s->script[s->played] : NULL;
	if (e && strncmp(head->data, e->expect, strlen(e->expect)) == 0) {
		s->played++;
		return e;
	}
	if (!s->unexpected++)
		snprintf(s->complaint, sizeof(s->complaint),
			 "came \"%.*s\", expected \"%s\"", (int)strcspn(head->data, "\r"),
			 head->data, e ? e->expect : "nothing more");
	return NULL;
}

static bool serve_one(struct connection *c)
{
	static const char refused[] = "HTTP/1.1 599 Unexpected\r\nContent-Length: "
				      "0\r\nConnection: close\r\n\r\n";
	struct buf head = BUF_INIT;
	struct httpd_request *request;
	struct exchange *e;
	bool goes_on = read_head(c, &head);

	if (!goes_on) {
		buf_fini(&head);
		return false;
	}
	e = next_exchange(c->server, &request, &head, c->number);
	buf_fini(&head);
	if (!e || e->actions[0].what != HTTPD_READ_HEAD)
		goes_on = read_body(c, request);
	if (!e) {
		put_bytes(c, refused, sizeof(refused) - 1);
		return false;
	}
	for (size_t i = 0; goes_on && i < HTTPD_ACTIONS_MAX; i++)
		goes_on = act(c, &e->actions[i]);
	return goes_on;
}

static void *serve(void *arg)
{
	struct connection *c = arg;
	bool goes_on = true;

	if (c->server->tls) {
		c->ssl = SSL_new(c->server->tls);
		SSL_set_fd(c->ssl, c->fd);
		goes_on = SSL_accept(c->ssl) == 1;
	}
	while (goes_on)
		goes_on = serve_one(c);
	if (c->ssl) {
		SSL_shutdown(c->ssl);
		SSL_free(c->ssl);
	}
	lock_take(&c->server->lock);
	close(c->fd);
	c->fd = -1;
	lock_drop(&c->server->lock);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct httpd *s = arg;

	for (;;) {
		int fd = accept(s->fd, NULL, NULL), on = 1;
		struct connection *c;

		if (fd < 0)
			return NULL;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		lock_take(&s->lock);
		check(s->connection_count < CONNECTIONS_MAX);
		c = &s->connections[s->connection_count++];
		*c = (struct connection){
			.server = s, .fd = fd, .number = s->connection_count};
		check(pthread_create(&c->thread, NULL, serve, c) == 0);
		lock_drop(&s->lock);
	}
}

/* ---- the test's side ----------------------------------------------------------------- */

struct httpd *httpd_start(const char *cert, const char *key)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(at);
	struct httpd *s = calloc(1, sizeof(*s));

	check(s);
	signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to connections the client has left */
	lock_init(&s->lock);
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(s->fd >= 0);
	check(bind(s->fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	check(listen(s->fd, 64) == 0);
	check(getsockname(s->fd, (struct sockaddr *)&at, &n) == 0);
	s->port = ntohs(at.sin_port);
	if (cert) {
		s->tls = SSL_CTX_new(TLS_server_method());
		check(s->tls);
		check(SSL_CTX_use_certificate_file(s->tls, cert, SSL_FILETYPE_PEM) == 1);
		check(SSL_CTX_use_PrivateKey_file(s->tls, key, SSL_FILETYPE_PEM) == 1);
	}
	snprintf(s->url, sizeof(s->url), "%s://127.0.0.1:%d", cert ? "https" : "http",
		 s->port);
	check(pthread_create(&s->acceptor, NULL, accept_all, s) == 0);
	return s;
}

const char *httpd_url(const struct httpd *s)
{
	return s->url;
}

int httpd_port(const struct httpd *s)
{
	return s->port;
}

void httpd_script(struct httpd *s, const char *expect, const struct httpd_action *actions,
		  size_t count)
{
	struct exchange *e;

	lock_scope(&s->lock);
	check(s->scripted < HTTPD_EXCHANGES_MAX);
	check(count <= HTTPD_ACTIONS_MAX);
	check(strlen(expect) < sizeof(e->expect));
	e = &s->script[s->scripted++];
	snprintf(e->expect, sizeof(e->expect), "%s", expect);
	memcpy(e->actions, actions, count * sizeof(*actions));
}

void httpd_reply(struct httpd *s, const char *expect, const char *status,
		 const char *header, const void *body, size_t n)
{
	struct httpd_action action = {.what = HTTPD_SEND};
	struct buf bytes = BUF_INIT;

	/* The reply to a HEAD gives a length without a body: header says it then. */
	buf_printf(&bytes, "HTTP/1.1 %s\r\n%s", status, header ? header : "");
	if (!header || !strcasestr(header, "content-length:"))
		buf_printf(&bytes, "Content-Length: %zu\r\n", n);
	buf_puts(&bytes, "\r\n");
	if (n)
		buf_append(&bytes, body, n);
	check(buf_error(&bytes) == 0);
	action.n = bytes.len;
	action.bytes = buf_steal(&bytes);
	httpd_script(s, expect, &action, 1);
	lock_scope(&s->lock);
	s->script[s->scripted - 1].copy = (char *)(uintptr_t)action.bytes;
}

void httpd_let_go(struct httpd *s)
{
	atomic_store(&s->let_go, true);
}

size_t httpd_count(struct httpd *s)
{
	lock_scope(&s->lock);
	return s->request_count;
}

const struct httpd_request *httpd_get(struct httpd *s, size_t i)
{
	lock_scope(&s->lock);
	check(i < s->request_count);
	return &s->requests[i];
}

int httpd_connections(struct httpd *s)
{
	lock_scope(&s->lock);
	return s->connection_count;
}

bool httpd_finish(struct httpd *s)
{
	bool good;

	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->acceptor, NULL);
	close(s->fd);
	for (int i = 0; i < s->connection_count; i++) {
		lock_take(&s->lock);
		if (s->connections[i].fd >= 0)
			shutdown(s->connections[i].fd, SHUT_RDWR);
		lock_drop(&s->lock);
		pthread_join(s->connections[i].thread, NULL);
	}
	good = !s->unexpected && s->played == s->scripted;
	if (s->unexpected)
		fprintf(stderr, "httpd: %s\n", s->complaint);
	else if (!good)
		fprintf(stderr, "httpd: \"%s\" never came\n",
			s->script[s->played].expect);
	for (size_t i = 0; i < s->scripted; i++)
		free(s->script[i].copy);
	for (size_t i = 0; i < s->request_count; i++) {
		buf_fini(&s->requests[i].head);
		buf_fini(&s->requests[i].body);
	}
	if (s->tls)
		SSL_CTX_free(s->tls);
	lock_fini(&s->lock);
	free(s);
	return good;
}
