/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/job.h"
#include "runner/mistakes.h"
#include "runner/spec.h"
#include "runner/status.h"

static char root[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(root, "/tmp/sluice-job.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	return setenv("SLUICE_RUN_DIR", root, 1);
}

static int tear_down(void **state)
{
	(void)state;
	return io_remove_tree(AT_FDCWD, root);
}

static struct job *hold(const char *name)
{
	struct job *job;
	struct why why = {""};

	if (job_hold(name, &job, &why) != 0)
		fail_msg("%s", why.text);
	return job;
}

static void test_a_job_is_held_by_one_at_a_time(void **state)
{
	struct job *job = hold("a"), *other;

	(void)state;
	assert_int_equal(job_hold("a", &other, NULL), JOB_E_HELD);
	assert_true(job_is_held(job));
	assert_int_equal(job_open("a", &other, NULL), 0);
	assert_true(job_is_held(other));
	job_close(job);
	assert_false(job_is_held(other));
	job_close(other);
	job_close(hold("a"));
}

static void test_the_hold_passes_to_a_child_and_ends_with_it(void **state)
{
	struct job *job = hold("a"), *seen;
	int fds[2], status;
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		close(fds[1]);
		_exit(read(fds[0], &c, 1) < 0);
	}
	close(fds[0]);
	job_close(job);
	assert_int_equal(job_open("a", &seen, NULL), 0);
	assert_true(job_is_held(seen));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	assert_false(job_is_held(seen));
	job_close(seen);
	close(fds[1]);
}

static void test_a_supervisor_is_known_by_number_and_start_time(void **state)
{
	struct job *job = hold("a");
	char text[64];
	pid_t pid;
	int fd;

	(void)state;
	assert_int_equal(job_supervisor(job, &pid), -ESRCH);
	assert_int_equal(job_sign(job, NULL), 0);
	fd = job_supervisor(job, &pid);
	assert_true(fd >= 0);
	assert_int_equal(pid, getpid());
	close(fd);
	/* The same number, but of a process that began at another time. */
	snprintf(text, sizeof(text), "%d 1\n", (int)getpid());
	assert_int_equal(
		io_replace_file(job->dirfd, "supervisor", text, strlen(text), 0600), 0);
	assert_int_equal(job_supervisor(job, &pid), -ESRCH);
	assert_int_equal(io_replace_file(job->dirfd, "supervisor", "x", 1, 0600), 0);
	assert_int_equal(job_supervisor(job, &pid), -ESRCH);
	job_close(job);
}

static void test_clearing_leaves_nothing_but_the_lock(void **state)
{
	struct job *job = hold("a"), *other;

	(void)state;
	assert_int_equal(mkdirat(job->dirfd, "logs", 0700), 0);
	assert_int_equal(mkdirat(job->dirfd, "logs/deeper", 0700), 0);
	assert_int_equal(io_replace_file(job->dirfd, "status.json", "x", 1, 0600), 0);
	assert_int_equal(job_clear(job, NULL), 0);
	assert_int_equal(faccessat(job->dirfd, "logs", F_OK, 0), -1);
	assert_int_equal(faccessat(job->dirfd, "status.json", F_OK, 0), -1);
	assert_int_equal(job_hold("a", &other, NULL), JOB_E_HELD);
	job_close(job);
}

static void test_jobs_are_listed_by_name(void **state)
{
	struct job_names names;

	(void)state;
	assert_int_equal(job_list(&names, NULL), 0);
	assert_int_equal(names.count, 0);
	job_names_fini(&names);
	job_close(hold("b"));
	job_close(hold("a"));
	assert_int_equal(job_list(&names, NULL), 0);
	assert_int_equal(names.count, 2);
	assert_string_equal(names.items[0], "a");
	assert_string_equal(names.items[1], "b");
	job_names_fini(&names);
}

static void test_an_unknown_job_is_refused_with_the_nearest_name(void **state)
{
	struct why why = {""};
	struct job *job;

	(void)state;
	job_close(hold("fashion"));
	assert_int_equal(job_open("fasion", &job, &why), -ENOENT);
	assert_string_equal(why.text,
			    "there is no job \"fasion\", did you mean \"fashion\"?");
	assert_int_equal(job_open("../../etc", &job, &why), -ENOENT);
	assert_int_equal(job_open("", &job, &why), -ENOENT);
}

static void test_a_folder_that_others_can_write_is_refused(void **state)
{
	struct why why = {""};
	struct job *job;
	char path[PATH_MAX];

	(void)state;
	job_close(hold("a"));
	snprintf(path, sizeof(path), "%s/jobs/a", root);
	assert_int_equal(chmod(path, 0777), 0);
	assert_true(job_hold("a", &job, &why) < 0);
	assert_true(*why.text);
}

static struct spec *parse(const char *text)
{
	struct mistakes m;
	struct spec *spec = NULL;

	mistakes_init(&m);
	spec_parse("j.yaml", text, strlen(text), "/", NULL, 0, &spec, &m);
	mistakes_fini(&m);
	assert_non_null(spec);
	return spec;
}

static void test_a_status_reads_back_as_it_was_written(void **state)
{
	struct spec *spec = parse("name: a\ncommand: x\nroles: {worker: {count: 2}}\n");
	struct job *job = hold("a");
	struct status s, back;

	(void)state;
	status_init(&s, spec);
	s.phase = JOB_FAILED;
	s.exit_code = 3;
	s.first_failure = 1;
	s.output = OUTPUT_PENDING;
	strcpy(s.commit, "0123abcd");
	why_set(&s.message, 0, "it \"failed\"");
	s.replicas[1].state = REPLICA_EXITED;
	s.replicas[1].exit_code = 3;
	s.replicas[1].oom = true;
	s.replicas[1].ended_ms = 12345;
	assert_int_equal(status_write(&s, job->dirfd), 0);
	assert_int_equal(status_read(job->dirfd, &back), 0);
	assert_int_equal(back.phase, JOB_FAILED);
	assert_int_equal(back.exit_code, 3);
	assert_int_equal(back.first_failure, 1);
	assert_int_equal(back.output, OUTPUT_PENDING);
	assert_string_equal(back.commit, "0123abcd");
	assert_string_equal(back.message.text, "it \"failed\"");
	assert_int_equal(back.replica_count, 2);
	assert_int_equal(back.replicas[0].state, REPLICA_PENDING);
	assert_int_equal(back.replicas[1].exit_code, 3);
	assert_true(back.replicas[1].oom);
	assert_int_equal(back.replicas[1].ended_ms, 12345);
	status_fini(&back);
	status_fini(&s);
	job_close(job);
	spec_free(spec);
}

static void test_a_damaged_status_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"{}",
		"{\"phase\":\"dancing\",\"output\":\"none\"}",
		"{\"phase\":\"failed\",\"output\":\"none\",\"first_failure\":7,"
		"\"replicas\":[]}",
		"{\"phase\":\"failed\",\"output\":\"none\",\"replicas\":[{\"state\":1}]"
		"}"};
	struct job *job = hold("a");
	struct status s;

	(void)state;
	assert_int_equal(status_read(job->dirfd, &s), -ENOENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		assert_int_equal(io_replace_file(job->dirfd, "status.json", texts[i],
						 strlen(texts[i]), 0600),
				 0);
		assert_int_equal(status_read(job->dirfd, &s), -EINVAL);
	}
	job_close(job);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

TEST_MAIN(CASE(test_a_job_is_held_by_one_at_a_time),
	  CASE(test_the_hold_passes_to_a_child_and_ends_with_it),
	  CASE(test_a_supervisor_is_known_by_number_and_start_time),
	  CASE(test_clearing_leaves_nothing_but_the_lock),
	  CASE(test_jobs_are_listed_by_name),
	  CASE(test_an_unknown_job_is_refused_with_the_nearest_name),
	  CASE(test_a_folder_that_others_can_write_is_refused),
	  CASE(test_a_status_reads_back_as_it_was_written),
	  CASE(test_a_damaged_status_is_refused))
