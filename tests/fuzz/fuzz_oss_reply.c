/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a store's reply, line by line: nothing that comes out is longer than its
 * place, and a range lies inside its object. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_reply.h"

static void require(bool x)
{
	if (!x)
		abort();
}

static void take_line(struct oss_reply *reply, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	const char *value = colon ? colon + 1 : line + n, *end = line + n;

	/* As the HTTP layer hands it on. */
	while (value < end && *value == ' ')
		value++;
	while (value < end && (end[-1] == '\r' || end[-1] == ' '))
		end--;
	oss_reply_header(reply, line, (size_t)(colon ? colon - line : (ptrdiff_t)n),
			 value, (size_t)(end - value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size;
	struct oss_reply reply = {0};
	struct origin_attr attr;

	oss_reply_reset(&reply);
	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));

		line_end = line_end ? line_end : end;
		take_line(&reply, at, (size_t)(line_end - at));
		at = line_end + 1;
	}
	require(strnlen(reply.etag, sizeof(reply.etag)) < sizeof(reply.etag));
	require(strnlen(reply.request_id, sizeof(reply.request_id)) <
		sizeof(reply.request_id));
	require(strnlen(reply.ec, sizeof(reply.ec)) < sizeof(reply.ec));
	require(!reply.has_range || reply.range.unsatisfied ||
		(reply.range.first <= reply.range.last &&
		 reply.range.last < reply.range.size));
	oss_reply_attr(&reply, "key", reply.length, &attr);
	require(strnlen(attr.etag, sizeof(attr.etag)) < sizeof(attr.etag));
	require(attr.size == reply.length);
	oss_reply_fini(&reply);
	return 0;
}
