/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "fs/base/crc.h"

/* The check value that every CRC-64/XZ publication gives. */
static void test_crc64_of_nine_digits(void **state)
{
	(void)state;
	assert_int_equal(crc64(0, "123456789", 9), 0x995dc9bbdf1939faull);
}

static void test_crc64_combine_equals_crc_of_the_whole(void **state)
{
	unsigned char bytes[5000];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 131 + i / 7);
	for (size_t cut = 0; cut <= sizeof(bytes); cut += 499) {
		uint64_t a = crc64(0, bytes, cut);
		uint64_t b = crc64(0, bytes + cut, sizeof(bytes) - cut);

		assert_int_equal(crc64_combine(a, b, sizeof(bytes) - cut),
				 crc64(0, bytes, sizeof(bytes)));
	}
}

static void test_crc32c_of_nine_digits(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

TEST_MAIN(cmocka_unit_test(test_crc64_of_nine_digits),
	  cmocka_unit_test(test_crc64_combine_equals_crc_of_the_whole),
	  cmocka_unit_test(test_crc32c_of_nine_digits))
