/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <jansson.h>

#include "fs/base/json.h"

static void test_commas_stand_between_members_and_items(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	json_begin_object(&b, NULL);
	json_put_uint(&b, "a", 1);
	json_begin_array(&b, "b");
	json_put_string(&b, NULL, "x");
	json_put_bool(&b, NULL, false);
	json_begin_object(&b, NULL);
	json_end_object(&b);
	json_end_array(&b);
	json_put_string(&b, "c", NULL);
	json_put_int(&b, "d", -3);
	json_put_double(&b, "e", 0.5);
	json_end_object(&b);
	assert_string_equal(b.data, "{\"a\":1,\"b\":[\"x\",false,{}],\"c\":null,\"d\":-3,"
				    "\"e\":0.5}");
	buf_fini(&b);
}

/* Whatever bytes a key holds, a strict parser must accept what we wrote. */
static void test_any_bytes_make_valid_json(void **state)
{
	struct buf b = BUF_INIT;
	char bytes[3];

	(void)state;
	for (int high = 1; high < 256; high++) {
		for (int low = 0; low < 256; low++) {
			json_t *parsed;

			bytes[0] = (char)high;
			bytes[1] = (char)low;
			bytes[2] = '\0';
			buf_reset(&b);
			json_begin_array(&b, NULL);
			json_put_string(&b, NULL, bytes);
			json_end_array(&b);
			parsed = json_loads(b.data, 0, NULL);
			assert_non_null(parsed);
			json_decref(parsed);
		}
	}
	buf_fini(&b);
}

static void test_a_comma_in_the_last_string_is_not_taken_for_structure(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	json_begin_array(&b, NULL);
	json_put_string(&b, NULL, "[");
	json_put_string(&b, NULL, "{");
	json_end_array(&b);
	assert_string_equal(b.data, "[\"[\",\"{\"]");
	buf_fini(&b);
}

TEST_MAIN(cmocka_unit_test(test_commas_stand_between_members_and_items),
	  cmocka_unit_test(test_any_bytes_make_valid_json),
	  cmocka_unit_test(test_a_comma_in_the_last_string_is_not_taken_for_structure))
