/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "runner/logs.h"
#include "runner/logs_term.h"

struct fixture {
	struct logs *logs;
	int file;
	int term[2];
	atomic_bool moves; /* the terminal reads */
};

static void open_fixture(struct fixture *f)
{
	char path[] = "/tmp/sluice-logs.XXXXXX";

	atomic_init(&f->moves, false);
	assert_int_equal(pipe2(f->term, O_CLOEXEC), 0);
	fcntl(f->term[1], F_SETPIPE_SZ, 1 << 20);
	f->file = mkstemp(path);
	assert_true(f->file >= 0);
	unlink(path);
	assert_int_equal(logs_new(&f->logs, f->term[1]), 0);
}

/* Everything the terminal got. */
static char *shown(struct fixture *f)
{
	static char text[1 << 20];
	ssize_t n;
	size_t at = 0;

	fcntl(f->term[0], F_SETFL, O_NONBLOCK);
	while ((n = read(f->term[0], text + at, sizeof(text) - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = '\0';
	return text;
}

static void close_fixture(struct fixture *f)
{
	logs_free(f->logs);
	close(f->file);
	close(f->term[0]);
	close(f->term[1]);
}

static void put(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t r = write(fd, bytes, n);

		assert_true(r > 0);
		bytes += r;
		n -= (size_t)r;
	}
}

static void test_lines_get_a_name_and_files_get_the_bytes(void **state)
{
	static const char bytes[] = "one\ntwo\0\x1b[31mred\x1b[0m\xff\n\npart";
	char copy[100];
	struct fixture f;
	int a, b;

	(void)state;
	open_fixture(&f);
	assert_int_equal(logs_add(f.logs, "worker-0", f.file, &a), 0);
	assert_int_equal(logs_add(f.logs, "ps-0", -1, &b), 0);
	put(a, bytes, sizeof(bytes) - 1);
	close(a);
	put(b, "x\ty", 3);
	close(b);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	assert_int_equal(pread(f.file, copy, sizeof(copy), 0), sizeof(bytes) - 1);
	assert_memory_equal(copy, bytes, sizeof(bytes) - 1);
	strcpy(copy, shown(&f));
	/* Which source comes first is not fixed; a source's own lines are in order. */
	assert_non_null(strstr(copy, "worker-0 | one\n"));
	assert_non_null(strstr(copy, "worker-0 | two\\x00red\\xff\n"));
	assert_non_null(strstr(copy, "worker-0 | \n"));
	assert_non_null(strstr(copy, "worker-0 | part\n"));
	assert_non_null(strstr(copy, "ps-0     | x\ty\n"));
	close_fixture(&f);
}

static void test_carriage_returns_end_lines_once(void **state)
{
	static const char bytes[] = "10%\r50%\r100%\r\ndos\r\n\rx\n";
	struct fixture f;
	int a;

	(void)state;
	open_fixture(&f);
	assert_int_equal(logs_add(f.logs, "w", -1, &a), 0);
	put(a, bytes, sizeof(bytes) - 1);
	close(a);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	assert_string_equal(shown(&f), "w | 10%\nw | 50%\nw | 100%\nw | dos\nw | x\n");
	close_fixture(&f);
}

static void test_long_line_is_broken_between_characters(void **state)
{
	size_t n = 3 * LOGS_LINE_MAX;
	char *text = malloc(n), *got;
	struct fixture f;
	int a;

	(void)state;
	open_fixture(&f);
	for (size_t i = 0; i < n; i += 3)
		memcpy(text + i, "\xe4\xb8\xad", 3); /* 8192 is no multiple of 3 */
	assert_int_equal(logs_add(f.logs, "w", f.file, &a), 0);
	put(a, text, n);
	close(a);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	got = shown(&f);
	assert_null(strstr(got, "\\x"));
	/* All characters, a prefix and a newline per piece. */
	assert_int_equal(strlen(got), n + 4 * 5);
	assert_int_equal(lseek(f.file, 0, SEEK_END), n);
	free(text);
	close_fixture(&f);
}

static void *slow_reader(void *arg)
{
	struct fixture *f = arg;
	char block[1 << 16];
	uint64_t until;

	/* Stands still until the job has written everything, then reads. */
	while (!atomic_load(&f->moves))
		clock_sleep_ms(5);
	until = clock_mono_ms() + 2000;
	while (clock_mono_ms() < until)
		if (read(f->term[0], block, sizeof(block)) < 0)
			clock_sleep_ms(5);
	return NULL;
}

static void test_terminal_that_stands_still_does_not_stop_the_job(void **state)
{
	const size_t total = 8 << 20;
	char line[1024];
	struct fixture f;
	pthread_t thread;
	int a;

	(void)state;
	open_fixture(&f);
	fcntl(f.term[0], F_SETFL, O_NONBLOCK);
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	assert_int_equal(logs_add(f.logs, "w", f.file, &a), 0);
	assert_int_equal(pthread_create(&thread, NULL, slow_reader, &f), 0);
	for (size_t done = 0; done < total; done += sizeof(line))
		put(a, line, sizeof(line));
	atomic_store(&f.moves, true); /* never, had the job waited for the terminal */
	put(a, "the end\n", 8);
	close(a);
	pthread_join(thread, NULL);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	assert_int_equal(lseek(f.file, 0, SEEK_END), total + 8);
	close_fixture(&f);
}

static void test_free_does_not_wait_for_a_stuck_terminal(void **state)
{
	char line[1024];
	struct fixture f;
	int a;

	(void)state;
	open_fixture(&f);
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	assert_int_equal(logs_add(f.logs, "w", -1, &a), 0);
	for (int i = 0; i < 2000; i++)
		put(a, line, sizeof(line));
	close(a);
	/* The terminal never moves: a free that waited for it would not return. */
	close_fixture(&f);
}

static void test_closed_terminal_is_not_the_end(void **state)
{
	struct fixture f;
	int a;

	(void)state;
	open_fixture(&f);
	close(f.term[0]);
	assert_int_equal(logs_add(f.logs, "w", f.file, &a), 0);
	put(a, "one\n", 4);
	clock_sleep_ms(50);
	put(a, "two\n", 4);
	close(a);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	assert_int_equal(lseek(f.file, 0, SEEK_END), 8);
	f.term[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close_fixture(&f);
}

static void test_full_disk_does_not_stop_the_job(void **state)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), a;
	struct fixture f;
	char *got;

	(void)state;
	open_fixture(&f);
	assert_int_equal(logs_add(f.logs, "w", full, &a), 0);
	put(a, "still shown\n", 12);
	close(a);
	assert_int_equal(logs_drain(f.logs, PATIENCE_MS), 0);
	got = shown(&f);
	assert_non_null(strstr(got, "w | still shown\n"));
	assert_non_null(strstr(got, "cannot be written: No space left on device"));
	assert_non_null(strstr(got, "12 bytes are missing"));
	close_fixture(&f);
	close(full);
}

static void test_nothing_drives_the_terminal(void **state)
{
	static const char evil[] = "\x1b[2J\x1b]0;title\x07\x1b[1;31mred\x1b[999Dx\x9b";
	char out[4 * sizeof(evil)];
	size_t n = logs_term_clean(out, evil, sizeof(evil) - 1);

	(void)state;
	assert_int_equal(n, strlen(out));
	assert_string_equal(out, "\\x1b[2J\\x1b]0;title\\x07red\\x1b[999Dx\\x9b");
}

TEST_MAIN(cmocka_unit_test(test_lines_get_a_name_and_files_get_the_bytes),
	  cmocka_unit_test(test_carriage_returns_end_lines_once),
	  cmocka_unit_test(test_long_line_is_broken_between_characters),
	  cmocka_unit_test(test_terminal_that_stands_still_does_not_stop_the_job),
	  cmocka_unit_test(test_free_does_not_wait_for_a_stuck_terminal),
	  cmocka_unit_test(test_closed_terminal_is_not_the_end),
	  cmocka_unit_test(test_full_disk_does_not_stop_the_job),
	  cmocka_unit_test(test_nothing_drives_the_terminal))
