/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "cache/origin.h"
#include "cache/upload_schedule.h"

#define MIB (1ull << 20)
#define STEP UPLOAD_SCHEDULE_STEP
#define OBJECT_MAX ((uint64_t)ORIGIN_PART_COUNT_MAX * ORIGIN_PART_SIZE_MAX)

static uint64_t size_of(const struct upload_schedule *s, uint32_t part)
{
	uint64_t off, n;

	upload_schedule_range(s, part, &off, &n);
	return n;
}

/* The parts are all of it, one behind the other, and none but the last is too small. */
static void assert_sound(uint64_t size, uint64_t first_size)
{
	struct upload_schedule s;
	uint64_t at = 0;

	upload_schedule_init(&s, size, first_size);
	assert_in_range(s.count, 1, ORIGIN_PART_COUNT_MAX);
	for (uint32_t part = 1; part <= s.count; part++) {
		uint64_t off, n;

		upload_schedule_range(&s, part, &off, &n);
		assert_int_equal(off, at);
		assert_in_range(n, part < s.count ? first_size : 1, ORIGIN_PART_SIZE_MAX);
		at += n;
	}
	assert_int_equal(at, size);
}

static void test_parts_are_all_of_it(void **state)
{
	const uint64_t firsts[] = {100 << 10, 128 << 10, 8 * MIB, 100 * MIB,
				   ORIGIN_PART_SIZE_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(firsts) / sizeof(*firsts); i++) {
		uint64_t first = firsts[i];

		for (uint64_t size = first; size <= OBJECT_MAX / 3; size *= 3) {
			assert_sound(size - 1, first);
			assert_sound(size, first);
			assert_sound(size + 1, first);
		}
		assert_sound(OBJECT_MAX - 1, first);
		assert_sound(OBJECT_MAX, first);
	}
}

static void test_parts_double_after_every_step(void **state)
{
	struct upload_schedule s;

	(void)state;
	upload_schedule_init(&s, 10000 * MIB, 8 * MIB);
	assert_int_equal(size_of(&s, STEP), 8 * MIB);
	assert_int_equal(size_of(&s, STEP + 1), 16 * MIB);
	assert_int_equal(size_of(&s, 2 * STEP), 16 * MIB);
	assert_int_equal(size_of(&s, 2 * STEP + 1), 32 * MIB);
	/* The boundary of a step, and a byte to either side of it. */
	assert_int_equal(upload_schedule_whole(8 * MIB, STEP * 8 * MIB - 1),
			 (STEP - 1) * 8 * MIB);
	assert_int_equal(upload_schedule_whole(8 * MIB, STEP * 8 * MIB), STEP * 8 * MIB);
	assert_int_equal(upload_schedule_whole(8 * MIB, STEP * 8 * MIB + 16 * MIB - 1),
			 STEP * 8 * MIB);
	assert_int_equal(upload_schedule_whole(8 * MIB, STEP * 8 * MIB + 16 * MIB),
			 STEP * 8 * MIB + 16 * MIB);
}

/* What was sent of a file that has grown since. */
static void test_whole_parts_stay_where_they_are(void **state)
{
	struct upload_schedule a, b;

	(void)state;
	upload_schedule_init(&a, 5000 * MIB + 1, 8 * MIB);
	upload_schedule_init(&b, 900000 * MIB, 8 * MIB);
	assert_true(a.whole > 2 * STEP);
	for (uint32_t part = 1; part <= a.whole; part++) {
		uint64_t a_off, b_off, a_n, b_n;

		upload_schedule_range(&a, part, &a_off, &a_n);
		upload_schedule_range(&b, part, &b_off, &b_n);
		assert_int_equal(a_off, b_off);
		assert_int_equal(a_n, b_n);
	}
}

static void test_the_last_bytes_go_in_several_parts(void **state)
{
	struct upload_schedule s;

	(void)state;
	upload_schedule_init(&s, 100000 * MIB, 8 * MIB);
	assert_true(size_of(&s, s.whole) >= 256 * MIB);
	assert_true(s.count > s.whole + 1);
	assert_true(size_of(&s, s.whole + 1) <= size_of(&s, s.whole) / 8);
}

static void test_the_largest_object_is_reached_from_8_mib(void **state)
{
	struct upload_schedule s;

	(void)state;
	assert_true(upload_schedule_reach(8 * MIB) >= 48800000000000ull);
	upload_schedule_init(&s, 48800000000000ull, 8 * MIB);
	assert_int_equal(s.first_size, 8 * MIB);
	/* 10,000 parts of the largest size, when it is known that there are so many bytes. */
	upload_schedule_init(&s, OBJECT_MAX, 8 * MIB);
	assert_int_equal(s.count, ORIGIN_PART_COUNT_MAX);
}

TEST_MAIN(cmocka_unit_test(test_parts_are_all_of_it),
	  cmocka_unit_test(test_parts_double_after_every_step),
	  cmocka_unit_test(test_whole_parts_stay_where_they_are),
	  cmocka_unit_test(test_the_last_bytes_go_in_several_parts),
	  cmocka_unit_test(test_the_largest_object_is_reached_from_8_mib))
