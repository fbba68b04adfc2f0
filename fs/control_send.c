/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/control_send.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/control.h"
#include "fs/receipt.h"

int control_send_line(int fd, struct buf *b)
{
	const char *p = b->data;
	size_t left;

	buf_putc(b, '\n');
	if (buf_error(b) < 0)
		return err_trace(buf_error(b));
	p = b->data;
	left = b->len;
	while (left) {
		ssize_t n = send(fd, p, left, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_origin(-errno);
		p += n;
		left -= (size_t)n;
	}
	return 0;
}

static void put_result(struct buf *b, int result, const char *message)
{
	json_begin_object(b, NULL);
	json_put_string(b, "result",
			result == 0                   ? "ok"
			: result == CONTROL_E_PENDING ? "pending"
			: result == CONTROL_E_BUSY    ? "busy"
						      : "error");
	if (message || result < 0)
		json_put_string(b, "message", message ? message : strerror(-result));
}

static void send_last(int fd, struct buf *b)
{
	json_end_object(b);
	if (control_send_line(fd, b) < 0)
		log_debug(LOG_CONTROL, "caller left before its result");
}

void control_send_result(int fd, int result, const char *message, const char *object)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	put_result(&b, result, message);
	if (object)
		json_put_raw(&b, "receipt", object);
	send_last(fd, &b);
}

static int send_files(void *arg, const char *text, size_t n)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	const int *fd = arg;

	buf_puts(&b, CONTROL_FILES);
	buf_append(&b, text, n);
	buf_puts(&b, "]}");
	return err_trace(control_send_line(*fd, &b));
}

void control_send_receipt(int fd, bool files, int result, const char *elsewhere,
			  const struct receipt *receipt)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT, object = BUF_INIT;
	uint64_t unread = 0;

	if (receipt && files && receipt_files(receipt, send_files, &fd, &unread) != 0) {
		log_debug(LOG_CONTROL, "caller left before the files");
		return;
	}
	put_result(&b, result, NULL);
	if (elsewhere)
		json_put_string(&b, "elsewhere", elsewhere);
	if (receipt) {
		receipt_object(receipt, unread, &object);
		json_put_raw(&b, "receipt",
			     buf_error(&object) < 0 ? "null" : object.data);
	}
	send_last(fd, &b);
}
