/* SPDX-License-Identifier: Apache-2.0 */
/* Large files that are sent while they are still being written. */
#include "tests/unit/lib_output.h"

#include <stdlib.h>

#include "cache/upload_schedule.h"
#include "fs/base/cleanup.h"

#define PART (128u << 10)
#define LARGE (8 * PART + 100)

/* Requests that `n` bytes take. */
static uint32_t parts_of(uint64_t n)
{
	struct upload_schedule s;

	upload_schedule_init(&s, n, PART);
	return s.count;
}

/* A file of `n` bytes that stays open, and its first parts are in the store. */
static struct output_file *write_ahead(struct rig *t, const char *path, char *data,
				       size_t n)
{
	struct output_file *f = open_for(t, path, O_CREAT | O_WRONLY | O_TRUNC);
	uint64_t before = requests(t, ORIGIN_MULTI_PART), ahead;

	fill(data, n, 1);
	for (size_t off = 0; off < n; off += PART / 2) {
		size_t some = n - off < PART / 2 ? n - off : PART / 2;

		assert_int_equal(output_write(f, off, data + off, some, 0), 0);
	}
	/* All but what is behind the writer. */
	ahead = upload_schedule_whole(PART, n - PART);
	eventually(requests(t, ORIGIN_MULTI_PART) - before >= parts_of(ahead));
	return f;
}

static void assert_stored(struct rig *t, const char *key, const char *data, size_t n)
{
	_cleanup_(buf_fini) struct buf got = BUF_INIT;

	assert_int_equal(lib_get(t->origin, key, 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, n);
	assert_memory_equal(got.data, data, n);
	assert_int_equal(uploads(t), 0);
}

static void assert_nothing_pends(struct rig *t)
{
	struct output_progress p;

	output_progress(t->o, &p);
	assert_int_equal(p.files_pending, 0);
	assert_int_equal(p.bytes_pending, 0);
}

static void test_parts_leave_before_the_file_is_closed(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	assert_nothing_pends(&t);
	assert_int_equal(lib_stat(t.origin, "f", &(struct origin_attr){0}), -ENOENT);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	/* Each part once, under one upload. */
	assert_int_equal(requests(&t, ORIGIN_MULTI_PART), LARGE / PART + 1);
	assert_int_equal(requests(&t, ORIGIN_MULTI_BEGIN), 1);
	assert_int_equal(requests(&t, ORIGIN_MULTI_ABORT), 0);
	tear_down(&t);
}

static void test_parts_that_become_larger_leave_early_too(void **state)
{
	const uint64_t size = 350 * (uint64_t)PART + 100;
	_cleanup_(freep) char *data = malloc(size);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, size);
	assert_true(requests(&t, ORIGIN_MULTI_PART) > UPLOAD_SCHEDULE_STEP);
	assert_true(requests(&t, ORIGIN_MULTI_PART) < 300);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, size);
	assert_int_equal(requests(&t, ORIGIN_MULTI_PART), parts_of(size));
	assert_int_equal(requests(&t, ORIGIN_MULTI_BEGIN), 1);
	tear_down(&t);
}

static void test_parts_that_were_rewritten_are_sent_again(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	memset(data + PART - 5, '#', 10); /* the end of one part, the start of another */
	assert_int_equal(output_write(f, PART - 5, data + PART - 5, 10, 0), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	assert_int_equal(requests(&t, ORIGIN_MULTI_PART), LARGE / PART + 1 + 2);
	tear_down(&t);
}

static void test_a_sync_on_the_way_loses_nothing_that_was_sent(void **state)
{
	_cleanup_(freep) char *data = malloc(2 * LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	assert_int_equal(output_fsync(f, false), 0);
	fill(data, 2 * LARGE, 1);
	assert_int_equal(output_write(f, LARGE, data + LARGE, LARGE, 0), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, 2 * LARGE);
	assert_int_equal(requests(&t, ORIGIN_MULTI_PART), 2 * LARGE / PART + 1);
	assert_int_equal(requests(&t, ORIGIN_MULTI_BEGIN), 1);
	tear_down(&t);
}

static void test_a_removed_file_leaves_no_upload(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	assert_int_equal(remove_file(&t, "f"), 0);
	eventually(uploads(&t) == 0);
	close_file(f);
	drain(&t);
	assert_listed(&t, "");
	tear_down(&t);
}

static void test_a_file_cut_while_it_is_sent_is_sent_as_it_is(void **state)
{
	/* The second leaves whole parts that were sent. */
	static const uint64_t sizes[] = {1000, 5 * PART + 7};
	_cleanup_(freep) char *data = malloc(LARGE);
	struct tree_attr attr;
	struct output_file *f;
	struct rig t;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		set_up(&t);
		f = write_ahead(&t, "f", data, LARGE);
		assert_int_not_equal(walk(&t, "f", &attr), 0);
		attr.size = sizes[i];
		assert_int_equal(output_setattr(t.o, attr.ino,
						OUTPUT_SET_SIZE | OUTPUT_SET_OPEN, &attr),
				 0);
		close_file(f);
		drain(&t);
		assert_stored(&t, "f", data, sizes[i]);
		tear_down(&t);
	}
}

static void test_a_file_renamed_on_the_way_gets_to_its_new_key(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	assert_int_equal(move(&t, "f", "g", 0), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "g", data, LARGE);
	assert_listed(&t, "g");
	tear_down(&t);
}

static void test_a_drain_waits_for_no_file_that_stays_open(void **state)
{
	_cleanup_(freep) char *data = malloc(2 * LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	drain(&t);
	assert_nothing_pends(&t);
	assert_stored(&t, "f", data, LARGE);
	assert_int_equal(requests(&t, ORIGIN_MULTI_PART), LARGE / PART + 1);
	fill(data, 2 * LARGE, 1);
	assert_int_equal(output_write(f, LARGE, data + LARGE, LARGE, 0), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, 2 * LARGE);
	tear_down(&t);
}

static void test_times_that_a_program_sets_reach_the_object(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct origin_attr stored = {0};
	struct tree_attr attr;
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = write_ahead(&t, "f", data, LARGE);
	assert_int_not_equal(walk(&t, "f", &attr), 0);
	attr.mtime_ns = 1000000000000000000;
	attr.mode = 0600;
	assert_int_equal(
		output_setattr(t.o, attr.ino, OUTPUT_SET_MTIME | OUTPUT_SET_MODE, &attr),
		0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	assert_int_equal(lib_stat(t.origin, "f", &stored), 0);
	assert_int_equal(stored.mtime_ns, 1000000000000000000);
	assert_int_equal(stored.mode & 07777, 0600);
	tear_down(&t);
}

static void test_a_store_that_takes_no_parts_is_no_failure_yet(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct output_progress p;
	struct rig t;

	(void)state;
	set_up(&t);
	t.o = output_free(t.o);
	assert_int_equal(fault_origin_new(t.origin, &t.origin), 0);
	t.config.origin = t.origin;
	start(&t);
	fault_add(t.origin,
		  &(struct fault_rule){.op = ORIGIN_MULTI_PART, .error = -EAGAIN});
	f = open_for(&t, "f", O_CREAT | O_WRONLY | O_TRUNC);
	fill(data, LARGE, 1);
	assert_int_equal(output_write(f, 0, data, LARGE, 0), 0);
	eventually(requests(&t, ORIGIN_MULTI_BEGIN) > 0);
	eventually(fault_hits(t.origin, 0) > 0);
	output_progress(t.o, &p);
	assert_int_equal(p.failures, 0);
	assert_nothing_pends(&t);
	fault_clear(t.origin);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	tear_down(&t);
}

static void test_small_files_and_holes_are_left_alone(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *small, *holes;
	struct rig t;

	(void)state;
	set_up(&t);
	fill(data, LARGE, 1);
	small = open_for(&t, "small", O_CREAT | O_WRONLY);
	assert_int_equal(output_write(small, 0, data, 2 * PART, 0), 0);
	holes = open_for(&t, "holes", O_CREAT | O_WRONLY);
	assert_int_equal(output_write(holes, 4 * PART, data, 4 * PART, 0), 0);
	/* Several looks at both, and one file that shows how far these have come. */
	close_file(write_ahead(&t, "f", data, LARGE));
	assert_int_equal(requests(&t, ORIGIN_MULTI_BEGIN), 1);
	close_file(small);
	close_file(holes);
	drain(&t);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_parts_leave_before_the_file_is_closed),
	  cmocka_unit_test(test_parts_that_become_larger_leave_early_too),
	  cmocka_unit_test(test_parts_that_were_rewritten_are_sent_again),
	  cmocka_unit_test(test_a_sync_on_the_way_loses_nothing_that_was_sent),
	  cmocka_unit_test(test_a_removed_file_leaves_no_upload),
	  cmocka_unit_test(test_a_file_cut_while_it_is_sent_is_sent_as_it_is),
	  cmocka_unit_test(test_a_file_renamed_on_the_way_gets_to_its_new_key),
	  cmocka_unit_test(test_a_drain_waits_for_no_file_that_stays_open),
	  cmocka_unit_test(test_times_that_a_program_sets_reach_the_object),
	  cmocka_unit_test(test_a_store_that_takes_no_parts_is_no_failure_yet),
	  cmocka_unit_test(test_small_files_and_holes_are_left_alone))
