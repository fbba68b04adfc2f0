/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/block.h"

#include <assert.h>

#include "fs/base/check.h"

static const char *const page_names[] = {"absent", "coming", "unchecked", "checked"};
static_assert(sizeof(page_names) / sizeof(*page_names) == BLOCK_PAGE_N, "page names");

const char *block_page_name(enum block_page state)
{
	return state < BLOCK_PAGE_N ? page_names[state] : "unknown";
}

static bool bit(const uint64_t *words, uint32_t i)
{
	return words[i / 64] >> (i % 64) & 1;
}

static void block_check(const struct block *b)
{
	for (int i = 0; i < BLOCK_WORDS; i++)
		check((b->checked[i] & ~b->present[i]) == 0);
}

void block_merge(struct block *b, uint32_t first, uint32_t count, const uint32_t *records)
{
	check(first + count <= BLOCK_PAGES);
	for (uint32_t i = 0; i < count; i++)
		if (records[i])
			b->present[(first + i) / 64] |= 1ull << ((first + i) % 64);
	block_check(b);
}

uint32_t block_mark(struct block *b, uint32_t first, uint32_t count)
{
	uint32_t fresh = 0;

	check(first + count <= BLOCK_PAGES);
	for (uint32_t i = first; i < first + count; i++) {
		fresh += !bit(b->checked, i);
		b->present[i / 64] |= 1ull << (i % 64);
		b->checked[i / 64] |= 1ull << (i % 64);
	}
	block_check(b);
	return fresh;
}

uint32_t block_uncheck(struct block *b)
{
	uint32_t lost = 0;

	for (int i = 0; i < BLOCK_WORDS; i++) {
		lost += (uint32_t)__builtin_popcountll(b->checked[i]);
		b->checked[i] = 0;
	}
	return lost;
}

uint32_t block_drop(struct block *b, uint32_t first, uint32_t count)
{
	uint32_t lost = 0;

	check(first + count <= BLOCK_PAGES);
	for (uint32_t i = first; i < first + count; i++) {
		lost += bit(b->checked, i);
		b->present[i / 64] &= ~(1ull << (i % 64));
		b->checked[i / 64] &= ~(1ull << (i % 64));
	}
	block_check(b);
	return lost;
}

static enum block_page state_of(const struct block *b, uint32_t i)
{
	if (bit(b->checked, i))
		return BLOCK_CHECKED;
	return bit(b->present, i) ? BLOCK_UNCHECKED : BLOCK_ABSENT;
}

enum block_page block_run(const struct block *b, uint32_t first, uint32_t last,
			  uint32_t *end)
{
	enum block_page state = state_of(b, first);
	uint32_t i = first + 1;

	while (i < last && state_of(b, i) == state)
		i++;
	*end = i;
	return state;
}
