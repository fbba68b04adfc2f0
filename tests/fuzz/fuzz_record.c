/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the journal: what is taken must be what would be written, and the ranges of a
 * sparse content must be fit for use. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cache/record.h"
#include "fs/base/buf.h"

static void require(bool x)
{
	if (!x)
		abort();
}

static void check_ranges(struct record *r, struct ranges *own)
{
	uint64_t last = 0;

	require(r->len <= r->size && r->etag[0]);
	for (uint32_t i = 0; i < r->range_count; i++) {
		struct range range = record_range(r, i);

		require(range.off < range.end && range.end <= r->len);
		require(i == 0 || range.off > last);
		last = range.end;
		require(ranges_add(own, range.off, range.end) == 0);
	}
	require(own->count == r->range_count);
	r->own = own;
}

static void check_one(const char *bytes, size_t n, struct record *r)
{
	struct ranges own = {0};
	struct buf b = BUF_INIT;

	if (r->type == RECORD_RANGES)
		check_ranges(r, &own);
	record_encode(&b, r);
	require(buf_error(&b) == 0);
	/* A part of format 2 does not say where it is. */
	if (r->type == RECORD_PART && r->off == UINT64_MAX)
		require(b.len == n || b.len == n + 8);
	else
		require(b.len == n && memcmp(b.data, bytes, n) == 0);
	buf_fini(&b);
	ranges_fini(&own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *before = p;
	struct record r;

	while (size > 0 && record_decode(&p, &size, &r) == 0) {
		check_one(before, (size_t)(p - before), &r);
		before = p;
	}
	return 0;
}
