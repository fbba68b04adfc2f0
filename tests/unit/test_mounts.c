/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of mount points, the kernel's table, and the progress line. */
#include "tests/unit/test.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/err.h"
#include "fs/mounts.h"
#include "fs/progress.h"

static void test_a_path_is_made_absolute_through_links(void **state)
{
	char dir[] = "/tmp/sluice-mounts.XXXXXX", path[PATH_MAX], out[PATH_MAX];
	struct why why = {""};

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/real", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/link", dir);
	assert_int_equal(symlink("real", path), 0);
	assert_int_equal(mounts_path(path, out, &why), 0);
	snprintf(path, sizeof(path), "%s/real", dir);
	assert_string_equal(out, path);
	snprintf(path, sizeof(path), "%s/link/../real///", dir);
	assert_int_equal(mounts_path(path, out, &why), 0);
	snprintf(path, sizeof(path), "%s/real", dir);
	assert_string_equal(out, path);
	snprintf(path, sizeof(path), "%s/real/.", dir);
	assert_int_equal(mounts_path(path, out, &why), 0);
	assert_int_equal(strlen(out), strlen(dir) + 5);
	snprintf(path, sizeof(path), "%s/none", dir);
	assert_int_equal(mounts_path(path, out, &why), -ENOENT);
	assert_int_equal(mounts_path("", out, &why), -ENOENT);
	assert_int_equal(mounts_path("/", out, &why), 0);
	assert_string_equal(out, "/");
	snprintf(path, sizeof(path), "%s/link", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/real", dir);
	rmdir(path);
	rmdir(dir);
}

static void test_the_table_is_read(void **state)
{
	struct mounts_entry entry;

	(void)state;
	assert_int_equal(mounts_find("/proc", &entry), 0);
	assert_string_equal(entry.type, "proc");
	assert_int_equal(mounts_find("/not a mount", &entry), MOUNTS_E_NONE);
}

static void test_mount_points_have_sockets_of_their_own(void **state)
{
	char a[MOUNTS_SOCKET_NAME_MAX], b[MOUNTS_SOCKET_NAME_MAX];

	(void)state;
	mounts_socket_name("/a", a);
	mounts_socket_name("/a/", b);
	assert_string_not_equal(a, b);
	mounts_socket_name("/a", b);
	assert_string_equal(a, b);
}

static void test_the_run_directory_must_be_absolute(void **state)
{
	char out[64];
	struct why why = {""};

	(void)state;
	setenv("SLUICE_RUN_DIR", "here", 1);
	assert_int_equal(mounts_run_dir(out, sizeof(out), &why), -EINVAL);
	setenv("SLUICE_RUN_DIR", "/run/x", 1);
	assert_int_equal(mounts_run_dir(out, sizeof(out), &why), 0);
	assert_string_equal(out, "/run/x");
	assert_int_equal(mounts_run_dir(out, 5, &why), -ENAMETOOLONG);
}

static void test_progress_says_how_far_and_how_long(void **state)
{
	struct progress_amount some = {.files_done = 1,
				       .files_left = 3,
				       .bytes_done = 256 << 20,
				       .bytes_left = 768 << 20};
	const struct progress_amount none = {0};
	char line[121];

	(void)state;
	progress_format(line, 120, &some, 2000);
	assert_string_equal(line,
			    "[#####...............] 256 MiB of 1.0 GiB, 1 of 4 files, "
			    "128 MiB/s, ETA 6s");
	progress_format(line, 120, &none, 0);
	assert_non_null(strstr(line, "0 of 0 files"));
	assert_null(strstr(line, "ETA"));
	some.moving = 2; /* how long it takes nobody knows */
	progress_format(line, 120, &some, 2000);
	assert_string_equal(line,
			    "[#####...............] 256 MiB of 1.0 GiB, 1 of 4 files and "
			    "more in 2 renamed directories, 128 MiB/s");
	progress_format(line, 10, &some, 1);
	assert_int_equal(strlen(line), 10);
}

TEST_MAIN(cmocka_unit_test(test_a_path_is_made_absolute_through_links),
	  cmocka_unit_test(test_the_table_is_read),
	  cmocka_unit_test(test_mount_points_have_sockets_of_their_own),
	  cmocka_unit_test(test_the_run_directory_must_be_absolute),
	  cmocka_unit_test(test_progress_says_how_far_and_how_long))
