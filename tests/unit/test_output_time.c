/* SPDX-License-Identifier: Apache-2.0 */
/* Times of files: what was set stays, whoever reads them, and wherever their bytes are. */
#include "tests/unit/lib_output.h"

#define OLD 1580608922123456789
#define LARGE (5u << 20) /* is not brought home to be read */

static struct tree_attr attr_of(struct rig *t, const char *path)
{
	struct tree_attr attr;

	assert_int_not_equal(walk(t, path, &attr), 0);
	return attr;
}

static void set_time(struct rig *t, const char *path, int64_t ns)
{
	struct tree_attr attr = attr_of(t, path);

	attr.mtime_ns = ns;
	assert_int_equal(output_setattr(t->o, attr.ino, OUTPUT_SET_MTIME, &attr), 0);
}

static void put_large(struct rig *t, const char *path)
{
	struct output_file *f = open_for(t, path, O_CREAT | O_WRONLY);
	static char data[LARGE];

	assert_int_equal(output_write(f, 0, data, sizeof(data), 0), 0);
	close_file(f);
}

/* Another mount, of which nothing is known but what the store has. */
static void start_afresh(struct rig *t)
{
	t->o = output_free(t->o);
	io_remove_tree(AT_FDCWD, t->dir);
	assert_int_equal(mkdir(t->dir, 0700), 0);
	start(t);
}

static void assert_time_stays(struct rig *t, const char *path)
{
	struct output_file *f;
	char got[16];
	size_t n;

	assert_int_equal(attr_of(t, path).mtime_ns, OLD);
	f = open_for(t, path, O_RDONLY);
	assert_int_equal(attr_of(t, path).mtime_ns, OLD);
	assert_int_equal(output_read(f, 0, got, sizeof(got), 0, &n), 0);
	assert_int_equal(attr_of(t, path).mtime_ns, OLD);
	output_release(f);
	assert_int_equal(attr_of(t, path).mtime_ns, OLD);
}

static void test_reading_changes_no_time(void **state)
{
	const char *paths[] = {"small", "large"};
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "small", "text");
	put_large(&t, "large");
	for (size_t i = 0; i < 2; i++) {
		set_time(&t, paths[i], OLD);
		assert_time_stays(&t, paths[i]);
	}
	drain(&t);
	for (size_t i = 0; i < 2; i++)
		assert_time_stays(&t, paths[i]);
	start_afresh(&t);
	for (size_t i = 0; i < 2; i++)
		assert_time_stays(&t, paths[i]);
	tear_down(&t);
}

static void test_a_write_is_newer_than_what_was_set(void **state)
{
	int64_t before = clock_real_ns() - 1000000000;
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "file", "text");
	drain(&t);
	set_time(&t, "file", OLD);
	start_afresh(&t);
	write_text(&t, "file", O_WRONLY, 1, "a");
	assert_true(attr_of(&t, "file").mtime_ns > before);
	tear_down(&t);
}

/* The time is no new version: the bytes are not sent again. */
static void test_a_set_time_sends_no_bytes(void **state)
{
	struct output_file *f;
	struct rig t;
	uint64_t puts;

	(void)state;
	set_up(&t);
	put(&t, "file", "text");
	drain(&t);
	set_time(&t, "file", OLD);
	drain(&t);
	puts = requests(&t, ORIGIN_PUT);
	f = open_for(&t, "file", O_RDWR);
	close_file(f);
	drain(&t);
	assert_int_equal(requests(&t, ORIGIN_PUT), puts);
	assert_int_equal(attr_of(&t, "file").mtime_ns, OLD);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_reading_changes_no_time),
	  cmocka_unit_test(test_a_write_is_newer_than_what_was_set),
	  cmocka_unit_test(test_a_set_time_sends_no_bytes))
