/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "runner/engine.h"
#include "runner/engine_fake.h"
#include "runner/job.h"
#include "runner/mistakes.h"
#include "runner/plan.h"
#include "runner/run.h"
#include "runner/signals.h"
#include "runner/spec.h"

/* One job on the fake engine, in a state folder of its own. */
struct fixture {
	char root[64];
	struct spec *spec;
	struct job *job;
	struct plan *plan;
	struct engine *engine;
	struct signals signals;
	struct run run;
	char *calls; /* after the run */
};

static void set_up(struct fixture *f, const char *rest)
{
	struct mistakes m;
	struct plan_host host = {.gateway = "/bin/false"};
	char text[2048];

	*f = (struct fixture){.root = "/tmp/sluice-run.XXXXXX"};
	assert_non_null(mkdtemp(f->root));
	setenv("SLUICE_RUN_DIR", f->root, 1);
	snprintf(text, sizeof(text), "name: j\ncommand: run\ngrace: 300ms\n%s", rest);
	mistakes_init(&m);
	spec_parse("j.yaml", text, strlen(text), "/base", NULL, 0, &f->spec, &m);
	if (!f->spec)
		fail_msg("%s", m.items[0].text);
	mistakes_fini(&m);
	assert_int_equal(job_hold("j", &f->job, NULL), 0);
	host.job_dir = f->job->dir;
	host.state_root = f->root;
	f->plan = plan_new(f->spec, &host);
	f->engine = engine_fake_new();
	assert_int_equal(signals_open(&f->signals), 0);
	f->run = (struct run){.plan = f->plan,
			      .engine = f->engine,
			      .job = f->job,
			      .signals = &f->signals,
			      .terminal_fd = -1};
}

static int run(struct fixture *f)
{
	int code = run_job(&f->run);

	f->calls = engine_fake_calls(f->engine);
	return code;
}

static void tear_down(struct fixture *f)
{
	status_fini(&f->run.status);
	signals_close(&f->signals);
	free(f->calls);
	f->engine->ops->free(f->engine);
	plan_free(f->plan);
	job_close(f->job);
	spec_free(f->spec);
	io_remove_tree(AT_FDCWD, f->root);
}

#define TWO_WORKERS "roles: {worker: {count: 2}}\n"
#define PS_AND_WORKERS "roles: {ps: {service: true}, worker: {count: 2}}\n"

static void test_all_workers_ended_is_success_and_everything_is_removed(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 50);
	assert_int_equal(run(&f), 0);
	assert_string_equal(f.calls, "network_create j\n"
				     "create j-worker-0\n"
				     "create j-worker-1\n"
				     "start j-worker-0\n"
				     "start j-worker-1\n"
				     "remove j-worker-1\n"
				     "remove j-worker-0\n"
				     "network_remove j\n");
	assert_int_equal(f.run.status.phase, JOB_SUCCEEDED);
	assert_int_equal(f.run.status.first_failure, -1);
	tear_down(&f);
}

static void test_only_logs_and_records_are_left_on_disk(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 0);
	assert_int_equal(run(&f), 0);
	assert_int_equal(faccessat(f.job->dirfd, "engine", F_OK, 0), -1);
	assert_int_equal(faccessat(f.job->dirfd, "run", F_OK, 0), -1);
	assert_int_equal(faccessat(f.job->dirfd, "mnt", F_OK, 0), -1);
	assert_int_equal(faccessat(f.job->dirfd, "logs/worker-1.log", F_OK, 0), 0);
	assert_int_equal(faccessat(f.job->dirfd, "status.json", F_OK, 0), 0);
	tear_down(&f);
}

static void test_services_start_first_and_are_stopped_at_the_end(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 0);
	assert_int_equal(run(&f), 0);
	assert_string_equal(f.calls, "network_create j\n"
				     "create j-worker-0\n"
				     "create j-worker-1\n"
				     "create j-ps-0\n"
				     "start j-ps-0\n"
				     "start j-worker-0\n"
				     "start j-worker-1\n"
				     "term j-ps-0\n"
				     "remove j-ps-0\n"
				     "remove j-worker-1\n"
				     "remove j-worker-0\n"
				     "network_remove j\n");
	assert_int_equal(f.run.status.replicas[2].state, REPLICA_STOPPED);
	tear_down(&f);
}

static void test_a_service_that_ends_well_does_not_end_the_job(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	engine_fake_exits(f.engine, "j-ps-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-0", 0, 50);
	engine_fake_exits(f.engine, "j-worker-1", 4, 100);
	assert_int_equal(run(&f), 4);
	tear_down(&f);
}

static void test_a_failing_worker_ends_the_job_with_its_code_and_name(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	engine_fake_exits(f.engine, "j-worker-1", 42, 30);
	assert_int_equal(run(&f), 42);
	assert_int_equal(f.run.status.phase, JOB_FAILED);
	assert_int_equal(f.run.status.first_failure, 1);
	assert_string_equal(f.run.status.message.text,
			    "worker-1 failed with exit code 42");
	assert_non_null(strstr(f.calls, "term j-worker-0\n"));
	assert_int_equal(f.run.status.replicas[0].state, REPLICA_STOPPED);
	assert_int_equal(f.run.status.replicas[1].state, REPLICA_EXITED);
	tear_down(&f);
}

static void test_a_failing_service_ends_the_job_too(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	engine_fake_exits(f.engine, "j-ps-0", 9, 0);
	assert_int_equal(run(&f), 9);
	assert_string_equal(f.run.status.message.text, "ps-0 failed with exit code 9");
	tear_down(&f);
}

static void test_a_signal_and_want_of_memory_are_named(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 139, 0);
	assert_int_equal(run(&f), 139);
	assert_non_null(strstr(f.run.status.message.text, "signal 11"));
	tear_down(&f);
	set_up(&f, "roles: {worker: {memory: 64M}}\n");
	engine_fake_oom(f.engine, "j-worker-0", 0);
	assert_int_equal(run(&f), 137);
	assert_non_null(strstr(f.run.status.message.text, "OOM"));
	assert_non_null(strstr(f.run.status.message.text, "64.0 MiB"));
	tear_down(&f);
}

static void test_first_worker_can_end_the_job(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, TWO_WORKERS "finish: first-worker\n");
	engine_fake_exits(f.engine, "j-worker-0", 0, 20);
	assert_int_equal(run(&f), 0);
	assert_non_null(strstr(f.calls, "term j-worker-1\n"));
	tear_down(&f);
}

static void test_what_ignores_sigterm_is_killed_after_the_grace(void **state)
{
	struct fixture f;
	uint64_t began = clock_mono_ms();

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 0);
	engine_fake_ignores_term(f.engine, "j-ps-0");
	assert_int_equal(run(&f), 0);
	assert_non_null(strstr(f.calls, "term j-ps-0\nkill j-ps-0\nremove j-ps-0\n"));
	assert_true(clock_mono_ms() - began >= 300);
	tear_down(&f);
}

/* Every step that can fail is made to: what was done before is undone, in reverse, and
 * nothing is undone that was never begun. */
static void test_a_failed_start_is_undone_in_reverse(void **state)
{
	static const struct {
		const char *op, *name, *calls;
	} cases[] = {
		{"network_create", "j", "network_create j\nnetwork_remove j\n"},
		{"create", "j-worker-0",
		 "network_create j\ncreate j-worker-0\n"
		 "remove j-worker-0\nnetwork_remove j\n"},
		{"create", "j-worker-1",
		 "network_create j\ncreate j-worker-0\ncreate j-worker-1\n"
		 "remove j-worker-1\nremove j-worker-0\nnetwork_remove j\n"},
		{"start", "j-worker-0",
		 "network_create j\ncreate j-worker-0\ncreate j-worker-1\n"
		 "start j-worker-0\n"
		 "remove j-worker-1\nremove j-worker-0\nnetwork_remove j\n"},
		{"start", "j-worker-1",
		 "network_create j\ncreate j-worker-0\ncreate j-worker-1\n"
		 "start j-worker-0\nstart j-worker-1\nterm j-worker-0\n"
		 "remove j-worker-1\nremove j-worker-0\nnetwork_remove j\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fixture f;

		set_up(&f, TWO_WORKERS);
		engine_fake_fails(f.engine, cases[i].op, cases[i].name, -EIO);
		assert_int_equal(run(&f), EXIT_INTERNAL);
		assert_string_equal(f.calls, cases[i].calls);
		assert_int_equal(f.run.status.phase, JOB_FAILED);
		assert_non_null(strstr(f.run.status.message.text, "was made to fail"));
		assert_int_equal(faccessat(f.job->dirfd, "engine", F_OK, 0), -1);
		tear_down(&f);
	}
}

static void test_what_cannot_be_removed_does_not_keep_the_rest(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 0);
	engine_fake_fails(f.engine, "remove", "j-worker-1", -EBUSY);
	assert_int_equal(run(&f), EXIT_INTERNAL);
	assert_non_null(strstr(f.calls, "remove j-worker-0\nnetwork_remove j\n"));
	/* Not over: stop takes it up again. */
	assert_int_equal(f.run.status.phase, JOB_STOPPING);
	status_fini(&f.run.status);
	assert_int_equal(run_clean_up(&f.run), EXIT_OK);
	assert_int_equal(f.run.status.phase, JOB_STOPPED);
	tear_down(&f);
}

static void interrupt(void *arg)
{
	kill(getpid(), *(int *)arg);
}

static void test_a_signal_stops_the_job_and_removes_everything(void **state)
{
	struct fixture f;
	int signal = SIGINT;

	(void)state;
	set_up(&f, PS_AND_WORKERS);
	f.run.started = interrupt;
	f.run.started_arg = &signal;
	assert_int_equal(run(&f), 130);
	assert_int_equal(f.run.status.phase, JOB_STOPPED);
	assert_non_null(strstr(f.calls, "term j-worker-0\nterm j-worker-1\nterm j-ps-0\n"
					"remove j-ps-0\n"));
	assert_non_null(strstr(f.calls, "network_remove j\n"));
	tear_down(&f);
}

/* Once the first has had its effect: pending together they would be one. */
static void *interrupt_again(void *arg)
{
	struct fixture *f = arg;
	bool told = false;

	for (uint64_t until = patience(); !told && clock_mono_ms() < until;) {
		char *calls = engine_fake_calls(f->engine);

		told = strstr(calls, "term j-worker-0\n") != NULL;
		free(calls);
		clock_sleep_ms(2);
	}
	kill(getpid(), SIGTERM);
	return NULL;
}

static void test_a_second_signal_does_not_wait_for_the_grace(void **state)
{
	struct fixture f;
	pthread_t thread;
	int signal = SIGTERM;
	uint64_t began = clock_mono_ms();

	(void)state;
	set_up(&f, "roles: {worker: {}}\n");
	f.spec->grace_ms = 10 * PATIENCE_MS;
	engine_fake_ignores_term(f.engine, "j-worker-0");
	assert_int_equal(pthread_create(&thread, NULL, interrupt_again, &f), 0);
	f.run.started = interrupt;
	f.run.started_arg = &signal;
	assert_int_equal(run(&f), 143);
	pthread_join(thread, NULL);
	assert_non_null(strstr(f.calls, "term j-worker-0\nkill j-worker-0\n"));
	assert_true(clock_mono_ms() - began < PATIENCE_MS);
	tear_down(&f);
}

struct witness {
	struct engine *engine;
	char *calls; /* when it was told */
	int told;
};

static void note_started(void *arg)
{
	struct witness *w = arg;

	w->calls = engine_fake_calls(w->engine);
	w->told++;
}

static void test_started_is_told_once_all_run(void **state)
{
	struct fixture f;
	struct witness w = {0};

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	engine_fake_exits(f.engine, "j-worker-1", 0, 0);
	w.engine = f.engine;
	f.run.started = note_started;
	f.run.started_arg = &w;
	assert_int_equal(run(&f), 0);
	assert_int_equal(w.told, 1);
	assert_non_null(strstr(w.calls, "start j-worker-1\n"));
	free(w.calls);
	tear_down(&f);
	set_up(&f, TWO_WORKERS);
	engine_fake_fails(f.engine, "start", "j-worker-1", -EIO);
	w = (struct witness){.engine = f.engine};
	f.run.started = note_started;
	f.run.started_arg = &w;
	run(&f);
	assert_int_equal(w.told, 0);
	tear_down(&f);
}

static void test_containers_get_their_own_environment(void **state)
{
	struct fixture f;
	char *env;

	(void)state;
	set_up(&f, "framework: tensorflow\nroles: {ps: {}, worker: {}}\n");
	engine_fake_exits(f.engine, "j-worker-0", 0, 0);
	assert_int_equal(run(&f), 0);
	env = engine_fake_env(f.engine, "j-ps-0");
	assert_non_null(strstr(env, "\"task\":{\"type\":\"ps\",\"index\":0}"));
	assert_null(strstr(env, "SLUICE_RUN_DIR"));
	free(env);
	tear_down(&f);
}

static void test_the_status_on_disk_tells_how_it_ended(void **state)
{
	struct fixture f;
	struct status s;

	(void)state;
	set_up(&f, TWO_WORKERS);
	engine_fake_exits(f.engine, "j-worker-1", 5, 0);
	assert_int_equal(run(&f), 5);
	assert_int_equal(status_read(f.job->dirfd, &s), 0);
	assert_string_equal(s.name, "j");
	assert_int_equal(s.phase, JOB_FAILED);
	assert_int_equal(s.exit_code, 5);
	assert_int_equal(s.first_failure, 1);
	assert_int_equal(s.replica_count, 2);
	assert_string_equal(s.replicas[1].role, "worker");
	assert_int_equal(s.replicas[1].index, 1);
	assert_int_equal(s.replicas[1].exit_code, 5);
	assert_string_equal(s.message.text, "worker-1 failed with exit code 5");
	assert_true(s.started_ms > 0 && s.ended_ms >= s.started_ms);
	status_fini(&s);
	tear_down(&f);
}

TEST_MAIN(cmocka_unit_test(test_all_workers_ended_is_success_and_everything_is_removed),
	  cmocka_unit_test(test_only_logs_and_records_are_left_on_disk),
	  cmocka_unit_test(test_services_start_first_and_are_stopped_at_the_end),
	  cmocka_unit_test(test_a_service_that_ends_well_does_not_end_the_job),
	  cmocka_unit_test(test_a_failing_worker_ends_the_job_with_its_code_and_name),
	  cmocka_unit_test(test_a_failing_service_ends_the_job_too),
	  cmocka_unit_test(test_a_signal_and_want_of_memory_are_named),
	  cmocka_unit_test(test_first_worker_can_end_the_job),
	  cmocka_unit_test(test_what_ignores_sigterm_is_killed_after_the_grace),
	  cmocka_unit_test(test_a_failed_start_is_undone_in_reverse),
	  cmocka_unit_test(test_what_cannot_be_removed_does_not_keep_the_rest),
	  cmocka_unit_test(test_a_signal_stops_the_job_and_removes_everything),
	  cmocka_unit_test(test_a_second_signal_does_not_wait_for_the_grace),
	  cmocka_unit_test(test_started_is_told_once_all_run),
	  cmocka_unit_test(test_containers_get_their_own_environment),
	  cmocka_unit_test(test_the_status_on_disk_tells_how_it_ended))
