/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_output.h"

static void test_a_closed_file_reaches_the_store(void **state)
{
	struct origin_attr attr;
	struct rig t;

	(void)state;
	set_up(&t);
	make_dir(&t, "d");
	put(&t, "d/f", "hello");
	assert_reads(&t, "d/f", "hello");
	drain(&t);
	lib_assert_content(t.origin, "d/f", "hello");
	assert_listed(&t, "d/ d/f");
	assert_int_equal(lib_stat(t.origin, "d/f", &attr), 0);
	assert_true(attr.has_posix);
	assert_int_equal(attr.mode, S_IFREG | 0644);
	assert_reads(&t, "d/f", "hello");
	tear_down(&t);
}

static void test_what_the_store_holds_is_there(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	lib_put(t.origin, "a/b/c", "deep");
	lib_put(t.origin, "top", "flat");
	assert_reads(&t, "a/b/c", "deep");
	write_text(&t, "top", O_WRONLY, 2, "OO");
	drain(&t);
	lib_assert_content(t.origin, "top", "flOO");
	put(&t, "a/b/c", "new");
	drain(&t);
	lib_assert_content(t.origin, "a/b/c", "new");
	tear_down(&t);
}

static void test_a_large_file_goes_in_parts(void **state)
{
	size_t n = (1 << 20) + 17;
	char *data = malloc(n);
	struct buf got = BUF_INIT;
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 7 + i / 1000);
	f = open_for(&t, "big", O_CREAT | O_WRONLY);
	assert_int_equal(output_write(f, 0, data, n, 0), 0);
	close_file(f);
	drain(&t);
	assert_int_equal(lib_get(t.origin, "big", 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, n);
	assert_memory_equal(got.data, data, n);
	buf_fini(&got);
	free(data);
	tear_down(&t);
}

static void test_an_acknowledged_file_survives_a_restart(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	make_dir(&t, "d");
	put(&t, "d/f", "kept");
	put(&t, "g", "also");
	assert_int_equal(move(&t, "g", "d/h", 0), 0);
	restart(&t);
	assert_reads(&t, "d/f", "kept");
	assert_reads(&t, "d/h", "also");
	drain(&t);
	assert_listed(&t, "d/ d/f d/h");
	tear_down(&t);
}

static void test_a_stored_file_is_moved_in_the_store(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "a", "one");
	drain(&t);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_reads(&t, "b", "one");
	drain(&t);
	assert_listed(&t, "b");
	lib_assert_content(t.origin, "b", "one");
	tear_down(&t);
}

static void test_stored_names_that_swap_both_arrive(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "a", "was a");
	put(&t, "b", "was b");
	drain(&t);
	restart(&t); /* nothing is kept in the stage */
	assert_int_equal(move(&t, "a", "b", RENAME_EXCHANGE), 0);
	assert_reads(&t, "a", "was b");
	drain(&t);
	assert_listed(&t, "a b");
	lib_assert_content(t.origin, "a", "was b");
	lib_assert_content(t.origin, "b", "was a");
	tear_down(&t);
}

static void test_a_tree_that_was_never_listed_is_moved(void **state)
{
	struct tree_attr attr;
	struct rig t;

	(void)state;
	set_up(&t);
	lib_put(t.origin, "x/1", "one");
	lib_put(t.origin, "x/y/2", "two");
	assert_int_equal(move(&t, "x", "z", 0), 0);
	assert_int_equal(walk(&t, "x", &attr), 0);
	assert_reads(&t, "z/y/2", "two");
	/* A new directory of the old name does not show what has left it. */
	make_dir(&t, "x");
	put(&t, "x/3", "three");
	assert_int_equal(walk(&t, "x/1", &attr), 0);
	assert_int_equal(walk(&t, "x/y", &attr), 0);
	drain(&t);
	assert_listed(&t, "x/ x/3 z/ z/1 z/y/2");
	tear_down(&t);
}

static void test_a_rename_over_replaces_at_once(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "final", "old");
	drain(&t);
	put(&t, "tmp", "new");
	assert_int_equal(move(&t, "tmp", "final", 0), 0);
	assert_reads(&t, "final", "new");
	drain(&t);
	assert_listed(&t, "final");
	lib_assert_content(t.origin, "final", "new");
	tear_down(&t);
}

static void test_an_unlinked_file_leaves_the_store(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "a", "1");
	put(&t, "b", "2");
	drain(&t);
	assert_int_equal(remove_file(&t, "a"), 0);
	put(&t, "c", "3");
	assert_int_equal(remove_file(&t, "c"), 0);
	restart(&t);
	drain(&t);
	assert_listed(&t, "b");
	tear_down(&t);
}

static void test_an_overwrite_in_flight_does_not_mix(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "f", "aaaa");
	f = open_for(&t, "f", O_WRONLY);
	assert_int_equal(output_write(f, 0, "bb", 2, 0), 0);
	/* Not acknowledged: a crash here leaves the old version, and so does a drain of
	 * what was acknowledged, unless the open file is published too. */
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "f", "bbaa");
	write_text(&t, "f", O_WRONLY | O_APPEND, 4, "cc");
	write_text(&t, "f", O_WRONLY | O_APPEND, 6, "dd");
	drain(&t);
	lib_assert_content(t.origin, "f", "bbaaccdd");
	tear_down(&t);
}

static void test_two_mounts_of_one_state_are_refused(void **state)
{
	struct why why = {""};
	struct output *second;
	struct rig t;

	(void)state;
	set_up(&t);
	assert_int_equal(output_new(&t.config, &second, &why), -EBUSY);
	assert_non_null(strstr(why.text, "in use"));
	tear_down(&t);
}

static void test_links_and_attributes_are_kept(void **state)
{
	struct origin_attr got;
	struct tree_attr attr;
	char target[64];
	struct rig t;
	uint64_t ino;

	(void)state;
	set_up(&t);
	assert_int_equal(output_symlink(t.o, TREE_ROOT, "l", "to/there", me, &attr), 0);
	output_forget(t.o, attr.ino, 1);
	put(&t, "f", "x");
	drain(&t);
	ino = walk(&t, "f", &attr);
	attr.mode = 0600;
	attr.mtime_ns = 1500000000123456789;
	assert_int_equal(
		output_setattr(t.o, ino, OUTPUT_SET_MODE | OUTPUT_SET_MTIME, &attr), 0);
	drain(&t);
	assert_int_equal(lib_stat(t.origin, "f", &got), 0);
	assert_int_equal(got.mode, S_IFREG | 0600);
	assert_int_equal(got.mtime_ns, 1500000000123456789);
	restart(&t);
	ino = walk(&t, "l", &attr);
	assert_true(S_ISLNK(attr.mode));
	assert_int_equal(output_readlink(t.o, ino, 0, target, sizeof(target)), 0);
	assert_string_equal(target, "to/there");
	walk(&t, "f", &attr);
	assert_int_equal(attr.mode, S_IFREG | 0600);
	tear_down(&t);
}

static void test_an_open_file_is_published(void **state)
{
	struct origin_attr published;
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	t.o = output_free(t.o);
	t.config.publish_interval_ms = 50;
	start(&t);
	f = open_for(&t, "log", O_CREAT | O_WRONLY | O_APPEND);
	assert_int_equal(output_write(f, 0, "line 1\n", 7, 0), 0);
	eventually(lib_stat(t.origin, "log", &published) == 0);
	lib_assert_content(t.origin, "log", "line 1\n");
	assert_int_equal(output_write(f, 7, "line 2\n", 7, 0), 0);
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "log", "line 1\nline 2\n");

	/* Rewritten: the last whole version stays until it is closed. */
	f = open_for(&t, "log", O_WRONLY | O_TRUNC);
	assert_int_equal(output_write(f, 0, "n", 1, 0), 0);
	clock_sleep_ms(200);
	lib_assert_content(t.origin, "log", "line 1\nline 2\n");
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "log", "n");
	tear_down(&t);
}

static void test_remote_durability_waits_for_the_store(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	t.o = output_free(t.o);
	t.config.durability = OUTPUT_REMOTE;
	start(&t);
	f = open_for(&t, "f", O_CREAT | O_WRONLY);
	assert_int_equal(output_write(f, 0, "now", 3, 0), 0);
	assert_int_equal(output_flush(f), 0);
	lib_assert_content(t.origin, "f", "now");
	output_release(f);
	tear_down(&t);
}

static void test_writers_wait_for_space_instead_of_failing(void **state)
{
	static char data[64 << 10];
	char name[16];
	struct rig t;

	(void)state;
	set_up(&t);
	t.o = output_free(t.o);
	t.config.stage_size_max = 256 << 10;
	t.config.full_timeout_ms = 10000;
	start(&t);
	/* Sixteen times as much as the stage may hold. */
	for (int i = 0; i < 64; i++) {
		struct output_file *f;

		snprintf(name, sizeof(name), "f%d", i);
		f = open_for(&t, name, O_CREAT | O_WRONLY);
		assert_int_equal(output_write(f, 0, data, sizeof(data), 0), 0);
		close_file(f);
	}
	drain(&t);
	/* One that cannot fit however long it waits. */
	{
		struct output_file *f = open_for(&t, "large", O_CREAT | O_WRONLY);
		uint64_t off = 0;
		int r;

		do {
			r = output_write(f, off, data, sizeof(data), 0);
			off += sizeof(data);
		} while (r == 0 && off < (1 << 20));
		assert_int_equal(r, -ENOSPC);
		close_file(f);
	}
	drain(&t);
	tear_down(&t);
}

static void test_what_is_too_large_for_a_copy_is_sent(void **state)
{
	struct fault_rule too_large = {.op = ORIGIN_COPY, .error = -EFBIG};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put(&t, "f", "large");
	drain(&t);
	fault_add(t.origin, &too_large);
	assert_int_equal(move(&t, "f", "g", 0), 0);
	assert_reads(&t, "g", "large");
	drain(&t);
	assert_listed(&t, "g");
	lib_assert_content(t.origin, "g", "large");
	tear_down(&t);
}

static void test_a_close_without_a_change_sends_nothing(void **state)
{
	struct origin_attr before, after;
	struct output_file *f;
	struct rig t;
	int fd;

	(void)state;
	set_up(&t);
	put(&t, "f", "same");
	drain(&t);
	assert_int_equal(lib_stat(t.origin, "f", &before), 0);
	f = open_for(&t, "f", O_RDWR);
	fd = output_backing_fd(f);
	assert_true(fd >= 0);
	close(fd);
	close_file(f);
	drain(&t);
	assert_int_equal(lib_stat(t.origin, "f", &after), 0);
	assert_string_equal(before.etag, after.etag);
	tear_down(&t);
}

static void test_writes_behind_our_back_are_acknowledged(void **state)
{
	struct output_file *f;
	struct rig t;
	int fd;

	(void)state;
	set_up(&t);
	f = open_for(&t, "f", O_CREAT | O_RDWR);
	fd = output_backing_fd(f);
	assert_true(fd >= 0);
	assert_int_equal(io_pwrite(fd, "first", 5, 0), 0);
	assert_int_equal(output_flush(f), 0);
	/* Open again while the first version may be on its way, written in place. */
	assert_int_equal(io_pwrite(fd, "SECOND", 6, 0), 0);
	close(fd);
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "f", "SECOND");
	restart(&t);
	assert_reads(&t, "f", "SECOND");
	tear_down(&t);
}

/* By name, while a reader has it open: there is no close that would acknowledge it. */
static void test_a_truncation_by_name_is_kept(void **state)
{
	struct tree_attr attr;
	struct output_file *f;
	struct rig t;
	uint64_t ino;

	(void)state;
	set_up(&t);
	put(&t, "f", "a long text");
	f = open_for(&t, "f", O_RDONLY);
	ino = walk(&t, "f", &attr);
	attr.size = 1;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr), 0);
	close_file(f);
	assert_reads(&t, "f", "a");
	drain(&t);
	lib_assert_content(t.origin, "f", "a");
	tear_down(&t);
}

static void *drain_for_a_while(void *arg)
{
	struct rig *t = arg;

	return (void *)(intptr_t)output_drain(t->o, clock_mono_ms() + 300, NULL);
}

/* What was acknowledged before the drain is waited for, though it changes again meanwhile. */
static void test_a_drain_waits_for_what_changes_again(void **state)
{
	struct fault_rule away = {.op = ORIGIN_PUT, .error = -ECONNREFUSED};
	pthread_t thread;
	void *result;
	struct rig t;

	(void)state;
	set_up(&t);
	t.o = output_free(t.o);
	assert_int_equal(fault_origin_new(t.origin, &t.origin), 0);
	t.config.origin = t.origin;
	start(&t);
	fault_add(t.origin, &away);
	put(&t, "f", "first");
	assert_int_equal(pthread_create(&thread, NULL, drain_for_a_while, &t), 0);
	while (pthread_tryjoin_np(thread, &result) == EBUSY) {
		put(&t, "f", "again");
		clock_sleep_ms(5);
	}
	assert_int_equal((int)(intptr_t)result, OUTPUT_E_PENDING);
	fault_clear(t.origin);
	drain(&t);
	lib_assert_content(t.origin, "f", "again");
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_drain_waits_for_what_changes_again),
	  cmocka_unit_test(test_a_truncation_by_name_is_kept),
	  cmocka_unit_test(test_writers_wait_for_space_instead_of_failing),
	  cmocka_unit_test(test_what_is_too_large_for_a_copy_is_sent),
	  cmocka_unit_test(test_a_close_without_a_change_sends_nothing),
	  cmocka_unit_test(test_writes_behind_our_back_are_acknowledged),
	  cmocka_unit_test(test_a_closed_file_reaches_the_store),
	  cmocka_unit_test(test_what_the_store_holds_is_there),
	  cmocka_unit_test(test_a_large_file_goes_in_parts),
	  cmocka_unit_test(test_an_acknowledged_file_survives_a_restart),
	  cmocka_unit_test(test_a_stored_file_is_moved_in_the_store),
	  cmocka_unit_test(test_stored_names_that_swap_both_arrive),
	  cmocka_unit_test(test_a_tree_that_was_never_listed_is_moved),
	  cmocka_unit_test(test_a_rename_over_replaces_at_once),
	  cmocka_unit_test(test_an_unlinked_file_leaves_the_store),
	  cmocka_unit_test(test_an_overwrite_in_flight_does_not_mix),
	  cmocka_unit_test(test_two_mounts_of_one_state_are_refused),
	  cmocka_unit_test(test_links_and_attributes_are_kept),
	  cmocka_unit_test(test_an_open_file_is_published),
	  cmocka_unit_test(test_remote_durability_waits_for_the_store))
