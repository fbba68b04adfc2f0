/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sent this request? OSS signatures V4 and V1 (protocol.md §2) and AWS signatures V4 and
 * V2, in the header and in the URL. Pure: time and accounts come with the question.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/buf.h"

struct ossd_accounts;
struct ossd_account;
struct ossd_target;

struct ossd_auth {
	const struct ossd_accounts *accounts;
	const char *region; /* that V4 scopes must name; NULL: any */
	bool clock_check;   /* refuse what was signed over 15 minutes away */
	int64_t now_ms;

	const char *method;
	const struct ossd_target *target;
	const struct oss_pair *headers;
	size_t header_count;
};

/* 0: *who signed it, NULL when nobody did. Else an enum ossd_code; `message` (borrowed, may
 * be left alone) and `extra` (XML for the error document) say more. */
int ossd_auth_check(const struct ossd_auth *auth, const struct ossd_account **who,
		    const char **message, struct buf *extra);
