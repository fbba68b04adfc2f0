/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_key.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "fs/backend/oss_sign.h"
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/path.h"
#include "fs/base/utf8.h"

#define FOLDER_BYTES 200

static bool lower_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool ossd_bucket_name_valid(const char *name)
{
	size_t n = strlen(name);

	if (n < 3 || n >= OSSD_BUCKET_SIZE || !lower_or_digit(name[0]) ||
	    !lower_or_digit(name[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!lower_or_digit(name[i]) && name[i] != '-')
			return false;
	return true;
}

bool ossd_key_valid(const char *key, size_t n)
{
	if (n == 0 || n > OSSD_KEY_MAX || *key == '/' || *key == '\\')
		return false;
	for (size_t i = 0; i < n;) {
		size_t step = key[i] ? utf8_decode(key + i, n - i, NULL) : 0;

		if (step == 0)
			return false;
		i += step;
	}
	return true;
}

bool ossd_key_plain(const char *key, size_t n)
{
	return key[n - 1] != '/' && path_key_check(key, n) == PATH_OK;
}

static bool kept(char c)
{
	return isalnum((unsigned char)c) || strchr("-_~.", c);
}

static void put_odd(struct buf *out, const char *key, size_t n)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		if (used >= FOLDER_BYTES) {
			buf_puts(out, "+/");
			used = 0;
		}
		if (kept(key[i]) && !(key[i] == '.' && used == 0)) {
			buf_putc(out, key[i]);
			used++;
		} else {
			buf_printf(out, "%%%02X", (unsigned char)key[i]);
			used += 3;
		}
	}
}

void ossd_key_path(struct buf *out, const char *bucket, const char *key, size_t n,
		   bool odd)
{
	if (odd)
		buf_puts(out, OSSD_PRIVATE "/odd/");
	buf_puts(out, bucket);
	buf_putc(out, '/');
	if (odd)
		put_odd(out, key, n);
	else
		buf_append(out, key, n);
}

int ossd_key_from_odd(struct buf *out, const char *encoded)
{
	struct buf key = BUF_INIT, again = BUF_INIT;
	int r = 0;

	for (const char *s = encoded; r == 0 && *s;) {
		size_t n = strcspn(s, "/");
		bool folder = s[n] == '/';

		if (folder && (n == 0 || s[n - 1] != '+'))
			r = err_origin(-EINVAL);
		else
			r = oss_decode(&key, s, folder ? n - 1 : n);
		s += folder ? n + 1 : n;
	}
	/* Only the spelling that put_odd() gives is ours: no two files have one key. */
	if (r == 0 && key.len)
		put_odd(&again, key.data, key.len);
	if (r == 0 && (!key.len || strcmp(again.data, encoded) != 0 ||
		       !ossd_key_valid(key.data, key.len)))
		r = err_origin(-EINVAL);
	if (r == 0)
		buf_append(out, key.data, key.len);
	buf_fini(&key);
	buf_fini(&again);
	return r;
}
