/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, whose bytes the journal carries. */
#include "tests/unit/lib_output.h"

static void start_with_store_away(struct rig *t)
{
	struct fault_rule away = {.op = ORIGIN_PUT, .error = -ECONNREFUSED};

	t->o = output_free(t->o);
	assert_int_equal(fault_origin_new(t->origin, &t->origin), 0);
	t->config.origin = t->origin;
	start(t);
	fault_add(t->origin, &away);
}

/* What a small file needs after a crash is in the journal alone, also when that has been
 * written anew, and over any number of versions. */
static void test_the_journal_carries_small_files(void **state)
{
	char path[96], text[32];
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	start_with_store_away(&t);
	put(&t, "empty", "");
	for (int i = 0; i < 40; i++) {
		snprintf(text, sizeof(text), "version %d", i);
		put(&t, i % 2 ? "odd" : "even", text);
	}
	/* A file that goes on after its version was made. */
	f = open_for(&t, "open", O_CREAT | O_WRONLY);
	assert_int_equal(output_write(f, 0, "synced", 6, 0), 0);
	assert_int_equal(output_fsync(f, true), 0);
	assert_int_equal(output_write(f, 0, "SYNCED and more", 15, 0), 0);
	for (int i = 0; i < 3; i++) {
		if (i == 0)
			output_release(f); /* acknowledges what it finds */
		t.o = output_free(t.o);
		snprintf(path, sizeof(path), "%s/stage", t.dir);
		io_remove_tree(AT_FDCWD, path);
		start(&t);
		assert_reads(&t, "odd", "version 39");
		assert_reads(&t, "even", "version 38");
		assert_reads(&t, "open", "SYNCED and more");
		assert_reads(&t, "empty", "");
	}
	write_text(&t, "odd", O_WRONLY | O_APPEND, 10, ", and on");
	fault_clear(t.origin);
	drain(&t);
	lib_assert_content(t.origin, "odd", "version 39, and on");
	lib_assert_content(t.origin, "even", "version 38");
	lib_assert_content(t.origin, "open", "SYNCED and more");
	assert_reads(&t, "odd", "version 39, and on");
	tear_down(&t);
}

/* More than memory may hold goes to files, and back to nothing when it is stored. */
static void test_small_files_beyond_the_limit_are_staged(void **state)
{
	static char data[60000];
	struct output_file *f;
	struct rig t;
	char name[16];

	(void)state;
	set_up(&t);
	t.config.carry_max = 100000;
	start_with_store_away(&t);
	for (int i = 0; i < 5; i++) {
		memset(data, 'a' + i, sizeof(data));
		snprintf(name, sizeof(name), "f%d", i);
		f = open_for(&t, name, O_CREAT | O_WRONLY);
		assert_int_equal(output_write(f, 0, data, sizeof(data), 0), 0);
		close_file(f);
	}
	restart(&t);
	fault_clear(t.origin);
	drain(&t);
	for (int i = 0; i < 5; i++) {
		struct origin_attr attr;

		memset(data, 'a' + i, sizeof(data));
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(lib_stat(t.origin, name, &attr), 0);
		assert_int_equal(attr.size, sizeof(data));
		assert_int_equal(attr.crc64, crc64(0, data, sizeof(data)));
	}
	tear_down(&t);
}

/* The file that was passed through may be mapped still: it is never written for another. */
static void test_a_mapped_file_is_not_used_again(void **state)
{
	struct output_file *f;
	char path[64], *map;
	struct rig t;
	int fd, mine;

	(void)state;
	set_up(&t);
	f = open_for(&t, "mapped", O_CREAT | O_RDWR);
	fd = output_backing_fd(f);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "mine", 4, 0), 4);
	/* As the kernel opens it for the program. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	mine = open(path, O_RDWR | O_CLOEXEC);
	assert_true(mine >= 0);
	map = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
	assert_true(map != MAP_FAILED);
	close(mine);
	close(fd);
	close_file(f);
	put(&t, "next", "other");
	memcpy(map, "XXXX", 4);
	assert_reads(&t, "next", "other");
	assert_int_equal(munmap(map, 4), 0);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_the_journal_carries_small_files),
	  cmocka_unit_test(test_small_files_beyond_the_limit_are_staged),
	  cmocka_unit_test(test_a_mapped_file_is_not_used_again))
