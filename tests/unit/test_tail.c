/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <sys/mman.h>

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
	void *memory = aligned_alloc(4096, SIZE);

	assert_non_null(memory);
	memset(memory, 0, SIZE);
	return tail_attach(memory, SIZE);
}

static int try_append(struct tail *t, uint64_t seq, uint64_t ino, size_t name_len)
{
	char name[256] = {0};
	struct buf b = BUF_INIT;
	struct record r = {.type = RECORD_NODE, .ino = ino, .name = name};
	int result;

	memset(name, 'x', name_len);
	record_encode(&b, &r);
	assert_int_equal(buf_error(&b), 0);
	result = tail_append(t, &b, seq);
	buf_fini(&b);
	return result;
}

static void append(struct tail *t, uint64_t seq, uint64_t ino, size_t name_len)
{
	assert_int_equal(try_append(t, seq, ino, name_len), 0);
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
	free(t);
}

static void test_refuses_what_has_no_room(void **state)
{
	struct tail *t = make();
	uint64_t i = 1, end;

	(void)state;
	for (end = 0; try_append(t, i, i, 200) == 0; i++) {
		assert_true(tail_end(t) > end);
		end = tail_end(t);
	}
	assert_int_equal(tail_end(t), end); /* that one does not count */
	tail_trim(t, i - 10);
	expect(t, 9, i - 9);
	append(t, i, i, 200);
	expect(t, 10, i - 9);
	free(t);
}

/* Pages that hold what is durable are given back, and the others not. */
static void test_takes_memory_for_what_is_in_use(void **state)
{
	size_t size = 32u << 20, in_use = 0;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *there = malloc(size / 4096);
	struct tail *t;

	(void)state;
	assert_ptr_not_equal(memory, MAP_FAILED);
	t = tail_attach(memory, size);
	for (uint64_t i = 1; i <= 200000; i++) { /* more than once around */
		append(t, i, i, 200);
		if (i > 20)
			tail_trim(t, i - 20);
	}
	expect(t, 20, 199981);
	assert_int_equal(mincore(memory, size, there), 0);
	for (size_t i = 0; i < size / 4096; i++)
		in_use += there[i] & 1;
	assert_in_range(in_use, 1, 3 * (4u << 20) / 4096);
	free(there);
	munmap(memory, size);
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
	  cmocka_unit_test(test_refuses_what_has_no_room),
	  cmocka_unit_test(test_takes_memory_for_what_is_in_use),
	  cmocka_unit_test(test_knows_which_requests_were_executed))
