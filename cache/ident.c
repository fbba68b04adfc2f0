/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/ident.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/err.h"

int ident_new(const char *source, const char *key, const struct origin_attr *attr,
	      struct ident **out)
{
	size_t source_n = strlen(source) + 1, key_n = strlen(key) + 1;
	size_t etag_n = strlen(attr->etag) + 1;
	uint64_t numbers[2] = {attr->size, 0};
	size_t n = source_n + key_n + etag_n + sizeof(numbers);
	unsigned char digest[EVP_MAX_MD_SIZE];
	struct ident *id;
	unsigned char *at;

	if (n > IDENT_BYTES_MAX)
		return err_origin(-ENAMETOOLONG);
	id = malloc(sizeof(*id) + n);
	if (!id)
		return err_origin(-ENOMEM);
	/* Where there is an ETag the time must not count: listings and reads of one
	 * version may round it differently. */
	if (!attr->etag[0])
		numbers[1] = (uint64_t)attr->mtime_ns;
	id->size = attr->size;
	id->len = (uint32_t)n;
	id->key_off = (uint32_t)source_n;
	id->etag_off = (uint32_t)(source_n + key_n);
	at = id->bytes;
	at = mempcpy(at, source, source_n);
	at = mempcpy(at, key, key_n);
	at = mempcpy(at, attr->etag, etag_n);
	memcpy(at, numbers, sizeof(numbers));
	if (EVP_Digest(id->bytes, n, digest, NULL, EVP_sha256(), NULL) != 1) {
		free(id);
		return err_origin(-ENOMEM);
	}
	memcpy(id->hash, digest, sizeof(id->hash));
	*out = id;
	return 0;
}

char *ident_name(char out[IDENT_NAME_SIZE], const unsigned char hash[IDENT_HASH_SIZE])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < IDENT_HASH_SIZE; i++) {
		out[2 * i] = digits[hash[i] >> 4];
		out[2 * i + 1] = digits[hash[i] & 15];
	}
	out[2 * IDENT_HASH_SIZE] = '\0';
	return out;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ident_parse_name(const char *name, unsigned char hash[IDENT_HASH_SIZE])
{
	unsigned char parsed[IDENT_HASH_SIZE];

	for (int i = 0; i < IDENT_HASH_SIZE; i++) {
		int high = digit_value(name[2 * i]);
		int low = high < 0 ? -1 : digit_value(name[2 * i + 1]);

		if (low < 0)
			return err_origin(-EINVAL);
		parsed[i] = (unsigned char)(high << 4 | low);
	}
	if (name[2 * IDENT_HASH_SIZE])
		return err_origin(-EINVAL);
	memcpy(hash, parsed, sizeof(parsed));
	return 0;
}
