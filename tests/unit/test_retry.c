/* SPDX-License-Identifier: Apache-2.0 */
/* The retry layer over a store that fails as told. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/creds.h"
#include "fs/backend/fault.h"
#include "fs/backend/mem.h"
#include "fs/backend/retry.h"
#include "fs/backend/retry_step.h"
#include "fs/base/clock.h"
#include "tests/unit/lib_origin.h"

struct fixture {
	struct origin *fault; /* below */
	struct origin *retry;
};

/* The policy with pauses that a test can wait for. */
static struct retry_policy quick(void)
{
	struct retry_policy policy;

	retry_policy_init(&policy, 10 * PATIENCE_MS);
	policy.base_ms = policy.throttle_base_ms = 1;
	policy.cap_ms = policy.throttle_cap_ms = 4;
	policy.credentials_ms = 1500;
	return policy;
}

static struct fixture *fixture_new(struct creds *creds, const struct retry_policy *policy)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct origin *mem;

	assert_non_null(f);
	assert_int_equal(mem_origin_new(&mem), 0);
	assert_int_equal(fault_origin_new(mem, &f->fault), 0);
	assert_int_equal(retry_origin_new(f->fault, creds, policy, &f->retry), 0);
	return f;
}

static int setup(void **state)
{
	struct retry_policy policy = quick();

	*state = fixture_new(NULL, &policy);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	origin_free(f->retry);
	free(f);
	return 0;
}

static uint64_t retries(const struct fixture *f)
{
	struct origin_stats stats = {0};

	f->retry->ops->stats(f->retry, &stats);
	return stats.retries;
}

/* ---- faults --------------------------------------------------------------------------- */

static void test_a_passing_fault_is_not_noticed(void **state)
{
	static const int errors[] = {-EAGAIN,       -EBADMSG,      -ECONNRESET,
				     -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		struct fault_rule rule = {
			.op = ORIGIN_OP_N, .count = 3, .error = errors[i]};

		fault_clear(f->fault);
		fault_add(f->fault, &rule);
		assert_int_equal(lib_put(f->retry, "a", "text"), 0);
		lib_assert_content(f->retry, "a", "text");
		assert_int_equal(fault_hits(f->fault, 0), 3);
	}
	assert_int_equal(retries(f), 3 * sizeof(errors) / sizeof(*errors));
}

static void test_a_permanent_failure_is_final_at_once(void **state)
{
	static const int errors[] = {-ENOENT, -EACCES, -EINVAL, -ENOSPC,
				     -EIO,    -EROFS,  -ESTALE, -EKEYEXPIRED};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		struct fault_rule rule = {.op = ORIGIN_STAT, .error = errors[i]};

		fault_clear(f->fault);
		fault_add(f->fault, &rule);
		assert_int_equal(lib_stat(f->retry, "a", NULL), errors[i]);
		assert_int_equal(fault_hits(f->fault, 0), 1);
	}
	assert_int_equal(retries(f), 0);
}

static void test_a_fault_that_stays_ends_with_its_own_error(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {.op = ORIGIN_STAT, .error = -ECONNRESET};

	fault_add(f->fault, &rule);
	assert_int_equal(lib_stat(f->retry, "a", NULL), -ECONNRESET);
	assert_int_equal(fault_hits(f->fault, 0), 10);
	assert_non_null(strstr(lib_last.why.text, "after 10 tries"));
}

static void test_a_deadline_ends_the_tries(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {
		.op = ORIGIN_STAT, .error = -EAGAIN, .retry_after_ms = 20};
	struct origin_req req = {.op = ORIGIN_STAT, .key = "a"};
	uint64_t start = clock_mono_ms();

	fault_add(f->fault, &rule);
	req.deadline_ms = start + 300;
	assert_int_equal(origin_call(f->retry, &req), -EAGAIN);
	assert_in_range(clock_mono_ms() - start, 200, PATIENCE_MS);
}

static void test_throttling_has_a_budget_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {
		.op = ORIGIN_STAT, .count = 30, .error = -EAGAIN, .retry_after_ms = 10};
	uint64_t start = clock_mono_ms();

	/* Three times as many as a fault may have, each after the pause it asked for. */
	fault_add(f->fault, &rule);
	assert_int_equal(lib_stat(f->retry, "a", NULL), -ENOENT);
	assert_int_equal(fault_hits(f->fault, 0), 30);
	assert_true(clock_mono_ms() - start >= 300);
}

static void test_a_probe_answers_soon(void **state)
{
	struct retry_policy policy = quick();
	struct fault_rule rule = {.op = ORIGIN_PROBE, .error = -ECONNREFUSED};
	struct origin_req req = {.op = ORIGIN_PROBE};
	uint64_t start = clock_mono_ms();
	struct fixture *f;

	(void)state;
	policy.budget_ms = UINT64_MAX;
	policy.try_max = 0;
	policy.probe_budget_ms = 100;
	f = fixture_new(NULL, &policy);
	fault_add(f->fault, &rule);
	assert_int_equal(origin_call(f->retry, &req), -ECONNREFUSED);
	assert_true(clock_mono_ms() - start < PATIENCE_MS);
	teardown((void **)&f);
}

/* ---- going on ------------------------------------------------------------------------- */

static void put_pattern(struct origin *o, const char *key, size_t n)
{
	char *data = malloc(n);
	struct origin_req req = {
		.op = ORIGIN_PUT, .key = key, .body = {.data = data, .len = n}};

	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 7 + i / 251);
	assert_int_equal(origin_call(o, &req), 0);
	free(data);
}

static void assert_pattern(const struct buf *b, size_t off, size_t n)
{
	assert_int_equal(b->len, n);
	for (size_t i = 0; i < n; i++)
		if (b->data[i] != (char)((i + off) * 7 + (i + off) / 251))
			fail_msg("wrong byte at %zu", i);
}

static void test_a_broken_get_goes_on_where_it_stopped(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT;

	put_pattern(f->retry, "big", 500000);
	/* 20 breaks are twice what a request may have without progress. */
	for (unsigned int i = 0; i < 20; i++) {
		struct fault_rule rule = {.op = ORIGIN_GET,
					  .count = 1,
					  .error = -ECONNRESET,
					  .cut = true,
					  .cut_after = 1 + i * 1111};

		fault_add(f->fault, &rule);
	}
	assert_int_equal(lib_get(f->retry, "big", 100, 499000, NULL, &b), 0);
	assert_pattern(&b, 100, 499000);
	assert_int_equal(retries(f), 20);
	buf_fini(&b);
}

static int replace_once(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fixture *f = arg;

	(void)data, (void)n;
	if (off == 0)
		put_pattern(f->fault, "big", 500001);
	return 0;
}

static void test_a_get_that_goes_on_never_mixes_versions(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {.op = ORIGIN_GET,
				  .count = 1,
				  .error = -ECONNRESET,
				  .cut = true,
				  .cut_after = 70000};
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = "big",
				 .len = ORIGIN_TO_END,
				 .sink = replace_once,
				 .sink_arg = f};

	put_pattern(f->retry, "big", 500000);
	fault_add(f->fault, &rule);
	assert_int_equal(origin_call(f->retry, &req), -ESTALE);
	assert_null(req.if_match);
	assert_int_equal(req.len, ORIGIN_TO_END);
	assert_int_equal(req.off, 0);
}

static int refuse_transiently(void *arg, uint64_t off, const void *data, size_t n)
{
	(void)off, (void)data, (void)n;
	++*(int *)arg;
	return -EAGAIN;
}

static void test_what_the_sink_says_is_final(void **state)
{
	struct fixture *f = *state;
	int calls = 0;
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = "a",
				 .len = ORIGIN_TO_END,
				 .sink = refuse_transiently,
				 .sink_arg = &calls};

	assert_int_equal(lib_put(f->retry, "a", "text"), 0);
	assert_int_equal(origin_call(f->retry, &req), -EAGAIN);
	assert_int_equal(calls, 1);
}

static void test_a_broken_listing_tells_nothing_twice(void **state)
{
	struct fixture *f = *state;
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};
	struct buf b = BUF_INIT;

	for (char name[2] = "a"; name[0] <= 'g'; name[0]++)
		assert_int_equal(lib_put(f->fault, name, "x"), 0);
	for (int i = 0; i < 3; i++) {
		struct fault_rule rule = {.op = ORIGIN_LIST,
					  .count = 1,
					  .error = -ECONNRESET,
					  .cut = true,
					  .cut_after = 1};

		fault_add(f->fault, &rule);
	}
	req.list.entry = lib_note_entry;
	req.list.entry_arg = &b;
	req.list.count_max = 5;
	assert_int_equal(origin_call(f->retry, &req), 0);
	assert_string_equal(b.data, "a b c d e");
	assert_true(req.list.truncated);
	assert_string_equal(req.list.next, "e");
	assert_int_equal(req.list.count_max, 5);
	buf_reset(&b);
	lib_assert_listed(f->retry, "", true, "a b c d e f g");
	buf_fini(&b);
}

/* ---- effects that were not heard of --------------------------------------------------- */

static void add_lost_answer(struct fixture *f, enum origin_op op)
{
	struct fault_rule rule = {
		.op = op, .count = 1, .error = -ECONNRESET, .after = true};

	fault_add(f->fault, &rule);
}

static void test_an_own_put_is_recognized(void **state)
{
	struct fixture *f = *state;

	add_lost_answer(f, ORIGIN_PUT);
	assert_int_equal(lib_put_new(f->retry, "new", "mine"), 0);
	assert_true(lib_last.attr.etag[0]);
	assert_int_equal(lib_last.attr.size, 4);
	lib_assert_content(f->retry, "new", "mine");
}

static void test_anothers_put_is_not_taken_for_ours(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {.op = ORIGIN_PUT, .count = 1, .error = -ETIMEDOUT};

	assert_int_equal(lib_put(f->fault, "new", "them"), 0);
	fault_add(f->fault, &rule);
	assert_int_equal(lib_put_new(f->retry, "new", "mine"), -EEXIST);
	lib_assert_content(f->retry, "new", "them");
	/* And without any doubt nothing is looked up. */
	fault_clear(f->fault);
	rule = (struct fault_rule){.op = ORIGIN_STAT, .error = -EIO};
	fault_add(f->fault, &rule);
	assert_int_equal(lib_put_new(f->retry, "new", "them"), -EEXIST);
	assert_int_equal(fault_hits(f->fault, 0), 0);
}

static void test_a_look_that_fails_is_repeated(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {.op = ORIGIN_STAT, .count = 3, .error = -ETIMEDOUT};

	add_lost_answer(f, ORIGIN_PUT);
	fault_add(f->fault, &rule);
	assert_int_equal(lib_put_new(f->retry, "new", "mine"), 0);
	assert_int_equal(fault_hits(f->fault, 1), 3);
}

static void test_an_upload_that_has_ended_is_recognized(void **state)
{
	struct fixture *f = *state;
	struct origin_part parts[2];
	char id[ORIGIN_UPLOAD_ID_MAX];

	assert_int_equal(lib_multi_begin(f->retry, "mp", id), 0);
	assert_int_equal(lib_multi_part(f->retry, "mp", id, 1, 0, "123", 3, &parts[0]),
			 0);
	assert_int_equal(lib_multi_part(f->retry, "mp", id, 2, 3, "45", 2, &parts[1]), 0);
	add_lost_answer(f, ORIGIN_MULTI_END);
	assert_int_equal(lib_multi_end(f->retry, "mp", id, parts, 2), 0);
	assert_int_equal(lib_last.attr.size, 5);
	lib_assert_content(f->retry, "mp", "12345");
	/* An upload that never was is none of ours. */
	assert_int_equal(lib_multi_end(f->retry, "mp", "other", parts, 2), -ENOENT);
}

static void test_nothing_is_appended_twice(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule;

	assert_int_equal(lib_append(f->retry, "log", 0, "one "), 0);
	add_lost_answer(f, ORIGIN_APPEND);
	assert_int_equal(lib_append(f->retry, "log", 4, "two"), 0);
	assert_int_equal(lib_last.off, 7);
	lib_assert_content(f->retry, "log", "one two");
	/* Another tail of the same length is none of ours, even after a doubt. */
	fault_clear(f->fault);
	rule = (struct fault_rule){.op = ORIGIN_APPEND, .count = 1, .error = -ETIMEDOUT};
	fault_add(f->fault, &rule);
	assert_int_equal(lib_append(f->retry, "log", 4, "six"), -ESTALE);
	assert_int_equal(lib_last.off, 7);
	lib_assert_content(f->retry, "log", "one two");
}

/* ---- cancel --------------------------------------------------------------------------- */

struct waiter {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
};

static void wake(struct origin_req *req)
{
	struct waiter *w = req->user;

	pthread_mutex_lock(&w->mutex);
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
}

static void assert_cancelled_within(struct fixture *f, uint64_t pause_ms)
{
	struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
	struct origin_req req = {.op = ORIGIN_STAT, .key = "a", .done = wake, .user = &w};
	uint64_t start = clock_mono_ms();

	origin_submit(f->retry, &req);
	clock_sleep_ms(pause_ms);
	origin_cancel(f->retry, &req);
	pthread_mutex_lock(&w.mutex);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.mutex);
	pthread_mutex_unlock(&w.mutex);
	assert_int_equal(req.result, -ECANCELED);
	assert_true(clock_mono_ms() - start < PATIENCE_MS);
	assert_null(req.layer[ORIGIN_LAYER_RETRY]);
	assert_ptr_equal(req.done, wake);
}

static void test_a_request_that_waits_can_be_cancelled(void **state)
{
	struct fixture *f = *state;
	struct fault_rule rule = {
		.op = ORIGIN_STAT, .error = -EAGAIN, .retry_after_ms = 10 * PATIENCE_MS};
	struct retry_policy policy = quick();
	struct fixture *patient;

	(void)f;
	policy.budget_ms = UINT64_MAX;
	policy.throttle_base_ms = policy.throttle_cap_ms = 1;
	patient = fixture_new(NULL, &policy);
	fault_add(patient->fault, &rule);
	assert_cancelled_within(patient, 50);
	assert_cancelled_within(patient, 0);
	fault_clear(patient->fault);
	rule = (struct fault_rule){.op = ORIGIN_STAT, .delay_ms = 10 * PATIENCE_MS};
	fault_add(patient->fault, &rule);
	assert_cancelled_within(patient, 50);
	teardown((void **)&patient);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

TEST_MAIN(CASE(test_a_passing_fault_is_not_noticed),
	  CASE(test_a_permanent_failure_is_final_at_once),
	  CASE(test_a_fault_that_stays_ends_with_its_own_error),
	  CASE(test_a_deadline_ends_the_tries),
	  CASE(test_throttling_has_a_budget_of_its_own),
	  cmocka_unit_test(test_a_probe_answers_soon),
	  CASE(test_a_broken_get_goes_on_where_it_stopped),
	  CASE(test_a_get_that_goes_on_never_mixes_versions),
	  CASE(test_what_the_sink_says_is_final),
	  CASE(test_a_broken_listing_tells_nothing_twice),
	  CASE(test_an_own_put_is_recognized),
	  CASE(test_anothers_put_is_not_taken_for_ours),
	  CASE(test_a_look_that_fails_is_repeated),
	  CASE(test_an_upload_that_has_ended_is_recognized),
	  CASE(test_nothing_is_appended_twice),
	  CASE(test_a_request_that_waits_can_be_cancelled))
