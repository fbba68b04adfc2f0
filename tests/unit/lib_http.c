/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_http.h"

#include <errno.h>
#include <strings.h>

#include "fs/base/clock.h"

static struct call *call_of(struct http_exchange *x)
{
	return (struct call *)((char *)x - offsetof(struct call, x));
}

static void on_header(struct http_exchange *x, const char *name, size_t name_len,
		      const char *value, size_t value_len)
{
	struct call *c = call_of(x);

	if (name_len == 4 && strncasecmp(name, "etag", 4) == 0)
		snprintf(c->etag, sizeof(c->etag), "%.*s", (int)value_len, value);
}

static int on_receive(struct http_exchange *x, const void *data, size_t n)
{
	struct call *c = call_of(x);

	if (c->body_max && c->body.len + n > c->body_max)
		return why_set(&x->why, -EFBIG, "more than was asked for");
	buf_append(&c->body, data, n);
	return 0;
}

static void on_sending(struct http_exchange *x, const void *data, size_t n)
{
	struct call *c = call_of(x);

	if (data) {
		buf_append(&c->sent, data, n);
	} else {
		buf_reset(&c->sent);
		c->restarts++;
	}
}

static void on_done(struct http_exchange *x)
{
	struct call *c = call_of(x);

	lock_scope(&c->lock);
	c->done++;
	pthread_cond_signal(&c->cond);
}

static const struct http_hooks hooks = {on_header, on_receive, on_sending, on_done};

void call_init(struct call *c, const struct httpd *s, enum http_method method,
	       const char *path)
{
	memset(c, 0, sizeof(*c));
	snprintf(c->url, sizeof(c->url), "%s%s", s ? httpd_url(s) : "", path);
	c->x.method = method;
	c->x.url = c->url;
	c->x.deadline_ms = patience();
	c->x.hooks = &hooks;
	c->x.body.fd = -1;
	lock_init(&c->lock);
	lock_cond_init(&c->cond);
}

void call_wait(struct call *c)
{
	lock_take(&c->lock);
	while (!c->done)
		lock_wait(&c->lock, &c->cond, UINT64_MAX);
	lock_drop(&c->lock);
	assert_int_equal(c->done, 1);
}

void call_fini(struct call *c)
{
	buf_fini(&c->body);
	buf_fini(&c->sent);
	lock_fini(&c->lock);
	pthread_cond_destroy(&c->cond);
}

struct http *lib_http_start(uint32_t connections)
{
	struct http_config config = {.connections_max = connections};
	struct http *h = NULL;

	assert_int_equal(http_start(&config, &h, NULL), 0);
	return h;
}

int lib_http_run(struct http *h, struct call *c)
{
	http_submit(h, &c->x);
	call_wait(c);
	return c->x.result;
}

int lib_http_get(struct http *h, struct call *c, const struct httpd *s, const char *path)
{
	call_init(c, s, HTTP_GET, path);
	return lib_http_run(h, c);
}
