/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "runner/proc.h"

#define SH(text) ((const char *const[]){"/bin/sh", "-c", text, NULL})

static int run_sh(const char *text, struct buf *out, uint64_t timeout_ms)
{
	const struct proc_options o = {.argv = SH(text), .in = -1, .out = -1, .err = -1};
	int status = -1, r = proc_run(&o, out, timeout_ms, &status);

	return r ? r : status;
}

static void test_exit_code_and_signal_are_told_apart(void **state)
{
	(void)state;
	assert_int_equal(run_sh("exit 7", NULL, 10000), 7);
	assert_int_equal(run_sh("kill -TERM $$", NULL, 10000), 128 + SIGTERM);
}

static void test_output_of_both_streams_is_collected(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	assert_int_equal(run_sh("echo one; echo two >&2", &b, 10000), 0);
	assert_string_equal(b.data, "one\ntwo\n");
	buf_fini(&b);
}

static void test_long_output_is_cut_and_never_blocks_the_child(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	assert_int_equal(run_sh("head -c 1000000 /dev/zero", &b, 10000), 0);
	assert_int_equal(b.len, PROC_OUTPUT_MAX);
	buf_fini(&b);
}

static void test_grandchild_that_holds_the_pipe_is_not_waited_for(void **state)
{
	uint64_t begin = clock_mono_ms();
	struct buf b = BUF_INIT;

	(void)state;
	assert_int_equal(run_sh("sleep 1000 & echo $!", &b, 10000), 0);
	assert_true(clock_mono_ms() - begin < PATIENCE_MS);
	kill((pid_t)atoi(b.data), SIGKILL);
	buf_fini(&b);
}

static void test_child_that_is_too_slow_is_killed(void **state)
{
	(void)state;
	assert_int_equal(run_sh("exec sleep 30", NULL, 100), -ETIMEDOUT);
}

static void test_missing_program_is_an_error_of_spawn(void **state)
{
	const char *const argv[] = {"/nonexistent/program", NULL};
	const struct proc_options o = {.argv = argv, .in = -1, .out = -1, .err = -1};
	pid_t pid = 0;

	(void)state;
	assert_int_equal(proc_spawn(&o, &pid), -ENOENT);
	assert_int_equal(pid, 0);
}

static void test_child_sees_only_three_descriptors(void **state)
{
	/* Neither an inheritable one nor our own standard input may reach it. */
	int leak = open("/dev/zero", O_RDONLY); /* without O_CLOEXEC: that is the point */
	struct buf b = BUF_INIT;

	(void)state;
	assert_int_equal(
		run_sh("readlink /proc/$$/fd/0; exec ls /proc/self/fd", &b, 10000), 0);
	close(leak);
	/* 3 is the directory that ls itself reads. */
	assert_string_equal(b.data, "/dev/null\n0\n1\n2\n3\n");
	buf_fini(&b);
}

static void test_environment_given_is_all_there_is(void **state)
{
	const char *const argv[] = {"/usr/bin/env", NULL};
	const char *const env[] = {"A=1", NULL};
	const struct proc_options o = {
		.argv = argv, .env = env, .in = -1, .out = -1, .err = -1};
	struct buf b = BUF_INIT;
	int status;

	(void)state;
	assert_int_equal(proc_run(&o, &b, 10000, &status), 0);
	assert_string_equal(b.data, "A=1\n");
	buf_fini(&b);
}

static void test_end_kills_one_that_ignores_sigterm(void **state)
{
	const struct proc_options o = {
		.argv = SH("trap '' TERM; while :; do sleep 1; done"),
		.in = -1,
		.out = -1,
		.err = -1};
	pid_t pid;

	(void)state;
	assert_int_equal(proc_spawn(&o, &pid), 0);
	clock_sleep_ms(100);
	proc_end(pid, 100);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void test_find_ignores_relative_path_entries(void **state)
{
	char *old = strdup(getenv("PATH")), path[PATH_MAX];

	(void)state;
	setenv("PATH", ".:bin:", 1);
	assert_int_equal(proc_find("sh", path), 0);
	assert_int_equal(path[0], '/');
	assert_int_equal(proc_find("no-such-program-here", path), -ENOENT);
	setenv("PATH", old, 1);
	free(old);
}

TEST_MAIN(cmocka_unit_test(test_exit_code_and_signal_are_told_apart),
	  cmocka_unit_test(test_output_of_both_streams_is_collected),
	  cmocka_unit_test(test_long_output_is_cut_and_never_blocks_the_child),
	  cmocka_unit_test(test_grandchild_that_holds_the_pipe_is_not_waited_for),
	  cmocka_unit_test(test_child_that_is_too_slow_is_killed),
	  cmocka_unit_test(test_missing_program_is_an_error_of_spawn),
	  cmocka_unit_test(test_child_sees_only_three_descriptors),
	  cmocka_unit_test(test_environment_given_is_all_there_is),
	  cmocka_unit_test(test_end_kills_one_that_ignores_sigterm),
	  cmocka_unit_test(test_find_ignores_relative_path_entries))
