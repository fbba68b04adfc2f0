/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_list.h"

#include <errno.h>
#include <string.h>

#include "fs/base/err.h"
#include "tools/ossd_code.h"
#include "tools/ossd_index.h"

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int r = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return r ? r : a_len < b_len ? -1 : a_len > b_len;
}

/* Length of the common prefix that a key falls under; 0: it stands for itself. */
static size_t roll_up(const struct ossd_list_query *q, const char *key, size_t n)
{
	size_t prefix = strlen(q->prefix), delimiter = strlen(q->delimiter);
	const char *at;

	if (delimiter == 0 || n <= prefix)
		return 0;
	at = memmem(key + prefix, n - prefix, q->delimiter, delimiter);
	return at ? (size_t)(at - key) + delimiter : 0;
}

/* To the first key that does not start with these bytes. No key holds the byte 0xff. */
static int seek_past(struct ossd_cursor *c, const char *start, size_t n)
{
	char bytes[OSSD_KEY_MAX + 1];

	if (n > OSSD_KEY_MAX)
		return OSSD_E_NO_SUCH_KEY;
	memcpy(bytes, start, n);
	bytes[n] = (char)0xff;
	return ossd_cursor_seek(c, bytes, n + 1);
}

static int seek_start(struct ossd_cursor *c, const struct ossd_list_query *q)
{
	size_t marker = strlen(q->marker);
	int r;

	if (compare(q->marker, marker, q->prefix, strlen(q->prefix)) < 0)
		return ossd_cursor_seek(c, q->prefix, strlen(q->prefix));
	/* The page before ended with a common prefix: all under it was told. */
	if (marker && roll_up(q, q->marker, marker) == marker)
		return seek_past(c, q->marker, marker);
	r = ossd_cursor_seek(c, q->marker, marker);
	if (r == 0 && marker && compare(c->key, c->key_len, q->marker, marker) == 0)
		r = ossd_cursor_next(c);
	return r;
}

int ossd_list(struct ossd_cursor *c, const struct ossd_list_query *q, ossd_list_fn fn,
	      void *arg, struct ossd_list_page *page)
{
	size_t prefix = strlen(q->prefix);
	int r;

	*page = (struct ossd_list_page){.count = 0};
	if (q->max == 0)
		return 0;
	r = seek_start(c, q);
	while (r == 0) {
		size_t n, rolled;

		if (c->key_len < prefix || memcmp(c->key, q->prefix, prefix) != 0)
			break;
		rolled = roll_up(q, c->key, c->key_len);
		n = rolled ? rolled : c->key_len;
		if (!rolled || compare(c->key, n, q->marker, strlen(q->marker)) > 0) {
			if (page->count == q->max) {
				page->truncated = true;
				break;
			}
			r = fn(arg, c->key, n, rolled ? NULL : c->value, c->value_len);
			if (r)
				return r;
			page->count++;
			buf_reset(&page->last);
			buf_append(&page->last, c->key, n);
		}
		if (rolled) {
			char common[OSSD_KEY_MAX];

			memcpy(common, c->key, n); /* the view moves with the cursor */
			r = seek_past(c, common, n);
		} else {
			r = ossd_cursor_next(c);
		}
	}
	return r == OSSD_E_NO_SUCH_KEY ? err_trace(buf_error(&page->last)) : r;
}

/* ---- tokens: base64 with '-' and '_', without padding -------------------------------- */

static const char alphabet[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void ossd_token_format(struct buf *out, const char *marker, size_t n)
{
	unsigned int bits = 0, held = 0;

	for (size_t i = 0; i < n; i++) {
		bits = bits << 8 | (unsigned char)marker[i];
		for (held += 8; held >= 6; held -= 6)
			buf_putc(out, alphabet[bits >> (held - 6) & 63]);
	}
	if (held)
		buf_putc(out, alphabet[bits << (6 - held) & 63]);
}

int ossd_token_parse(struct buf *out, const char *token)
{
	unsigned int bits = 0, held = 0;

	for (; *token; token++) {
		const char *at = strchr(alphabet, *token);

		if (!at)
			return err_origin(-EINVAL);
		bits = bits << 6 | (unsigned int)(at - alphabet);
		held += 6;
		if (held >= 8) {
			held -= 8;
			buf_putc(out, (char)(bits >> held & 0xff));
		}
	}
	if (out->len && memchr(out->data, '\0', out->len))
		return err_origin(-EINVAL);
	return err_trace(buf_error(out));
}
