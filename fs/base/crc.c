/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/crc.h"

#include <isa-l/crc.h>
#include <isa-l/crc64.h>
#include <limits.h>

#define POLYNOMIAL 0xc96c5795d7870f42ull /* ECMA-182, bit-reflected */

uint64_t crc64(uint64_t crc, const void *p, size_t n)
{
	return crc64_ecma_refl(crc, p, n);
}

/* Product of two polynomials over GF(2) modulo the CRC's; bit 63 is the constant term. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
	uint64_t product = 0;

	for (; a; a <<= 1) {
		if (a >> 63)
			product ^= b;
		b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
	}
	return product;
}

uint64_t crc64_zeros(uint64_t len_b)
{
	uint64_t power = 1ull << 55; /* x^8: one byte of zeros */
	uint64_t shift = 1ull << 63; /* x^0 */

	for (; len_b; len_b >>= 1) {
		if (len_b & 1)
			shift = multiply(shift, power);
		power = multiply(power, power);
	}
	return shift;
}

uint64_t crc64_append(uint64_t crc_a, uint64_t crc_b, uint64_t zeros)
{
	return multiply(zeros, crc_a) ^ crc_b;
}

uint64_t crc64_combine(uint64_t crc_a, uint64_t crc_b, uint64_t len_b)
{
	return crc64_append(crc_a, crc_b, crc64_zeros(len_b));
}

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
	const unsigned char *at = p;

	crc = ~crc;
	while (n) {
		int step = n > INT_MAX ? INT_MAX : (int)n;

		/* isa-l's prototype lacks the const; it only reads. */
		crc = crc32_iscsi((unsigned char *)(uintptr_t)at, step, crc);
		at += step;
		n -= (size_t)step;
	}
	return ~crc;
}
