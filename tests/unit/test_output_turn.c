/* SPDX-License-Identifier: Apache-2.0 */
/* When files come to their turn: the oldest first, and so many at a time as was said. */
#include "tests/unit/lib_output.h"
#include "tests/unit/lib_scripted.h"

#define FILES 20

static void set_up_scripted(struct rig *t, struct scripted **store, uint32_t parallel)
{
	set_up(t);
	t->o = output_free(t->o);
	/* The state says whose it is. */
	io_remove_tree(AT_FDCWD, t->dir);
	assert_int_equal(mkdir(t->dir, 0700), 0);
	origin_free(t->origin);
	*store = scripted_new("turns");
	t->origin = t->config.origin = &(*store)->origin;
	t->config.upload_parallel = parallel;
	start(t);
}

/* All are open before the store stops to answer: names are looked up there. */
static void close_all_unanswered(struct rig *t, struct scripted *store)
{
	struct output_file *files[FILES];
	char name[16];

	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		files[i] = open_for(t, name, O_CREAT | O_WRONLY);
	}
	drain(t);
	eventually(atomic_load(&store->in_flight) == 0);
	scripted_reset(store);
	atomic_store(&store->hang, true);
	for (int i = 0; i < FILES; i++) {
		assert_int_equal(output_write(files[i], 0, "text", 4, 0), 0);
		close_file(files[i]);
	}
}

/* The keys of the PUTs are f0, f1 … */
static void assert_in_order(struct scripted *store)
{
	char name[16];
	int i = 0;

	pthread_mutex_lock(&store->lock);
	for (uint32_t at = 0; at < store->log_count; at++) {
		if (store->log[at].op != ORIGIN_PUT)
			continue;
		snprintf(name, sizeof(name), "f%d", i++);
		assert_string_equal(store->log[at].key, name);
	}
	pthread_mutex_unlock(&store->lock);
	assert_int_equal(i, FILES);
}

static void test_the_oldest_goes_first(void **state)
{
	struct scripted *store;
	struct rig t;

	(void)state;
	set_up_scripted(&t, &store, 1);
	close_all_unanswered(&t, store);
	atomic_store(&store->hang, false);
	drain(&t);
	assert_in_order(store);
	tear_down(&t);
}

/* A store that answers with errors: each waits before it is tried again, and none is left. */
static void test_a_store_that_fails_keeps_none_back(void **state)
{
	struct scripted *store;
	char name[16];
	struct rig t;

	(void)state;
	set_up_scripted(&t, &store, 1);
	atomic_store(&store->fail, -ECONNREFUSED);
	close_all_unanswered(&t, store);
	atomic_store(&store->fail_count, -1);
	atomic_store(&store->hang, false);
	eventually(atomic_load(&store->count[ORIGIN_PUT]) >= FILES);
	atomic_store(&store->fail_count, 0);
	drain(&t);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		lib_assert_content(t.origin, name, "text");
	}
	tear_down(&t);
}

static void test_no_more_are_sent_at_a_time_than_was_said(void **state)
{
	const uint32_t most[] = {1, 3};

	(void)state;
	for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++) {
		struct scripted *store;
		struct rig t;

		set_up_scripted(&t, &store, most[i]);
		atomic_store(&store->latency_ms, 5);
		close_all_unanswered(&t, store);
		atomic_store(&store->hang, false);
		drain(&t);
		assert_int_equal(atomic_load(&store->count[ORIGIN_PUT]), FILES);
		assert_int_equal(atomic_load(&store->in_flight_max), most[i]);
		tear_down(&t);
	}
}

TEST_MAIN(cmocka_unit_test(test_the_oldest_goes_first),
	  cmocka_unit_test(test_a_store_that_fails_keeps_none_back),
	  cmocka_unit_test(test_no_more_are_sent_at_a_time_than_was_said))
