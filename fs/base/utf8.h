/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing over U+10FFFF. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed sequence at `s`, of which at most `n` bytes are looked at, and
 * its code point in *c (may be NULL). 0: there is none. A NUL is one of length 1; no
 * sequence reaches past one. */
size_t utf8_decode(const char *s, size_t n, uint32_t *c);

/* Whether the string is well-formed as a whole. */
bool utf8_is_valid(const char *s);
