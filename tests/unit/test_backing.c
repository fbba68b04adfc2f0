/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fs/backing.h"

/* A kernel that counts, and enforces what the real one answers with EIO. */
struct fake {
	int next_id, live, refuse;
};

static int fake_open(void *ctx, int fd)
{
	struct fake *f = ctx;

	(void)fd;
	if (f->refuse)
		return f->refuse;
	f->live++;
	return ++f->next_id;
}

static void fake_close(void *ctx, int id)
{
	struct fake *f = ctx;

	assert_in_range(id, 1, f->next_id);
	f->live--;
}

static struct backing *make_backing(bool fixed)
{
	static const struct backing_kernel kernel = {fake_open, fake_close};
	struct backing *b;

	assert_int_equal(backing_new(&kernel, fixed, &b), 0);
	return b;
}

static struct backing *make(void)
{
	return make_backing(false);
}

static int temp_file(void)
{
	char name[] = "/tmp/sluice-backing.XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

static void test_opens_of_one_file_share_one_id(void **state)
{
	struct fake f = {0};
	struct backing *b = make();
	int fd = temp_file(), first = 0, second = 0;

	(void)state;
	assert_int_equal(backing_open(b, &f, 7, fd, true, &first), BACKING_PASS);
	assert_int_equal(backing_open(b, &f, 7, fd, true, &second), BACKING_PASS);
	assert_int_equal(first, second);
	assert_int_equal(f.live, 1);
	backing_close(b, &f, 7, BACKING_PASS);
	assert_int_equal(f.live, 1);
	backing_close(b, &f, 7, BACKING_PASS);
	assert_int_equal(f.live, 0);
	close(fd);
	backing_free(b);
}

static void test_cached_opens_keep_passthrough_out(void **state)
{
	struct fake f = {0};
	struct backing *b = make();
	int fd = temp_file(), id = 0;

	(void)state;
	assert_int_equal(backing_open(b, &f, 7, -1, true, &id), BACKING_CACHED);
	assert_int_equal(backing_open(b, &f, 7, fd, true, &id), BACKING_CACHED);
	assert_int_equal(backing_open(b, &f, 7, fd, false, &id), BACKING_DIRECT);
	assert_int_equal(f.live, 0);
	backing_close(b, &f, 7, BACKING_CACHED);
	backing_close(b, &f, 7, BACKING_CACHED);
	backing_close(b, &f, 7, BACKING_DIRECT);
	assert_int_equal(backing_open(b, &f, 7, fd, true, &id), BACKING_PASS);
	backing_close(b, &f, 7, BACKING_PASS);
	close(fd);
	backing_free(b);
}

static void test_passthrough_keeps_the_page_cache_out(void **state)
{
	struct fake f = {0};
	struct backing *b = make();
	int fd = temp_file(), id = 0;

	(void)state;
	assert_int_equal(backing_open(b, &f, 7, fd, true, &id), BACKING_PASS);
	assert_int_equal(backing_open(b, &f, 7, -1, true, &id), BACKING_DIRECT);
	assert_int_equal(backing_open(b, &f, 8, -1, true, &id), BACKING_CACHED);
	backing_close(b, &f, 8, BACKING_CACHED);
	backing_close(b, &f, 7, BACKING_DIRECT);
	backing_close(b, &f, 7, BACKING_PASS);
	close(fd);
	backing_free(b);
}

static void test_another_backing_file_is_served_directly(void **state)
{
	struct fake f = {0};
	struct backing *b = make();
	int old = temp_file(), new = temp_file(), id = 0;

	(void)state;
	assert_int_equal(backing_open(b, &f, 7, old, true, &id), BACKING_PASS);
	assert_int_equal(backing_open(b, &f, 7, new, true, &id), BACKING_DIRECT);
	assert_int_equal(f.next_id, 1);
	backing_close(b, &f, 7, BACKING_PASS);
	assert_int_equal(backing_open(b, &f, 7, new, true, &id), BACKING_PASS);
	assert_int_equal(id, 2);
	backing_close(b, &f, 7, BACKING_PASS);
	close(old);
	close(new);
	backing_free(b);
}

static void test_what_never_changes_is_shared_and_not_mixed_with_direct(void **state)
{
	struct fake f = {0};
	struct backing *b = make_backing(true);
	int old = temp_file(), new = temp_file(), first = 0, second = 0;

	(void)state;
	/* A direct open may be mapped, which the kernel takes for a cached one. */
	assert_int_equal(backing_open(b, &f, 7, -1, false, &first), BACKING_DIRECT);
	assert_int_equal(backing_open(b, &f, 7, old, false, &first), BACKING_DIRECT);
	backing_close(b, &f, 7, BACKING_DIRECT);
	assert_int_equal(backing_open(b, &f, 7, old, false, &first), BACKING_DIRECT);
	backing_close(b, &f, 7, BACKING_DIRECT);
	backing_close(b, &f, 7, BACKING_DIRECT);
	/* Cached again from the store meanwhile, or not any more: still these bytes. */
	assert_int_equal(backing_open(b, &f, 7, old, false, &first), BACKING_PASS);
	assert_int_equal(backing_open(b, &f, 7, new, false, &second), BACKING_PASS);
	assert_int_equal(first, second);
	assert_int_equal(backing_open(b, &f, 7, -1, false, &second), BACKING_PASS);
	assert_int_equal(first, second);
	for (int i = 0; i < 3; i++)
		backing_close(b, &f, 7, BACKING_PASS);
	assert_int_equal(f.live, 0);
	close(old);
	close(new);
	backing_free(b);
}

static void test_a_refusing_kernel_leaves_the_other_modes(void **state)
{
	struct fake f = {.refuse = -EPERM};
	struct backing *b = make();
	struct backing_stats stats;
	int fd = temp_file(), id = 0;

	(void)state;
	assert_int_equal(backing_open(b, &f, 7, fd, true, &id), BACKING_CACHED);
	assert_int_equal(backing_open(b, &f, 8, fd, false, &id), BACKING_DIRECT);
	backing_stats(b, &stats);
	assert_int_equal(stats.refused, 2);
	assert_int_equal(stats.last_error, -EPERM);
	assert_int_equal(stats.opens[BACKING_CACHED], 1);
	backing_close(b, &f, 7, BACKING_CACHED);
	close(fd);
	backing_free(b);
}

TEST_MAIN(cmocka_unit_test(test_opens_of_one_file_share_one_id),
	  cmocka_unit_test(test_cached_opens_keep_passthrough_out),
	  cmocka_unit_test(test_passthrough_keeps_the_page_cache_out),
	  cmocka_unit_test(test_another_backing_file_is_served_directly),
	  cmocka_unit_test(test_what_never_changes_is_shared_and_not_mixed_with_direct),
	  cmocka_unit_test(test_a_refusing_kernel_leaves_the_other_modes))
