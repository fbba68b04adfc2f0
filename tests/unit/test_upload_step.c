/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "cache/upload_step.h"
#include "fs/base/crc.h"

#define OBJECT_MAX ((uint64_t)ORIGIN_PART_COUNT_MAX * ORIGIN_PART_SIZE_MAX)

static struct origin_part part_of(const struct upload_state *s, uint32_t number)
{
	struct origin_part p = {.number = number, .crc64 = number};
	uint64_t off;

	upload_part_range(s, number, &off, &p.size);
	return p;
}

static void expect(struct upload_state *s, enum upload_action want)
{
	uint32_t part;

	assert_string_equal(upload_action_name(upload_next(s, &part)),
			    upload_action_name(want));
}

static void land(struct upload_state *s, enum upload_action action, int result)
{
	upload_landed(s, action, result, "ID", NULL);
}

static void land_part(struct upload_state *s, uint32_t number, int result)
{
	struct origin_part p = part_of(s, number);

	upload_landed(s, UPLOAD_PART, result, NULL, &p);
}

/* To where all three parts fly. */
static void begin(struct upload_state *s)
{
	assert_int_equal(upload_state_init(s, 250, 100), 0);
	assert_int_equal(s->part_count, 3);
	expect(s, UPLOAD_BEGIN);
	expect(s, UPLOAD_WAIT);
	land(s, UPLOAD_BEGIN, 0);
	for (uint32_t i = 1; i <= 3; i++)
		expect(s, UPLOAD_PART);
	expect(s, UPLOAD_WAIT);
}

static void test_a_small_content_is_put(void **state)
{
	struct upload_state s;

	(void)state;
	upload_state_init(&s, 100, 100);
	expect(&s, UPLOAD_PUT);
	expect(&s, UPLOAD_WAIT);
	land(&s, UPLOAD_PUT, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	upload_state_fini(&s);
}

static void test_parts_land_in_any_order(void **state)
{
	struct upload_state s;

	(void)state;
	begin(&s);
	land_part(&s, 3, 0);
	land_part(&s, 1, 0);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 2, 0);
	expect(&s, UPLOAD_END);
	land(&s, UPLOAD_END, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	assert_string_equal(s.upload_id, "");
	upload_state_fini(&s);
}

static void test_a_failed_part_keeps_the_others_for_the_retry(void **state)
{
	struct upload_state s;
	uint32_t part;

	(void)state;
	begin(&s);
	land_part(&s, 2, -ECONNRESET);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 1, 0);
	land_part(&s, 3, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, -ECONNRESET);
	upload_state_retry(&s);
	assert_int_equal(upload_next(&s, &part), UPLOAD_PART);
	assert_int_equal(part, 2);
	land_part(&s, 2, 0);
	expect(&s, UPLOAD_END);
	upload_state_fini(&s);
}

static void test_a_lost_answer_to_end_is_checked(void **state)
{
	struct upload_state s;

	(void)state;
	begin(&s);
	for (uint32_t i = 1; i <= 3; i++)
		land_part(&s, i, 0);
	expect(&s, UPLOAD_END);
	land(&s, UPLOAD_END, -ECONNRESET);
	expect(&s, UPLOAD_CHECK);
	land(&s, UPLOAD_CHECK, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	upload_state_fini(&s);
}

static void test_a_vanished_upload_starts_over(void **state)
{
	struct upload_state s;

	(void)state;
	begin(&s);
	land_part(&s, 1, -ENOENT);
	land_part(&s, 2, 0);
	land_part(&s, 3, -ENOENT);
	expect(&s, UPLOAD_BEGIN);
	land(&s, UPLOAD_BEGIN, 0);
	for (uint32_t i = 1; i <= 3; i++)
		expect(&s, UPLOAD_PART);
	for (uint32_t i = 1; i <= 3; i++)
		land_part(&s, i, 0);
	expect(&s, UPLOAD_END);
	land(&s, UPLOAD_END, -ENOENT);
	expect(&s, UPLOAD_CHECK);
	land(&s, UPLOAD_CHECK, -ENOENT);
	expect(&s, UPLOAD_BEGIN);
	upload_state_fini(&s);
}

static void test_an_upload_that_vanishes_for_ever_fails(void **state)
{
	struct upload_state s;
	uint32_t part;
	int rounds = 0;

	(void)state;
	upload_state_init(&s, 200, 100);
	for (;;) {
		enum upload_action action = upload_next(&s, &part);

		if (action == UPLOAD_DONE)
			break;
		if (action == UPLOAD_PART)
			land_part(&s, part, -ENOENT);
		else
			land(&s, action, 0);
		assert_true(++rounds < 100);
	}
	assert_int_equal(s.result, -ENOENT);
	upload_state_fini(&s);
}

static void test_a_cancelled_upload_is_aborted_when_all_has_landed(void **state)
{
	struct upload_state s;

	(void)state;
	begin(&s);
	upload_cancel(&s);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 1, 0);
	land_part(&s, 2, -ECANCELED);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 3, 0);
	expect(&s, UPLOAD_ABORT);
	land(&s, UPLOAD_ABORT, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, -ECANCELED);
	upload_state_fini(&s);
}

static void test_a_cancel_behind_end_is_too_late(void **state)
{
	struct upload_state s;

	(void)state;
	begin(&s);
	for (uint32_t i = 1; i <= 3; i++)
		land_part(&s, i, 0);
	expect(&s, UPLOAD_END);
	upload_cancel(&s);
	land(&s, UPLOAD_END, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	upload_state_fini(&s);
}

static void test_a_resumed_upload_sends_the_rest(void **state)
{
	struct upload_state s;
	uint32_t part;

	(void)state;
	upload_state_init(&s, 250, 100);
	upload_state_resume(&s, "OLD");
	for (uint32_t i = 1; i <= 3; i += 2) {
		struct upload_sent sent = {part_of(&s, i), (i - 1) * 100, true};

		upload_state_resume_part(&s, &sent);
	}
	assert_int_equal(upload_next(&s, &part), UPLOAD_PART);
	assert_int_equal(part, 2);
	land_part(&s, 2, 0);
	expect(&s, UPLOAD_END);
	upload_state_fini(&s);
}

static void begin_append(struct upload_state *s, bool prove)
{
	struct patch_object object = {.size = 100, .crc64 = 7, .has_crc64 = true};

	assert_int_equal(upload_state_init(s, 250, 100), 0);
	upload_state_append(s, &object, prove ? 0 : object.size);
}

static void test_an_append_at_another_length_is_looked_at(void **state)
{
	struct origin_part prefix = {.size = 200, .crc64 = 9};
	struct upload_state s;

	(void)state;
	begin_append(&s, false);
	expect(&s, UPLOAD_APPEND);
	expect(&s, UPLOAD_WAIT);
	land(&s, UPLOAD_APPEND, -ESTALE);
	expect(&s, UPLOAD_CHECK);
	upload_landed(&s, UPLOAD_CHECK, UPLOAD_PREFIX, NULL, &prefix);
	expect(&s, UPLOAD_APPEND);
	assert_int_equal(s.append_off, 200);
	assert_int_equal(s.append_crc64, 9);
	land(&s, UPLOAD_APPEND, -ESTALE);
	expect(&s, UPLOAD_CHECK);
	land(&s, UPLOAD_CHECK, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	upload_state_fini(&s);

	begin_append(&s, false);
	expect(&s, UPLOAD_APPEND);
	land(&s, UPLOAD_APPEND, -ESTALE);
	expect(&s, UPLOAD_CHECK);
	land(&s, UPLOAD_CHECK, -ESTALE);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, -ESTALE);
	upload_state_fini(&s);
}

static void test_what_does_not_start_with_the_object_goes_in_parts(void **state)
{
	struct upload_state s;

	(void)state;
	begin_append(&s, true);
	expect(&s, UPLOAD_PROVE);
	land(&s, UPLOAD_PROVE, 0);
	expect(&s, UPLOAD_APPEND);
	land(&s, UPLOAD_APPEND, 0);
	expect(&s, UPLOAD_DONE);
	upload_state_fini(&s);

	begin_append(&s, true);
	expect(&s, UPLOAD_PROVE);
	land(&s, UPLOAD_PROVE, -ESTALE);
	expect(&s, UPLOAD_BEGIN);
	assert_int_equal(s.part_count, 3);
	upload_state_fini(&s);
}

/* It may have been carried out: only its answer tells. */
static void test_an_append_that_flies_is_not_cancelled(void **state)
{
	struct upload_state s;

	(void)state;
	begin_append(&s, false);
	expect(&s, UPLOAD_APPEND);
	upload_cancel(&s);
	expect(&s, UPLOAD_WAIT);
	land(&s, UPLOAD_APPEND, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	upload_state_fini(&s);
}

/* What was sent ahead of the end is a claim, until the bytes have been compared. */
static void test_parts_ahead_are_begun_until_it_is_stopped(void **state)
{
	struct upload_state s;
	uint32_t part;

	(void)state;
	upload_state_init(&s, 300, 100);
	s.ahead = true;
	expect(&s, UPLOAD_BEGIN);
	land(&s, UPLOAD_BEGIN, 0);
	expect(&s, UPLOAD_PART);
	expect(&s, UPLOAD_PART);
	upload_stop(&s);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 2, 0);
	expect(&s, UPLOAD_WAIT);
	land_part(&s, 1, 0);
	expect(&s, UPLOAD_DONE);
	assert_int_equal(s.result, 0);
	assert_string_equal(s.upload_id, "ID");
	upload_state_fini(&s);

	upload_state_init(&s, 350, 100);
	upload_state_resume(&s, "ID");
	for (uint32_t i = 1; i <= 2; i++) {
		struct upload_sent sent = {part_of(&s, i), (i - 1) * 100, false};

		upload_state_resume_part(&s, &sent);
	}
	for (uint32_t i = 1; i <= 4; i++) {
		assert_int_equal(upload_next(&s, &part), UPLOAD_PART);
		assert_int_equal(part, i);
		assert_int_equal(upload_part_claim(&s, i) != NULL, i <= 2);
	}
	upload_state_fini(&s);
}

static void test_stopped_before_it_began_it_asks_for_nothing(void **state)
{
	struct upload_state s;

	(void)state;
	upload_state_init(&s, 300, 100);
	s.ahead = true;
	upload_stop(&s);
	expect(&s, UPLOAD_DONE);
	assert_string_equal(s.upload_id, "");
	upload_state_fini(&s);
}

static void test_parts_of_one_size_are_sent_again_where_they_are_others_now(void **state)
{
	const uint64_t size = 200 * 100;
	struct upload_state s;
	uint32_t count = 0, part;

	(void)state;
	upload_state_init(&s, size, 100);
	upload_state_resume(&s, "ID");
	/* As an older version recorded them. */
	for (uint32_t i = 1; i <= 200; i++) {
		struct upload_sent sent = {
			.part = {.number = i, .size = 100, .crc64 = i, .etag = "e"},
			.off = (i - 1) * 100,
			.proven = true};

		upload_state_resume_part(&s, &sent);
	}
	assert_int_equal(s.sent, UPLOAD_SCHEDULE_STEP);
	while (upload_next(&s, &part) == UPLOAD_PART) {
		assert_int_equal(part, UPLOAD_SCHEDULE_STEP + 1 + count++);
		land_part(&s, part, 0);
	}
	assert_int_equal(count, s.part_count - UPLOAD_SCHEDULE_STEP);
	assert_int_equal(s.phase, PHASE_END);
	upload_state_fini(&s);
}

static void test_ten_thousand_parts_are_never_exceeded(void **state)
{
	struct upload_state s;
	uint64_t off, n;

	(void)state;
	upload_state_init(&s, OBJECT_MAX, 1 << 20);
	assert_true(s.part_count <= ORIGIN_PART_COUNT_MAX);
	upload_part_range(&s, s.part_count, &off, &n);
	assert_int_equal(off + n, OBJECT_MAX);
	upload_state_fini(&s);
}

TEST_MAIN(
	cmocka_unit_test(test_a_small_content_is_put),
	cmocka_unit_test(test_parts_land_in_any_order),
	cmocka_unit_test(test_a_failed_part_keeps_the_others_for_the_retry),
	cmocka_unit_test(test_a_lost_answer_to_end_is_checked),
	cmocka_unit_test(test_a_vanished_upload_starts_over),
	cmocka_unit_test(test_an_upload_that_vanishes_for_ever_fails),
	cmocka_unit_test(test_a_cancelled_upload_is_aborted_when_all_has_landed),
	cmocka_unit_test(test_a_cancel_behind_end_is_too_late),
	cmocka_unit_test(test_a_resumed_upload_sends_the_rest),
	cmocka_unit_test(test_an_append_at_another_length_is_looked_at),
	cmocka_unit_test(test_what_does_not_start_with_the_object_goes_in_parts),
	cmocka_unit_test(test_an_append_that_flies_is_not_cancelled),
	cmocka_unit_test(test_parts_ahead_are_begun_until_it_is_stopped),
	cmocka_unit_test(test_stopped_before_it_began_it_asks_for_nothing),
	cmocka_unit_test(test_parts_of_one_size_are_sent_again_where_they_are_others_now),
	cmocka_unit_test(test_ten_thousand_parts_are_never_exceeded))
