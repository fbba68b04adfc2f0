/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes a cached object holds: source, key, version (ETag; modification time where
 * the store has none) and size. Pure.
 *
 * On disk an object is known by a hash of these, so that no key can ever name a path, and
 * every place that holds its bytes also holds the identity itself, so that not even a
 * collision of hashes could show one object's bytes as another's.
 */
#pragma once

#include <stdint.h>

#include "cache/origin.h"

#define IDENT_HASH_SIZE 16
#define IDENT_NAME_SIZE (IDENT_HASH_SIZE * 2 + 1)
#define IDENT_BYTES_MAX (256 + 1024 + ORIGIN_ETAG_MAX + 16)

struct ident {
	unsigned char hash[IDENT_HASH_SIZE];
	uint64_t size;         /* of the object */
	uint32_t len;          /* of bytes */
	uint32_t key_off;      /* of the key, NUL-terminated, in bytes */
	uint32_t etag_off;     /* of the ETag, the same */
	unsigned char bytes[]; /* the identity as it stands on disk */
};

/* A new identity the caller frees; -ENAMETOOLONG, -ENOMEM. */
int ident_new(const char *source, const char *key, const struct origin_attr *attr,
	      struct ident **out);

static inline const char *ident_key(const struct ident *id)
{
	return (const char *)id->bytes + id->key_off;
}

static inline const char *ident_etag(const struct ident *id)
{
	return (const char *)id->bytes + id->etag_off;
}

/* The hash in hex, into out; returns out. */
char *ident_name(char out[IDENT_NAME_SIZE], const unsigned char hash[IDENT_HASH_SIZE]);
/* The way back. -EINVAL. */
int ident_parse_name(const char *name, unsigned char hash[IDENT_HASH_SIZE]);
