/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-decoding of what a client sent, and the canonical forms made of it: whatever
 * decodes must come back from encode and decode unchanged. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_sign.h"

static void check_round_trip(const struct buf *decoded)
{
	struct buf encoded = BUF_INIT, again = BUF_INIT;

	oss_encode(&encoded, decoded->data ? decoded->data : "", decoded->len, true);
	if (oss_decode(&again, encoded.data ? encoded.data : "", encoded.len) < 0 ||
	    again.len != decoded->len ||
	    (again.len && memcmp(again.data, decoded->data, again.len)))
		abort();
	buf_fini(&encoded);
	buf_fini(&again);
}

static void check_canonical(const struct buf *key)
{
	const struct oss_pair pair = {key->data, key->data};
	const struct oss_sign_request req = {.method = "GET",
					     .bucket = "b",
					     .key = key->data,
					     .key_len = key->len,
					     .query = &pair,
					     .query_count = 1,
					     .headers = &pair,
					     .header_count = 1};
	struct buf canonical = BUF_INIT, v1 = BUF_INIT;

	if (oss_v4_canonical(&canonical, &req, "UNSIGNED-PAYLOAD") < 0 ||
	    oss_v1_string_to_sign(&v1, &req, "0") < 0)
		abort();
	buf_fini(&canonical);
	buf_fini(&v1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf decoded = BUF_INIT;

	if (oss_decode(&decoded, (const char *)data, size) == 0) {
		check_round_trip(&decoded);
		if (decoded.len)
			check_canonical(&decoded);
	}
	buf_fini(&decoded);
	return 0;
}
