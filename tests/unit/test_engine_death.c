/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded engine when the runner is killed: containers end, remove() takes the rest. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "tests/unit/lib_box.h"

static int sh(const char *command)
{
	int rc = system(command);

	return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static bool is_alive(void)
{
	char command[200];

	/* As an argument of a process that is not a zombie. */
	snprintf(command, sizeof(command),
		 "ps -eo stat=,args= | grep -v '^Z' | grep -q "
		 "'[s]leep %s'",
		 box_marker);
	return sh(command) == 0;
}

static void test_killed_runner_leaves_no_container_and_remove_takes_the_rest(void **state)
{
	struct engine_container c = box_describe("worker-0", ARGV("sleep", box_marker));
	struct why why = {{0}};
	int ready[2];
	pid_t child;
	char byte;

	NEEDS_ENGINE();
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct engine *mine;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (engine_open("runc", &mine, &why) ||
		    mine->ops->network_create(mine, "job", box_path("net"), box_peers,
					      BOX_PEERS, &why) ||
		    mine->ops->create(mine, &c, &why) ||
		    mine->ops->start(mine, c.name, &why))
			fprintf(stderr, "%s\n", why.text);
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_true(is_alive());
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	eventually(!is_alive());
	assert_int_equal(box_engine->ops->remove(box_engine, c.name, c.state_dir, &why),
			 0);
	assert_int_equal(rmdir(c.state_dir), 0);
	close(c.log_fd);
}

/* Killed at many moments of create and start: afterwards remove() always succeeds. */
static void test_runner_killed_at_any_moment_is_cleaned_up_after(void **state)
{
	struct why why = {{0}};

	NEEDS_ENGINE();
	for (unsigned int delay_ms = 0; delay_ms < 160; delay_ms += 13) {
		struct engine_container c =
			box_describe("worker-0", ARGV("sleep", box_marker));
		pid_t child = fork();

		if (child == 0) {
			struct engine *mine;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!engine_open("runc", &mine, &why) &&
			    !mine->ops->network_create(mine, "job", box_path("net"),
						       box_peers, BOX_PEERS, &why) &&
			    !mine->ops->create(mine, &c, &why) &&
			    !mine->ops->start(mine, c.name, &why))
				pause();
			_exit(1);
		}
		clock_sleep_ms(delay_ms);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		/* At once: the keeper may be in the middle of creating it. */
		if (box_engine->ops->remove(box_engine, c.name, c.state_dir, &why))
			fail_msg("after %u ms: %s", delay_ms, why.text);
		close(c.log_fd);
		clock_sleep_ms(20);
		if (box_engine->ops->remove(box_engine, c.name, c.state_dir, &why))
			fail_msg("after %u ms, again: %s", delay_ms, why.text);
		assert_int_equal(rmdir(c.state_dir), 0);
	}
}

/* Runs last; the other test looks in its teardown. */
static void test_nothing_is_left_behind(void **state)
{
	NEEDS_ENGINE();
	assert_null(box_traces());
	assert_false(is_alive());
}

#define CASE(f) cmocka_unit_test(f)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_killed_runner_leaves_no_container_and_remove_takes_the_rest),
		CASE(test_runner_killed_at_any_moment_is_cleaned_up_after),
		CASE(test_nothing_is_left_behind),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
