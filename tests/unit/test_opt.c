/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "fs/base/err.h"
#include "fs/base/opt.h"

struct options {
	bool quiet;
	const char *name;
	struct opt_strings sets;
	uint64_t size, wait_ms, count;
	int role;
};

static const char *const roles[] = {"input", "output", NULL};
#define FIELD(f) offsetof(struct options, f)
static const struct opt_spec specs[] = {
	{.name = "quiet", .letter = 'q', .type = OPT_FLAG, .field = FIELD(quiet)},
	{.name = "name", .letter = 'n', .type = OPT_STRING, .field = FIELD(name)},
	{.name = "set", .type = OPT_STRINGS, .field = FIELD(sets)},
	{.name = "size",
	 .type = OPT_SIZE,
	 .field = FIELD(size),
	 .init = "1M",
	 .min = 4096},
	{.name = "wait", .type = OPT_DURATION, .field = FIELD(wait_ms), .init = "30s"},
	{.name = "count",
	 .type = OPT_UINT,
	 .field = FIELD(count),
	 .min = 1,
	 .max = 9,
	 .init = "3"},
	{.name = "role", .type = OPT_CHOICE, .field = FIELD(role), .choices = roles},
	{0},
};

static int parse(struct options *o, struct why *why, char **argv)
{
	int argc = 0;

	memset(o, 0, sizeof(*o));
	while (argv[argc])
		argc++;
	return opt_parse(specs, o, &argc, argv, why) < 0 ? -1 : argc;
}
/* opt_parse() moves the pointers, never the letters. */
#define ARGV(...) ((char **)(uintptr_t)(const char *[]){__VA_ARGS__, NULL})

static void test_defaults_stand_without_arguments(void **state)
{
	struct options o;
	struct why why;
	char *none[] = {NULL};

	(void)state;
	assert_int_equal(parse(&o, &why, none), 0);
	assert_int_equal(o.size, 1 << 20);
	assert_int_equal(o.wait_ms, 30000);
	assert_int_equal(o.count, 3);
}

static void test_options_and_arguments_mix(void **state)
{
	struct options o;
	struct why why;
	char **argv = ARGV("A", "--size=64K", "-qn", "x", "--set", "a=1", "--set=b=2",
			   "B", "--role", "output", "--", "--C");

	(void)state;
	assert_int_equal(parse(&o, &why, argv), 3);
	assert_string_equal(argv[0], "A");
	assert_string_equal(argv[1], "B");
	assert_string_equal(argv[2], "--C");
	assert_true(o.quiet);
	assert_string_equal(o.name, "x");
	assert_int_equal(o.size, 65536);
	assert_int_equal(o.sets.count, 2);
	assert_string_equal(o.sets.items[1], "b=2");
	assert_int_equal(o.role, 1);
}

static void test_no_prefix_clears_a_flag(void **state)
{
	struct options o;
	struct why why;

	(void)state;
	assert_int_equal(parse(&o, &why, ARGV("-q", "--no-quiet")), 0);
	assert_false(o.quiet);
	assert_int_equal(parse(&o, &why, ARGV("--no-name")), -1);
}

static void test_mistakes_are_named(void **state)
{
	static const struct {
		const char *argument;
		const char *said;
	} cases[] = {
		{"--sise=1", "did you mean --size?"}, {"--size=many", "not a size"},
		{"--size=1", "out of range"},         {"--wait=1w", "not a duration"},
		{"--count=10", "out of range"},       {"--count=-1", "not a number"},
		{"--role=both", "input, output"},     {"--name", "needs a value"},
		{"-x", "unknown option -x"},
	};
	struct options o;
	struct why why;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(parse(&o, &why, ARGV(cases[i].argument)), -1);
		assert_non_null(strstr(why.text, cases[i].said));
	}
}

TEST_MAIN(cmocka_unit_test(test_defaults_stand_without_arguments),
	  cmocka_unit_test(test_options_and_arguments_mix),
	  cmocka_unit_test(test_no_prefix_clears_a_flag),
	  cmocka_unit_test(test_mistakes_are_named))
