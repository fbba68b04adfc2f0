/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "fs/base/err.h"
#include "tools/ossd_fault.h"

static struct ossd_fault_program *program_of(const char *json)
{
	struct ossd_fault_program *program = ossd_fault_program_new();
	struct why why = {""};

	assert_int_equal(ossd_fault_program_set(program, json, strlen(json), &why), 0);
	return program;
}

/* How many of `n` requests the program acts on. */
static int hits(struct ossd_fault_program *program, const char *op, const char *key,
		int n)
{
	int count = 0;

	for (int i = 0; i < n; i++) {
		struct ossd_faults faults;

		ossd_fault_match(program, op, key, &faults);
		count += faults.set != 0;
		ossd_faults_fini(&faults);
	}
	return count;
}

static void test_a_rule_skips_and_counts(void **state)
{
	struct ossd_fault_program *p = program_of(
		"[{\"op\":\"GetObject\",\"skip\":2,\"count\":3,\"fault\":\"status\"}]");

	(void)state;
	assert_int_equal(hits(p, "PutObject", "k", 5), 0);
	assert_int_equal(hits(p, "GetObject", "k", 2), 0);
	assert_int_equal(hits(p, "GetObject", "k", 10), 3);
	ossd_fault_program_free(p);
}

static void test_patterns_choose_operation_and_key(void **state)
{
	struct ossd_fault_program *p = program_of(
		"[{\"op\":\"*Object\",\"key\":\"logs/*.txt\",\"fault\":\"drop\"}]");

	(void)state;
	assert_int_equal(hits(p, "PutObject", "logs/a/b.txt", 1), 1);
	assert_int_equal(hits(p, "PutObject", "logs/a.bin", 1), 0);
	assert_int_equal(hits(p, "ListObjectsV2", "logs/a.txt", 1), 0);
	ossd_fault_program_free(p);
}

static void test_probability_0_never_and_1_always(void **state)
{
	struct ossd_fault_program *p =
		program_of("[{\"op\":\"A\",\"probability\":0,\"fault\":\"drop\"},"
			   "{\"op\":\"B\",\"probability\":1.0,\"fault\":\"drop\"},"
			   "{\"op\":\"C\",\"probability\":0.5,\"fault\":\"drop\"}]");
	int some;

	(void)state;
	assert_int_equal(hits(p, "A", "", 100), 0);
	assert_int_equal(hits(p, "B", "", 100), 100);
	some = hits(p, "C", "", 1000);
	assert_in_range(some, 300, 700);
	ossd_fault_program_free(p);
}

static void test_rules_that_match_are_put_together(void **state)
{
	struct ossd_fault_program *p = program_of(
		"[{\"fault\":\"latency\",\"ms\":30},{\"fault\":\"latency\",\"ms\":12},"
		"{\"fault\":\"bandwidth\",\"rate\":2000},{\"fault\":\"bandwidth\","
		"\"rate\":1000},"
		"{\"fault\":\"status\",\"status\":429,\"code\":\"Slow\",\"retry_after\":"
		"7},"
		"{\"fault\":\"header\",\"name\":\"x-a\",\"value\":\"1\"},"
		"{\"fault\":\"reset\",\"after\":5000000000}]");
	struct ossd_faults f;

	(void)state;
	ossd_fault_match(p, "GetObject", "k", &f);
	assert_int_equal(f.latency_ms, 42);
	assert_int_equal(f.rate, 1000);
	assert_int_equal(f.status, 429);
	assert_string_equal(f.code, "Slow");
	assert_int_equal(f.retry_after_s, 7);
	assert_int_equal(f.header_count, 1);
	assert_string_equal(f.header_names[0], "x-a");
	assert_int_equal(f.reset_after, 5000000000);
	assert_true(ossd_faults_has(&f, OSSD_FAULT_RESET));
	assert_false(ossd_faults_has(&f, OSSD_FAULT_FLIP));
	ossd_faults_fini(&f);
	ossd_fault_program_free(p);
}

static void test_a_bad_program_is_refused_and_the_old_one_stays(void **state)
{
	static const struct {
		const char *json, *says;
	} bad[] = {
		{"{", "expected"},
		{"{}", "not a JSON array"},
		{"[1]", "rule 0: not an object"},
		{"[{\"fault\":\"drop\"},{\"fault\":\"statsu\"}]",
		 "rule 1: unknown fault \"statsu\", did you mean \"status\"?"},
		{"[{\"fault\":\"drop\",\"cuont\":1}]", "did you mean \"count\"?"},
		{"[{\"fault\":\"reset\",\"after\":-1}]",
		 "\"after\" must be a number >= 0"},
		{"[{\"fault\":\"reset\",\"after\":\"1\"}]",
		 "\"after\" must be a number >= 0"},
	};
	struct ossd_fault_program *p = program_of("[{\"fault\":\"drop\"}]");

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct why why = {""};

		assert_true(ossd_fault_program_set(p, bad[i].json, strlen(bad[i].json),
						   &why) < 0);
		if (!strstr(why.text, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", why.text, bad[i].says);
	}
	assert_int_equal(hits(p, "X", "", 1), 1);
	ossd_fault_program_free(p);
}

static void test_the_program_is_shown_with_its_hits(void **state)
{
	struct ossd_fault_program *p = program_of("[{\"fault\":\"drop\",\"count\":1}]");
	struct buf b = BUF_INIT;

	(void)state;
	hits(p, "X", "", 3);
	ossd_fault_program_format(p, &b);
	assert_non_null(strstr(b.data, "\"fault\":\"drop\""));
	assert_non_null(strstr(b.data, "\"seen\":3"));
	assert_non_null(strstr(b.data, "\"hits\":1"));
	buf_fini(&b);
	ossd_fault_program_free(p);
}

TEST_MAIN(cmocka_unit_test(test_a_rule_skips_and_counts),
	  cmocka_unit_test(test_patterns_choose_operation_and_key),
	  cmocka_unit_test(test_probability_0_never_and_1_always),
	  cmocka_unit_test(test_rules_that_match_are_put_together),
	  cmocka_unit_test(test_a_bad_program_is_refused_and_the_old_one_stays),
	  cmocka_unit_test(test_the_program_is_shown_with_its_hits))
