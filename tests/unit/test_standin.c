/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "fs/standin.h"

static void count_close(void *file)
{
	++*(int *)file;
}

static struct standins *make(unsigned int idle_max)
{
	struct standins *t;

	assert_int_equal(standins_new(idle_max, &t), 0);
	return t;
}

static void test_the_least_recently_used_idle_one_is_closed(void **state)
{
	struct standins *t = make(2);
	int closed[4] = {0};
	struct standin *s;

	(void)state;
	for (int i = 0; i < 3; i++) {
		s = standin_add(t, (uint64_t)i + 1, &closed[i], count_close);
		assert_ptr_equal(standin_file(s), &closed[i]);
		standin_put(t, s);
		if (i == 1)
			standin_put(t, standin_get(t, 1));
	}
	assert_int_equal(closed[1], 1);
	assert_int_equal(closed[0] + closed[2], 0);
	assert_null(standin_get(t, 2));
	s = standin_get(t, 1);
	assert_ptr_equal(standin_file(s), &closed[0]);
	standin_put(t, s);
	standins_free(t);
	assert_int_equal(closed[0] + closed[2], 2);
}

static void test_what_is_used_stays_open_until_it_is_put(void **state)
{
	struct standins *t = make(1);
	int closed[4] = {0};
	struct standin *used[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		used[i] = standin_add(t, (uint64_t)i + 1, &closed[i], count_close);
	assert_int_equal(standins_count(t), 4);
	/* Forgotten while it is used: nobody finds it, its user still has it. */
	standin_forget(t, 1);
	assert_null(standin_get(t, 1));
	assert_int_equal(closed[0], 0);
	for (int i = 0; i < 4; i++)
		standin_put(t, used[i]);
	assert_int_equal(closed[0] + closed[1] + closed[2] + closed[3], 3);
	assert_int_equal(closed[3], 0);
	standin_forget(t, 4);
	assert_int_equal(closed[3], 1);
	standins_free(t);
}

static void test_two_who_open_at_once_share_the_first(void **state)
{
	struct standins *t = make(1);
	int first = 0, second = 0;
	struct standin *a, *b;

	(void)state;
	a = standin_add(t, 7, &first, count_close);
	b = standin_add(t, 7, &second, count_close);
	assert_ptr_equal(a, b);
	assert_ptr_equal(standin_file(b), &first);
	assert_int_equal(second, 1);
	standin_put(t, a);
	standin_put(t, b);
	standins_free(t);
	assert_int_equal(first, 1);
}

TEST_MAIN(cmocka_unit_test(test_the_least_recently_used_idle_one_is_closed),
	  cmocka_unit_test(test_what_is_used_stays_open_until_it_is_put),
	  cmocka_unit_test(test_two_who_open_at_once_share_the_first))
