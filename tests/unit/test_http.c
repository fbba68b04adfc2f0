/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "fs/backend/http.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "tests/unit/lib_cert.h"
#include "tests/unit/lib_http.h"
#include "tests/unit/lib_httpd.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define OK_EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

/* ---- what goes well ------------------------------------------------------------------ */

static void test_connection_is_kept(void **state)
{
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(4);
	struct call c;

	(void)state;
	for (int i = 0; i < 20; i++)
		httpd_reply(s, "GET /a", "200 OK", "ETag: \"e1\"\r\n", "hello", 5);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(lib_http_get(h, &c, s, "/a"), 0);
		assert_int_equal(c.x.status, 200);
		assert_int_equal(c.x.received, 5);
		assert_string_equal(c.body.data, "hello");
		assert_string_equal(c.etag, "\"e1\"");
		call_fini(&c);
	}
	assert_int_equal(http_connect_count(h), 1);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_each_method_on_one_handle(void **state)
{
	static const enum http_method order[] = {
		HTTP_PUT,    HTTP_GET,  HTTP_POST, HTTP_HEAD, HTTP_PUT,
		HTTP_DELETE, HTTP_POST, HTTP_GET,  HTTP_HEAD, HTTP_PUT};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;
	char line[64], text[64];

	(void)state;
	for (size_t i = 0; i < COUNT(order); i++) {
		snprintf(line, sizeof(line), "%s /k HTTP/1.1",
			 http_method_name(order[i]));
		httpd_reply(s, line, "200 OK",
			    order[i] == HTTP_HEAD ? "Content-Length: 77\r\n" : "", NULL,
			    0);
	}
	for (size_t i = 0; i < COUNT(order); i++) {
		bool sends = order[i] == HTTP_PUT || order[i] == HTTP_POST;
		const struct httpd_request *r;

		call_init(&c, s, order[i], "/k");
		c.x.body.data = "payload";
		c.x.body.len = sends ? 7 : 0;
		assert_int_equal(lib_http_run(h, &c), 0);
		r = httpd_get(s, i);
		if (sends) {
			assert_string_equal(r->body.data, "payload");
			assert_string_equal(c.sent.data, "payload");
		}
		assert_null(httpd_header(r, "expect", text, sizeof(text)));
		assert_null(httpd_header(r, "accept-encoding", text, sizeof(text)));
		assert_null(httpd_header(r, "content-type", text, sizeof(text)));
		assert_null(httpd_header(r, "transfer-encoding", text, sizeof(text)));
		assert_int_equal(!!httpd_header(r, "content-length", text, sizeof(text)),
				 sends);
		call_fini(&c);
	}
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_large_bodies_go_both_ways(void **state)
{
	enum {
		SIZE = 5 << 20,
		SKIP = 4097
	};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(2);
	char *bytes = malloc(SIZE + SKIP), path[] = "/tmp/test_http.XXXXXX";
	int fd = mkstemp(path);
	struct call c;

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < SIZE + SKIP; i++)
		bytes[i] = (char)(i * 31 + (i >> 11));
	assert_int_equal(io_pwrite(fd, bytes, SIZE + SKIP, 0), 0);
	httpd_reply(s, "PUT /big", "200 OK", NULL, bytes, SIZE);
	call_init(&c, s, HTTP_PUT, "/big");
	c.x.body.fd = fd;
	c.x.body.fd_off = SKIP;
	c.x.body.len = SIZE;
	assert_int_equal(lib_http_run(h, &c), 0);
	assert_int_equal(httpd_get(s, 0)->body.len, SIZE);
	assert_memory_equal(httpd_get(s, 0)->body.data, bytes + SKIP, SIZE);
	assert_memory_equal(c.sent.data, bytes + SKIP, SIZE);
	assert_int_equal(c.body.len, SIZE);
	assert_memory_equal(c.body.data, bytes, SIZE);
	call_fini(&c);
	close(fd);
	unlink(path);
	free(bytes);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_no_more_connections_than_allowed(void **state)
{
	static const struct httpd_action slowly[] = {DO_STALL(20), DO_SEND(OK_EMPTY)};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(3);
	struct call calls[24];

	(void)state;
	for (size_t i = 0; i < COUNT(calls); i++)
		httpd_script(s, "GET /", slowly, COUNT(slowly));
	for (size_t i = 0; i < COUNT(calls); i++) {
		call_init(&calls[i], s, HTTP_GET, "/");
		http_submit(h, &calls[i].x);
	}
	for (size_t i = 0; i < COUNT(calls); i++) {
		call_wait(&calls[i]);
		assert_int_equal(calls[i].x.result, 0);
		call_fini(&calls[i]);
	}
	assert_int_equal(httpd_connections(s), 3);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_path_goes_as_it_is(void **state)
{
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	(void)state;
	httpd_reply(s, "GET /a/../b/./c//d%2F%0D%0AX: HTTP/1.1", "200 OK", NULL, NULL, 0);
	assert_int_equal(lib_http_get(h, &c, s, "/a/../b/./c//d%2F%0D%0AX:"), 0);
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_continue_replies_are_skipped(void **state)
{
	static const struct httpd_action twice[] = {
		DO_SEND("HTTP/1.1 100 Continue\r\nETag: \"no\"\r\n\r\n"),
		DO_SEND("HTTP/1.1 201 Created\r\nETag: \"yes\"\r\nContent-Length: "
			"2\r\n\r\nok")};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	(void)state;
	httpd_script(s, "GET /", twice, COUNT(twice));
	assert_int_equal(lib_http_get(h, &c, s, "/"), 0);
	assert_int_equal(c.x.status, 201);
	assert_string_equal(c.etag, "\"yes\"");
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
}

/* ---- what the other side does wrong -------------------------------------------------- */

static void fails_with(int expected, const struct httpd_action *actions, size_t count)
{
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	httpd_script(s, "GET /x", actions, count);
	assert_int_equal(lib_http_get(h, &c, s, "/x"), expected);
	assert_true(c.x.why.text[0]);
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_truncated_body_is_bad_message(void **state)
{
	static const struct httpd_action cut[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), DO_CLOSE};

	(void)state;
	fails_with(-EBADMSG, cut, COUNT(cut));
}

static void test_reset_is_connection_reset(void **state)
{
	static const struct httpd_action reset[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
		DO_STALL(50), DO_RESET};

	(void)state;
	fails_with(-ECONNRESET, reset, COUNT(reset));
}

static void test_no_answer_is_connection_reset(void **state)
{
	static const struct httpd_action nothing[] = {DO_CLOSE};

	(void)state;
	fails_with(-ECONNRESET, nothing, COUNT(nothing));
}

static void test_garbage_is_bad_message(void **state)
{
	static const struct httpd_action garbage[] = {DO_SEND("SSH-2.0-OpenSSH_9.2\r\n"),
						      DO_CLOSE};

	(void)state;
	fails_with(-EBADMSG, garbage, COUNT(garbage));
}

static void test_endless_header_is_cut(void **state)
{
	static const struct httpd_action endless[] = {
		DO_SEND("HTTP/1.1 200 OK\r\n"),
		DO_REPEAT("X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")};

	(void)state;
	fails_with(-EBADMSG, endless, COUNT(endless));
}

static void test_endless_body_is_cut_by_the_hook(void **state)
{
	static const struct httpd_action endless[] = {
		DO_SEND("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
		DO_REPEAT("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	(void)state;
	httpd_script(s, "GET /x", endless, COUNT(endless));
	call_init(&c, s, HTTP_GET, "/x");
	c.body_max = 100000;
	assert_int_equal(lib_http_run(h, &c), -EFBIG);
	assert_string_equal(c.x.why.text, "more than was asked for");
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_refused_connection(void **state)
{
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;
	char url[64];

	(void)state;
	snprintf(url, sizeof(url), "%s/", httpd_url(s));
	assert_true(httpd_finish(s));
	assert_int_equal(lib_http_get(h, &c, NULL, url), -ECONNREFUSED);
	call_fini(&c);
	http_stop(h);
}

static uint64_t timed_failure(const struct httpd_action *actions, size_t count,
			      uint64_t deadline_ms, uint64_t stall_ms)
{
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	uint64_t begun = clock_mono_ms();
	struct call c;

	httpd_script(s, "GET /x", actions, count);
	call_init(&c, s, HTTP_GET, "/x");
	if (deadline_ms)
		c.x.deadline_ms = begun + deadline_ms;
	c.x.stall_ms = stall_ms;
	assert_int_equal(lib_http_run(h, &c), -ETIMEDOUT);
	begun = clock_mono_ms() - begun;
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
	return begun;
}

static void test_deadline_ends_a_silent_exchange(void **state)
{
	static const struct httpd_action silent[] = {DO_HOLD};
	uint64_t took = timed_failure(silent, COUNT(silent), 300, 0);

	(void)state;
	assert_in_range(took, 290, PATIENCE_MS);
}

static void test_one_byte_at_a_time_is_a_stall(void **state)
{
	static const struct httpd_action loris[] = {
		DO_TRICKLE("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789", 100)};
	uint64_t took = timed_failure(loris, COUNT(loris), 0, 1000);

	(void)state;
	assert_in_range(took, 990, PATIENCE_MS);
}

static void test_redirect_is_not_followed(void **state)
{
	struct httpd *s = httpd_start(NULL, NULL), *elsewhere = httpd_start(NULL, NULL);
	static const char *const statuses[] = {"301 Moved", "302 Found", "307 Temporary",
					       "308 Permanent"};
	static const struct http_header secret = {"Authorization",
						  "OSS4-HMAC-SHA256 secret"};
	struct http *h = lib_http_start(1);
	struct call c;
	char location[128];

	(void)state;
	snprintf(location, sizeof(location), "Location: %s/x\r\n", httpd_url(elsewhere));
	for (size_t i = 0; i < COUNT(statuses); i++)
		httpd_reply(s, "GET /x", statuses[i], location, NULL, 0);
	for (size_t i = 0; i < COUNT(statuses); i++) {
		call_init(&c, s, HTTP_GET, "/x");
		c.x.headers = &secret;
		c.x.header_count = 1;
		assert_int_equal(lib_http_run(h, &c), 0);
		assert_int_equal(c.x.status, atoi(statuses[i]));
		call_fini(&c);
	}
	assert_int_equal(httpd_count(elsewhere), 0);
	http_stop(h);
	assert_true(httpd_finish(s));
	assert_true(httpd_finish(elsewhere));
}

static void test_body_starts_over_on_a_dead_kept_connection(void **state)
{
	static const struct httpd_action then_close[] = {DO_SEND(OK_EMPTY), DO_STALL(50),
							 DO_RESET};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	(void)state;
	httpd_script(s, "GET /", then_close, COUNT(then_close));
	httpd_reply(s, "PUT /k", "200 OK", NULL, NULL, 0);
	assert_int_equal(lib_http_get(h, &c, s, "/"), 0);
	call_fini(&c);
	clock_sleep_ms(100);
	call_init(&c, s, HTTP_PUT, "/k");
	c.x.body.data = "again";
	c.x.body.len = 5;
	assert_int_equal(lib_http_run(h, &c), 0);
	assert_string_equal(c.sent.data, "again");
	assert_int_equal(c.sent.len, 5);
	call_fini(&c);
	assert_int_equal(http_connect_count(h), 2);
	http_stop(h);
	assert_true(httpd_finish(s));
}

/* ---- what we do wrong, or do not want any more ---------------------------------------- */

static void test_line_break_in_a_header_is_refused(void **state)
{
	static const struct http_header bad[] = {{"X-A", "a\r\nX-Evil: 1"},
						 {"X-A", "a\nb"},
						 {"X-A\r\nX-Evil", "1"},
						 {"X-A: 1", "2"}};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call c;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		call_init(&c, s, HTTP_GET, "/");
		c.x.headers = &bad[i];
		c.x.header_count = 1;
		assert_int_equal(lib_http_run(h, &c), -EINVAL);
		call_fini(&c);
	}
	assert_int_equal(httpd_count(s), 0);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_short_file_is_not_sent_as_whole(void **state)
{
	static const struct httpd_action act_first[] = {DO_READ_HEAD, DO_STALL(200),
							DO_CLOSE};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	char path[] = "/tmp/test_http.XXXXXX";
	int fd = mkstemp(path);
	struct call c;

	(void)state;
	assert_int_equal(io_pwrite(fd, "abc", 3, 0), 0);
	httpd_script(s, "PUT /k", act_first, COUNT(act_first));
	call_init(&c, s, HTTP_PUT, "/k");
	c.x.body.fd = fd;
	c.x.body.len = 10;
	assert_int_equal(lib_http_run(h, &c), -EIO);
	assert_non_null(strstr(c.x.why.text, "too short"));
	/* The header went out before the body was found too short. */
	eventually(httpd_count(s) > 0);
	call_fini(&c);
	close(fd);
	unlink(path);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_cancel_on_the_wire_and_in_the_queue(void **state)
{
	static const struct httpd_action silent[] = {DO_HOLD, DO_SEND(OK_EMPTY)};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call wire, queued;

	(void)state;
	httpd_script(s, "GET /wire", silent, COUNT(silent));
	call_init(&wire, s, HTTP_GET, "/wire");
	call_init(&queued, s, HTTP_GET, "/queued");
	http_submit(h, &wire.x);
	http_submit(h, &queued.x);
	eventually(httpd_count(s) > 0);
	http_cancel(h, &queued.x);
	http_cancel(h, &queued.x);
	http_cancel(h, &wire.x);
	call_wait(&queued);
	call_wait(&wire);
	assert_int_equal(queued.x.result, -ECANCELED);
	assert_int_equal(wire.x.result, -ECANCELED);
	http_cancel(h, &wire.x);
	call_fini(&wire);
	call_fini(&queued);
	http_stop(h);
	assert_true(httpd_finish(s));
}

static void test_deadline_passes_in_the_queue(void **state)
{
	static const struct httpd_action silent[] = {DO_HOLD, DO_SEND(OK_EMPTY)};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call wire, queued;

	(void)state;
	httpd_script(s, "GET /wire", silent, COUNT(silent));
	call_init(&wire, s, HTTP_GET, "/wire");
	call_init(&queued, s, HTTP_GET, "/queued");
	queued.x.deadline_ms = clock_mono_ms() + 200;
	http_submit(h, &wire.x);
	http_submit(h, &queued.x);
	call_wait(&queued);
	assert_int_equal(queued.x.result, -ETIMEDOUT);
	assert_int_equal(wire.done, 0);
	httpd_let_go(s);
	call_wait(&wire);
	assert_int_equal(wire.x.result, 0);
	call_fini(&wire);
	call_fini(&queued);
	http_stop(h);
	assert_true(httpd_finish(s));
}

/* The script wants the exchanges in the order in which they should go out. */
static void test_what_nobody_waits_for_goes_out_last(void **state)
{
	static const struct httpd_action slow[] = {DO_HOLD, DO_SEND(OK_EMPTY)};
	static const char *const paths[] = {"/wire", "/later", "/reader"};
	struct httpd *s = httpd_start(NULL, NULL);
	struct http *h = lib_http_start(1);
	struct call calls[3];

	(void)state;
	httpd_script(s, "GET /wire", slow, COUNT(slow));
	httpd_script(s, "GET /reader", slow + 1, 1);
	httpd_script(s, "GET /later", slow + 1, 1);
	for (int i = 0; i < 3; i++) {
		call_init(&calls[i], s, HTTP_GET, paths[i]);
		calls[i].x.background = i == 1;
		http_submit(h, &calls[i].x);
		eventually(httpd_count(s) > 0);
	}
	httpd_let_go(s);
	for (int i = 0; i < 3; i++) {
		call_wait(&calls[i]);
		assert_int_equal(calls[i].x.result, 0);
		call_fini(&calls[i]);
	}
	http_stop(h);
	assert_true(httpd_finish(s));
}

/* ---- TLS ----------------------------------------------------------------------------- */

static int tls_get(const struct cert_spec *spec, bool trusted, struct why *why)
{
	char dir[] = "/tmp/test_http.XXXXXX", ca[64], cert[64], key[64];
	struct http_config config = {.connections_max = 1};
	struct http *h = NULL;
	struct httpd *s;
	struct call c;
	int r;

	assert_non_null(mkdtemp(dir));
	cert_make(dir, spec);
	snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
	snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
	snprintf(key, sizeof(key), "%s/key.pem", dir);
	if (trusted)
		config.ca_file = ca;
	s = httpd_start(cert, key);
	if (trusted && spec->expires_s > 0 && strcmp(spec->name, "127.0.0.1") == 0)
		httpd_reply(s, "GET /tls", "200 OK", NULL, "secret", 6);
	assert_int_equal(http_start(&config, &h, NULL), 0);
	r = lib_http_get(h, &c, s, "/tls");
	*why = c.x.why;
	if (r == 0)
		assert_string_equal(c.body.data, "secret");
	call_fini(&c);
	http_stop(h);
	assert_true(httpd_finish(s));
	assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
	return r;
}

static void test_tls_of_our_authority_is_trusted(void **state)
{
	struct why why;

	(void)state;
	assert_int_equal(tls_get(&(struct cert_spec){"127.0.0.1", 3600}, true, &why), 0);
}

static void test_tls_that_cannot_be_verified_is_refused(void **state)
{
	struct why why;

	(void)state;
	assert_int_equal(tls_get(&(struct cert_spec){"127.0.0.1", 3600}, false, &why),
			 -EIO);
	assert_non_null(strstr(why.text, "certificate"));
	assert_int_equal(tls_get(&(struct cert_spec){"other.example", 3600}, true, &why),
			 -EIO);
	assert_int_equal(tls_get(&(struct cert_spec){"127.0.0.1", -3600}, true, &why),
			 -EIO);
	assert_non_null(strstr(why.text, "expired"));
}

static void test_missing_ca_file_is_named(void **state)
{
	struct http_config config = {.ca_file = "/nonexistent/ca.pem",
				     .connections_max = 1};
	struct http *h = NULL;
	struct why why;

	(void)state;
	assert_int_equal(http_start(&config, &h, &why), -EINVAL);
	assert_non_null(strstr(why.text, "/nonexistent/ca.pem"));
}

TEST_MAIN(cmocka_unit_test(test_connection_is_kept),
	  cmocka_unit_test(test_each_method_on_one_handle),
	  cmocka_unit_test(test_large_bodies_go_both_ways),
	  cmocka_unit_test(test_no_more_connections_than_allowed),
	  cmocka_unit_test(test_path_goes_as_it_is),
	  cmocka_unit_test(test_continue_replies_are_skipped),
	  cmocka_unit_test(test_truncated_body_is_bad_message),
	  cmocka_unit_test(test_reset_is_connection_reset),
	  cmocka_unit_test(test_no_answer_is_connection_reset),
	  cmocka_unit_test(test_garbage_is_bad_message),
	  cmocka_unit_test(test_endless_header_is_cut),
	  cmocka_unit_test(test_endless_body_is_cut_by_the_hook),
	  cmocka_unit_test(test_refused_connection),
	  cmocka_unit_test(test_deadline_ends_a_silent_exchange),
	  cmocka_unit_test(test_one_byte_at_a_time_is_a_stall),
	  cmocka_unit_test(test_redirect_is_not_followed),
	  cmocka_unit_test(test_body_starts_over_on_a_dead_kept_connection),
	  cmocka_unit_test(test_line_break_in_a_header_is_refused),
	  cmocka_unit_test(test_short_file_is_not_sent_as_whole),
	  cmocka_unit_test(test_cancel_on_the_wire_and_in_the_queue),
	  cmocka_unit_test(test_deadline_passes_in_the_queue),
	  cmocka_unit_test(test_what_nobody_waits_for_goes_out_last),
	  cmocka_unit_test(test_tls_of_our_authority_is_trusted),
	  cmocka_unit_test(test_tls_that_cannot_be_verified_is_refused),
	  cmocka_unit_test(test_missing_ca_file_is_named))
