/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of keys in files: whatever comes out is a path below the mount, is found again when
 * it is written as an order, and the reader comes to an end. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/order.h"

static void require(bool x)
{
	if (!x)
		abort();
}

static void check_key(const char *key)
{
	struct buf line = BUF_INIT;
	char again[PATH_KEY_MAX + 2];
	const char *why = NULL;

	require(strlen(key) <= PATH_KEY_MAX);
	require(!*key || path_key_check(key, strlen(key)) == PATH_OK);
	order_put(&line, *key ? key : ".");
	require(memchr(line.data, '\n', line.len) == line.data + line.len - 1);
	require(order_key(line.data, line.len - 1, true, "/mnt", again, &why) == 0);
	require(!strcmp(again, key));
	buf_fini(&line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct order_reader reader;
	int fd = memfd_create("order", MFD_CLOEXEC), r;
	char key[PATH_KEY_MAX + 2];
	uint64_t last = 0;

	require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	order_reader_init(&reader, fd, "/mnt");
	do {
		const char *why = NULL;

		r = order_next(&reader, key, &why);
		require(r == 0 || (r == ORDER_E_BAD && why && *why) || r == ORDER_E_END);
		require(r == ORDER_E_END || reader.line > last);
		last = reader.line;
		if (r == 0)
			check_key(key);
	} while (r != ORDER_E_END);
	require(last <= size + 1);
	close(fd);
	return 0;
}
