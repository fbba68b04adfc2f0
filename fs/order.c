/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/order.h"

#include <errno.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

static bool plain(unsigned char c)
{
	return c >= 0x20 && c != 0x7f && c != '\\';
}

void order_put(struct buf *b, const char *key)
{
	for (const char *p = key; *p; p++) {
		if (plain((unsigned char)*p))
			buf_putc(b, *p);
		else
			buf_printf(b, "\\x%02x", (unsigned char)*p);
	}
	buf_putc(b, '\n');
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place of the line; false: an escape is malformed. */
static bool unescape(const char *line, size_t n, char *out, size_t *len)
{
	size_t o = 0;

	for (size_t i = 0; i < n; i++) {
		int high, low;

		if (line[i] != '\\') {
			out[o++] = line[i];
			continue;
		}
		if (n - i < 4 || line[i + 1] != 'x')
			return false;
		high = hex(line[i + 2]);
		low = hex(line[i + 3]);
		if (high < 0 || low < 0)
			return false;
		out[o++] = (char)(high << 4 | low);
		i += 3;
	}
	*len = o;
	return true;
}

/* Below the mount point, without "./" and slashes at the ends. */
static int strip(const char **p, size_t *n, const char *dir)
{
	size_t d = strlen(dir);

	if (*n && **p == '/') {
		if (*n < d || memcmp(*p, dir, d) != 0 || (*n > d && (*p)[d] != '/'))
			return ORDER_E_BAD;
		*p += d;
		*n -= d;
		while (*n && **p == '/') {
			(*p)++;
			(*n)--;
		}
	}
	while (*n >= 2 && (*p)[0] == '.' && (*p)[1] == '/') {
		*p += 2;
		*n -= 2;
		while (*n && **p == '/') {
			(*p)++;
			(*n)--;
		}
	}
	if (*n == 1 && **p == '.')
		*n = 0;
	while (*n && (*p)[*n - 1] == '/')
		(*n)--;
	return 0;
}

int order_key(const char *line, size_t n, bool escaped, const char *dir,
	      char key[PATH_KEY_MAX + 2], const char **why_bad)
{
	char text[ORDER_LINE_MAX];
	int fault;

	if (n == 0)
		return ORDER_E_EMPTY;
	if (n > sizeof(text)) {
		*why_bad = path_fault_name(PATH_E_LONG);
		return ORDER_E_BAD;
	}
	if (escaped && !unescape(line, n, text, &n)) {
		*why_bad = "malformed escape";
		return ORDER_E_BAD;
	}
	if (escaped) {
		line = text;
		n = n == 1 && *text == '.' ? 0 : n;
	} else if (strip(&line, &n, dir) != 0) {
		*why_bad = "not below the mount point";
		return ORDER_E_BAD;
	}
	fault = n ? path_key_check(line, n) : PATH_OK;
	if (fault != PATH_OK) {
		*why_bad = path_fault_name(fault);
		return ORDER_E_BAD;
	}
	memcpy(key, line, n);
	key[n] = '\0';
	return 0;
}

void order_reader_init(struct order_reader *r, int fd, const char *dir)
{
	r->fd = fd;
	r->dir = dir;
	r->recorded = r->escaped = r->begun = r->ended = false;
	r->off = r->line = 0;
	r->at = r->len = 0;
}

static int fill(struct order_reader *r)
{
	ssize_t got;

	memmove(r->data, r->data + r->at, r->len - r->at);
	r->len -= r->at;
	r->at = 0;
	got = io_pread(r->fd, r->data + r->len, sizeof(r->data) - r->len, r->off);
	if (got < 0)
		return err_trace((int)got);
	r->off += (uint64_t)got;
	r->len += (size_t)got;
	r->ended = got == 0;
	return 0;
}

/* Skips to the end of a line that is longer than any path. */
static int skip_line(struct order_reader *r)
{
	for (;;) {
		char *end = memchr(r->data + r->at, '\n', r->len - r->at);
		int e;

		if (end || r->ended) {
			r->at = end ? (size_t)(end - r->data) + 1 : r->len;
			return 0;
		}
		r->at = r->len;
		e = fill(r);
		if (e < 0)
			return err_trace(e);
	}
}

static bool begins_with(const char *p, size_t n, const char *head)
{
	return n >= strlen(head) && !memcmp(p, head, strlen(head));
}

int order_is_recorded(int fd)
{
	char head[sizeof(ORDER_HEAD)];
	ssize_t n = io_pread(fd, head, sizeof(head), 0);

	if (n < 0)
		return err_trace((int)n);
	return begins_with(head, (size_t)n, ORDER_HEAD);
}

static int begin(struct order_reader *r)
{
	int e = fill(r);

	if (e < 0)
		return err_trace(e);
	r->begun = true;
	r->recorded = begins_with(r->data, r->len, ORDER_HEAD);
	r->escaped = r->recorded || begins_with(r->data, r->len, ORDER_LIST_HEAD);
	if (r->escaped) {
		r->at = strlen(r->recorded ? ORDER_HEAD : ORDER_LIST_HEAD);
		r->line = 1;
	}
	return 0;
}

int order_next(struct order_reader *r, char key[PATH_KEY_MAX + 2], const char **why_bad)
{
	int e = r->begun ? 0 : begin(r);

	while (e == 0) {
		char *line = r->data + r->at, *end = memchr(line, '\n', r->len - r->at);
		size_t n = end ? (size_t)(end - line) : r->len - r->at;

		if (!end && !r->ended && n < ORDER_LINE_MAX) {
			e = fill(r);
			continue;
		}
		if (!end && r->ended && (n == 0 || r->escaped))
			return ORDER_E_END;
		r->line++;
		if (!end && !r->ended) {
			*why_bad = path_fault_name(PATH_E_LONG);
			e = skip_line(r);
			return e < 0 ? err_trace(e) : ORDER_E_BAD;
		}
		r->at += n + (end ? 1 : 0);
		e = order_key(line, n, r->escaped, r->dir, key, why_bad);
		if (e != ORDER_E_EMPTY)
			return e;
		e = 0;
	}
	return err_trace(e);
}
