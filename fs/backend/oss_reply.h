/* SPDX-License-Identifier: Apache-2.0 */
/* What the header of a reply says. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/origin.h"
#include "fs/backend/oss_text.h"
#include "fs/base/buf.h"

struct oss_reply {
	char etag[ORIGIN_ETAG_MAX];
	char request_id[ORIGIN_REQUEST_ID_MAX];
	char ec[32];
	uint64_t length; /* Content-Length, when has_length */
	uint64_t crc64;  /* of the whole object or of the part, when has_crc64 */
	uint64_t next_position;
	uint64_t retry_after_ms;
	int64_t date_ns;     /* the store's clock; 0: not said */
	int64_t modified_ns; /* 0: not said */
	struct oss_range range;
	struct oss_posix posix;
	bool has_length, has_crc64, has_next_position, has_range;
	bool appendable;  /* the object is one that can be appended to */
	struct buf error; /* XML from x-oss-err, decoded */
};

void oss_reply_reset(struct oss_reply *reply); /* before each exchange; keeps memory */
void oss_reply_fini(struct oss_reply *reply);

/* Takes one header line. What is malformed counts as absent. */
void oss_reply_header(struct oss_reply *reply, const char *name, size_t name_len,
		      const char *value, size_t value_len);

/* An object's attributes as HEAD or GET gave them. `size` is the object's. */
void oss_reply_attr(const struct oss_reply *reply, const char *key, uint64_t size,
		    struct origin_attr *attr);
