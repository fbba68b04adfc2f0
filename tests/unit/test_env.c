/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/env.h"
#include "runner/mistakes.h"
#include "runner/roles.h"
#include "runner/spec.h"

static struct spec *parse(const char *rest)
{
	struct mistakes m;
	struct spec *spec = NULL;
	char text[2048];

	snprintf(text, sizeof(text), "name: Job-1\ncommand: run\n%s", rest);
	mistakes_init(&m);
	spec_parse("j.yaml", text, strlen(text), "/base", NULL, 0, &spec, &m);
	if (!spec)
		fail_msg("%s", m.items[0].text);
	mistakes_fini(&m);
	return spec;
}

/* One variable of one task, "" when it is not set. */
static const char *value(const char *yaml, const char *role, size_t index,
			 const char *name)
{
	static char out[4096];
	struct spec *spec = parse(yaml);
	struct env_task task = {roles_find(spec, role), index, "abc123"};
	struct env env;
	const char *found;

	assert_non_null(task.role);
	env_build(spec, &task, &env);
	found = env_get(&env, name);
	snprintf(out, sizeof(out), "%s", found ? found : "");
	env_fini(&env);
	spec_free(spec);
	return out;
}

#define TF "framework: tensorflow\n"
#define PS1W2 TF "roles: {worker: {count: 2}, ps: {count: 1}}\n"

static void test_tf_config_is_byte_exact(void **state)
{
	(void)state;
	assert_string_equal(
		value(TF "roles: {ps: {}, worker: {}}\n", "worker", 0, "TF_CONFIG"),
		"{\"cluster\":{\"ps\":[\"ps-0:2222\"],"
		"\"worker\":[\"worker-0:2222\"]},"
		"\"task\":{\"type\":\"worker\",\"index\":0},"
		"\"environment\":\"cloud\"}");
	assert_string_equal(value(PS1W2, "ps", 0, "TF_CONFIG"),
			    "{\"cluster\":{\"ps\":[\"ps-0:2222\"],"
			    "\"worker\":[\"worker-0:2222\",\"worker-1:2222\"]},"
			    "\"task\":{\"type\":\"ps\",\"index\":0},"
			    "\"environment\":\"cloud\"}");
	assert_string_equal(value(TF
				  "roles: {worker: {count: 1}, master: {ports: 8000}}\n",
				  "master", 0, "TF_CONFIG"),
			    "{\"cluster\":{\"master\":[\"master-0:8000\"],"
			    "\"worker\":[\"worker-0:2222\"]},"
			    "\"task\":{\"type\":\"master\",\"index\":0},"
			    "\"environment\":\"cloud\"}");
}

static void test_tf_config_is_absent_for_a_single_replica(void **state)
{
	(void)state;
	assert_string_equal(value(TF, "worker", 0, "TF_CONFIG"), "");
	assert_string_equal(value(TF, "worker", 0, "CLUSTER_CONFIG"), "");
	assert_string_equal(
		value("roles: {worker: {count: 2}}\n", "worker", 0, "TF_CONFIG"), "");
}

static void test_worker0_as_chief_renumbers_the_others(void **state)
{
	static const char yaml[] = PS1W2 "chief: worker0\n";

	(void)state;
	assert_string_equal(value(yaml, "worker", 0, "TF_CONFIG"),
			    "{\"cluster\":{\"chief\":[\"worker-0:2222\"],"
			    "\"ps\":[\"ps-0:2222\"],\"worker\":[\"worker-1:2222\"]},"
			    "\"task\":{\"type\":\"chief\",\"index\":0},"
			    "\"environment\":\"cloud\"}");
	assert_non_null(strstr(value(yaml, "worker", 1, "TF_CONFIG"),
			       "\"task\":{\"type\":\"worker\",\"index\":0}"));
}

static void test_an_evaluator_is_in_no_cluster_but_its_own(void **state)
{
	static const char yaml[] = TF "roles: {chief: {}, worker: {}, evaluator: {}}\n";

	(void)state;
	assert_null(strstr(value(yaml, "worker", 0, "TF_CONFIG"), "evaluator"));
	assert_non_null(strstr(value(yaml, "evaluator", 0, "TF_CONFIG"),
			       "\"evaluator\":[\"evaluator-0:2222\"]"));
}

static void test_classic_tensorflow_variables(void **state)
{
	static const char yaml[] = TF
		"roles: {worker: {count: 2, ports: 8000}, ps: {count: 2, ports: 9000}}\n";

	(void)state;
	assert_string_equal(value(yaml, "ps", 1, "CLUSTER_CONFIG"),
			    "{'worker':['worker-0:8000','worker-1:8000'],"
			    "'ps':['ps-0:9000','ps-1:9000']}");
	assert_string_equal(value(yaml, "ps", 1, "POD_NAME"), "ps-1");
	assert_string_equal(value(yaml, "ps", 1, "JOB_NAME"), "ps");
	assert_string_equal(value(yaml, "ps", 1, "WORKER_HOSTS"),
			    "worker-0:8000,worker-1:8000");
	assert_string_equal(value(yaml, "ps", 1, "PS_HOSTS"), "ps-0:9000,ps-1:9000");
}

static void test_pytorch_contract(void **state)
{
	static const char yaml[] =
		"framework: pytorch\nroles: {worker: {count: 2}, master: {}}\n";

	(void)state;
	assert_string_equal(value(yaml, "worker", 1, "RANK"), "2");
	assert_string_equal(value(yaml, "master", 0, "RANK"), "0");
	assert_string_equal(value(yaml, "worker", 1, "WORLD_SIZE"), "3");
	assert_string_equal(value(yaml, "worker", 1, "MASTER_ADDR"), "master-0");
	assert_string_equal(value(yaml, "worker", 1, "MASTER_PORT"), "23456");
	assert_string_equal(value(yaml, "worker", 1, "PET_MASTER_ADDR"), "master-0");
	assert_string_equal(value(yaml, "worker", 1, "PET_NODE_RANK"), "2");
	assert_string_equal(value(yaml, "worker", 1, "PET_NPROC_PER_NODE"), "auto");
	assert_string_equal(value(yaml, "worker", 1, "PET_NNODES"), "3");
	assert_string_equal(value(yaml, "worker", 1, "PYTHONUNBUFFERED"), "1");
	assert_string_equal(value("framework: pytorch\n", "worker", 0, "RANK"), "");
	assert_string_equal(value("framework: pytorch\n", "worker", 0, "PET_NNODES"),
			    "1");
}

static void test_mxnet_contract(void **state)
{
	static const char yaml[] = "framework: mxnet\nroles: {worker: {count: 2}, "
				   "server: {}, scheduler: {}}\n";

	(void)state;
	assert_string_equal(value(yaml, "server", 0, "DMLC_ROLE"), "server");
	assert_string_equal(value(yaml, "worker", 1, "DMLC_WORKER_ID"), "1");
	assert_string_equal(value(yaml, "server", 0, "DMLC_WORKER_ID"), "");
	assert_string_equal(value(yaml, "server", 0, "DMLC_PS_ROOT_URI"), "scheduler-0");
	assert_string_equal(value(yaml, "server", 0, "DMLC_PS_ROOT_PORT"), "9091");
	assert_string_equal(value(yaml, "server", 0, "DMLC_NUM_WORKER"), "2");
	assert_string_equal(value(yaml, "server", 0, "DMLC_NUM_SERVER"), "1");
	assert_string_equal(
		value(yaml, "worker", 1, "MX_CONFIG"),
		"{\"cluster\":{\"scheduler\":[{\"url\":\"scheduler-0\",\"port\":9091}],"
		"\"server\":[{\"url\":\"server-0\",\"port\":9091}],"
		"\"worker\":[{\"url\":\"worker-0\",\"port\":9091},"
		"{\"url\":\"worker-1\",\"port\":9091}]},"
		"\"labels\":{\"scheduler\":\"\",\"server\":\"\",\"worker\":\"\"},"
		"\"task\":{\"type\":\"worker\",\"index\":1}}");
}

static void test_neutral_variables_are_there_for_every_framework(void **state)
{
	static const char yaml[] = "roles: {worker: {count: 2}, ps: {count: 1}}\n"
				   "input: oss://bkt\n"
				   "code: {dir: x}\n"
				   "hyperparameters: {learning_rate: 0.1}\n";

	(void)state;
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_JOB"), "Job-1");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_ROLE"), "ps");
	assert_string_equal(value(yaml, "worker", 1, "RUNNER_INDEX"), "1");
	assert_string_equal(value(yaml, "worker", 1, "RUNNER_NODE_RANK"), "1");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_NODE_RANK"), "2");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_NODES"), "3");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_WORKER_NUM"), "2");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_WORKER_HOSTS"),
			    "worker-0,worker-1");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_INPUT"), "/input");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_OUTPUT"), "");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_CODE"), "/code");
	assert_string_equal(value(yaml, "ps", 0, "RUNNER_CODE_COMMIT"), "abc123");
	assert_string_equal(value(yaml, "ps", 0, "HP_LEARNING_RATE"), "0.1");
	assert_string_equal(value(yaml, "ps", 0, "HOSTNAME"), "ps-0");
}

static void test_nothing_of_the_runners_own_environment_gets_in(void **state)
{
	(void)state;
	setenv("OSS_ACCESS_KEY_SECRET", "s3cret", 1);
	setenv("HOME", "/home/someone", 1);
	assert_string_equal(value("", "worker", 0, "OSS_ACCESS_KEY_SECRET"), "");
	assert_string_equal(value("", "worker", 0, "HOME"), "/root");
	unsetenv("OSS_ACCESS_KEY_SECRET");
}

static void test_the_role_overrides_the_job_and_both_the_base(void **state)
{
	static const char yaml[] = "env: {A: job, HOME: /h}\n"
				   "roles: {worker: {env: {A: role}}, other: {}}\n";

	(void)state;
	assert_string_equal(value(yaml, "worker", 0, "A"), "role");
	assert_string_equal(value(yaml, "other", 0, "A"), "job");
	assert_string_equal(value(yaml, "other", 0, "HOME"), "/h");
}

static void expand(const char *yaml, const char *text, const char *want)
{
	struct spec *spec = parse(yaml);
	struct env_task task = {roles_find(spec, "worker"), 1, NULL};
	struct buf out = BUF_INIT;
	struct why why;

	assert_int_equal(env_expand(spec, &task, text, &out, &why), 0);
	assert_string_equal(out.data, want);
	buf_fini(&out);
	spec_free(spec);
}

static void test_placeholders_are_replaced_and_other_braces_kept(void **state)
{
	static const char yaml[] = PS1W2 "hyperparameters: {lr: 0.1}\ncode: {dir: x}\n";

	(void)state;
	expand(yaml, "--ps={{ps_hosts}} --w={{ worker_hosts }}",
	       "--ps=ps-0:2222 --w=worker-0:2222,worker-1:2222");
	expand(yaml, "{{job}} {{job_name}} {{task_index}} {{hp.lr}} {{code}}{{output}}",
	       "Job-1 worker 1 0.1 /code/output");
	expand(yaml, "print('{{}}', {1: {2: 3}}, {{ a b }}) {{",
	       "print('{{}}', {1: {2: 3}}, "
	       "{{ a b }}) {{");
}

static void read_into(int dirfd, const char *name, struct buf *b)
{
	buf_reset(b);
	assert_int_equal(io_read_file(dirfd, name, 65536, b), 0);
}

static void test_the_files_say_the_same_as_the_variables(void **state)
{
	struct spec *spec =
		parse(PS1W2 "hyperparameters: {n: 5, s: '5', f: 1e-3, t: true, "
			    "x: 01, y: adam}\n");
	char dir[] = "/tmp/sluice-env.XXXXXX";
	struct buf b = BUF_INIT;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(env_write_files(spec, fd), 0);
	read_into(fd, "hparams.json", &b);
	assert_string_equal(b.data, "{\"n\":5,\"s\":\"5\",\"f\":1e-3,\"t\":true,"
				    "\"x\":\"01\",\"y\":\"adam\"}");
	read_into(fd, "cluster.json", &b);
	assert_string_equal(b.data, "{\"ps\":[\"ps-0:2222\"],"
				    "\"worker\":[\"worker-0:2222\",\"worker-1:2222\"]}");
	read_into(fd, "worker.host", &b);
	assert_string_equal(b.data, "worker-0\nworker-1\n");
	read_into(fd, "hostfile", &b);
	assert_string_equal(b.data, "worker-0 slots=1\nworker-1 slots=1\n");
	buf_fini(&b);
	close(fd);
	io_remove_tree(AT_FDCWD, dir);
	spec_free(spec);
}

TEST_MAIN(cmocka_unit_test(test_tf_config_is_byte_exact),
	  cmocka_unit_test(test_tf_config_is_absent_for_a_single_replica),
	  cmocka_unit_test(test_worker0_as_chief_renumbers_the_others),
	  cmocka_unit_test(test_an_evaluator_is_in_no_cluster_but_its_own),
	  cmocka_unit_test(test_classic_tensorflow_variables),
	  cmocka_unit_test(test_pytorch_contract), cmocka_unit_test(test_mxnet_contract),
	  cmocka_unit_test(test_neutral_variables_are_there_for_every_framework),
	  cmocka_unit_test(test_nothing_of_the_runners_own_environment_gets_in),
	  cmocka_unit_test(test_the_role_overrides_the_job_and_both_the_base),
	  cmocka_unit_test(test_placeholders_are_replaced_and_other_braces_kept),
	  cmocka_unit_test(test_the_files_say_the_same_as_the_variables))
