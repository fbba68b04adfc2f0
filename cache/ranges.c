/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"

void ranges_fini(struct ranges *r)
{
	free(r->list);
	*r = (struct ranges){0};
}

static int reserve(struct ranges *r, size_t count)
{
	size_t size = r->size ? r->size : 8;
	struct range *grown;

	if (count <= r->size)
		return 0;
	while (size < count)
		size *= 2;
	grown = realloc(r->list, size * sizeof(*grown));
	if (!grown)
		return err_origin(-ENOMEM);
	r->list = grown;
	r->size = size;
	return 0;
}

int ranges_copy(struct ranges *to, const struct ranges *from)
{
	*to = (struct ranges){0};
	if (from->count == 0)
		return 0;
	if (reserve(to, from->count) < 0)
		return err_origin(-ENOMEM);
	memcpy(to->list, from->list, from->count * sizeof(*to->list));
	to->count = from->count;
	return 0;
}

/* The first range that ends at `off` or behind it. */
static size_t first_ending_at(const struct ranges *r, uint64_t off)
{
	size_t low = 0, high = r->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (r->list[middle].end < off)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int ranges_add(struct ranges *r, uint64_t off, uint64_t end)
{
	size_t first = first_ending_at(r, off), last = first;

	if (off >= end)
		return 0;
	/* [first, last) become one. */
	while (last < r->count && r->list[last].off <= end)
		last++;
	if (first == last) {
		if (reserve(r, r->count + 1) < 0)
			return err_origin(-ENOMEM);
		memmove(r->list + first + 1, r->list + first,
			(r->count - first) * sizeof(*r->list));
		r->list[first] = (struct range){off, end};
		r->count++;
		return 0;
	}
	if (r->list[first].off < off)
		off = r->list[first].off;
	if (r->list[last - 1].end > end)
		end = r->list[last - 1].end;
	r->list[first] = (struct range){off, end};
	memmove(r->list + first + 1, r->list + last,
		(r->count - last) * sizeof(*r->list));
	r->count -= last - first - 1;
	return 0;
}

void ranges_cut(struct ranges *r, uint64_t at)
{
	while (r->count > 0 && r->list[r->count - 1].off >= at)
		r->count--;
	if (r->count > 0 && r->list[r->count - 1].end > at)
		r->list[r->count - 1].end = at;
}

void ranges_coarsen(struct ranges *r, size_t count)
{
	check(count > 0);
	while (r->count > count) {
		size_t best = 1;

		for (size_t i = 2; i < r->count; i++) {
			if (r->list[i].off - r->list[i - 1].end <
			    r->list[best].off - r->list[best - 1].end)
				best = i;
		}
		r->list[best - 1].end = r->list[best].end;
		memmove(r->list + best, r->list + best + 1,
			(r->count - best - 1) * sizeof(*r->list));
		r->count--;
	}
}

bool ranges_at(const struct ranges *r, uint64_t off, uint64_t *end)
{
	size_t i = first_ending_at(r, off);

	if (i < r->count && r->list[i].end == off)
		i++;
	if (i == r->count) {
		*end = UINT64_MAX;
		return false;
	}
	if (r->list[i].off > off) {
		*end = r->list[i].off;
		return false;
	}
	*end = r->list[i].end;
	return true;
}

uint64_t ranges_sum(const struct ranges *r)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->count; i++)
		sum += r->list[i].end - r->list[i].off;
	return sum;
}
