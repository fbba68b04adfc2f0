/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CRC-64 of a block, put together from pieces in any order as they pass by: what has
 * been shown to readers need not be read again to know whether it was right.
 *
 * Pieces are whole pages (the object's last one as far as it goes), disjoint, ascending,
 * and joined where they touch. Once one piece is the whole block, only block->crc64 is
 * left. Pure; the object's lock covers it.
 */
#pragma once

#include <stdint.h>

struct block;

struct sums {
	uint32_t count, room;
	struct sums_piece {
		uint32_t first, end; /* pages */
		uint64_t crc64;
	} pieces[];
};

enum sums_result {
	SUMS_NEW,      /* at least some of it had not been summed */
	SUMS_COMPLETE, /* so it was, and now the block's sum is known */
	SUMS_SAME,     /* summed before, and nothing has changed */
	SUMS_DIFFER,   /* summed before, and these are other bytes */
	SUMS_MIXED, /* part of a larger piece, with which it cannot be compared; not added */
	SUMS_FULL, /* no memory, or more than pieces_max: not added */
};

/* Adds n bytes from page `first` on, whose CRC-64 is `crc`, to a block of block_len bytes.
 * *pieces is changed by the pieces that this block has more now. */
enum sums_result sums_add(struct block *b, uint32_t block_len, uint32_t first,
			  const void *data, uint32_t n, uint64_t crc, uint64_t pieces_max,
			  uint64_t *pieces);

/* Nothing of it is known any more. Returns how many pieces that were. */
uint32_t sums_drop(struct block *b);
