/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <jansson.h>

#include "fs/base/buf.h"
#include "runner/mistakes.h"
#include "runner/plan.h"
#include "runner/spec.h"

static const struct plan_host host = {
	.job_dir = "/s/jobs/j", .state_root = "/s", .gateway = "/bin/sluice"};

static struct spec *spec;
static struct plan *plan;

static void make(const char *rest)
{
	struct mistakes m;
	char text[4096];

	snprintf(text, sizeof(text), "name: j\ncommand: [train, \"{{index}}\"]\n%s",
		 rest);
	mistakes_init(&m);
	spec_parse("j.yaml", text, strlen(text), "/base", NULL, 0, &spec, &m);
	if (!spec)
		fail_msg("%s", m.items[0].text);
	mistakes_fini(&m);
	plan = plan_new(spec, &host);
}

static int tear_down(void **state)
{
	(void)state;
	plan = plan_free(plan);
	spec = spec_free(spec);
	return 0;
}

/* The kinds in order, one word each. */
static const char *kinds(void)
{
	static char out[1024];

	*out = '\0';
	for (size_t i = 0; i < plan->step_count; i++) {
		strcat(out, *out ? " " : "");
		strcat(out, step_kind_name(plan->steps[i].kind));
	}
	return out;
}

static void test_a_bare_job_needs_no_mounts(void **state)
{
	(void)state;
	make("");
	assert_string_equal(kinds(), "prepare logs network create start wait");
}

#define FULL                                                                             \
	"code: {dir: src}\n"                                                             \
	"roles: {ps: {service: true}, worker: {count: 2, memory: 8M, cpu: 0.5}}\n"       \
	"input: oss://bkt/in\n"                                                          \
	"output: {source: \"oss://bkt/out\", endpoint: \"http://h:1\", region: r1}\n"

static void
test_a_full_job_mounts_before_it_creates_and_creates_before_it_starts(void **state)
{
	(void)state;
	make(FULL);
	assert_string_equal(kinds(),
			    "prepare code share mount-input mount-output logs network "
			    "create create create start start start wait");
	/* Services first. */
	assert_string_equal(plan->replicas[plan->steps[10].replica].hostname, "ps-0");
	assert_string_equal(plan->replicas[plan->steps[11].replica].hostname, "worker-0");
}

static void test_every_step_that_leaves_something_can_be_undone(void **state)
{
	(void)state;
	make(FULL);
	for (size_t i = 0; i < plan->step_count; i++)
		assert_true((plan->steps[i].undo != NULL) ==
			    (plan->steps[i].kind != STEP_WAIT));
}

static void test_containers_are_described_in_full(void **state)
{
	const struct engine_container *c;

	(void)state;
	make(FULL);
	assert_int_equal(plan->replica_count, 3);
	c = &plan->replicas[1].container;
	assert_string_equal(c->name, "j-worker-1");
	assert_string_equal(c->hostname, "worker-1");
	assert_string_equal(c->image, "host");
	assert_string_equal(c->argv[0], "train");
	assert_string_equal(c->argv[1], "1");
	assert_null(c->argv[2]);
	assert_string_equal(c->workdir, "/code");
	assert_int_equal(c->memory_bytes, 8 << 20);
	assert_int_equal(c->cpu_millis, 500);
	assert_string_equal(c->state_dir, "/s/jobs/j/engine/worker-1");
	assert_int_equal(c->mount_count, 4);
	assert_string_equal(c->mounts[0].target, "/run/runner");
	assert_true(c->mounts[0].read_only);
	assert_string_equal(c->mounts[1].target, "/code");
	assert_string_equal(c->mounts[2].source, "/s/jobs/j/mnt/input");
	assert_string_equal(c->mounts[2].target, "/input");
	assert_true(c->mounts[2].read_only && c->mounts[2].slave);
	assert_string_equal(c->mounts[3].target, "/output");
	assert_true(!c->mounts[3].read_only && c->mounts[3].slave);
}

static const char *joined(const struct gateway_command *c)
{
	static char out[2048];

	*out = '\0';
	for (size_t i = 0; i < c->count; i++) {
		strcat(out, i ? " " : "");
		strcat(out, c->words[i]);
	}
	return out;
}

static void test_the_gateway_is_called_as_it_is_documented(void **state)
{
	(void)state;
	make(FULL);
	assert_string_equal(
		joined(&plan->mount_input),
		"/bin/sluice mount oss://bkt/in /s/jobs/j/mnt/input --role input "
		"--state-dir /s/jobs/j/gateway --log-file "
		"/s/jobs/j/logs/gateway-input.log");
	assert_null(strstr(joined(&plan->mount_output), "oss://bkt/in"));
	assert_non_null(
		strstr(joined(&plan->mount_output),
		       "/bin/sluice mount oss://bkt/out /s/jobs/j/mnt/output --role "
		       "output --endpoint http://h:1 --region r1 --state-dir "
		       "/s/outputs/j-"));
}

static void test_two_outputs_do_not_share_what_is_pending(void **state)
{
	char first[PATH_MAX];

	(void)state;
	make("output: oss://bkt/a\n");
	strcpy(first, plan->output_state_dir);
	tear_down(NULL);
	make("output: oss://bkt/b\n");
	assert_string_not_equal(first, plan->output_state_dir);
}

static void test_options_and_credentials_reach_the_gateway_by_reference(void **state)
{
	(void)state;
	make("input: {source: \"oss://bkt\", credentials: \"file:/k\",\n"
	     "  options: {cache-size: 20G, immutable: true}}\n"
	     "output: {source: \"oss://bkt\", credentials: {id: {env: A}, secret: {file: "
	     "/sec}}}\n");
	assert_non_null(strstr(joined(&plan->mount_input),
			       "--credentials file:/k --cache-size=20G --immutable"));
	assert_non_null(strstr(joined(&plan->mount_output), "--credentials env"));
	assert_null(strstr(joined(&plan->mount_output), "/sec"));
}

static void test_secrets_and_state_are_hidden_from_the_host_image(void **state)
{
	const char *const want[] = {"/s", "/tok", "/sec", "/k", NULL};

	(void)state;
	make("code: {git: \"http://h/x\", token: {file: /tok}}\n"
	     "input: {source: \"oss://bkt\", credentials: {id: {env: A}, secret: {file: "
	     "/sec}}}\n"
	     "output: {source: \"oss://bkt\", credentials: \"ossutil:/k#p\"}\n");
	for (size_t i = 0; want[i]; i++)
		assert_string_equal(plan->replicas[0].container.hide[i], want[i]);
	assert_null(plan->replicas[0].container.hide[4]);
}

static void test_the_json_form_holds_steps_and_containers(void **state)
{
	struct buf b = BUF_INIT;
	json_t *root, *step;

	(void)state;
	make(FULL);
	plan_format_json(plan, &b);
	root = json_loads(b.data, 0, NULL);
	assert_non_null(root);
	assert_int_equal(json_array_size(json_object_get(root, "steps")),
			 plan->step_count);
	assert_int_equal(json_array_size(json_object_get(root, "containers")), 3);
	step = json_array_get(json_object_get(root, "steps"), 3);
	assert_string_equal(json_string_value(json_object_get(step, "kind")),
			    "mount-input");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(step, "command"), 1)),
		"mount");
	json_decref(root);
	buf_fini(&b);
}

#define CASE(f) cmocka_unit_test_teardown(f, tear_down)

TEST_MAIN(CASE(test_a_bare_job_needs_no_mounts),
	  CASE(test_a_full_job_mounts_before_it_creates_and_creates_before_it_starts),
	  CASE(test_every_step_that_leaves_something_can_be_undone),
	  CASE(test_containers_are_described_in_full),
	  CASE(test_the_gateway_is_called_as_it_is_documented),
	  CASE(test_two_outputs_do_not_share_what_is_pending),
	  CASE(test_options_and_credentials_reach_the_gateway_by_reference),
	  CASE(test_secrets_and_state_are_hidden_from_the_host_image),
	  CASE(test_the_json_form_holds_steps_and_containers))
