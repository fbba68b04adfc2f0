/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's errors mean (protocol.md §6.2). Pure: one table. */
#pragma once

enum oss_error_kind {
	OSS_ERROR_PLAIN,
	OSS_ERROR_CREDENTIALS, /* this key, secret or token is refused: renew it */
	OSS_ERROR_SKEW,        /* our clock is wrong */
	OSS_ERROR_THROTTLED,   /* slow down */
	OSS_ERROR_KIND_N
};

struct oss_error_meaning {
	int errno_value; /* negative, as in cache/origin.h */
	enum oss_error_kind kind;
};

/* By the code when it is known, else by the status. `code` may be empty. */
struct oss_error_meaning oss_error_meaning(int status, const char *code);
