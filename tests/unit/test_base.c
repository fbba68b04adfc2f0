/* SPDX-License-Identifier: Apache-2.0 */
/* The small modules of fs/base: paths, units, log escaping, suggestions, buffers. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/base/suggest.h"
#include "fs/base/units.h"
#include "fs/base/utf8.h"
#include "fs/base/worker.h"
#include "tests/unit/lib_apart.h"

static void test_keys_that_cannot_be_paths_are_told(void **state)
{
	char name[300];

	(void)state;
	memset(name, 'n', sizeof(name));
	assert_int_equal(path_key_check("a/b.txt", 7), PATH_OK);
	assert_int_equal(path_key_check("dir/", 4), PATH_OK);
	assert_int_equal(path_key_check("..a/.b/...", 10), PATH_OK);
	assert_int_equal(path_key_check("", 0), PATH_E_EMPTY);
	assert_int_equal(path_key_check("/a", 2), PATH_E_EMPTY);
	assert_int_equal(path_key_check("a//b", 4), PATH_E_EMPTY);
	assert_int_equal(path_key_check("a//", 3), PATH_E_EMPTY);
	assert_int_equal(path_key_check("../etc/passwd", 13), PATH_E_DOT);
	assert_int_equal(path_key_check("a/./b", 5), PATH_E_DOT);
	assert_int_equal(path_key_check("a/..", 4), PATH_E_DOT);
	assert_int_equal(path_key_check("a\0b", 3), PATH_E_NUL);
	assert_int_equal(path_key_check(name, 255), PATH_OK);
	assert_int_equal(path_key_check(name, 256), PATH_E_LONG);
	assert_int_equal(path_name_check("a/b", 3), PATH_E_EMPTY);
}

static void test_sizes_and_durations_as_people_write_them(void **state)
{
	uint64_t v;
	char text[32];

	(void)state;
	assert_int_equal(units_parse_size("1.5GiB", &v), 0);
	assert_int_equal(v, 1610612736);
	assert_int_equal(units_parse_size("64 kB", &v), 0);
	assert_int_equal(v, 65536);
	assert_int_equal(units_parse_size("12Q", &v), -EINVAL);
	assert_int_equal(units_parse_size("", &v), -EINVAL);
	assert_int_equal(units_parse_size("-1", &v), -EINVAL);
	assert_int_equal(units_parse_size("1e30", &v), -ERANGE);
	assert_int_equal(units_parse_duration("2h", &v), 0);
	assert_int_equal(v, 7200000);
	assert_int_equal(units_parse_duration("0.5", &v), 0);
	assert_int_equal(v, 500);
	assert_int_equal(units_parse_duration("5 parsecs", &v), -EINVAL);
	assert_string_equal(units_format_size(text, sizeof(text), 1610612736), "1.5 GiB");
	assert_string_equal(units_format_duration(text, sizeof(text), 3720000), "1h02m");
}

static void test_a_log_line_cannot_be_forged_or_drive_a_terminal(void **state)
{
	char out[64];

	(void)state;
	assert_string_equal(log_escape(out, sizeof(out), "a\nb\x1b[0m"),
			    "a\\x0ab\\x1b[0m");
	assert_string_equal(log_escape(out, sizeof(out), "gr\xc3\xbc\xc3\x9f"),
			    "gr\xc3\xbc\xc3\x9f");
	/* C1 control, right-to-left override, broken sequence. */
	assert_string_equal(log_escape(out, sizeof(out), "\xc2\x9b"), "\\xc2\\x9b");
	assert_string_equal(log_escape(out, sizeof(out), "\xe2\x80\xae"),
			    "\\xe2\\x80\\xae");
	assert_string_equal(log_escape(out, sizeof(out), "\xff"), "\\xff");
	assert_string_equal(log_escape(out, 5, "abcdefgh"), "abcd");
}

static void test_text_is_told_from_bytes(void **state)
{
	uint32_t c = 0;

	(void)state;
	assert_true(utf8_is_valid(""));
	assert_true(utf8_is_valid("gr\xc3\xbcn \xe2\x82\xac \xf0\x9f\x98\x80"));
	assert_int_equal(utf8_decode("\xe2\x82\xac!", SIZE_MAX, &c), 3);
	assert_int_equal(c, 0x20ac);
	assert_int_equal(utf8_decode("\xe2\x82\xac", 2, &c), 0);
	assert_int_equal(utf8_decode("x", 0, &c), 0);
	/* Alone, cut off, overlong, a surrogate, past the end of Unicode. */
	assert_false(utf8_is_valid("\x80"));
	assert_false(utf8_is_valid("\xe2\x82"));
	assert_false(utf8_is_valid("\xc0\xaf"));
	assert_false(utf8_is_valid("\xe0\x80\xaf"));
	assert_false(utf8_is_valid("\xed\xa0\x80"));
	assert_false(utf8_is_valid("\xf4\x90\x80\x80"));
	assert_false(utf8_is_valid("\xff"));
}

static void test_the_nearest_word_is_suggested_only_when_near(void **state)
{
	static const char *const words[] = {"memory", "count", "command"};

	(void)state;
	assert_string_equal(suggest_nearest("memroy", words, 3, sizeof(*words)),
			    "memory");
	assert_null(suggest_nearest("tensorboard", words, 3, sizeof(*words)));
}

static void test_a_private_directory_refuses_what_others_can_write(void **state)
{
	char path[] = "/tmp/sluice-base-XXXXXX", inner[64];
	struct why why = {""};
	int fd;

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(inner, sizeof(inner), "%s/a/b", path);
	fd = io_open_private_dir(inner, &why);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chmod(inner, 0777), 0);
	assert_int_equal(io_open_private_dir(inner, &why), -EPERM);
	assert_non_null(strstr(why.text, "chmod 700"));
	assert_int_equal(rmdir(inner), 0);
	assert_int_equal(symlink("/", inner), 0);
	assert_true(io_open_private_dir(inner, &why) < 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_replacing_a_file_keeps_the_old_one_until_the_new_is_whole(void **state)
{
	char path[] = "/tmp/sluice-base-XXXXXX";
	struct buf b = BUF_INIT;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(io_replace_file(fd, "f", "one", 3, 0600), 0);
	assert_int_equal(io_replace_file(fd, "f", "other", 5, 0600), 0);
	assert_int_equal(io_read_file(fd, "f", 100, &b), 0);
	assert_string_equal(b.data, "other");
	assert_int_equal(io_read_file(fd, "f", 4, &b), -EFBIG);
	assert_int_equal(io_replace_file(fd, "none/f", "x", 1, 0600), -ENOENT);
	buf_fini(&b);
	close(fd);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
}

static void test_a_tree_deeper_than_there_are_descriptors_is_removed(void **state)
{
	char path[] = "/tmp/sluice-base-XXXXXX";
	struct rlimit old, few = {.rlim_cur = 64};
	int dir, file;

	(void)state;
	assert_non_null(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 200; i++) {
		int below;

		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		assert_int_equal(mkdirat(dir, ".removed-0", 0700), 0);
		file = openat(dir, "f", O_CREAT | O_WRONLY, 0600);
		assert_true(file >= 0);
		close(file);
		assert_int_equal(symlinkat("/etc", dir, "link"), 0);
		below = openat(dir, "d", O_RDONLY | O_DIRECTORY);
		assert_true(below >= 0);
		close(dir);
		dir = below;
	}
	close(dir);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
}

static void test_what_is_mounted_inside_a_tree_stays(void **state)
{
	char path[] = "/tmp/sluice-base-XXXXXX", outside[] = "/tmp/sluice-base-XXXXXX";
	char inner[64], kept[64];

	(void)state;
	if (geteuid() || !lib_apart())
		skip();
	assert_non_null(mkdtemp(path));
	assert_non_null(mkdtemp(outside));
	snprintf(kept, sizeof(kept), "%s/kept", outside);
	close(open(kept, O_CREAT | O_WRONLY, 0600));
	snprintf(inner, sizeof(inner), "%s/a/b", path);
	assert_int_equal(io_mkdir_p(inner, 0700), 0);
	/* The same file system: no device number tells. */
	assert_int_equal(mount(outside, inner, NULL, MS_BIND, NULL), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), -EBUSY);
	assert_int_equal(access(kept, F_OK), 0);
	assert_int_equal(umount2(inner, MNT_DETACH), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, outside), 0);
}

static void add(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void test_a_pool_runs_every_job_before_it_ends(void **state)
{
	struct worker_pool *pool;
	int count = 0;

	(void)state;
	assert_int_equal(worker_pool_new(&pool, "test", 3, 4), 0);
	for (int i = 0; i < 1000; i++)
		worker_submit(pool, add, &count);
	worker_drain(pool);
	assert_int_equal(count, 1000);
	for (int i = 0; i < 4; i++)
		worker_submit(pool, add, &count);
	worker_pool_free(pool);
	assert_int_equal(count, 1004);
}

static void test_backoff_stays_below_its_cap(void **state)
{
	(void)state;
	for (unsigned int attempt = 0; attempt < 80; attempt++)
		assert_true(clock_backoff_ms(attempt, 200, 20000) <= 20000);
	for (int i = 0; i < 50; i++)
		assert_true(clock_backoff_ms(1, 200, 20000) <= 400);
}

TEST_MAIN(
	cmocka_unit_test(test_keys_that_cannot_be_paths_are_told),
	cmocka_unit_test(test_sizes_and_durations_as_people_write_them),
	cmocka_unit_test(test_a_log_line_cannot_be_forged_or_drive_a_terminal),
	cmocka_unit_test(test_text_is_told_from_bytes),
	cmocka_unit_test(test_the_nearest_word_is_suggested_only_when_near),
	cmocka_unit_test(test_a_private_directory_refuses_what_others_can_write),
	cmocka_unit_test(test_replacing_a_file_keeps_the_old_one_until_the_new_is_whole),
	cmocka_unit_test(test_a_tree_deeper_than_there_are_descriptors_is_removed),
	cmocka_unit_test(test_what_is_mounted_inside_a_tree_stays),
	cmocka_unit_test(test_a_pool_runs_every_job_before_it_ends),
	cmocka_unit_test(test_backoff_stays_below_its_cap))
