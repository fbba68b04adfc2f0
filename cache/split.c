/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/split.h"

#include <string.h>

#include "fs/base/utf8.h"

#define POSITION_DIGITS 24 /* more do not change a double */
#define SPLIT_CUT_MAX 1000 /* a cut and what may be put behind it is still a key */

static const uint64_t *seen_at(const struct split *s, size_t position)
{
	size_t i = position - s->base;

	return s->seen[i < SPLIT_POSITIONS ? i : SPLIT_POSITIONS - 1];
}

static bool has(const uint64_t *set, unsigned int byte)
{
	return set[byte / 64] >> byte % 64 & 1;
}

static bool is_digit(unsigned int byte)
{
	return byte >= '0' && byte <= '9';
}

void split_note(struct split *s, const char *key)
{
	for (size_t i = s->base; key[i]; i++) {
		unsigned char byte = (unsigned char)key[i];
		size_t at = i - s->base;

		if (at >= SPLIT_POSITIONS)
			at = SPLIT_POSITIONS - 1;
		s->seen[at][byte / 64] |= 1ull << byte % 64;
	}
}

/* Bytes likely at a position, and how many of them are less than `byte`. */
static unsigned int rank(const uint64_t *set, unsigned int byte, unsigned int *of)
{
	bool digits = set[0] >> '0' & 0x3ff;
	unsigned int less = 0, n = 0;

	for (unsigned int i = 1; i < 256; i++) {
		if (!has(set, i) && !(digits && is_digit(i)))
			continue;
		n++;
		less += i < byte;
	}
	*of = n ? n : 1;
	return less;
}

double split_position(const struct split *s, const char *key)
{
	double unit = 1, at = 0;

	if (!key)
		return 1;
	for (size_t i = s->base; i < s->base + POSITION_DIGITS && key[i]; i++) {
		unsigned int of;
		unsigned int less = rank(seen_at(s, i), (unsigned char)key[i], &of);

		unit /= of;
		at += less * unit;
		if (less >= of)
			break; /* behind all that are likely */
	}
	return at < 1 ? at : 1;
}

static size_t common(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

bool split_varies(const struct split *s, const char *last, const char *until)
{
	const uint64_t *set = seen_at(s, until ? common(last, until) : s->base);
	int n = 0;

	for (int i = 0; i < 4; i++)
		n += __builtin_popcountll(set[i]);
	return n > 1;
}

static bool same_class(unsigned int a, unsigned int b)
{
	return (is_digit(a) && is_digit(b)) ||
	       (a >= 'a' && a <= 'z' && b >= 'a' && b <= 'z') ||
	       (a >= 'A' && a <= 'Z' && b >= 'A' && b <= 'Z');
}

/* The middle one of the likely bytes between two, not counting them; 0: none. Never a
 * slash: a key that ends in one stands for all below it. */
static unsigned int middle(const uint64_t *set, unsigned int low, unsigned int high)
{
	unsigned char likely[256];
	unsigned int n = 0;

	for (unsigned int i = low + 1; i < high && i < 0x80; i++)
		if (i != '/' && (has(set, i) || same_class(low, i)))
			likely[n++] = (unsigned char)i;
	if (n)
		return likely[n / 2];
	if (high < 256)
		return 0;
	/* Is there anything at all beyond? */
	low += low == '/' - 1 ? 2 : 1;
	return low < 0x80 ? low : 0;
}

/* ---- characters of more than one byte ---- */

static size_t encode(uint32_t u, char *p)
{
	size_t n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i > 0; i--, u >>= 6)
		p[i] = (char)(0x80 | (u & 0x3f));
	p[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | u);
	return n;
}

static uint32_t script_end(uint32_t u)
{
	static const uint32_t ends[] = {0x7ff, 0x2fff, 0xa000, 0xd7ff, 0x110000};
	int i = 0;

	while (u >= ends[i])
		i++;
	return ends[i];
}

/* As middle(), for a position inside a character. Where the cut key ends; 0: none. */
static size_t middle_character(const char *last, size_t at, const char *until,
			       size_t base, char *out)
{
	uint32_t low = 0, high, mid;

	while (at > base && ((unsigned char)last[at] & 0xc0) == 0x80)
		at--;
	if (!utf8_decode(last + at, SIZE_MAX, &low)) {
		/* Not text: bytes will do. */
		unsigned int byte = (unsigned char)last[at], top = 256;

		if (until && common(last, until) == at)
			top = (unsigned char)until[at];
		if (top <= byte + 1)
			return 0;
		out[at] = (char)(byte + (top - byte) / 2);
		return at + 1;
	}
	high = script_end(low);
	if (until && common(last, until) >= at &&
	    !utf8_decode(until + at, SIZE_MAX, &high))
		return 0;
	if (high <= low + 1)
		return 0;
	mid = low + (high - low) / 2;
	if (mid >= 0xd800 && mid < 0xe000)
		mid = 0xd7ff;
	return mid > low ? at + encode(mid, out + at) : 0;
}

/* ---- the cut ---- */

static size_t cut_at(const struct split *s, const char *last, const char *until,
		     size_t at, char *out)
{
	unsigned int low = (unsigned char)last[at], high = 256, byte;

	if (low >= 0x80)
		return middle_character(last, at, until, s->base, out);
	if (until && common(last, until) == at)
		high = (unsigned char)until[at];
	byte = middle(seen_at(s, at), low, high);
	out[at] = (char)byte;
	return byte ? at + 1 : 0;
}

bool split_point(const struct split *s, const char *first, const char *last,
		 const char *until, bool coarse, char *out)
{
	size_t parts = until ? common(last, until) : s->base;
	size_t varies = common(first, last), at, n;

	if (varies > SPLIT_CUT_MAX)
		return false;
	memcpy(out, last, varies + 1);
	for (at = coarse || varies <= parts + 1 ? parts : (parts + varies) / 2;
	     at <= varies && last[at]; at++) {
		n = cut_at(s, last, until, at, out);
		if (n) {
			out[n] = '\0';
			break;
		}
		out[at] = last[at];
	}
	if (at > varies || !last[at] || strcmp(out, last) <= 0 ||
	    (until && strcmp(out, until) >= 0))
		return false;
	/* Within the page's own position: not nearer than another page. */
	return at < varies || (unsigned char)out[at] - (unsigned char)last[at] >
				      (unsigned char)last[at] - (unsigned char)first[at];
}
