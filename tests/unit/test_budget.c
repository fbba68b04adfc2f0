/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "cache/budget.h"
#include "cache/wait.h"
#include "fs/base/clock.h"

#define MIB (1u << 20)

static void test_never_more_than_the_limit_is_mapped(void **state)
{
	struct budget *b;
	void *held[8], *small;

	(void)state;
	assert_int_equal(budget_new(&b, 8 * MIB), 0);
	for (int i = 0; i < 8; i++) {
		held[i] = budget_try(b, MIB, 0);
		assert_non_null(held[i]);
		memset(held[i], i, MIB);
	}
	assert_null(budget_try(b, 4096, 0));
	budget_give(b, held[7], MIB);
	/* The free MiB must make room for small ones, not add to them. */
	small = budget_try(b, 4096, 0);
	assert_non_null(small);
	assert_null(budget_try(b, MIB, 0));
	assert_true(budget_peak(b) <= 8 * MIB);
	budget_give(b, small, 4096);
	for (int i = 0; i < 7; i++)
		budget_give(b, held[i], MIB);
	assert_int_equal(budget_in_use(b), 0);
	budget_free(b);
}

static void test_a_prefetch_leaves_room_for_readers(void **state)
{
	struct budget *b;
	void *p;

	(void)state;
	assert_int_equal(budget_new(&b, 8 * MIB), 0);
	assert_null(budget_try(b, MIB, 8 * MIB));
	p = budget_try(b, MIB, 7 * MIB);
	assert_non_null(p);
	assert_null(budget_try(b, MIB, 7 * MIB));
	budget_give(b, p, MIB);
	budget_free(b);
}

static void test_a_full_budget_ends_by_the_deadline(void **state)
{
	struct wait w = {.deadline_ms = clock_mono_ms() + 80};
	struct budget *b;
	void *held[8], *p = NULL;

	(void)state;
	assert_int_equal(budget_new(&b, 8 * MIB), 0);
	for (int i = 0; i < 8; i++)
		held[i] = budget_try(b, MIB, 0);
	assert_int_equal(budget_take(b, MIB, &w, &p), -ETIMEDOUT);
	assert_null(p);
	/* He who gave up does not stand in the way of the next. */
	budget_give(b, held[0], MIB);
	w.deadline_ms = patience();
	assert_int_equal(budget_take(b, MIB, &w, &held[0]), 0);
	for (int i = 0; i < 8; i++)
		budget_give(b, held[i], MIB);
	budget_free(b);
}

struct hoard {
	struct budget *b;
	void *p[8];
};

static void let_go(void *arg, uint64_t want)
{
	struct hoard *h = arg;

	for (int i = 0; i < 8 && want; i++)
		if (h->p[i]) {
			budget_give(h->b, h->p[i], MIB);
			h->p[i] = NULL;
			want = 0;
		}
}

static void test_what_can_be_let_go_is_asked_for_before_waiting(void **state)
{
	struct wait w = {.deadline_ms = patience()};
	struct hoard h = {0};
	void *p[3];

	(void)state;
	assert_int_equal(budget_new(&h.b, 8 * MIB), 0);
	for (int i = 0; i < 8; i++)
		h.p[i] = budget_try(h.b, MIB, 0);
	budget_set_reclaim(h.b, let_go, &h);
	for (int i = 0; i < 3; i++)
		assert_int_equal(budget_take(h.b, MIB, &w, &p[i]), 0);
	for (int i = 0; i < 3; i++)
		budget_give(h.b, p[i], MIB);
	for (int i = 0; i < 8; i++)
		budget_give(h.b, h.p[i], MIB);
	budget_free(h.b);
}

struct mill {
	struct budget *b;
	unsigned int seed;
};

static void *turn(void *arg)
{
	struct mill *m = arg;
	struct wait w = {.deadline_ms = patience()};

	for (int i = 0; i < 300; i++) {
		size_t n = 4096u << rand_r(&m->seed) % 9;
		unsigned char *p = NULL;

		if (budget_take(m->b, n, &w, (void **)&p) != 0)
			return arg;
		p[0] = p[n - 1] = 1;
		budget_give(m->b, p, n);
	}
	return NULL;
}

static void test_many_threads_and_sizes_all_get_their_turn(void **state)
{
	struct mill m[12];
	pthread_t t[12];
	struct budget *b;

	(void)state;
	assert_int_equal(budget_new(&b, 8 * MIB), 0);
	for (unsigned int i = 0; i < 12; i++) {
		m[i] = (struct mill){b, i};
		assert_int_equal(pthread_create(&t[i], NULL, turn, &m[i]), 0);
	}
	for (int i = 0; i < 12; i++) {
		void *r;

		pthread_join(t[i], &r);
		assert_null(r);
	}
	assert_true(budget_peak(b) <= 8 * MIB);
	budget_free(b);
}

TEST_MAIN(cmocka_unit_test(test_never_more_than_the_limit_is_mapped),
	  cmocka_unit_test(test_a_prefetch_leaves_room_for_readers),
	  cmocka_unit_test(test_a_full_budget_ends_by_the_deadline),
	  cmocka_unit_test(test_what_can_be_let_go_is_asked_for_before_waiting),
	  cmocka_unit_test(test_many_threads_and_sizes_all_get_their_turn))
