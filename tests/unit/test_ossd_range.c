/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "tools/ossd_code.h"
#include "tools/ossd_range.h"

#define WHOLE OSSD_RANGE_WHOLE
#define PART OSSD_RANGE_PART
#define INVALID OSSD_RANGE_INVALID

struct row {
	const char *value;
	enum ossd_range plain, standard;
	uint64_t start, length; /* of what is a PART */
};

/* The table of protocol.md §3.9: an object of 1000 bytes. */
static const struct row rows[] = {
	{NULL, WHOLE, WHOLE, 0, 1000},
	{"bytes=0-499", PART, PART, 0, 500},
	{"bytes=500-", PART, PART, 500, 500},
	{"bytes=-500", PART, PART, 500, 500},
	{"bytes=0-", PART, PART, 0, 1000},
	{"bytes=999-999", PART, PART, 999, 1},
	{"bytes=0-1000", WHOLE, PART, 0, 1000},
	{"bytes=500-2000", WHOLE, PART, 500, 500},
	{"bytes=1000-", WHOLE, INVALID, 0, 0},
	{"bytes=1000-2000", WHOLE, INVALID, 0, 0},
	{"bytes=-2000", WHOLE, PART, 0, 1000},
	{"bytes=-0", WHOLE, INVALID, 0, 0},
	{"bytes=0-9,20-29", WHOLE, INVALID, 0, 0},
	{"byte=0-499", WHOLE, WHOLE, 0, 0},
	{"bytes=", WHOLE, WHOLE, 0, 0},
	{"bytes=-", WHOLE, WHOLE, 0, 0},
	{"bytes=9-5", WHOLE, WHOLE, 0, 0},
	{"bytes=a-b", WHOLE, WHOLE, 0, 0},
	{"bytes=1-2x", WHOLE, WHOLE, 0, 0},
	{"bytes=99999999999999999999-", WHOLE, WHOLE, 0, 0},
};

static void test_ranges_mean_what_the_service_makes_of_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (int standard = 0; standard < 2; standard++) {
			enum ossd_range want =
				standard ? rows[i].standard : rows[i].plain;
			uint64_t start = 77, length = 77;

			assert_int_equal(ossd_range_parse(rows[i].value, 1000, standard,
							  &start, &length),
					 want);
			if (want == PART) {
				assert_int_equal(start, rows[i].start);
				assert_int_equal(length, rows[i].length);
			} else if (want == WHOLE) {
				assert_int_equal(start, 0);
				assert_int_equal(length, 1000);
			}
		}
	}
}

static void test_an_empty_object_has_no_range(void **state)
{
	uint64_t start, length;

	(void)state;
	assert_int_equal(ossd_range_parse("bytes=0-", 0, false, &start, &length), WHOLE);
	assert_int_equal(length, 0);
	assert_int_equal(ossd_range_parse("bytes=0-", 0, true, &start, &length), INVALID);
	assert_int_equal(ossd_range_parse("bytes=-1", 0, true, &start, &length), INVALID);
}

#define WHEN_MS 1330072987123ll /* Fri, 24 Feb 2012 08:43:07.123 GMT */

static int conditions(struct ossd_conditions c)
{
	return ossd_conditions_check(&c, "ABCD", WHEN_MS);
}

static void test_etags_are_compared_without_quotes_and_case(void **state)
{
	(void)state;
	assert_int_equal(conditions((struct ossd_conditions){.match = "\"ABCD\""}), 0);
	assert_int_equal(conditions((struct ossd_conditions){.match = "abcd"}), 0);
	assert_int_equal(conditions((struct ossd_conditions){.match = "*"}), 0);
	assert_int_equal(conditions((struct ossd_conditions){.match = "\"x\", \"ABCD\""}),
			 0);
	assert_int_equal(conditions((struct ossd_conditions){.match = "\"ABC\""}),
			 OSSD_E_PRECONDITION);
	assert_int_equal(conditions((struct ossd_conditions){.none_match = "\"ABCD\""}),
			 OSSD_E_NOT_MODIFIED);
	assert_int_equal(conditions((struct ossd_conditions){.none_match = "\"X\""}), 0);
}

static void test_times_are_compared_in_seconds(void **state)
{
	const char *same = "Fri, 24 Feb 2012 08:43:07 GMT";
	const char *before = "Fri, 24 Feb 2012 08:43:06 GMT";

	(void)state;
	assert_int_equal(conditions((struct ossd_conditions){.modified_since = same}),
			 OSSD_E_NOT_MODIFIED);
	assert_int_equal(conditions((struct ossd_conditions){.modified_since = before}),
			 0);
	assert_int_equal(conditions((struct ossd_conditions){.unmodified_since = same}),
			 0);
	assert_int_equal(conditions((struct ossd_conditions){.unmodified_since = before}),
			 OSSD_E_PRECONDITION);
	assert_int_equal(conditions((struct ossd_conditions){.modified_since = "soon"}),
			 0);
}

TEST_MAIN(cmocka_unit_test(test_ranges_mean_what_the_service_makes_of_them),
	  cmocka_unit_test(test_an_empty_object_has_no_range),
	  cmocka_unit_test(test_etags_are_compared_without_quotes_and_case),
	  cmocka_unit_test(test_times_are_compared_in_seconds))
