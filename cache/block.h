/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of one block (1 MiB) of a large object: a bit per page for "on disk" and
 * one for "this process has seen its checksum right", and the fills that are on their way.
 *
 *   page state   present checked fill   a read
 *   absent          0       0     no    starts a fetch
 *   coming          any     0     yes   waits for the bytes it wants, copies from memory
 *   unchecked       1       0     no    compares the checksum, then as checked
 *   checked         1       1     no    reads the file
 *
 * checked without present never occurs. Pure; the object's lock covers it all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_SHIFT 20
#define BLOCK_BYTES (1u << BLOCK_SHIFT)
#define BLOCK_PAGES 256
#define BLOCK_WORDS (BLOCK_PAGES / 64)

struct fill;
struct sums;

struct block {
	uint64_t present[BLOCK_WORDS];
	uint64_t checked[BLOCK_WORDS];
	struct fill *fills; /* those that lie in this block, in no order */
	struct sums *sums;  /* what is known of its CRC-64 (sums.h); NULL: nothing, or */
	uint64_t crc64;     /* that of the whole block, when has_crc64 */
	bool loaded;        /* present says what the map on disk said */
	bool has_crc64;
};

enum block_page {
	BLOCK_ABSENT,
	BLOCK_COMING,
	BLOCK_UNCHECKED,
	BLOCK_CHECKED,
	BLOCK_PAGE_N
};
const char *block_page_name(enum block_page state);

/* Merges the records of `count` pages from `first`: what is new becomes unchecked. */
void block_merge(struct block *b, uint32_t first, uint32_t count,
		 const uint32_t *records);

/* Marks pages checked (and present); returns how many were not before. */
uint32_t block_mark(struct block *b, uint32_t first, uint32_t count);

/* Makes all checked pages unchecked; returns how many. */
uint32_t block_uncheck(struct block *b);

/* Makes pages absent; returns how many were checked. */
uint32_t block_drop(struct block *b, uint32_t first, uint32_t count);

/* Without regard to fills: the state of page `first` and the end (exclusive, at most
 * `last`) of the run of pages in the same state. */
enum block_page block_run(const struct block *b, uint32_t first, uint32_t last,
			  uint32_t *end);
