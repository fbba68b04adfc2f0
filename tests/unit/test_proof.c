/* SPDX-License-Identifier: Apache-2.0 */
/* A wrong bit in a range of a large object, for which the store gives no checksum: who
 * reads all of it never gets it all without an error. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/block.h"
#include "cache/datafile.h"
#include "cache/sums.h"
#include "cache/wait.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "tests/unit/lib_cache.h"

/* ---- sums ---- */

static enum sums_result add(struct block *b, const unsigned char *data, uint32_t len,
			    uint32_t first, uint32_t end)
{
	uint32_t from = first * PAGE_BYTES,
		 to = end * PAGE_BYTES < len ? end * PAGE_BYTES : len;
	uint64_t pieces = 0;

	return sums_add(b, len, first, data + from, to - from,
			crc64(0, data + from, to - from), 1000, &pieces);
}

static void test_pieces_in_any_order_make_the_sum_of_a_block(void **state)
{
	uint32_t len = 37 * PAGE_BYTES + 99, pages = 38;
	unsigned char *data = malloc(len);

	(void)state;
	scripted_fill("x", 1, 0, data, len);
	for (unsigned int seed = 1; seed < 200; seed++) {
		bool known[64] = {false};
		enum sums_result r = SUMS_NEW;
		struct block b = {0};

		while (r != SUMS_COMPLETE) {
			uint32_t first = (uint32_t)rand_r(&seed) % pages;
			uint32_t end = first + 1;

			while (end < pages && !known[end] && rand_r(&seed) % 4)
				end++;
			if (known[first])
				continue;
			for (uint32_t i = first; i < end; i++)
				known[i] = true;
			r = add(&b, data, len, first, end);
			assert_true(r == SUMS_NEW || r == SUMS_COMPLETE);
		}
		for (uint32_t i = 0; i < pages; i++)
			assert_true(known[i]);
		assert_true(b.has_crc64);
		assert_true(b.crc64 == crc64(0, data, len));
		assert_null(b.sums);
		assert_int_equal(add(&b, data, len, 0, pages), SUMS_SAME);
		assert_int_equal(add(&b, data, len, 3, 4), SUMS_MIXED);
		data[5] ^= 1;
		assert_int_equal(add(&b, data, len, 0, pages), SUMS_DIFFER);
		data[5] ^= 1;
		sums_drop(&b);
	}
	free(data);
}

static void test_what_comes_again_is_compared_with_what_came(void **state)
{
	uint32_t len = 8 * PAGE_BYTES;
	unsigned char *data = malloc(len);
	struct block b = {0};

	(void)state;
	scripted_fill("x", 1, 0, data, len);
	assert_int_equal(add(&b, data, len, 2, 4), SUMS_NEW);
	assert_int_equal(add(&b, data, len, 2, 4), SUMS_SAME);
	/* Part of a piece tells nothing; more than a piece does. */
	assert_int_equal(add(&b, data, len, 3, 4), SUMS_MIXED);
	assert_int_equal(add(&b, data, len, 3, 6), SUMS_MIXED);
	data[3 * PAGE_BYTES] ^= 1;
	assert_int_equal(add(&b, data, len, 1, 5), SUMS_DIFFER);
	data[3 * PAGE_BYTES] ^= 1;
	assert_int_equal(add(&b, data, len, 1, 5), SUMS_NEW);
	assert_int_equal(add(&b, data, len, 0, 8), SUMS_COMPLETE);
	assert_true(b.crc64 == crc64(0, data, len));
	sums_drop(&b);
	free(data);
}

/* ---- objects ---- */

static void open_reader(struct world *w, const char *key, enum object_verify verify,
			struct object_reader *reader)
{
	object_reader_init(reader, lib_cache_get(w, key), verify, NULL, NULL);
}

static void close_reader(struct object_reader *reader)
{
	struct object *o = reader->object;

	object_reader_fini(reader);
	object_put(o);
}

/* One read; 0, and *right whether these were the object's bytes. */
static int get(struct object_reader *reader, const char *key, uint64_t off, size_t n,
	       bool *right)
{
	unsigned char *p = malloc(n), *expected = malloc(n);
	size_t got = 0;
	int r = lib_cache_read_at(reader->object, reader, off, p, n, &got);

	if (r == 0) {
		scripted_fill(key, 1, off, expected, got);
		if (memcmp(p, expected, got) != 0)
			*right = false;
	}
	free(p);
	free(expected);
	return r;
}

enum order {
	FORWARDS,
	BACKWARDS,
	STRIDES,
	LAST_FIRST,
	ORDER_N
};

static uint64_t place(enum order order, uint64_t i, uint64_t count)
{
	switch (order) {
	case BACKWARDS:
		return count - 1 - i;
	case STRIDES:
		return i * 7 % count;
	case LAST_FIRST:
		return i ? i - 1 : count - 1;
	default:
		return i;
	}
}

/* All of it; the first error. */
static int get_all(struct object_reader *reader, const char *key, enum order order,
		   uint64_t size, size_t step, bool *right)
{
	uint64_t count = (size + step - 1) / step;
	int r = 0;

	*right = true;
	for (uint64_t i = 0; i < count && r == 0; i++)
		r = get(reader, key, place(order, i, count) * step, step, right);
	return r;
}

#define SIZE (5 * MIB + 777)
#define STEP (64 * KIB)

static void never_all_of_it_wrong(struct world *w)
{
	for (int order = FORWARDS; order < ORDER_N; order++)
		for (int skip = 0; skip < 6; skip++) {
			struct object_reader reader;
			bool right = true, again;
			char key[32];
			int r = 0;

			snprintf(key, sizeof(key), "l-%d-%d", order, skip);
			scripted_put(w->store, key, 1, SIZE);
			open_reader(w, key, OBJECT_VERIFY_END, &reader);
			/* Some of it is right, then a bit is not. */
			for (int i = 0; i < skip; i++)
				get(&reader, key,
				    place((enum order)order, (uint64_t)i,
					  SIZE / STEP + 1) *
					    STEP,
				    STEP, &right);
			atomic_store(&w->store->flip_count, 1);
			r = get_all(&reader, key, (enum order)order, SIZE, STEP, &right);
			if (r == 0)
				assert_true(right);
			else
				assert_int_equal(r, -EIO);
			/* For good. */
			if (r < 0)
				assert_int_equal(get(&reader, key, 0, 10, &again), -EIO);
			close_reader(&reader);
			atomic_store(&w->store->flip_count, 0);
			open_reader(w, key, OBJECT_VERIFY_END, &reader);
			assert_int_equal(
				get_all(&reader, key, FORWARDS, SIZE, STEP, &right), 0);
			assert_true(right);
			close_reader(&reader);
		}
	assert_true(lib_cache_stats(w).crc_mismatches > 0);
	assert_true(lib_cache_stats(w).wrong_shown > 0);
}

static void test_who_reads_all_has_it_right_or_an_error(void **state)
{
	never_all_of_it_wrong(*state);
}

static void test_so_it_is_without_a_disk(void **state)
{
	struct world *w = *state;

	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	w->config.dir = NULL;
	w->config.memory_max = 32 * MIB;
	lib_cache_open(w);
	never_all_of_it_wrong(w);
}

static void test_an_object_larger_than_the_cache_is_verified_too(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right;

	w->config.size_max = 8 * MIB;
	lib_cache_reopen(w);
	scripted_put(w->store, "huge", 1, 30 * MIB);
	atomic_store(&w->store->flip_count, 1);
	open_reader(w, "huge", OBJECT_VERIFY_END, &reader);
	assert_int_equal(get_all(&reader, "huge", FORWARDS, 30 * MIB, 256 * KIB, &right),
			 -EIO);
	close_reader(&reader);
	assert_int_equal(lib_cache_stats(w).wrong_shown, 1);
	lib_cache_read(w, "huge", 1, 0, 30 * MIB, MIB);
}

static void test_the_last_of_several_readers_gets_the_error(void **state)
{
	struct world *w = *state;
	struct object_reader readers[4];
	bool right = true;
	int failed = 0;

	scripted_put(w->store, "l", 1, 4 * MIB);
	for (int i = 0; i < 4; i++)
		open_reader(w, "l", OBJECT_VERIFY_END, &readers[i]);
	/* In the middle nothing is read ahead yet: what is wrong is what is shown. */
	atomic_store(&w->store->flip_count, 1);
	assert_int_equal(get(&readers[1], "l", MIB, STEP, &right), 0);
	for (uint64_t at = 0; at < MIB; at += STEP)
		for (unsigned int i = 0; i < 4; i++)
			failed += get(&readers[i], "l", i * MIB + at, STEP, &right) < 0;
	assert_false(right);
	assert_true(failed > 0);
	/* All of them, as nobody knows who has seen it. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(get(&readers[i], "l", 0, STEP, &right), -EIO);
	for (int i = 0; i < 4; i++)
		close_reader(&readers[i]);
}

static void test_what_was_wrong_and_not_shown_is_repaired(void **state)
{
	struct world *w = *state;
	struct object_reader first, second;
	bool right = true;

	scripted_put(w->store, "l", 1, 4 * MIB);
	open_reader(w, "l", OBJECT_VERIFY_END, &first);
	open_reader(w, "l", OBJECT_VERIFY_END, &second);
	assert_int_equal(get(&first, "l", 4 * MIB - STEP, STEP, &right), 0);
	/* One read of all the rest: nothing of it is shown before all is there. */
	atomic_store(&w->store->flip_count, 1);
	assert_int_equal(get(&second, "l", 0, 4 * MIB, &right), 0);
	assert_true(right);
	assert_int_equal(get_all(&second, "l", FORWARDS, 4 * MIB, STEP, &right), 0);
	assert_true(right);
	assert_int_equal(get_all(&first, "l", FORWARDS, 4 * MIB, STEP, &right), 0);
	assert_true(right);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, 1);
	assert_int_equal(lib_cache_stats(w).wrong_shown, 0);
	close_reader(&first);
	close_reader(&second);
}

static void test_verified_whole_nothing_wrong_is_shown(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right;

	for (int order = FORWARDS; order < ORDER_N; order++) {
		char key[32];

		snprintf(key, sizeof(key), "w-%d", order);
		scripted_put(w->store, key, 1, 9 * MIB + 5);
		atomic_store(&w->store->flip_count, 2);
		atomic_store(&w->store->cut_count, 2);
		open_reader(w, key, OBJECT_VERIFY_WHOLE, &reader);
		assert_int_equal(get_all(&reader, key, (enum order)order, 9 * MIB + 5,
					 STEP, &right),
				 0);
		assert_true(right);
		close_reader(&reader);
	}
	assert_true(lib_cache_stats(w).crc_mismatches >= ORDER_N);
	assert_int_equal(lib_cache_stats(w).wrong_shown, 0);
}

static void test_what_cannot_be_kept_cannot_be_verified_whole(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right = true;

	w->config.size_max = 8 * MIB;
	lib_cache_reopen(w);
	scripted_put(w->store, "huge", 1, 30 * MIB);
	scripted_put(w->store, "fits", 1, 5 * MIB);
	scripted_reset(w->store);
	open_reader(w, "huge", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(get(&reader, "huge", 0, STEP, &right), -EFBIG);
	close_reader(&reader);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_GET]), 0);
	open_reader(w, "fits", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(get_all(&reader, "fits", BACKWARDS, 5 * MIB, STEP, &right), 0);
	assert_true(right);
	close_reader(&reader);
}

static void test_verified_whole_without_a_disk(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right = true;

	object_forget_origin(w->cache, &w->store->origin);
	cache_close(w->cache);
	w->config.dir = NULL;
	w->config.memory_max = 32 * MIB;
	lib_cache_open(w);
	scripted_put(w->store, "l", 1, 6 * MIB);
	scripted_put(w->store, "other", 1, 60 * MIB);
	atomic_store(&w->store->flip_count, 1);
	open_reader(w, "l", OBJECT_VERIFY_WHOLE, &reader);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(get_all(&reader, "l", STRIDES, 6 * MIB, STEP, &right),
				 0);
		assert_true(right);
		/* Memory is wanted for other things meanwhile. */
		lib_cache_read(w, "other", 1, 0, 60 * MIB, MIB);
	}
	close_reader(&reader);
	assert_int_equal(lib_cache_stats(w).wrong_shown, 0);
}

static void test_what_another_process_left_is_part_of_the_verdict(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right;

	scripted_put(w->store, "l", 1, SIZE);
	atomic_store(&w->store->flip_count, 1);
	lib_cache_settle(w);
	/* The middle, with a wrong bit, left by a process that went away. */
	open_reader(w, "l", OBJECT_VERIFY_END, &reader);
	assert_int_equal(get(&reader, "l", MIB, 3 * MIB, &right), 0);
	close_reader(&reader);
	lib_cache_settle(w);
	lib_cache_reopen(w);
	open_reader(w, "l", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(get_all(&reader, "l", FORWARDS, SIZE, STEP, &right), 0);
	assert_true(right);
	close_reader(&reader);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, 1);

	scripted_put(w->store, "m", 1, SIZE);
	atomic_store(&w->store->flip_count, 1);
	open_reader(w, "m", OBJECT_VERIFY_END, &reader);
	assert_int_equal(get(&reader, "m", MIB, 3 * MIB, &right), 0);
	close_reader(&reader);
	lib_cache_settle(w);
	lib_cache_reopen(w);
	open_reader(w, "m", OBJECT_VERIFY_END, &reader);
	assert_int_equal(get_all(&reader, "m", FORWARDS, SIZE, STEP, &right), -EIO);
	close_reader(&reader);
	lib_cache_read(w, "m", 1, 0, SIZE, STEP);
}

static void test_a_page_that_is_mended_wrongly_is_found_out(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	char command[200];
	bool right;

	scripted_put(w->store, "l", 1, 3 * MIB);
	lib_cache_read(w, "l", 1, 0, 3 * MIB, MIB);
	lib_cache_settle(w);
	lib_cache_reopen(w);
	snprintf(command, sizeof(command),
		 "printf damage | dd of=$(find %s -name '*.data') bs=1 seek=1500000 "
		 "conv=notrunc status=none",
		 w->dir);
	assert_int_equal(system(command), 0);
	atomic_store(&w->store->flip_count, 1);
	open_reader(w, "l", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(get_all(&reader, "l", FORWARDS, 3 * MIB, STEP, &right), 0);
	assert_true(right);
	close_reader(&reader);
	assert_int_equal(lib_cache_stats(w).damaged, 1);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, 1);
}

static void note(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_others_are_told_to_forget_what_was_wrong(void **state)
{
	struct world *w = *state;
	struct object *o;
	struct object_reader reader;
	atomic_int told = 0;
	bool right;

	scripted_put(w->store, "l", 1, SIZE);
	o = lib_cache_get(w, "l");
	object_reader_init(&reader, o, OBJECT_VERIFY_END, note, &told);
	atomic_store(&w->store->flip_count, 1);
	assert_int_equal(get_all(&reader, "l", FORWARDS, SIZE, STEP, &right), -EIO);
	assert_int_equal(atomic_load(&told), 1);
	object_reader_fini(&reader);
	object_put(o);
}

static void test_what_stays_wrong_ends_in_an_error(void **state)
{
	struct world *w = *state;
	struct object_reader reader;
	bool right = true;

	scripted_put(w->store, "l", 1, SIZE);
	atomic_store(&w->store->flip_count, -1);
	open_reader(w, "l", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(get(&reader, "l", 0, STEP, &right), -EIO);
	close_reader(&reader);
	assert_int_equal(lib_cache_stats(w).crc_mismatches, OBJECT_FAILURES_MAX);
}

static void test_waiting_for_the_whole_ends_by_the_deadline(void **state)
{
	struct world *w = *state;
	struct wait wait = {.deadline_ms = clock_mono_ms() + 100};
	struct object_reader reader;
	unsigned char p[16];
	size_t got;

	scripted_put(w->store, "l", 1, SIZE);
	atomic_store(&w->store->hang, true);
	open_reader(w, "l", OBJECT_VERIFY_WHOLE, &reader);
	assert_int_equal(
		object_read(reader.object, &reader, 0, p, sizeof(p), 0, &wait, &got),
		-ETIMEDOUT);
	close_reader(&reader);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, lib_cache_setup, lib_cache_teardown)

TEST_MAIN(cmocka_unit_test(test_pieces_in_any_order_make_the_sum_of_a_block),
	  cmocka_unit_test(test_what_comes_again_is_compared_with_what_came),
	  CASE(test_who_reads_all_has_it_right_or_an_error),
	  CASE(test_so_it_is_without_a_disk),
	  CASE(test_an_object_larger_than_the_cache_is_verified_too),
	  CASE(test_the_last_of_several_readers_gets_the_error),
	  CASE(test_what_was_wrong_and_not_shown_is_repaired),
	  CASE(test_verified_whole_nothing_wrong_is_shown),
	  CASE(test_what_cannot_be_kept_cannot_be_verified_whole),
	  CASE(test_verified_whole_without_a_disk),
	  CASE(test_what_another_process_left_is_part_of_the_verdict),
	  CASE(test_a_page_that_is_mended_wrongly_is_found_out),
	  CASE(test_others_are_told_to_forget_what_was_wrong),
	  CASE(test_what_stays_wrong_ends_in_an_error),
	  CASE(test_waiting_for_the_whole_ends_by_the_deadline))
