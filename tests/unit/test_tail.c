/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "cache/record.h"
#include "cache/tail.h"
#include "fs/base/buf.h"

#define SIZE (256u << 10)

struct seen {
	uint64_t inodes[64];
	size_t count;
};

static int see(void *arg, const struct record *r)
{
	struct seen *s = arg;

	assert_true(s->count < 64);
	s->inodes[s->count++] = r->ino;
	return 0;
}

static struct tail *make(void)
{
	void *memory = calloc(1, SIZE);

	assert_non_null(memory);
	return tail_attach(memory, SIZE);
}

static void append(struct tail *t, uint64_t seq, uint64_t ino, size_t name_len)
{
	char name[256] = {0};
	struct buf b = BUF_INIT;
	struct record r = {.type = RECORD_NODE, .ino = ino, .name = name};

	memset(name, 'x', name_len);
	record_encode(&b, &r);
	assert_int_equal(buf_error(&b), 0);
	tail_append(t, &b, seq);
	buf_fini(&b);
}

static void expect(struct tail *t, size_t count, uint64_t first)
{
	struct seen s = {.count = 0};

	assert_int_equal(tail_replay(t, see, &s), 0);
	assert_int_equal(s.count, count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(s.inodes[i], first + i);
}

static void test_replays_what_is_not_durable_in_order(void **state)
{
	struct tail *t = make();

	(void)state;
	for (uint64_t i = 1; i <= 10; i++)
		append(t, i, i, 5);
	expect(t, 10, 1);
	tail_trim(t, 4);
	expect(t, 6, 5);
	tail_clear(t);
	expect(t, 0, 0);
	free(t);
}

static void test_another_process_finds_it(void **state)
{
	struct tail *t = make();

	(void)state;
	append(t, 1, 7, 9);
	expect(tail_attach(t, SIZE), 1, 7);
	free(t);
}

static void test_goes_round_its_memory(void **state)
{
	struct tail *t = make();

	(void)state;
	for (uint64_t i = 1; i <= 20000; i++) {
		append(t, i, i, i % 250);
		if (i > 20)
			tail_trim(t, i - 20);
	}
	expect(t, 20, 19981);
	assert_int_equal(tail_lost(t), 0);
	free(t);
}

static void test_counts_what_has_no_room(void **state)
{
	struct tail *t = make();
	uint64_t i = 0;

	(void)state;
	while (tail_lost(t) == 0 && i < 100000) {
		i++;
		append(t, i, i, 200);
	}
	assert_int_equal(tail_lost(t), 1);
	tail_trim(t, i - 10);
	expect(t, 9, i - 9);
	free(t);
}

static void test_knows_which_requests_were_executed(void **state)
{
	struct tail *t = make();

	(void)state;
	tail_set_request(42);
	append(t, 1, 1, 3); /* on the way to what it is for */
	assert_false(tail_executed(t, 42));
	tail_set_final(true);
	append(t, 2, 2, 3);
	tail_set_final(false);
	tail_set_request(0);
	append(t, 3, 3, 3);
	tail_clear(t);
	assert_true(tail_executed(t, 42));
	assert_false(tail_executed(t, 43));
	assert_false(tail_executed(t, 0));
	free(t);
}

TEST_MAIN(cmocka_unit_test(test_replays_what_is_not_durable_in_order),
	  cmocka_unit_test(test_another_process_finds_it),
	  cmocka_unit_test(test_goes_round_its_memory),
	  cmocka_unit_test(test_counts_what_has_no_room),
	  cmocka_unit_test(test_knows_which_requests_were_executed))
