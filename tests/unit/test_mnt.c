/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/err.h"
#include "runner/mnt.h"
#include "tests/unit/lib_apart.h"

static char dir[PATH_MAX];

/* The whole program lives in a mount namespace of its own: nothing can be left behind. */
static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/sluice-mnt.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	lib_apart(); /* not root: the cases say so */
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (mnt_unshare(dir, NULL))
		return -1;
	return rmdir(dir);
}

static void test_shared_directory_is_a_mount_that_propagates(void **state)
{
	struct why why;

	(void)state;
	if (geteuid())
		skip();
	assert_false(mnt_is_mounted(dir));
	assert_false(mnt_propagates(dir));
	assert_int_equal(mnt_share(dir, &why), 0);
	assert_int_equal(mnt_share(dir, &why), 0);
	assert_true(mnt_is_mounted(dir));
	assert_true(mnt_propagates(dir));
	/* Once: one unmount is enough. */
	assert_int_equal(umount(dir), 0);
	assert_false(mnt_is_mounted(dir));
}

static void test_unshare_takes_everything_below_with_it(void **state)
{
	char below[PATH_MAX], odd[PATH_MAX];
	struct why why;

	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(mnt_share(dir, &why), 0);
	snprintf(below, sizeof(below), "%.200s/a b", dir);
	snprintf(odd, sizeof(odd), "%.200s/a b/c", dir);
	assert_int_equal(mkdir(below, 0700), 0);
	assert_int_equal(mount("none", below, "tmpfs", 0, NULL), 0);
	assert_int_equal(mkdir(odd, 0700), 0);
	assert_int_equal(mount("none", odd, "tmpfs", 0, NULL), 0);
	assert_true(mnt_is_mounted(below));
	assert_true(mnt_propagates(odd)); /* a child of a shared mount is shared */
	assert_int_equal(mnt_unshare(dir, &why), 0);
	assert_false(mnt_is_mounted(odd));
	assert_false(mnt_is_mounted(below));
	assert_false(mnt_is_mounted(dir));
	assert_int_equal(mnt_unshare(dir, &why), 0);
	assert_int_equal(rmdir(below), 0);
}

static void test_neighbour_with_the_same_prefix_is_left_alone(void **state)
{
	char near[PATH_MAX];
	struct why why;

	(void)state;
	if (geteuid())
		skip();
	snprintf(near, sizeof(near), "%.200s2", dir);
	assert_int_equal(mkdir(near, 0700), 0);
	assert_int_equal(mount("none", near, "tmpfs", 0, NULL), 0);
	assert_int_equal(mnt_unshare(dir, &why), 0);
	assert_true(mnt_is_mounted(near));
	assert_int_equal(umount(near), 0);
	assert_int_equal(rmdir(near), 0);
}

static void test_link_and_root_are_refused(void **state)
{
	char link[PATH_MAX];
	struct why why = {{0}};

	(void)state;
	snprintf(link, sizeof(link), "%.200s/link", dir);
	assert_int_equal(symlink("/etc", link), 0);
	assert_true(mnt_share(link, &why) < 0);
	assert_non_null(strstr(why.text, link));
	assert_true(mnt_unshare("/", &why) < 0);
	assert_true(mnt_unshare("", &why) < 0);
	assert_int_equal(unlink(link), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared_directory_is_a_mount_that_propagates),
		cmocka_unit_test(test_unshare_takes_everything_below_with_it),
		cmocka_unit_test(test_neighbour_with_the_same_prefix_is_left_alone),
		cmocka_unit_test(test_link_and_root_are_refused),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
