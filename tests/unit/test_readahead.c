/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "cache/readahead.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define WINDOW (128 * MIB)

/* Notes the read; returns how much is to be fetched ahead. */
static uint64_t ahead(struct readahead *ra, uint64_t off, uint64_t n)
{
	struct readahead_plan p = readahead_note(ra, off, n, GIB, WINDOW);

	if (p.end > p.off) {
		assert_true(p.off >= off + n || p.off % (256 * KIB) == 0);
		assert_true(p.end <= GIB);
	}
	return p.end - p.off;
}

enum waiting {
	NEVER,
	SILENT,  /* latency is longer than the window */
	FLOWING, /* bytes were arriving */
};

/* Reads [from, to) in order; each read takes `us`. Returns how far ahead it is at the end. */
static uint64_t read_on(struct readahead *ra, uint64_t from, uint64_t to,
			enum waiting waiting, uint64_t us)
{
	static uint64_t now_us = 1;
	uint64_t reached = from;

	for (uint64_t off = from; off < to; off += 128 * KIB) {
		struct readahead_plan p = readahead_note(ra, off, 128 * KIB, GIB, WINDOW);

		reached = p.end > reached ? p.end : reached;
		now_us += us;
		if (waiting != NEVER)
			readahead_waited(ra, off, waiting == SILENT, us, now_us);
	}
	return reached > to ? reached - to : 0;
}

static void test_a_latency_opens_the_window_to_its_maximum(void **state)
{
	struct readahead ra;
	uint64_t reached;

	(void)state;
	readahead_init(&ra);
	assert_true(ahead(&ra, 0, 128 * KIB) > 0);
	reached = read_on(&ra, 128 * KIB, 64 * MIB, SILENT, 1000);
	assert_true(reached >= WINDOW - 4 * MIB && reached <= WINDOW);
}

static void test_the_window_is_never_far_beyond_what_was_read(void **state)
{
	struct readahead ra;

	(void)state;
	readahead_init(&ra);
	for (uint64_t off = 0; off < 32 * MIB; off += 256 * KIB) {
		uint64_t have = off + 256 * KIB, factor = have < 4 * MIB ? 4 : 16;

		assert_true(read_on(&ra, off, have, SILENT, 20000) <=
			    factor * have + 512 * KIB);
	}
	/* From the middle it is four times, however long. */
	for (uint64_t off = 0; off < 32 * MIB; off += 256 * KIB)
		assert_true(read_on(&ra, GIB / 2 + off, GIB / 2 + off + 256 * KIB, SILENT,
				    20000) <= 4 * (off + 256 * KIB) + 512 * KIB);
}

/* One reader with blocks of n bytes, and a store that answers all that it was asked once a
 * round trip: what has come after so many of them. */
static uint64_t come_after(uint64_t first, uint64_t n, int trips)
{
	struct readahead ra;
	uint64_t off = 0, come = 0, now_us = 1;

	readahead_init(&ra);
	ra.first = first;
	while (trips--) {
		uint64_t asked = come;

		do {
			struct readahead_plan p =
				readahead_note(&ra, off, n, GIB, WINDOW);

			off += n;
			asked = off > asked ? off : asked;
			asked = p.end > asked ? p.end : asked;
		} while (off <= come);
		now_us += 20000;
		readahead_waited(&ra, off - n, true, 20000, now_us);
		come = asked;
	}
	return come;
}

static void test_the_wire_is_full_after_a_few_round_trips(void **state)
{
	(void)state;
	assert_true(come_after(0, MIB, 1) <= 5 * MIB);
	assert_true(come_after(0, MIB, 2) >= 64 * MIB);
	assert_true(come_after(0, MIB, 3) >= 180 * MIB);
	/* Small reads say less. */
	assert_true(come_after(0, 128 * KIB, 1) <= 640 * KIB);
	assert_true(come_after(0, 128 * KIB, 2) <= 4 * MIB);
	assert_true(come_after(0, 128 * KIB, 4) >= 64 * MIB);
}

static void test_others_who_read_on_speak_for_the_next_reader(void **state)
{
	struct readahead ra;
	struct readahead_plan p;

	(void)state;
	assert_true(come_after(32 * MIB, 128 * KIB, 1) >= 31 * MIB);
	assert_true(come_after(32 * MIB, 128 * KIB, 1) <= 33 * MIB);
	/* Not for one who begins elsewhere, nor for what he reads after that. */
	readahead_init(&ra);
	ra.first = 32 * MIB;
	for (uint64_t i = 0; i < 4; i++) {
		p = readahead_note(&ra, 512 * MIB + i * 64 * KIB, 64 * KIB, GIB, WINDOW);
		assert_true(p.end - p.off <= 512 * KIB);
	}
	assert_int_equal(readahead_read_on(&ra), 0);
	p = readahead_note(&ra, 0, 64 * KIB, GIB, WINDOW);
	assert_int_equal(readahead_read_on(&ra), 64 * KIB);
}

static void test_a_reader_that_never_waits_keeps_a_small_window(void **state)
{
	struct readahead ra;

	(void)state;
	readahead_init(&ra);
	assert_true(read_on(&ra, 0, 512 * MIB, NEVER, 1000) <= 4 * MIB);
}

static void test_the_window_grows_while_that_brings_speed(void **state)
{
	struct readahead ra;
	uint64_t at_first, later;

	(void)state;
	readahead_init(&ra);
	at_first = read_on(&ra, 0, 16 * MIB, FLOWING, 1000);
	/* Twice as fast: once more. Then as fast as the wire: no more. */
	later = read_on(&ra, 16 * MIB, 48 * MIB, FLOWING, 500);
	assert_true(later > at_first);
	assert_true(read_on(&ra, 48 * MIB, 400 * MIB, FLOWING, 500) <= later);
	assert_true(later < WINDOW);
}

static void test_random_reads_are_left_alone(void **state)
{
	struct readahead ra;
	unsigned int seed = 3;
	uint64_t asked = 0;

	(void)state;
	readahead_init(&ra);
	for (int i = 0; i < 1000; i++)
		asked +=
			ahead(&ra, MIB + (uint64_t)rand_r(&seed) * 4096 % (GIB - 2 * MIB),
			      64 * KIB);
	/* A chance neighbour now and then: less than the reads by far. */
	assert_true(asked < 1000 * 64 * KIB / 5);
}

static void test_the_middle_needs_two_reads_the_start_one(void **state)
{
	struct readahead ra;

	(void)state;
	readahead_init(&ra);
	assert_int_equal(ahead(&ra, 300 * MIB, 128 * KIB), 0);
	assert_true(ahead(&ra, 300 * MIB + 128 * KIB, 128 * KIB) > 0);
	assert_true(ahead(&ra, 0, 4 * KIB) > 0);
}

static void test_out_of_order_within_a_run_does_not_end_it(void **state)
{
	struct readahead ra;
	uint64_t base = 0, asked = 0;

	(void)state;
	readahead_init(&ra);
	for (; base < 16 * MIB; base += 512 * KIB) {
		asked += ahead(&ra, base + 128 * KIB, 128 * KIB);
		asked += ahead(&ra, base, 128 * KIB);
		asked += ahead(&ra, base + 384 * KIB, 128 * KIB);
		asked += ahead(&ra, base + 256 * KIB, 128 * KIB);
	}
	assert_true(asked >= 16 * MIB);
}

static void test_small_seeks_forward_do_not_end_a_run(void **state)
{
	struct readahead ra;
	uint64_t off, asked = 0;

	(void)state;
	readahead_init(&ra);
	for (off = 0; off < 48 * MIB; off += 192 * KIB)
		asked += ahead(&ra, off, 128 * KIB);
	assert_true(asked >= 44 * MIB);
	/* In a long run a larger one neither; a read elsewhere asks for nothing. */
	assert_true(ahead(&ra, off + MIB, 128 * KIB) >= 512 * KIB);
	assert_int_equal(ahead(&ra, off + 8 * MIB, 128 * KIB), 0);
}

static void test_a_jump_begins_with_a_small_window(void **state)
{
	struct readahead ra;
	uint64_t far = GIB / 2, n = 128 * KIB;

	(void)state;
	readahead_init(&ra);
	assert_true(read_on(&ra, 0, 64 * MIB, SILENT, 1000) >= WINDOW - 4 * MIB);
	assert_int_equal(read_on(&ra, far, far + n, SILENT, 20000), 0);
	for (uint64_t have = 2 * n; have <= 4 * MIB; have += n) {
		uint64_t reached =
			read_on(&ra, far + have - n, far + have, SILENT, 20000);

		assert_true(reached <= 4 * have);
	}
}

static void test_several_streams_of_one_handle_are_told_apart(void **state)
{
	struct readahead ra;
	uint64_t asked[3] = {0};

	(void)state;
	readahead_init(&ra);
	for (uint64_t i = 0; i < 64; i++)
		for (uint64_t s = 0; s < 3; s++)
			asked[s] += ahead(&ra, s * 200 * MIB + i * 256 * KIB, 256 * KIB);
	for (int s = 0; s < 3; s++)
		assert_true(asked[s] >= 16 * MIB);
}

static void test_wrong_guesses_ask_for_more_evidence(void **state)
{
	struct readahead ra;
	uint64_t early = 0, late = 0;

	(void)state;
	readahead_init(&ra);
	/* Pairs of neighbours, each far from the others: every window is for nothing. */
	for (uint64_t i = 1; i < 200; i++) {
		uint64_t off = i * 5 * MIB;
		uint64_t n =
			ahead(&ra, off, 64 * KIB) + ahead(&ra, off + 64 * KIB, 64 * KIB);

		*(i < 20 ? &early : &late) += n;
	}
	assert_true(early > 0);
	assert_int_equal(late, 0);
}

static void test_a_stride_is_no_sequence(void **state)
{
	struct readahead ra;
	uint64_t asked = 0;

	(void)state;
	readahead_init(&ra);
	for (uint64_t i = 1; i < 400; i++)
		asked += ahead(&ra, i * 200 * KIB, 4 * KIB);
	assert_true(asked < 2 * MIB);
}

static void test_nothing_is_asked_for_behind_the_end(void **state)
{
	struct readahead ra;
	struct readahead_plan p;

	(void)state;
	readahead_init(&ra);
	p = readahead_note(&ra, 0, 128 * KIB, 200 * KIB, WINDOW);
	assert_int_equal(p.end, 200 * KIB);
	p = readahead_note(&ra, 128 * KIB, 72 * KIB, 200 * KIB, WINDOW);
	assert_true(p.end == p.off);
}

static void test_what_could_not_be_asked_for_is_planned_again(void **state)
{
	struct readahead ra;
	struct readahead_plan p, q;

	(void)state;
	readahead_init(&ra);
	p = readahead_note(&ra, 0, MIB, GIB, WINDOW);
	assert_true(p.end > p.off);
	readahead_retreat(&ra, &p, p.off + 256 * KIB);
	q = readahead_note(&ra, MIB, 128 * KIB, GIB, WINDOW);
	assert_int_equal(q.off, p.off + 256 * KIB);
	assert_true(q.end >= p.end);
}

TEST_MAIN(cmocka_unit_test(test_a_latency_opens_the_window_to_its_maximum),
	  cmocka_unit_test(test_the_window_is_never_far_beyond_what_was_read),
	  cmocka_unit_test(test_the_wire_is_full_after_a_few_round_trips),
	  cmocka_unit_test(test_others_who_read_on_speak_for_the_next_reader),
	  cmocka_unit_test(test_a_reader_that_never_waits_keeps_a_small_window),
	  cmocka_unit_test(test_the_window_grows_while_that_brings_speed),
	  cmocka_unit_test(test_random_reads_are_left_alone),
	  cmocka_unit_test(test_the_middle_needs_two_reads_the_start_one),
	  cmocka_unit_test(test_out_of_order_within_a_run_does_not_end_it),
	  cmocka_unit_test(test_small_seeks_forward_do_not_end_a_run),
	  cmocka_unit_test(test_a_jump_begins_with_a_small_window),
	  cmocka_unit_test(test_several_streams_of_one_handle_are_told_apart),
	  cmocka_unit_test(test_wrong_guesses_ask_for_more_evidence),
	  cmocka_unit_test(test_a_stride_is_no_sequence),
	  cmocka_unit_test(test_nothing_is_asked_for_behind_the_end),
	  cmocka_unit_test(test_what_could_not_be_asked_for_is_planned_again))
