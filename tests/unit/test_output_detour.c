/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are renamed while their upload is under way: it goes on, and the store moves
 * what comes of it. */
#include "tests/unit/lib_output.h"

#include <stdlib.h>

#include "fs/base/cleanup.h"

#define PART (128u << 10)
#define PARTS 12u
#define LARGE ((PARTS - 1) * PART + 100)

static void write_large(struct rig *t, const char *path, unsigned int seed)
{
	struct output_file *f = open_for(t, path, O_CREAT | O_WRONLY | O_TRUNC);
	_cleanup_(freep) char *data = malloc(LARGE);

	fill(data, LARGE, seed);
	assert_int_equal(output_write(f, 0, data, LARGE, 0), 0);
	close_file(f);
}

/* As when the store goes away in the middle: some parts are there, and no more get there
 * before fault_clear(). */
static void write_interrupted(struct rig *t, const char *path, unsigned int seed)
{
	struct fault_rule away = {
		.op = ORIGIN_MULTI_PART, .skip = PARTS / 2, .error = -ECONNREFUSED};
	uint64_t failures;
	struct output_progress p;

	output_progress(t->o, &p);
	failures = p.failures;
	fault_add(t->origin, &away);
	write_large(t, path, seed);
	eventually((output_progress(t->o, &p), p.failures > failures));
	assert_int_equal(requests(t, ORIGIN_MULTI_PART), PARTS / 2);
}

static void assert_gone(struct rig *t, const char *path)
{
	struct tree_attr attr;

	assert_int_equal(output_lookup(t->o, TREE_ROOT, path, 0, &attr), -ENOENT);
}

static void assert_stored(struct rig *t, const char *key, unsigned int seed)
{
	_cleanup_(freep) char *want = malloc(LARGE);
	_cleanup_(buf_fini) struct buf got = BUF_INIT;

	fill(want, LARGE, seed);
	assert_int_equal(lib_get(t->origin, key, 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, LARGE);
	assert_memory_equal(got.data, want, LARGE);
}

static void assert_only(struct rig *t, const char *keys)
{
	assert_listed(t, keys);
	assert_int_equal(uploads(t), 0);
}

/* Sent once, moved within the store. */
static void assert_moved(struct rig *t)
{
	assert_int_equal(requests(t, ORIGIN_MULTI_PART), PARTS);
	assert_int_equal(requests(t, ORIGIN_COPY), 1);
}

/* An upload that is interrupted, and whose file then gets another name. */
static void rename_interrupted(struct rig *t)
{
	write_interrupted(t, "tmp", 1);
	assert_int_equal(move(t, "tmp", "ckpt", 0), 0);
}

/* The store is back: the file arrives at its new name, and the store has these keys. */
static void arrive(struct rig *t, const char *keys)
{
	fault_clear(t->origin);
	drain(t);
	assert_stored(t, "ckpt", 1);
	assert_only(t, keys);
}

static void test_a_rename_while_parts_fly_sends_nothing_twice(void **state)
{
	struct fault_rule slow = {.op = ORIGIN_MULTI_PART, .delay_ms = 30};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	fault_add(t.origin, &slow);
	write_large(&t, "tmp", 1);
	eventually(requests(&t, ORIGIN_MULTI_PART) > 0);
	assert_int_equal(move(&t, "tmp", "ckpt", 0), 0);
	while (requests(&t, ORIGIN_COPY) == 0) {
		assert_gone(&t, "tmp");
		clock_sleep_ms(2);
	}
	assert_gone(&t, "tmp");
	drain(&t);
	assert_moved(&t);
	assert_stored(&t, "ckpt", 1);
	assert_only(&t, "ckpt");
	tear_down(&t);
}

static void test_a_rename_between_two_attempts_sends_nothing_twice(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	rename_interrupted(&t);
	arrive(&t, "ckpt");
	assert_moved(&t);
	tear_down(&t);
}

static void test_a_rename_while_little_was_sent_starts_anew(void **state)
{
	struct fault_rule away = {.op = ORIGIN_MULTI_PART, .error = -ECONNREFUSED};
	struct output_progress p;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	fault_add(t.origin, &away);
	write_large(&t, "tmp", 1);
	eventually((output_progress(t.o, &p), p.failures > 0));
	assert_int_equal(move(&t, "tmp", "ckpt", 0), 0);
	arrive(&t, "ckpt");
	assert_int_equal(requests(&t, ORIGIN_COPY), 0);
	tear_down(&t);
}

static void test_a_restart_goes_on_where_it_was(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	rename_interrupted(&t);
	restart(&t);
	assert_gone(&t, "tmp");
	arrive(&t, "ckpt");
	assert_moved(&t);
	tear_down(&t);
}

/* The answer to the END is lost, and no one can look: it is at the old key, unknown. */
static void test_what_was_completed_unseen_is_found(void **state)
{
	for (int restarted = 0; restarted < 2; restarted++) {
		struct fault_rule lost = {
			.op = ORIGIN_MULTI_END, .after = true, .error = -ECONNRESET};
		struct fault_rule blind = {.op = ORIGIN_STAT, .error = -ECONNREFUSED};
		struct rig t;

		(void)state;
		set_up_faulty(&t);
		fault_add(t.origin, &lost);
		fault_add(t.origin, &blind);
		write_large(&t, "tmp", 1);
		eventually(fault_hits(t.origin, 1) > 0);
		assert_int_equal(move(&t, "tmp", "ckpt", 0), 0);
		if (restarted)
			restart(&t);
		assert_gone(&t, "tmp");
		arrive(&t, "ckpt");
		assert_moved(&t);
		tear_down(&t);
	}
}

static void test_it_replaces_the_file_of_the_new_name(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put(&t, "ckpt", "former");
	drain(&t);
	rename_interrupted(&t);
	/* Never a moment without either. */
	lib_assert_listed(t.origin, "", true, "ckpt");
	arrive(&t, "ckpt");
	assert_moved(&t);
	assert_int_equal(requests(&t, ORIGIN_DELETE), 1);
	tear_down(&t);
}

static void test_a_new_file_at_the_old_name_waits_its_turn(void **state)
{
	struct fault_rule slow = {.op = ORIGIN_MULTI_END, .delay_ms = 300};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	fault_add(t.origin, &slow);
	write_large(&t, "tmp", 1);
	eventually(requests(&t, ORIGIN_MULTI_PART) > 0);
	assert_int_equal(move(&t, "tmp", "one", 0), 0);
	write_large(&t, "tmp", 2);
	assert_int_equal(move(&t, "tmp", "two", 0), 0);
	put(&t, "tmp", "three");
	assert_reads(&t, "tmp", "three");
	drain(&t);
	assert_stored(&t, "one", 1);
	assert_stored(&t, "two", 2);
	assert_only(&t, "one tmp two");
	tear_down(&t);
}

/* Nothing of it flies: the new file goes first, and the upload is given up. */
static void test_a_new_file_at_the_old_name_is_not_replaced(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	rename_interrupted(&t);
	put(&t, "tmp", "new");
	eventually(requests(&t, ORIGIN_PUT) > 0);
	arrive(&t, "ckpt tmp");
	assert_reads(&t, "tmp", "new");
	restart(&t);
	assert_reads(&t, "tmp", "new");
	tear_down(&t);
}

static void test_removed_renamed_and_rewritten_meanwhile(void **state)
{
	struct rig t;

	(void)state;
	for (int flying = 0; flying < 2; flying++) {
		struct fault_rule slow = {.op = ORIGIN_MULTI_PART, .delay_ms = 20};

		for (int what = 0; what < 5; what++) {
			set_up_faulty(&t);
			if (flying) {
				fault_add(t.origin, &slow);
				write_large(&t, "tmp", 1);
				eventually(requests(&t, ORIGIN_MULTI_PART) > 0);
			} else {
				write_interrupted(&t, "tmp", 1);
			}
			assert_int_equal(move(&t, "tmp", "a", 0), 0);
			if (what == 0)
				assert_int_equal(remove_file(&t, "a"), 0);
			else if (what == 1)
				assert_int_equal(move(&t, "a", "b", 0), 0);
			else if (what == 2)
				assert_int_equal(move(&t, "a", "tmp", 0), 0);
			else if (what == 3)
				put(&t, "a", "rewritten");
			fault_clear(t.origin);
			if (what == 4) {
				put(&t, "b", "other");
				assert_int_equal(move(&t, "a", "b", RENAME_EXCHANGE), 0);
			}
			drain(&t);
			if (what == 0)
				assert_only(&t, "");
			else if (what == 1)
				assert_stored(&t, "b", 1);
			else if (what == 2)
				assert_stored(&t, "tmp", 1);
			else if (what == 3)
				assert_reads(&t, "a", "rewritten");
			else
				assert_stored(&t, "b", 1);
			assert_only(&t, what == 0   ? ""
					: what == 1 ? "b"
					: what == 2 ? "tmp"
					: what == 3 ? "a"
						    : "a b");
			if (what == 1)
				assert_moved(&t);
			tear_down(&t);
		}
	}
}

static void test_an_exchange_while_it_flies_leaves_both(void **state)
{
	struct fault_rule slow = {.op = ORIGIN_MULTI_PART, .delay_ms = 20};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put(&t, "other", "text");
	drain(&t);
	fault_add(t.origin, &slow);
	write_large(&t, "tmp", 1);
	eventually(requests(&t, ORIGIN_MULTI_PART) > 0);
	assert_int_equal(move(&t, "tmp", "other", RENAME_EXCHANGE), 0);
	drain(&t);
	assert_stored(&t, "other", 1);
	assert_reads(&t, "tmp", "text");
	assert_only(&t, "other tmp");
	tear_down(&t);
}

static void test_a_new_version_goes_on_when_it_is_renamed(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put(&t, "tmp", "former");
	drain(&t);
	rename_interrupted(&t);
	restart(&t);
	assert_gone(&t, "tmp");
	arrive(&t, "ckpt");
	assert_moved(&t);
	tear_down(&t);
}

static void test_an_upload_that_the_store_forgot_is_sent_to_the_new_name(void **state)
{
	struct origin_req list = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct origin_req gone = {.op = ORIGIN_MULTI_ABORT, .key = "tmp"};
	struct lib_listed listed = {0};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	rename_interrupted(&t);
	list.list.entry = lib_keep_entry;
	list.list.entry_arg = &listed;
	assert_int_equal(origin_call(t.origin, &list), 0);
	assert_int_equal(listed.count, 1);
	gone.upload_id = listed.attr.etag;
	assert_int_equal(origin_call(t.origin, &gone), 0);
	arrive(&t, "ckpt");
	assert_int_equal(requests(&t, ORIGIN_COPY), 0);
	tear_down(&t);
}

static void test_what_is_in_a_renamed_directory_goes_on(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	make_dir(&t, "d");
	write_interrupted(&t, "d/f", 1);
	assert_int_equal(move(&t, "d", "e", 0), 0);
	fault_clear(t.origin);
	drain(&t);
	assert_moved(&t);
	assert_stored(&t, "e/f", 1);
	assert_only(&t, "e/ e/f");
	tear_down(&t);
}

static void write_open(struct rig *t, struct output_file *f, char *data)
{
	fill(data, LARGE, 1);
	for (size_t off = 0; off < LARGE; off += PART) {
		size_t some = LARGE - off < PART ? LARGE - off : PART;

		assert_int_equal(output_write(f, off, data + off, some, 0), 0);
	}
	eventually(requests(t, ORIGIN_MULTI_PART) >= PARTS - 2);
}

static void test_what_was_sent_ahead_goes_on(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	for (int open = 0; open < 2; open++) {
		set_up_faulty(&t);
		f = open_for(&t, "tmp", O_CREAT | O_WRONLY | O_TRUNC);
		write_open(&t, f, data);
		if (!open)
			close_file(f);
		assert_int_equal(move(&t, "tmp", "ckpt", 0), 0);
		if (open)
			close_file(f);
		drain(&t);
		assert_int_equal(requests(&t, ORIGIN_MULTI_PART), PARTS);
		assert_stored(&t, "ckpt", 1);
		assert_only(&t, "ckpt");
		tear_down(&t);
	}
}

static void test_what_was_sent_ahead_replaces_no_new_file(void **state)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	f = open_for(&t, "tmp", O_CREAT | O_WRONLY | O_TRUNC);
	write_open(&t, f, data);
	assert_int_equal(move(&t, "tmp", "ckpt", 0), 0);
	put(&t, "tmp", "new");
	close_file(f);
	drain(&t);
	assert_reads(&t, "tmp", "new");
	assert_stored(&t, "ckpt", 1);
	assert_only(&t, "ckpt tmp");
	restart(&t);
	assert_reads(&t, "tmp", "new");
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_rename_while_parts_fly_sends_nothing_twice),
	  cmocka_unit_test(test_a_rename_between_two_attempts_sends_nothing_twice),
	  cmocka_unit_test(test_a_rename_while_little_was_sent_starts_anew),
	  cmocka_unit_test(test_a_restart_goes_on_where_it_was),
	  cmocka_unit_test(test_what_was_completed_unseen_is_found),
	  cmocka_unit_test(test_it_replaces_the_file_of_the_new_name),
	  cmocka_unit_test(test_a_new_file_at_the_old_name_waits_its_turn),
	  cmocka_unit_test(test_a_new_file_at_the_old_name_is_not_replaced),
	  cmocka_unit_test(test_removed_renamed_and_rewritten_meanwhile),
	  cmocka_unit_test(test_an_exchange_while_it_flies_leaves_both),
	  cmocka_unit_test(test_a_new_version_goes_on_when_it_is_renamed),
	  cmocka_unit_test(test_an_upload_that_the_store_forgot_is_sent_to_the_new_name),
	  cmocka_unit_test(test_what_is_in_a_renamed_directory_goes_on),
	  cmocka_unit_test(test_what_was_sent_ahead_goes_on),
	  cmocka_unit_test(test_what_was_sent_ahead_replaces_no_new_file))
