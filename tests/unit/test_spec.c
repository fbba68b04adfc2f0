/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/exit.h"
#include "runner/mistakes.h"
#include "runner/spec.h"

#define MINIMAL "name: j\ncommand: run\n"

static char printed[65536];

/* Parses; what is wrong is in `printed`. Returns the exit code. */
static int parse_sets(const char *text, const char *const *sets, size_t set_count,
		      struct spec **out)
{
	struct mistakes m;
	FILE *f;
	int code;

	mistakes_init(&m);
	*out = NULL;
	spec_parse("j.yaml", text, strlen(text), "/base", sets, set_count, out, &m);
	code = mistakes_exit_code(&m);
	f = fmemopen(printed, sizeof(printed), "w");
	mistakes_print(&m, f);
	fputc('\0', f);
	fclose(f);
	mistakes_fini(&m);
	assert_int_equal(code == 0, *out != NULL);
	return code;
}

static struct spec *parse_good(const char *text)
{
	struct spec *spec;

	if (parse_sets(text, NULL, 0, &spec) != 0)
		fail_msg("refused: %s", printed);
	return spec;
}

static void expect_bad(const char *text, const char *line)
{
	struct spec *spec;

	if (parse_sets(text, NULL, 0, &spec) != EXIT_USAGE)
		fail_msg("accepted: %s", text);
	if (!strstr(printed, line))
		fail_msg("expected \"%s\" in \"%s\"", line, printed);
}

static void test_the_readme_example_is_read_whole(void **state)
{
	struct spec *s =
		parse_good("name: fashion\n"
			   "framework: tensorflow\n"
			   "image: host\n"
			   "code: {dir: ./code}\n"
			   "command: [python3, /code/train.py]\n"
			   "roles:\n"
			   "  ps: {count: 1, cpu: 0.5, memory: 512M}\n"
			   "  worker: {count: 2, cpu: 1, memory: 1G, ports: [9000, 1]}\n"
			   "input: {source: \"oss://training/fashion-mnist\"}\n"
			   "output: oss://training/results/fashion\n"
			   "tensorboard: /output/logs\n"
			   "grace: 5s\n");

	(void)state;
	assert_string_equal(s->name, "fashion");
	assert_int_equal(s->framework, FRAMEWORK_TENSORFLOW);
	assert_string_equal(s->code.dir, "/base/code");
	assert_string_equal(s->code.target, "/code");
	assert_string_equal(s->workdir, "/code");
	assert_int_equal(s->command.count, 2);
	assert_string_equal(s->command.argv[1], "/code/train.py");
	assert_null(s->command.argv[2]);
	assert_int_equal(s->role_count, 2);
	assert_string_equal(s->roles[0].name, "worker");
	assert_int_equal(s->roles[0].count, 2);
	assert_int_equal(s->roles[0].memory_bytes, 1ull << 30);
	assert_int_equal(s->roles[0].ports[0], 9000);
	assert_int_equal(s->roles[0].service, 0);
	assert_string_equal(s->roles[1].name, "ps");
	assert_int_equal(s->roles[1].cpu_millis, 500);
	assert_int_equal(s->roles[1].ports[0], 2222);
	assert_int_equal(s->roles[1].service, 1);
	assert_string_equal(s->input.source, "oss://training/fashion-mnist");
	assert_string_equal(s->output.source, "oss://training/results/fashion");
	assert_string_equal(s->tensorboard, "/output/logs");
	assert_int_equal(s->grace_ms, 5000);
	spec_free(s);
}

static void test_defaults_make_one_worker_on_the_host(void **state)
{
	struct spec *s = parse_good(MINIMAL);

	(void)state;
	assert_int_equal(s->framework, FRAMEWORK_CUSTOM);
	assert_int_equal(s->role_count, 1);
	assert_string_equal(s->roles[0].name, "worker");
	assert_string_equal(s->roles[0].image, "host");
	assert_string_equal(s->workdir, "/");
	assert_string_equal(s->command.argv[0], "/bin/sh");
	assert_string_equal(s->command.argv[2], "run");
	assert_int_equal(s->grace_ms, 30000);
	spec_free(s);
}

struct bad_case {
	const char *text;
	const char *line;
};

static const struct bad_case bad_cases[] = {
	/* the file */
	{"name: [", "j.yaml:2:1: not valid YAML: "},
	{"name: \"a", "j.yaml:"},
	{"- a\n", "j.yaml:1:1: a job file is a map"},
	{"\xff\xfe\xfd", "j.yaml: not a text file"},
	{"", "j.yaml:1:1: the job has no name"},
	{"command: x\n", "j.yaml:1:1: the job has no name"},
	{MINIMAL "name: k\n", "j.yaml:3:1: \"name\" is given twice (first in line 1)"},
	{MINIMAL "---\nname: k\n", "j.yaml:3:1: a second document"},
	{MINIMAL "env: !!map {}\n", "j.yaml:3:6: tags such as"},
	{MINIMAL "env: {A: *x}\n", "j.yaml:3:10: alias *x has no anchor"},
	{MINIMAL "env: &e {A: *e}\n",
	 "j.yaml:3:13: alias *e stands inside its own anchor"},
	{MINIMAL "env: {<<: {A: b}}\n", "j.yaml:3:7: \"<<\" is not supported"},
	{MINIMAL "env: {A: \"\\0\"}\n", "j.yaml:3:10: a NUL byte"},
	{MINIMAL "env: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", "nested deeper than 16"},
	/* keys */
	{"nam: j\ncommand: x\n",
	 "j.yaml:1:1: unknown key \"nam\", did you mean \"name\"?"},
	{MINIMAL "roles:\n  worker:\n    memroy: 1G\n",
	 "j.yaml:5:5: unknown key \"memroy\" in roles.worker, did you mean \"memory\"?"},
	{MINIMAL "zzzzzzzz: 1\n", "j.yaml:3:1: unknown key \"zzzzzzzz\": "},
	{MINIMAL "framework:\n", "j.yaml:3:1: framework has no value"},
	{MINIMAL "name2: \x1b[31m\n", "j.yaml"},
	/* names */
	{"name: a_b\ncommand: x\n", "j.yaml:1:7: \"a_b\" cannot be a job's name"},
	{"name: ''\ncommand: x\n", "j.yaml:1:7: \"\" cannot be a job's name"},
	{"name: -a\ncommand: x\n", "j.yaml:1:7: \"-a\" cannot be a job's name"},
	{"name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
	 "command: x\n",
	 "j.yaml:1:7: "},
	{MINIMAL "roles: {Worker: {}}\n",
	 "j.yaml:3:9: \"Worker\" cannot be a role's name"},
	{MINIMAL "roles: {a-b: {}}\n", "j.yaml:3:9: \"a-b\" cannot be a role's name"},
	/* numbers */
	{MINIMAL "roles: {worker: {count: 0}}\n",
	 "j.yaml:3:25: roles.worker.count is 0: "},
	{MINIMAL "roles: {worker: {count: -1}}\n",
	 "j.yaml:3:25: roles.worker.count: \"-1\""},
	{MINIMAL "roles: {worker: {count: 65}}\n", "must be from 0 to 64, not 65"},
	{MINIMAL "roles: {worker: {count: two}}\n", "\"two\" is not a whole number"},
	{MINIMAL "roles: {worker: {count: {a: 1}}}\n", "takes a single value, not a map"},
	{MINIMAL "roles: {ps: {count: 1}}\n", "no role does the work"},
	{MINIMAL "roles: {a: {count: 60}, b: {count: 60}, c: {count: 60}}\n",
	 "180 replicas: at most 128"},
	{MINIMAL "roles: {worker: {cpu: 0}}\n", "roles.worker.cpu must be from 0.01"},
	{MINIMAL "roles: {worker: {cpu: 1e3}}\n", "is not a number of cores"},
	{MINIMAL "roles: {worker: {memory: 512}}\n", "is less than 4.0 MiB"},
	{MINIMAL "roles: {worker: {memory: lots}}\n", "\"lots\" is not a size"},
	{MINIMAL "roles: {worker: {ports: 70000}}\n",
	 "a port is a number from 1 to 65535"},
	{MINIMAL "grace: soon\n", "j.yaml:3:8: grace: \"soon\" is not a duration"},
	{MINIMAL "grace: 48h\n", "is more than"},
	/* choices */
	{MINIMAL "framework: tensorflo\n",
	 "j.yaml:3:12: framework: unknown \"tensorflo\", did you mean \"tensorflow\"?"},
	{MINIMAL "restart: always\n", "restart: unknown \"always\""},
	{MINIMAL "framework: tensorflow\nroles: {wroker: {}}\n",
	 "tensorflow has no role \"wroker\", did you mean \"worker\"?"},
	{MINIMAL "framework: tensorflow\nroles: {worker: {}, chief: {}, master: {}}\n",
	 "chief and master mean the same"},
	{MINIMAL "framework: tensorflow\nroles: {worker: {}, chief: {count: 2}}\n",
	 "roles.chief.count must be 1"},
	{MINIMAL "framework: pytorch\nroles: {worker: {count: 2}}\n", "need a master"},
	{MINIMAL "framework: mxnet\nroles: {worker: {}, server: {}}\n",
	 "needs both scheduler and server"},
	/* images, code, commands */
	{MINIMAL "image: tensorflow/tensorflow:latest\n", "j.yaml:3:8: image: "},
	{"name: j\n", "no command for worker"},
	{"name: j\ncommand: []\n", "j.yaml:2:10: command takes a line"},
	{"name: j\ncommand: [x, [y]]\n", "command: word 2 is not a text"},
	{"name: j\ncommand: x {{hp.lr}}\n",
	 "j.yaml:2:10: command: {{hp.lr}} names no hyper"},
	{"name: j\ncommand: x {{wroker_hosts}}\n", "unknown {{wroker_hosts}}"},
	{MINIMAL "code: {git: git@host:a/b.git}\n",
	 "j.yaml:3:13: code.git: only http and"},
	{MINIMAL "code: {git: \"ssh://host/a\"}\n",
	 "j.yaml:3:13: code.git: only http and"},
	{MINIMAL "code: {git: \"https://u:p@host/a\"}\n", "must not hold credentials"},
	{MINIMAL "code: {}\n", "code needs dir: PATH or git: URL"},
	{MINIMAL "code: {dir: a, git: \"http://h/x\"}\n", "either code.dir or code.git"},
	{MINIMAL "code: {git: \"http://h/x\", branch: b, commit: 0123abcd}\n",
	 "either code.branch or code.commit"},
	{MINIMAL "code: {git: \"http://h/x\", commit: HEAD}\n",
	 "must be a commit's hash"},
	{MINIMAL "code: {dir: a, target: code}\n",
	 "code.target must be an absolute path"},
	{MINIMAL "code: {dir: a, target: /input/x}\n", "would hide the container's own"},
	{MINIMAL "code: {git: \"http://h/x\", password: {env: P}}\n", "needs code.user"},
	/* environment */
	{MINIMAL "env: {1A: x}\n", "env cannot set \"1A\""},
	{MINIMAL "env: {RUNNER_JOB: x}\n",
	 "env cannot set \"RUNNER_JOB\": the runner sets"},
	{MINIMAL "framework: keras\nenv: {TF_CONFIG: x}\n",
	 "env cannot set \"TF_CONFIG\""},
	{MINIMAL "roles: {worker: {env: {OSS_ACCESS_KEY_SECRET: x}}}\n",
	 "credentials never enter a container"},
	{MINIMAL "hyperparameters: {a b: 1}\n", "cannot be a hyperparameter's name"},
	{MINIMAL "hyperparameters: {lr: 1, LR: 2}\n", "would be the same variable"},
	/* stores */
	{MINIMAL "input: s3://b\n", "j.yaml:3:8: input: \"s3://b\" is no source"},
	{MINIMAL "input: oss://B\n", "a bucket's name has 3 to 63"},
	{MINIMAL "input: file://data\n", "give an absolute path"},
	{MINIMAL "input: nfs://server\n", "give server and export"},
	{MINIMAL "input: ../x\n", "is no source"},
	{MINIMAL "output: {endpoint: \"http://h\"}\n", "output needs a source"},
	{MINIMAL "output: {source: \"oss://bkt\", endpoint: \"ftp://h\"}\n",
	 "must begin with http"},
	{MINIMAL "output: {source: \"oss://bkt\", options: {role: input}}\n",
	 "output.options.role: the runner sets this option itself"},
	{MINIMAL "input: {source: \"oss://bkt\", credentials: {id: {env: A}}}\n",
	 "needs both id and secret"},
	{MINIMAL "tensorboard: /logs\n", "must be below /output"},
};

static void test_each_mistake_is_named_with_its_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_cases) / sizeof(*bad_cases); i++)
		expect_bad(bad_cases[i].text, bad_cases[i].line);
}

static void test_all_mistakes_are_reported_at_once_in_order(void **state)
{
	struct spec *spec;
	char *a, *b, *c;

	(void)state;
	assert_int_equal(parse_sets("name: a_b\nframwork: x\nimage: y\n", NULL, 0, &spec),
			 EXIT_USAGE);
	a = strstr(printed, "j.yaml:1:7:");
	b = strstr(printed, "j.yaml:2:1:");
	c = strstr(printed, "j.yaml:3:8:");
	assert_non_null(a);
	assert_true(a < b && b < c);
	assert_non_null(strstr(printed, "no command"));
}

static void test_a_secret_in_clear_is_refused_and_never_shown(void **state)
{
	const char *const sets[] = {"code.token=hunter2"};
	struct spec *spec;

	(void)state;
	expect_bad(MINIMAL "code: {git: \"http://h/x\", user: u, password: hunter2}\n",
		   "must not stand here in clear");
	assert_null(strstr(printed, "hunter2"));
	expect_bad(MINIMAL "code: {git: \"http://u:hunter2@h/x\"}\n", "must not hold");
	assert_null(strstr(printed, "hunter2"));
	assert_int_equal(
		parse_sets(MINIMAL "code: {git: \"http://h/x\"}\n", sets, 1, &spec),
		EXIT_USAGE);
	assert_null(strstr(printed, "hunter2"));
}

static void test_control_characters_of_the_file_do_not_reach_the_terminal(void **state)
{
	(void)state;
	expect_bad(MINIMAL "\"a\\e[31mb\": 1\n", "unknown key");
	assert_null(strchr(printed, '\033'));
}

static void test_set_changes_and_adds_fields(void **state)
{
	const char *const sets[] = {"roles.worker.count=3", "input.endpoint=http://h:1",
				    "hyperparameters.lr=0.5", "command=[a, b c]"};
	struct spec *s;

	(void)state;
	assert_int_equal(
		parse_sets(MINIMAL "input: {source: \"oss://bkt\"}\n", sets, 4, &s), 0);
	assert_int_equal(s->roles[0].count, 3);
	assert_string_equal(s->input.endpoint, "http://h:1");
	assert_string_equal(s->hyperparameters.items[0].value, "0.5");
	assert_string_equal(s->command.argv[1], "b c");
	spec_free(s);
}

static void test_set_that_is_wrong_is_named(void **state)
{
	static const struct bad_case cases[] = {
		{"roles.worker.cuont=3", "--set roles.worker.cuont: unknown key"},
		{"count", "--set: give it as --set key=value"},
		{"a..b=1", "--set: give it as --set key=value"},
		{"name.x=1", "--set name.x: a key on the way holds a value"},
		{"env={A", "--set env: not valid YAML"},
		{"grace=", "grace has no value"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct spec *spec;

		assert_int_equal(parse_sets(MINIMAL, &cases[i].text, 1, &spec),
				 EXIT_USAGE);
		if (!strstr(printed, cases[i].line))
			fail_msg("expected \"%s\" in \"%s\"", cases[i].line, printed);
	}
}

static void test_set_through_an_alias_leaves_the_anchor_alone(void **state)
{
	const char *const sets[] = {"roles.b.count=5"};
	struct spec *s;

	(void)state;
	assert_int_equal(
		parse_sets(MINIMAL "roles: {a: &r {count: 2}, b: *r}\n", sets, 1, &s), 0);
	assert_int_equal(s->roles[0].count, 2);
	assert_int_equal(s->roles[1].count, 5);
	spec_free(s);
}

static void test_an_alias_bomb_is_small(void **state)
{
	char text[8192] = MINIMAL "x0: &x0 [a,a,a,a,a,a,a,a,a]\n";
	struct spec *spec;

	(void)state;
	for (int i = 1; i < 30; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "x%d: &x%d [*x%d,*x%d,*x%d,*x%d,*x%d,*x%d,*x%d,*x%d]\n", i, i,
			 i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
	assert_int_equal(parse_sets(text, NULL, 0, &spec), EXIT_USAGE);
	assert_non_null(strstr(printed, "unknown key \"x0\""));
}

static void test_a_file_over_the_limits_is_refused(void **state)
{
	size_t n = 2 << 20;
	char *text = malloc(n + 1);

	(void)state;
	memset(text, '#', n);
	text[n] = '\0';
	expect_bad(text, "j.yaml: larger than");
	for (size_t i = 0; i + 3 < n / 4; i += 3)
		memcpy(text + i, "- \n", 3);
	text[n / 4] = '\0';
	expect_bad(text, "more than 20000 values");
	free(text);
}

static void test_what_is_written_reads_back_the_same(void **state)
{
	const char *const sets[] = {"env.B=\"1\""};
	char text[4096] = "";
	struct spec *s, *again;
	FILE *f;

	(void)state;
	assert_int_equal(parse_sets(MINIMAL "env: &e {A: 'x: #y\"'}\ncode: {dir: src}\n"
					    "roles: {worker: {env: *e, memory: 8M}}\n"
					    "hyperparameters: {n: 5, s: '5', t: null}\n",
				    sets, 1, &s),
			 0);
	f = fmemopen(text, sizeof(text), "w");
	assert_int_equal(spec_write(s, f), 0);
	fclose(f);
	again = parse_good(text);
	assert_string_equal(again->code.dir, "/base/src");
	assert_string_equal(again->env.items[0].value, "x: #y\"");
	assert_string_equal(again->env.items[1].name, "B");
	assert_true(again->env.items[1].quoted);
	assert_string_equal(again->roles[0].env.items[0].value, "x: #y\"");
	assert_int_equal(again->roles[0].memory_bytes, 8 << 20);
	assert_false(again->hyperparameters.items[0].quoted);
	assert_true(again->hyperparameters.items[1].quoted);
	assert_string_equal(again->hyperparameters.items[2].value, "");
	spec_free(again);
	spec_free(s);
}

static int check_host(const char *text, const struct spec_host *host)
{
	struct spec *s = parse_good(text);
	struct mistakes m;
	FILE *f = fmemopen(printed, sizeof(printed), "w");
	int code;

	mistakes_init(&m);
	spec_check_host(s, host, &m);
	code = mistakes_exit_code(&m);
	mistakes_print(&m, f);
	fputc('\0', f);
	fclose(f);
	mistakes_fini(&m);
	spec_free(s);
	return code;
}

static void test_more_than_the_machine_has_is_a_matter_of_configuration(void **state)
{
	const struct spec_host host = {.memory_bytes = 4ull << 30, .cpu_count = 2};

	(void)state;
	assert_int_equal(
		check_host(MINIMAL "roles: {worker: {memory: 5G, cpu: 1}}\n", &host),
		EXIT_CONFIG);
	assert_non_null(
		strstr(printed, "j.yaml:3:26: roles.worker.memory: 5.0 GiB is more"));
	assert_int_equal(check_host(MINIMAL "roles: {worker: {cpu: 2.5}}\n", &host),
			 EXIT_CONFIG);
	assert_non_null(strstr(printed, "2.5 cores are more"));
	assert_int_equal(
		check_host(MINIMAL "roles: {worker: {count: 3, memory: 2G}}\n", &host),
		EXIT_CONFIG);
	assert_non_null(strstr(printed, "all replicas together"));
	assert_int_equal(check_host(MINIMAL
				    "roles: {worker: {count: 2, memory: 2G, cpu: 2}}\n",
				    &host),
			 0);
}

static void test_files_that_are_not_there_or_open_to_all_are_named(void **state)
{
	const struct spec_host host = {.memory_bytes = 4ull << 30, .cpu_count = 2};
	char path[] = "/tmp/sluice-spec.XXXXXX", text[512];
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(check_host(MINIMAL "code: {dir: nowhere}\n", &host),
			 EXIT_CONFIG);
	assert_non_null(strstr(printed, "code.dir: /base/nowhere: No such file"));
	assert_int_equal(check_host(MINIMAL "input: file:///no/where\n", &host),
			 EXIT_CONFIG);
	snprintf(text, sizeof(text),
		 MINIMAL "code: {git: \"http://h/x\", token: {file: %s}}\n", path);
	fchmod(fd, 0644);
	assert_int_equal(check_host(text, &host), EXIT_REFUSED);
	assert_non_null(strstr(printed, "chmod 600"));
	fchmod(fd, 0600);
	assert_int_equal(check_host(text, &host), 0);
	close(fd);
	unlink(path);
	unsetenv("SLUICE_TEST_NOT_SET");
	assert_int_equal(check_host(MINIMAL "code: {git: \"http://h/x\", token: {env: "
					    "SLUICE_TEST_NOT_SET}}\n",
				    &host),
			 EXIT_CONFIG);
}

static void test_a_job_file_that_is_not_there_is_a_one_line_error(void **state)
{
	struct mistakes m;
	struct spec *s = NULL;

	(void)state;
	mistakes_init(&m);
	assert_true(spec_load("/no/such/job.yaml", NULL, 0, &s, &m) < 0);
	assert_int_equal(m.count, 1);
	assert_string_equal(
		m.items[0].text,
		"/no/such/job.yaml: cannot be read: No such file or directory");
	mistakes_fini(&m);
}

TEST_MAIN(cmocka_unit_test(test_the_readme_example_is_read_whole),
	  cmocka_unit_test(test_defaults_make_one_worker_on_the_host),
	  cmocka_unit_test(test_each_mistake_is_named_with_its_place),
	  cmocka_unit_test(test_all_mistakes_are_reported_at_once_in_order),
	  cmocka_unit_test(test_a_secret_in_clear_is_refused_and_never_shown),
	  cmocka_unit_test(test_control_characters_of_the_file_do_not_reach_the_terminal),
	  cmocka_unit_test(test_set_changes_and_adds_fields),
	  cmocka_unit_test(test_set_that_is_wrong_is_named),
	  cmocka_unit_test(test_set_through_an_alias_leaves_the_anchor_alone),
	  cmocka_unit_test(test_an_alias_bomb_is_small),
	  cmocka_unit_test(test_a_file_over_the_limits_is_refused),
	  cmocka_unit_test(test_what_is_written_reads_back_the_same),
	  cmocka_unit_test(test_more_than_the_machine_has_is_a_matter_of_configuration),
	  cmocka_unit_test(test_files_that_are_not_there_or_open_to_all_are_named),
	  cmocka_unit_test(test_a_job_file_that_is_not_there_is_a_one_line_error))
