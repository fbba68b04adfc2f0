/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "cache/follow.h"
#include "cache/prefetch.h"

#define FILES_MAX 20000
#define FILE_BYTES 100000ull

/* A directory of files and the readers' store: what was fetched ahead, what was read. */
struct sim {
	struct follow *follow;
	uint32_t count; /* of files */
	bool ahead[FILES_MAX], read[FILES_MAX];
	uint64_t fetched_ahead, in_time, late;
};

static uint32_t number_of(const char *name)
{
	return (uint32_t)strtoul(strrchr(name, 'f') + 1, NULL, 10);
}

static void names(void *arg, const char *dir, const char *name, uint32_t count,
		  follow_add_fn add, void *to)
{
	struct sim *s = arg;
	char next[32];

	assert_string_equal(dir, "d/");
	for (uint32_t i = number_of(name) + 1; i < s->count && count--; i++) {
		snprintf(next, sizeof(next), "f%06u", i);
		if (!add(to, next))
			return;
	}
}

static void sim_begin(struct sim *s, uint32_t count)
{
	const struct follow_config config = {
		.names = names, .arg = s, .unread_max = 64 << 20};

	memset(s, 0, sizeof(*s));
	s->count = count;
	assert_int_equal(follow_new(&config, &s->follow), 0);
}

static void sim_end(struct sim *s)
{
	s->follow = follow_free(s->follow);
}

/* Everything that is wanted is fetched at once. */
static void fetch(struct sim *s)
{
	const char *key;
	size_t dir_len;

	while (follow_next(s->follow, &key, &dir_len)) {
		uint32_t i = number_of(key);
		bool there = s->ahead[i] || s->read[i];

		assert_int_equal(dir_len, 2);
		assert_true(i < s->count);
		follow_asked(s->follow, key, there ? 0 : FILE_BYTES);
		s->fetched_ahead += !there;
		s->ahead[i] = true;
	}
}

static void read_file(struct sim *s, uint32_t i)
{
	char name[32];

	snprintf(name, sizeof(name), "f%06u", i);
	if (!s->read[i])
		*(s->ahead[i] ? &s->in_time : &s->late) += 1;
	s->read[i] = true;
	follow_opened(s->follow, "d/", name);
	fetch(s);
}

static uint64_t wasted(const struct sim *s)
{
	return s->fetched_ahead - s->in_time;
}

static void test_listing_order_is_fetched_ahead(void **state)
{
	struct sim s;

	(void)state;
	sim_begin(&s, 2000);
	for (uint32_t i = 0; i < 2000; i++)
		read_file(&s, i);
	assert_true(s.late <= PREFETCH_NEED_MIN);
	assert_int_equal(wasted(&s), 0);
	assert_int_equal(follow_stats(s.follow).unread, 0);
	sim_end(&s);
}

static void test_the_window_doubles_and_is_bounded(void **state)
{
	struct prefetch p;
	uint64_t at, asked = 0, before;

	(void)state;
	prefetch_init(&p, 0);
	for (uint64_t i = 1; i < 4; i++)
		prefetch_note(&p, i);
	while ((at = prefetch_want(&p, 4, 100)) != PREFETCH_NONE) {
		prefetch_asked(&p, at);
		asked++;
	}
	before = asked;
	assert_true(asked >= 4 && asked <= 16);
	for (uint64_t i = 4; i < 12; i++)
		prefetch_note(&p, i);
	while ((at = prefetch_want(&p, 4, 100)) != PREFETCH_NONE) {
		prefetch_asked(&p, at);
		asked++;
	}
	assert_true(asked >= before * 2);
	for (uint64_t i = 12; i < 1000; i++) {
		prefetch_note(&p, i);
		while ((at = prefetch_want(&p, 4, 100)) != PREFETCH_NONE) {
			assert_true(at <= p.head + 100);
			prefetch_asked(&p, at);
		}
	}
}

/* Eight loader workers, each taking every eighth file, out of step with each other. */
static void test_readers_of_every_eighth_file_are_one_sequence(void **state)
{
	struct sim s;
	uint32_t at[8], left = 2000;
	unsigned int seed = 5;

	(void)state;
	sim_begin(&s, 2000);
	for (uint32_t w = 0; w < 8; w++)
		at[w] = w;
	while (left) {
		uint32_t w = (uint32_t)rand_r(&seed) % 8;

		if (at[w] >= 2000)
			continue;
		/* Nobody is ahead of the slowest by more than a few rounds. */
		for (uint32_t i = 0; i < 8; i++)
			if (at[i] + 24 < at[w])
				w = i;
		read_file(&s, at[w]);
		at[w] += 8;
		left--;
	}
	assert_true(s.in_time >= 1900);
	assert_true(wasted(&s) <= 20);
	sim_end(&s);
}

/* One host's part of a data set that is dealt out to many. */
static void test_a_stride_is_followed_without_its_gaps(void **state)
{
	struct sim s;

	(void)state;
	sim_begin(&s, 8000);
	for (uint32_t i = 3; i < 8000; i += 8)
		read_file(&s, i);
	assert_true(s.in_time >= 980);
	assert_true(wasted(&s) <= 10);
	sim_end(&s);
}

static void test_each_reader_of_a_shard_is_followed(void **state)
{
	struct sim s;

	(void)state;
	sim_begin(&s, 8000);
	for (uint32_t i = 0; i < 1000; i++)
		for (uint32_t w = 0; w < 8; w++)
			read_file(&s, w * 1000 + i);
	assert_true(s.late <= 8 * PREFETCH_NEED_MIN);
	assert_int_equal(wasted(&s), 0);
	sim_end(&s);
}

/* Workers that take a batch each, then the next batch that nobody has. */
static void test_workers_with_batches_are_followed(void **state)
{
	struct sim s;

	(void)state;
	sim_begin(&s, 8192);
	for (uint32_t round = 0; round < 8192; round += 256)
		for (uint32_t i = 0; i < 32; i++)
			for (uint32_t w = 0; w < 8; w++)
				read_file(&s, round + w * 32 + i);
	assert_true(s.in_time >= 8192 / 2);
	assert_true(wasted(&s) <= 100);
	sim_end(&s);
}

static void shuffle(uint32_t *order, uint32_t count, unsigned int seed)
{
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t j = (uint32_t)rand_r(&seed) % (i + 1), t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
}

/* A tenth of a directory in random order: nearly all that is fetched is read. */
static void test_random_order_is_left_alone(void **state)
{
	static uint32_t order[FILES_MAX];
	struct sim s;

	(void)state;
	for (unsigned int seed = 1; seed <= 5; seed++) {
		uint32_t count = seed % 2 ? FILES_MAX : 2000;

		shuffle(order, count, seed);
		sim_begin(&s, count);
		for (uint32_t i = 0; i < count / 10; i++)
			read_file(&s, order[i]);
		if (wasted(&s) * 50 > s.in_time + s.late)
			fail_msg("seed %u: %lu wasted", seed, (unsigned long)wasted(&s));
		sim_end(&s);
	}
}

static void test_a_reader_that_turns_to_random_order_is_let_go(void **state)
{
	static uint32_t order[FILES_MAX];
	struct sim s;
	uint64_t before;

	(void)state;
	shuffle(order, FILES_MAX, 7);
	sim_begin(&s, FILES_MAX);
	for (uint32_t i = 0; i < 200; i++)
		read_file(&s, i);
	before = s.fetched_ahead;
	for (uint32_t i = 0; i < 3000; i++)
		read_file(&s, order[i]);
	assert_true(s.fetched_ahead - before <= 60);
	/* And what was fetched for nothing does not count as waiting to be read for ever. */
	assert_true(follow_stats(s.follow).wasted > 0);
	sim_end(&s);
}

static void test_going_back_and_forth_fetches_nothing_twice(void **state)
{
	struct sim s;
	uint64_t after_first;

	(void)state;
	sim_begin(&s, 2000);
	for (uint32_t i = 0; i < 40; i++)
		read_file(&s, i);
	after_first = s.fetched_ahead;
	for (uint32_t round = 0; round < 10; round++) {
		for (uint32_t i = 40; i > 0; i--)
			read_file(&s, i - 1);
		for (uint32_t i = 0; i < 40; i++)
			read_file(&s, i);
	}
	assert_true(s.fetched_ahead <= after_first + 4);
	/* Two places by turns are two sequences. */
	for (uint32_t i = 0; i < 300; i++) {
		read_file(&s, 500 + i);
		read_file(&s, 1500 + i);
	}
	assert_true(s.in_time >= 600 - 2 * PREFETCH_NEED_MIN);
	sim_end(&s);
}

static void test_what_is_not_read_stops_the_fetching(void **state)
{
	const struct follow_config config = {
		.names = names, .unread_max = 10 * FILE_BYTES, .window_max = 500};
	struct follow_config own = config;
	struct sim s;

	(void)state;
	memset(&s, 0, sizeof(s));
	s.count = 2000;
	own.arg = &s;
	assert_int_equal(follow_new(&own, &s.follow), 0);
	for (uint32_t i = 0; i < 100; i++) {
		read_file(&s, i);
		assert_true(follow_stats(s.follow).unread <= 10 * FILE_BYTES);
	}
	assert_true(s.in_time >= 90);
	sim_end(&s);
}

TEST_MAIN(cmocka_unit_test(test_listing_order_is_fetched_ahead),
	  cmocka_unit_test(test_the_window_doubles_and_is_bounded),
	  cmocka_unit_test(test_readers_of_every_eighth_file_are_one_sequence),
	  cmocka_unit_test(test_a_stride_is_followed_without_its_gaps),
	  cmocka_unit_test(test_each_reader_of_a_shard_is_followed),
	  cmocka_unit_test(test_workers_with_batches_are_followed),
	  cmocka_unit_test(test_random_order_is_left_alone),
	  cmocka_unit_test(test_a_reader_that_turns_to_random_order_is_let_go),
	  cmocka_unit_test(test_going_back_and_forth_fetches_nothing_twice),
	  cmocka_unit_test(test_what_is_not_read_stops_the_fetching))
