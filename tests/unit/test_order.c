/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/order.h"
#include "fs/order_log.h"

static int file_of(const void *data, size_t n)
{
	int fd = memfd_create("list", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(io_write(fd, data, n), 0);
	return fd;
}

/* All keys with '|' behind each, "!N|" for a bad line N. */
static void read_all(const void *data, size_t n, char *out, size_t size)
{
	static struct order_reader r;
	char key[PATH_KEY_MAX + 2];
	const char *bad;
	int fd = file_of(data, n), e;

	*out = '\0';
	order_reader_init(&r, fd, "/mnt/in");
	while ((e = order_next(&r, key, &bad)) != ORDER_E_END) {
		size_t at = strlen(out);

		assert_true(e >= 0);
		if (e == ORDER_E_BAD)
			snprintf(out + at, size - at, "!%u|", (unsigned int)r.line);
		else
			snprintf(out + at, size - at, "%s|", key);
	}
	close(fd);
}

static void expect(const char *text, const char *want)
{
	char have[4096];

	read_all(text, strlen(text), have, sizeof(have));
	assert_string_equal(have, want);
}

static void test_a_plain_list_has_paths_below_the_mount_point(void **state)
{
	(void)state;
	expect("a/b\n\n/mnt/in/c\n./d/\n/mnt/in\n.\nback\\x41slash\nlast",
	       "a/b|c|d|||back\\x41slash|last|");
	expect("/mnt/input/x\n/etc\na//b\n../c\na/../b\nok\n", "!1|!2|!3|!4|!5|ok|");
	expect("", "");
}

static void test_an_order_is_what_was_written(void **state)
{
	static const char key[] = "odd \\ name\twith\nnewline\x7f \xff";
	struct buf b = BUF_INIT;
	char have[4096], want[128];

	(void)state;
	buf_puts(&b, ORDER_HEAD);
	order_put(&b, "plain/key");
	order_put(&b, key);
	assert_int_equal(buf_error(&b), 0);
	read_all(b.data, b.len, have, sizeof(have));
	snprintf(want, sizeof(want), "plain/key|%s|", key);
	assert_string_equal(have, want);
	buf_fini(&b);
}

static void test_a_torn_or_hostile_order_loses_only_its_bad_lines(void **state)
{
	(void)state;
	expect("sluice-order 1\na\nb\nto", "a|b|");
	expect("sluice-order 1\n\\x2e\\x2e/a\n\\x00\n\\xg1\n\\x4\n\\\n/abs\nok\n",
	       "!2|!3|!4|!5|!6|!7|ok|");
	expect("sluice-list 1\n.\nx\n", "|x|");
}

static void test_lines_of_any_length_are_survived(void **state)
{
	static char text[100000], have[200000];
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 9000; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "k%06d\n", i);
	read_all(text, n, have, sizeof(have));
	assert_int_equal(strlen(have), n);
	memset(text, 'x', sizeof(text));
	text[50000] = '\n';
	text[sizeof(text) - 3] = '\n';
	text[sizeof(text) - 2] = 'k';
	text[sizeof(text) - 1] = '\n';
	read_all(text, sizeof(text), have, sizeof(have));
	assert_string_equal(have, "!1|!2|k|");
}

static void test_each_file_is_recorded_once_in_the_order_of_first_reads(void **state)
{
	char dir[] = "/tmp/sluice-order.XXXXXX", path[64], name[32];
	struct order_log *log;
	struct why why = {""};
	struct buf b = BUF_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/order", dir);
	assert_int_equal(order_log_open(path, &log, &why), 0);
	/* Nothing read, nothing replaced. */
	order_log_close(log);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(order_log_open(path, &log, &why), 0);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 5000; i++) {
			snprintf(name, sizeof(name), "%d", i * 7919 % 5000);
			order_log_read(log, "d/", name);
		}
	order_log_close(log);
	assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &b), 0);
	assert_memory_equal(b.data, ORDER_HEAD "d/0\nd/2919\n",
			    strlen(ORDER_HEAD "d/0\nd/2919\n"));
	for (size_t i = 0, lines = 0; i <= b.len; i++) {
		if (i == b.len)
			assert_int_equal(lines, 5001);
		else
			lines += b.data[i] == '\n';
	}
	buf_fini(&b);
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
	assert_true(order_log_open(path, &log, &why) < 0);
	assert_non_null(strstr(why.text, "--record"));
}

TEST_MAIN(cmocka_unit_test(test_a_plain_list_has_paths_below_the_mount_point),
	  cmocka_unit_test(test_an_order_is_what_was_written),
	  cmocka_unit_test(test_a_torn_or_hostile_order_loses_only_its_bad_lines),
	  cmocka_unit_test(test_lines_of_any_length_are_survived),
	  cmocka_unit_test(test_each_file_is_recorded_once_in_the_order_of_first_reads))
