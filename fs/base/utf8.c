/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/utf8.h"

size_t utf8_decode(const char *text, size_t n, uint32_t *c)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t len = n == 0      ? 0
		     : *s < 0x80 ? 1
		     : *s < 0xc2 ? 0
		     : *s < 0xe0 ? 2
		     : *s < 0xf0 ? 3
		     : *s < 0xf5 ? 4
				 : 0;
	uint32_t u;

	if (len == 0 || len > n)
		return 0;
	u = len == 1 ? *s : *s & (0xffu >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		u = u << 6 | (s[i] & 0x3fu);
	}
	if ((len == 3 && u < 0x800) || (len == 4 && (u < 0x10000 || u > 0x10ffff)) ||
	    (u >= 0xd800 && u <= 0xdfff))
		return 0;
	if (c)
		*c = u;
	return len;
}

bool utf8_is_valid(const char *s)
{
	while (*s) {
		size_t n = utf8_decode(s, SIZE_MAX, NULL);

		if (n == 0)
			return false;
		s += n;
	}
	return true;
}
