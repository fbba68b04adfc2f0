/* SPDX-License-Identifier: Apache-2.0 */
/* One page of a listing (protocol.md §3.5): prefix, delimiter, marker, order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "fs/base/buf.h"

struct ossd_cursor;

struct ossd_list_query {
	const char *prefix, *delimiter, *marker; /* "": none */
	size_t max;                              /* keys and common prefixes together */
};

/* `value` is NULL for a common prefix, else for ossd_object_decode(). A result other than 0
 * ends the listing and is returned. */
typedef int (*ossd_list_fn)(void *arg, const char *name, size_t n, const void *value,
			    size_t value_len);

struct ossd_list_page {
	size_t count;
	bool truncated;
	struct buf last; /* the last entry: the marker of the next page */
};

/* Fini the page's `last` in every case. */
int ossd_list(struct ossd_cursor *c, const struct ossd_list_query *query, ossd_list_fn fn,
	      void *arg, struct ossd_list_page *page);

/* A marker as a continuation token of URL-safe characters, and back. -EINVAL. */
void ossd_token_format(struct buf *out, const char *marker, size_t n);
int ossd_token_parse(struct buf *out, const char *token);
