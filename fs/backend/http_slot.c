/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/http_slot.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/clock.h"
#include "fs/base/io.h"

#define BUFFER_SIZE                                                                      \
	524288L         /* measured: a quarter faster than 16 KiB, 2 MiB is no better */
#define IDLE_S 50L      /* servers close a kept connection after a minute */
#define LIFETIME_S 600L /* a connection must not outlive a change of address for long */
#define KEEPALIVE_S 30L
#define SLOW_BYTES_PER_S 1024L

static const char *const method_names[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
static_assert(sizeof(method_names) / sizeof(*method_names) == HTTP_METHOD_N, "methods");

const char *http_method_name(enum http_method method)
{
	return method < HTTP_METHOD_N ? method_names[method] : "?";
}

/* ---- curl's callbacks ---------------------------------------------------------------- */

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct http_slot *slot = arg;
	struct http_exchange *x = slot->x;
	const char *colon, *value;
	size_t len = n * size, value_len;

	slot->header_bytes += len;
	if (slot->header_bytes > HTTP_REPLY_HEADER_MAX) {
		slot->hook_result = why_set(&x->why, err_origin(-EBADMSG),
					    "the header of the reply is endless");
		return 0;
	}
	if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
		long status = 0;

		curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &status);
		x->status = (int)status;
		return len;
	}
	colon = memchr(line, ':', len);
	if (x->status < 200 || !colon || !x->hooks->header)
		return len;
	value = colon + 1;
	value_len = len - (size_t)(value - line);
	while (value_len && strchr(" \t\r\n", value[value_len - 1]))
		value_len--;
	while (value_len && (*value == ' ' || *value == '\t')) {
		value++;
		value_len--;
	}
	x->hooks->header(x, line, (size_t)(colon - line), value, value_len);
	return len;
}

static size_t on_receive(char *data, size_t size, size_t n, void *arg)
{
	struct http_slot *slot = arg;
	size_t len = n * size;
	int r;

	if (!len)
		return 0;
	r = slot->x->hooks->receive(slot->x, data, len);
	if (r < 0) {
		slot->hook_result = r;
		return 0;
	}
	slot->x->received += len;
	return len;
}

static size_t on_send(char *to, size_t size, size_t n, void *arg)
{
	struct http_slot *slot = arg;
	struct http_exchange *x = slot->x;
	uint64_t left = x->body.len - slot->sent;
	size_t want = left < n * size ? (size_t)left : n * size;

	if (!want)
		return 0;
	if (x->body.data) {
		memcpy(to, (const char *)x->body.data + slot->sent, want);
	} else {
		ssize_t got = io_pread(x->body.fd, to, want, x->body.fd_off + slot->sent);

		if (got < 0 || (size_t)got < want) {
			slot->hook_result = why_set(&x->why, err_origin(-EIO),
						    "cannot read what is to be sent: %s",
						    got < 0 ? strerror((int)-got)
							    : "the file is too short");
			return CURL_READFUNC_ABORT;
		}
	}
	if (x->hooks->sending)
		x->hooks->sending(x, to, want);
	slot->sent += want;
	return want;
}

/* Curl goes back when a kept connection turns out dead after the first bytes were sent. */
static int on_seek(void *arg, curl_off_t off, int origin)
{
	struct http_slot *slot = arg;

	if (off != 0 || origin != SEEK_SET)
		return CURL_SEEKFUNC_FAIL;
	slot->sent = 0;
	if (slot->x->hooks->sending)
		slot->x->hooks->sending(slot->x, NULL, 0);
	return CURL_SEEKFUNC_OK;
}

/* ---- handles ------------------------------------------------------------------------- */

static void set_callbacks(struct http_slot *slot)
{
	CURL *e = slot->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, slot);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, slot->error);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, slot);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_receive);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, slot);
	curl_easy_setopt(e, CURLOPT_READFUNCTION, on_send);
	curl_easy_setopt(e, CURLOPT_READDATA, slot);
	curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
	curl_easy_setopt(e, CURLOPT_SEEKDATA, slot);
}

/* What never changes between exchanges. */
static void set_constants(struct http_slot *slot)
{
	const struct http_slot_config *config = slot->config;
	CURL *e = slot->easy;

	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A request that ends while its name is looked up leaves that to the thread that
	 * does it: a resolver without an answer takes longer than any deadline. */
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
#endif
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_USERAGENT, "sluice/" VERSION);
	curl_easy_setopt(e, CURLOPT_NOPROGRESS, 1L);
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, BUFFER_SIZE);
	curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_SIZE);
	curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
	curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, IDLE_S);
	curl_easy_setopt(e, CURLOPT_MAXLIFETIME_CONN, LIFETIME_S);
	curl_easy_setopt(e, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)config->connect_ms);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES_PER_S);
	curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	if (config->ca_file)
		curl_easy_setopt(e, CURLOPT_CAINFO, config->ca_file);
}

struct http_slot *http_slot_new(const struct http_slot_config *config)
{
	struct http_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return NULL;
	slot->config = config;
	slot->easy = curl_easy_init();
	if (!slot->easy) {
		free(slot);
		return NULL;
	}
	set_callbacks(slot);
	set_constants(slot);
	return slot;
}

void http_slot_free(struct http_slot *slot)
{
	if (!slot)
		return;
	curl_easy_cleanup(slot->easy);
	buf_wipe(&slot->lines);
	free(slot);
}

/* ---- loading ------------------------------------------------------------------------- */

static int add_line(struct http_slot *slot, const struct http_header *header)
{
	if (header->name[strcspn(header->name, "\r\n:")] ||
	    header->value[strcspn(header->value, "\r\n")])
		return why_set(&slot->x->why, err_origin(-EINVAL),
			       "a header with a line break was refused");
	buf_puts(&slot->lines, header->name);
	/* Curl's spelling of a header without a value. */
	buf_puts(&slot->lines, *header->value ? ": " : ";");
	buf_append(&slot->lines, header->value, strlen(header->value) + 1);
	return 0;
}

/* Builds the list in the slot itself: no allocation once `lines` has grown. */
static int load_headers(struct http_slot *slot)
{
	static const char no_expect[] =
		"Expect:"; /* without it curl waits a round trip */
	const struct http_exchange *x = slot->x;
	size_t count = x->header_count;
	char *at;

	if (count > HTTP_HEADERS_MAX)
		return why_set(&slot->x->why, err_origin(-E2BIG),
			       "%zu headers, at most %d", count, HTTP_HEADERS_MAX);
	buf_reset(&slot->lines);
	for (size_t i = 0; i < count; i++) {
		int r = add_line(slot, &x->headers[i]);

		if (r < 0)
			return err_trace(r);
	}
	buf_append(&slot->lines, no_expect, sizeof(no_expect));
	if (buf_error(&slot->lines) < 0)
		return why_set(&slot->x->why, err_origin(-ENOMEM),
			       "no memory for headers");
	at = slot->lines.data;
	for (size_t i = 0; i <= count; i++) {
		slot->nodes[i].data = at;
		slot->nodes[i].next = i < count ? &slot->nodes[i + 1] : NULL;
		at += strlen(at) + 1;
	}
	curl_easy_setopt(slot->easy, CURLOPT_HTTPHEADER, slot->nodes);
	return 0;
}

static void load_method(struct http_slot *slot)
{
	const struct http_exchange *x = slot->x;
	CURL *e = slot->easy;

	switch (x->method) {
	case HTTP_PUT:
	case HTTP_POST:
		curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)x->body.len);
		break;
	case HTTP_HEAD:
		/* Also takes back UPLOAD, which NOBODY alone would not. */
		curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
		break;
	default:
		curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
		break;
	}
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST,
			 x->method == HTTP_POST || x->method == HTTP_DELETE
				 ? method_names[x->method]
				 : NULL);
}

static int load_times(struct http_slot *slot)
{
	struct http_exchange *x = slot->x;
	uint64_t stall = x->stall_ms ? x->stall_ms : slot->config->stall_ms;
	uint64_t now = clock_mono_ms();
	uint64_t left = 0;

	if (x->deadline_ms != UINT64_MAX) {
		if (x->deadline_ms <= now)
			return why_set(&x->why, err_origin(-ETIMEDOUT),
				       "the deadline passed before the request was sent");
		left = x->deadline_ms - now;
		if (left > LONG_MAX / 2)
			left = 0;
	}
	curl_easy_setopt(slot->easy, CURLOPT_TIMEOUT_MS, (long)left);
	curl_easy_setopt(slot->easy, CURLOPT_LOW_SPEED_TIME,
			 (long)((stall + 999) / 1000));
	return 0;
}

int http_slot_load(struct http_slot *slot, struct http_exchange *x)
{
	int r;

	slot->x = x;
	slot->sent = slot->header_bytes = 0;
	slot->hook_result = 0;
	slot->error[0] = '\0';
	r = load_headers(slot);
	if (r >= 0)
		r = load_times(slot);
	if (r < 0)
		return err_trace(r);
	load_method(slot);
	if (curl_easy_setopt(slot->easy, CURLOPT_URL, x->url) != CURLE_OK)
		return why_set(&x->why, err_origin(-ENOMEM), "no memory for a URL");
	return 0;
}

/* ---- results ------------------------------------------------------------------------- */

static int connect_errno(CURL *easy)
{
	long os = 0;

	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os);
	return os == ECONNREFUSED ? -ECONNREFUSED : -EHOSTUNREACH;
}

/* The one table from curl's codes to errno values. */
static int code_errno(CURL *easy, CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_CONNECT:
		return connect_errno(easy);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_SSL_CONNECT_ERROR:
		return -EHOSTUNREACH;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_FAIL_REWIND:
		return -ECONNRESET;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_PARTIAL_FILE:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_UNSUPPORTED_PROTOCOL: /* of a reply: HTTP/0.9 */
	case CURLE_BAD_CONTENT_ENCODING:
		return -EBADMSG;
	case CURLE_URL_MALFORMAT:
		return -EINVAL;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

void http_slot_result(struct http_slot *slot, int code)
{
	struct http_exchange *x = slot->x;
	CURLcode c = (CURLcode)code;
	const char *text = slot->error[0] ? slot->error : curl_easy_strerror(c);

	if (slot->hook_result < 0) {
		x->result = err_trace(slot->hook_result);
		return;
	}
	x->result = code_errno(slot->easy, c);
	if (x->result < 0)
		why_set(&x->why, err_origin(x->result), "%s", text);
}
