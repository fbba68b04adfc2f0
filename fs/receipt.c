/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/receipt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/ledger.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"

#define RECEIPT_PIECE (32u << 10)

struct receipt {
	char *object;
	struct ledger_view *files;
};

int receipt_new(struct buf *object, struct ledger_view *files, struct receipt **out)
{
	struct receipt *r = buf_error(object) < 0 ? NULL : malloc(sizeof(*r));

	if (!r) {
		ledger_view_free(files);
		return err_origin(-ENOMEM);
	}
	*r = (struct receipt){buf_steal(object), files};
	*out = r;
	return 0;
}

struct receipt *receipt_free(struct receipt *r)
{
	if (r) {
		ledger_view_free(r->files);
		free(r->object);
		free(r);
	}
	return NULL;
}

struct pieces {
	struct buf text;
	int (*fn)(void *arg, const char *text, size_t n);
	void *arg;
	int result;            /* of fn */
	uint64_t lines, given; /* in the text; to fn */
};

static int give_piece(struct pieces *p)
{
	if (buf_error(&p->text) < 0)
		return err_trace(buf_error(&p->text));
	if (p->text.len > 0)
		p->result = p->fn(p->arg, p->text.data, p->text.len);
	p->given += p->lines;
	p->lines = 0;
	buf_reset(&p->text);
	return p->result;
}

static int put_line(void *arg, const struct ledger_line *line)
{
	struct pieces *p = arg;
	struct buf *b = &p->text;
	char crc[24];

	json_begin_object(b, NULL);
	json_put_string(b, "key", line->key);
	json_put_uint(b, "size", line->size);
	snprintf(crc, sizeof(crc), "%" PRIu64, line->crc64);
	json_put_string(b, "crc64", crc);
	json_put_string(b, "etag", line->etag);
	json_end_object(b);
	p->lines++;
	return b->len < RECEIPT_PIECE ? 0 : give_piece(p);
}

int receipt_files(const struct receipt *r,
		  int (*fn)(void *arg, const char *text, size_t n), void *arg,
		  uint64_t *unread)
{
	struct pieces p = {.text = BUF_INIT, .fn = fn, .arg = arg};
	int e;

	*unread = 0;
	if (!r->files)
		return 0;
	e = ledger_view_each(r->files, put_line, &p);
	if (p.result == 0 && buf_error(&p.text) == 0)
		(void)give_piece(&p);
	buf_fini(&p.text);
	if (p.result != 0)
		return p.result;
	*unread = ledger_view_count(r->files) - p.given;
	if (e < 0)
		log_warn("the list of what was stored cannot be read error=%s",
			 strerror(-e));
	return 0;
}

int receipt_keep(FILE *files, const char *text, size_t n)
{
	if ((ftell(files) > 0 && putc(',', files) == EOF) ||
	    fwrite(text, 1, n, files) != n || fflush(files) != 0)
		return err_origin(errno ? -errno : -EIO);
	return 0;
}

void receipt_object(const struct receipt *r, uint64_t unread, struct buf *b)
{
	uint64_t left_out = r->files ? ledger_view_left_out(r->files) : 0;

	buf_puts(b, r->object);
	json_put_uint(b, "files_left_out", left_out + unread);
	json_end_object(b);
}
