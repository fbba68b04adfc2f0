/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/env_frameworks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/json.h"
#include "runner/roles.h"
#include "runner/spec.h"

/* ---- TensorFlow -------------------------------------------------------------------------- */

/* One address of TF_CONFIG's cluster: the name of the role there, and of the replica here. */
struct tf_member {
	const char *role;
	const struct spec_role *from;
	size_t first, count; /* replicas of `from` */
};

#define TF_MEMBERS_MAX (SPEC_ROLES_MAX + 1)

static int by_role(const void *a, const void *b)
{
	return strcmp(((const struct tf_member *)a)->role,
		      ((const struct tf_member *)b)->role);
}

/* The cluster as the task sees it, sorted by role: an evaluator is in no cluster but its
 * own, and chief: worker0 takes the first worker out of the workers. */
static size_t tf_members(const struct spec *spec, const struct env_task *task,
			 struct tf_member out[TF_MEMBERS_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		size_t first = 0;

		if (!strcmp(role->name, "evaluator") && task->role != role)
			continue;
		if (spec->chief == SPEC_CHIEF_WORKER0 && !strcmp(role->name, "worker")) {
			out[count++] = (struct tf_member){"chief", role, 0, 1};
			first = 1;
		}
		if (role->count > first)
			out[count++] = (struct tf_member){role->name, role, first,
							  role->count - first};
	}
	qsort(out, count, sizeof(*out), by_role);
	return count;
}

static void put_tf_config(const struct spec *spec, const struct env_task *task,
			  struct env *env)
{
	struct tf_member members[TF_MEMBERS_MAX] = {0};
	size_t count = tf_members(spec, task, members);
	const char *type = task->role->name;
	struct buf b = BUF_INIT;
	size_t index = task->index;

	json_begin_object(&b, NULL);
	json_begin_object(&b, "cluster");
	for (size_t i = 0; i < count; i++) {
		const struct tf_member *m = &members[i];

		if (m->from == task->role && task->index >= m->first &&
		    task->index < m->first + m->count) {
			type = m->role;
			index = task->index - m->first;
		}
		json_begin_array(&b, m->role);
		for (size_t j = m->first; j < m->first + m->count; j++) {
			char address[SPEC_ROLE_NAME_MAX + 48];

			snprintf(address, sizeof(address), "%s-%zu:%" PRIu64,
				 m->from->name, j, m->from->ports[0]);
			json_put_string(&b, NULL, address);
		}
		json_end_array(&b);
	}
	json_end_object(&b);
	json_begin_object(&b, "task");
	json_put_string(&b, "type", type);
	json_put_uint(&b, "index", index);
	json_end_object(&b);
	json_put_string(&b, "environment", "cloud");
	json_end_object(&b);
	check(buf_error(&b) == 0);
	env_put(env, "TF_CONFIG", "%s", b.data);
	buf_fini(&b);
}

/* "'ps':['ps-0:9000']" of a Python literal, and the classic NAME_HOSTS list. */
static void put_tf_classic(const struct spec_role *role, const char *hosts_name,
			   struct buf *literal, struct env *env)
{
	struct buf hosts = BUF_INIT;

	if (!role)
		return;
	buf_printf(literal, "%s'%s':[", literal->len ? "," : "", role->name);
	for (size_t i = 0; i < role->count; i++)
		buf_printf(literal, "%s'%s-%zu:%" PRIu64 "'", i ? "," : "", role->name, i,
			   role->ports[0]);
	buf_puts(literal, "]");
	env_hosts(role, &hosts);
	check(buf_error(&hosts) == 0);
	env_put(env, hosts_name, "%s", hosts.data);
	buf_fini(&hosts);
}

/* Nothing for a job of one replica: programs take that for "not distributed". */
static void put_tensorflow(const struct spec *spec, const struct env_task *task,
			   struct env *env)
{
	struct buf literal = BUF_INIT;
	char hostname[SPEC_ROLE_NAME_MAX + 24];

	if (spec_replica_count(spec) == 1)
		return;
	put_tf_config(spec, task, env);
	put_tf_classic(roles_find(spec, "worker"), "WORKER_HOSTS", &literal, env);
	put_tf_classic(roles_find(spec, "ps"), "PS_HOSTS", &literal, env);
	check(buf_error(&literal) == 0);
	env_put(env, "CLUSTER_CONFIG", "{%s}", literal.data ? literal.data : "");
	env_hostname(hostname, sizeof(hostname), task->role, task->index);
	env_put(env, "POD_NAME", "%s", hostname);
	env_put(env, "JOB_NAME", "%s", task->role->name);
	buf_fini(&literal);
}

/* ---- PyTorch ----------------------------------------------------------------------------- */

static void put_pytorch(const struct spec *spec, const struct env_task *task,
			struct env *env)
{
	const struct spec_role *master = roles_find(spec, "master");
	size_t rank = task->role == master ? 0 : task->index + 1;
	size_t nodes = spec_replica_count(spec);

	if (master) {
		env_put(env, "MASTER_PORT", "%" PRIu64, master->ports[0]);
		env_put(env, "PET_MASTER_PORT", "%" PRIu64, master->ports[0]);
		env_put(env, "MASTER_ADDR", "%s-0", master->name);
		env_put(env, "PET_MASTER_ADDR", "%s-0", master->name);
		/* One process a replica: the rank of the node is that of the process. */
		env_put(env, "WORLD_SIZE", "%zu", nodes);
		env_put(env, "RANK", "%zu", rank);
		env_put(env, "LOCAL_RANK", "0");
		env_put(env, "PET_NODE_RANK", "%zu", rank);
	}
	env_put(env, "PET_NPROC_PER_NODE", "auto");
	env_put(env, "PET_NNODES", "%zu", nodes);
}

/* ---- MXNet ------------------------------------------------------------------------------- */

static const char *const mxnet_roles[] = {"scheduler", "server", "worker"};

static void put_mx_config(const struct spec *spec, const struct env_task *task,
			  struct env *env)
{
	struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	json_begin_object(&b, "cluster");
	for (size_t i = 0; i < 3; i++) {
		const struct spec_role *role = roles_find(spec, mxnet_roles[i]);

		json_begin_array(&b, mxnet_roles[i]);
		for (size_t j = 0; role && j < role->count; j++) {
			char hostname[SPEC_ROLE_NAME_MAX + 24];

			env_hostname(hostname, sizeof(hostname), role, j);
			json_begin_object(&b, NULL);
			json_put_string(&b, "url", hostname);
			json_put_uint(&b, "port", role->ports[0]);
			json_end_object(&b);
		}
		json_end_array(&b);
	}
	json_end_object(&b);
	json_begin_object(&b, "labels");
	for (size_t i = 0; i < 3; i++)
		json_put_string(&b, mxnet_roles[i], "");
	json_end_object(&b);
	json_begin_object(&b, "task");
	json_put_string(&b, "type", task->role->name);
	json_put_uint(&b, "index", task->index);
	json_end_object(&b);
	json_end_object(&b);
	check(buf_error(&b) == 0);
	env_put(env, "MX_CONFIG", "%s", b.data);
	buf_fini(&b);
}

static void put_mxnet(const struct spec *spec, const struct env_task *task,
		      struct env *env)
{
	const struct spec_role *scheduler = roles_find(spec, "scheduler");
	const struct spec_role *server = roles_find(spec, "server");
	const struct spec_role *worker = roles_find(spec, "worker");

	if (!scheduler)
		return;
	env_put(env, "DMLC_ROLE", "%s", task->role->name);
	env_put(env, "DMLC_PS_ROOT_URI", "scheduler-0");
	env_put(env, "DMLC_PS_ROOT_PORT", "%" PRIu64, scheduler->ports[0]);
	env_put(env, "DMLC_NUM_SERVER", "%" PRIu64, server ? server->count : 0);
	env_put(env, "DMLC_NUM_WORKER", "%" PRIu64, worker ? worker->count : 0);
	/* Makes the scheduler listen on all addresses: it cannot bind to a name. */
	env_put(env, "DMLC_USE_KUBERNETES", "1");
	if (task->role == worker)
		env_put(env, "DMLC_WORKER_ID", "%zu", task->index);
	put_mx_config(spec, task, env);
}

void env_put_framework(const struct spec *spec, const struct env_task *task,
		       struct env *env)
{
	switch (spec->framework) {
	case FRAMEWORK_TENSORFLOW:
	case FRAMEWORK_KERAS:
		put_tensorflow(spec, task, env);
		return;
	case FRAMEWORK_PYTORCH:
		put_pytorch(spec, task, env);
		return;
	case FRAMEWORK_MXNET:
		put_mxnet(spec, task, env);
		return;
	default:
		return;
	}
}
