/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs first: alternately to be copied and to be sent, as the patch says. Then short
 * copies become part of what is sent around them, and what is sent takes from the copy
 * behind it until it is large enough for a part. Then both are cut into parts.
 */
#include "cache/upload_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin.h"
#include "cache/patch.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"

#define COPY_WORTH_MIN (64u << 10) /* a request costs more than sending so little */

struct runs {
	struct upload_range *list;
	size_t count, size;
};

static int add_run(struct runs *runs, uint64_t size, bool copy)
{
	struct upload_range *last = runs->count ? &runs->list[runs->count - 1] : NULL;

	if (last && last->copy == copy) {
		last->size += size;
		return 0;
	}
	if (runs->count == runs->size) {
		size_t grown_size = runs->size ? runs->size * 2 : 16;
		struct upload_range *grown =
			realloc(runs->list, grown_size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		runs->list = grown;
		runs->size = grown_size;
		last = runs->count ? &grown[runs->count - 1] : NULL;
	}
	runs->list[runs->count++] =
		(struct upload_range){last ? last->off + last->size : 0, size, copy};
	return 0;
}

static void runs_fini(struct runs *runs)
{
	free(runs->list);
}

/* What the patch says; copies shorter than `copy_min` are sent, but for the last run. */
static int collect(struct patch *patch, uint64_t size, uint64_t copy_min,
		   struct runs *runs)
{
	for (uint64_t off = 0, end; off < size; off = end) {
		bool same = patch_same(patch, off, &end);
		int r;

		if (end > size)
			end = size;
		if (same && end - off < copy_min && end < size)
			same = false;
		r = add_run(runs, end - off, same);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

/* Every run but the last gets part_min bytes at least. */
static int widen(const struct runs *from, uint64_t part_min, struct runs *to)
{
	uint64_t taken = 0; /* of the run, by the one before it */
	int r = 0;

	for (size_t i = 0; i < from->count && r == 0; i++) {
		const struct upload_range *run = &from->list[i];
		bool last = i + 1 == from->count;
		uint64_t size = run->size - taken, sent;

		taken = 0;
		if (size == 0)
			continue;
		if (run->copy && (last || size >= part_min)) {
			r = add_run(to, size, true);
			continue;
		}
		r = add_run(to, size, false);
		sent = to->list[to->count - 1].size;
		if (run->copy || last || sent >= part_min || r < 0)
			continue;
		taken = part_min - sent;
		/* What would be left must be a part, too. */
		if (from->list[i + 1].size < taken ||
		    (i + 2 < from->count && from->list[i + 1].size - taken < part_min))
			taken = from->list[i + 1].size;
		r = add_run(to, taken, false);
	}
	return err_trace(r);
}

static uint64_t parts_of(const struct upload_range *run, const struct upload_rules *rules)
{
	uint64_t about = run->copy ? rules->copy_size : rules->part_size;
	uint64_t n = run->size / about;
	uint64_t least = (run->size + ORIGIN_PART_SIZE_MAX - 1) / ORIGIN_PART_SIZE_MAX;

	return n > least ? n : least;
}

static int cut(const struct runs *runs, const struct upload_rules *rules,
	       struct upload_range **out, uint32_t *count)
{
	uint64_t total = 0;
	uint32_t at = 0;

	for (size_t i = 0; i < runs->count; i++)
		total += parts_of(&runs->list[i], rules);
	if (total > ORIGIN_PART_COUNT_MAX)
		return -EFBIG;
	*out = calloc(total ? total : 1, sizeof(**out));
	if (!*out)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < runs->count; i++) {
		const struct upload_range *run = &runs->list[i];
		uint64_t n = parts_of(run, rules), off = run->off;

		for (uint64_t part = 0; part < n; part++) {
			uint64_t size = run->size / n + (part < run->size % n);

			(*out)[at++] = (struct upload_range){off, size, run->copy};
			off += size;
		}
	}
	*count = at;
	return 0;
}

static int plan_once(struct patch *patch, uint64_t size, uint64_t copy_min,
		     const struct upload_rules *rules, struct upload_range **out,
		     uint32_t *count)
{
	_cleanup_(runs_fini) struct runs said = {0};
	_cleanup_(runs_fini) struct runs wide = {0};
	bool copies = false;
	int r = collect(patch, size, copy_min, &said);

	if (r == 0)
		r = widen(&said, rules->part_min, &wide);
	if (r < 0)
		return err_trace(r);
	for (size_t i = 0; i < wide.count; i++)
		copies |= wide.list[i].copy;
	return copies ? cut(&wide, rules, out, count) : 0;
}

/* A part size of which few enough make the whole; where not even the largest serves, less
 * will be copied. */
static uint64_t grow(uint64_t part_size, uint64_t size)
{
	while (part_size < ORIGIN_PART_SIZE_MAX &&
	       size / part_size > ORIGIN_PART_COUNT_MAX / 4)
		part_size *= 2;
	return part_size;
}

int upload_plan(struct patch *patch, uint64_t size, const struct upload_rules *rules,
		struct upload_range **out, uint32_t *count)
{
	struct upload_rules grown = *rules;
	uint64_t copy_min =
		rules->part_min > COPY_WORTH_MIN ? rules->part_min : COPY_WORTH_MIN;
	int r;

	*out = NULL;
	*count = 0;
	if (copy_min > rules->part_size)
		copy_min = rules->part_size;
	grown.part_size = grow(rules->part_size, size);
	grown.copy_size = grow(rules->copy_size, size);
	for (;; copy_min *= 2) {
		r = plan_once(patch, size, copy_min, &grown, out, count);
		if (r != -EFBIG)
			return err_trace(r);
	}
}
