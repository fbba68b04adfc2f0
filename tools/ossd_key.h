/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object keys and bucket names: what is valid, and where a key's file lies. Pure.
 *
 * The file of an ordinary key is BUCKET/KEY. A key that cannot be a path (an empty, "." or
 * ".." component, a trailing '/', a component over 255 bytes), or whose path another key
 * has taken (`a` and `a/b`), lies under .ossd/odd/BUCKET/ with an encoded name: every byte
 * but letters, digits, '-', '_', '~' and '.' becomes %XX, a '.' at the start too, and the
 * result is cut into folders of 200 bytes whose names end in '+'. The rule is reversible.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf;

#define OSSD_KEY_MAX 1023
#define OSSD_BUCKET_SIZE 64  /* with the NUL */
#define OSSD_PRIVATE ".ossd" /* our own folder below the root */

bool ossd_bucket_name_valid(const char *name);

/* 1 to 1023 bytes of UTF-8, not starting with '/' or '\', no NUL (protocol.md §5.2). */
bool ossd_key_valid(const char *key, size_t n);

/* Whether BUCKET/KEY can be the path. */
bool ossd_key_plain(const char *key, size_t n);

/* Path below the root, appended: "BUCKET/KEY", or ".ossd/odd/BUCKET/ENCODED". */
void ossd_key_path(struct buf *out, const char *bucket, const char *key, size_t n,
		   bool odd);

/* The key of an encoded name below .ossd/odd/BUCKET/. -EINVAL when it is none of ours. */
int ossd_key_from_odd(struct buf *out, const char *encoded);
