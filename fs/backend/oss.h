/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An OSS bucket as an origin: one try of each request, no retry (that is the layer above).
 *
 * What is checked on every exchange: length and range of what arrives, the version where
 * one was asked for, CRC-64 of whatever was sent, and of what was received when one
 * request brings the whole object. The clock's offset is learned from the store: a request
 * refused for its time is sent once more at once. Refused credentials are reported to
 * `creds`, whose renewal is waited for by the layer above. An error says what the store
 * said, with its request id.
 *
 * A GET whose whole content arrived and fails the checksum ends with -EBADMSG after the
 * sink has had all of it: the caller must throw it away. attr (with ETag and CRC-64) is
 * filled before the first byte is delivered, also when the request fails later.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/backend/backend.h"

struct creds;
struct origin;
struct why;

struct oss_config {
	bool tls;
	const char *host;                   /* as in the Host header, with the port */
	const char *region;                 /* for V4; may be "" with V1 */
	enum backend_addressing addressing; /* not AUTO */
	enum backend_signature signature;
	const char *bucket;
	const char *prefix;       /* "" or "a/b/" */
	struct creds *creds;      /* taken on success, closed with the origin */
	const char *ca_file;      /* NULL: the system's */
	bool read_only;           /* -EROFS for whatever writes */
	uint32_t connections_max; /* 0: 32 */
	uint64_t timeout_ms;      /* without progress; 0: 30 s */
};

/* Does not talk to the store. -EINVAL with a sentence; -ENOMEM. */
int oss_origin_open(const struct oss_config *config, struct origin **out,
		    struct why *why);

/* PutBucket. `config` as above, but creds stays the caller's. One that is ours already is
 * success; somebody else's is -EEXIST. */
int oss_bucket_create(const struct oss_config *config, struct why *why);
