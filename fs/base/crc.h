/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums. CRC-64/XZ is what OSS calls crc64ecma (protocol.md §4); CRC-32C guards our
 * own records and cache blocks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Running value over further bytes; start from 0. */
uint64_t crc64(uint64_t crc, const void *p, size_t n);

/* CRC of A followed by B from both CRCs and B's length. */
uint64_t crc64_combine(uint64_t crc_a, uint64_t crc_b, uint64_t len_b);

/* The same in two steps, where many B have one length: `zeros` is of that length. */
uint64_t crc64_zeros(uint64_t len_b);
uint64_t crc64_append(uint64_t crc_a, uint64_t crc_b, uint64_t zeros);

uint32_t crc32c(uint32_t crc, const void *p, size_t n);
