/* SPDX-License-Identifier: Apache-2.0 */
/* One easy handle and what belongs to it, used for one exchange after the other. Internal
 * to http.c: only the loop's thread touches a slot. */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/backend/http.h"
#include "fs/base/buf.h"

struct http_slot_config {
	char *ca_file; /* owned by the loop; NULL: the system's */
	uint64_t connect_ms, stall_ms;
};

struct http_slot {
	struct http_slot *next; /* while idle */
	CURL *easy;
	const struct http_slot_config *config;
	struct http_exchange *x; /* while in use */
	uint64_t sent;           /* bytes of the body given to curl */
	uint64_t header_bytes;   /* of the reply's header so far */
	int hook_result;         /* what a hook returned; wins over curl's code */
	struct buf lines;        /* the header lines sent, NUL between them */
	struct curl_slist nodes[HTTP_HEADERS_MAX + 2];
	char error[CURL_ERROR_SIZE];
};

struct http_slot *http_slot_new(const struct http_slot_config *config);
void http_slot_free(struct http_slot *slot);

/* Makes the handle ready for x. -EINVAL, -E2BIG, -ENOMEM with a sentence in x->why. */
int http_slot_load(struct http_slot *slot, struct http_exchange *x);

/* Fills the results of the slot's exchange; `code` is a CURLcode. */
void http_slot_result(struct http_slot *slot, int code);
