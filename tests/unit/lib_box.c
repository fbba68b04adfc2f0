/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/io.h"
#include "runner/mnt.h"
#include "runner/runc.h"
#include "tests/unit/lib_apart.h"
#include "tests/unit/lib_box.h"

char box_marker[32];
char box_output[65536];
char box_top[64];
struct engine *box_engine;
struct engine_peer box_peers[BOX_PEERS] = {
	{.hostname = "ps-0"}, {.hostname = "worker-0"}, {.hostname = "worker-1"}};
static const char *const plain_env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root",
					NULL};

const char *box_path(const char *name)
{
	static char path[16][PATH_MAX]; /* so many may be in use at once */
	static int turn;
	char *p = path[turn++ % 16];

	snprintf(p, PATH_MAX, "%s/%s", box_top, name);
	return p;
}

int box_setup(void **state)
{
	struct why why;

	(void)state;
	lib_apart();
	snprintf(box_top, sizeof(box_top), "/tmp/sluice-engine.XXXXXX");
	if (!mkdtemp(box_top))
		return -1;
	snprintf(box_marker, sizeof(box_marker), "9%d.125", getpid());
	setenv("SLUICE_RUN_DIR", box_path("run"), 1);
	if (engine_open("runc", &box_engine, &why)) {
		fprintf(stderr, "skipping: %s\n", why.text);
		box_engine = NULL;
		return 0;
	}
	if (box_engine->ops->probe(box_engine, &why)) {
		fprintf(stderr, "%s\n", why.text);
		return -1;
	}
	return mkdir(box_path("net"), 0700) ||
	       box_engine->ops->network_create(box_engine, "job", box_path("net"),
					       box_peers, BOX_PEERS, &why);
}

static bool is_true(const char *command)
{
	return system(command) == 0;
}

const char *box_traces(void)
{
	char command[800], cgroup[RUNC_ID_SIZE];
	struct runc rc;

	snprintf(command, sizeof(command), "grep -q '%s' /proc/self/mountinfo", box_top);
	if (is_true(command))
		return "a mount";
	snprintf(command, sizeof(command), "ls -A %s/run/runc | grep -q .", box_top);
	if (is_true(command))
		return "state of runc";
	if (runc_open(&rc, NULL))
		return "no runc any more";
	runc_cgroup_name(&rc, "job-worker-0", cgroup);
	snprintf(command, sizeof(command),
		 "ls -d /sys/fs/cgroup/%s /sys/fs/cgroup/*/%s 2>/dev/null | grep -q .",
		 cgroup, cgroup);
	if (is_true(command))
		return "a control group";
	return is_true("ip -o link | grep -qE 'job0|peer[0-9]'") ? "a network device"
								 : NULL;
}

int box_teardown(void **state)
{
	const char *trace = box_engine ? box_traces() : NULL;
	struct why why;

	(void)state;
	if (box_engine) {
		box_engine->ops->network_remove(box_engine, "job", box_path("net"), &why);
		engine_free(box_engine);
	}
	if (mnt_unshare(box_top, NULL)) /* what a case that failed has left */
		return -1;
	if (trace)
		fprintf(stderr, "left behind: %s\n", trace);
	return io_remove_tree(AT_FDCWD, box_top) || trace;
}

struct engine_container box_describe(const char *host, const char *const *argv)
{
	static char names[4][64], dirs[4][PATH_MAX];
	static int turn;
	int i = turn++ % 4;
	char log[PATH_MAX];

	snprintf(names[i], sizeof(names[i]), "job-%s", host);
	snprintf(dirs[i], sizeof(dirs[i]), "%s/%s", box_top, names[i]);
	mkdir(dirs[i], 0700);
	snprintf(log, sizeof(log), "%.100s.log", dirs[i]);
	return (struct engine_container){
		.job = "job",
		.name = names[i],
		.hostname = host,
		.image = "host",
		.argv = argv,
		.env = plain_env,
		.workdir = "/",
		.state_dir = dirs[i],
		.log_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
			       0600),
	};
}

void box_begin(const struct engine_container *c)
{
	struct why why = {{0}};

	if (box_engine->ops->create(box_engine, c, &why) ||
	    box_engine->ops->start(box_engine, c->name, &why))
		fail_msg("%s", why.text);
}

int box_finish(const struct engine_container *c, bool *oom)
{
	struct why why = {{0}};
	struct buf b = BUF_INIT;
	int status = -1;
	bool dummy;

	if (box_engine->ops->wait(box_engine, c->name, 60000, &status, oom ? oom : &dummy,
				  &why))
		fail_msg("%s", why.text);
	if (box_engine->ops->remove(box_engine, c->name, c->state_dir, &why))
		fail_msg("%s", why.text);
	close(c->log_fd);
	assert_int_equal(rmdir(c->state_dir), 0); /* remove() left it empty */
	snprintf(box_output, sizeof(box_output), "%s.log", c->state_dir);
	io_read_file(AT_FDCWD, box_output, sizeof(box_output) - 1, &b);
	snprintf(box_output, sizeof(box_output), "%s", b.data ? b.data : "");
	buf_fini(&b);
	return status;
}

int box_run(const struct engine_container *c)
{
	box_begin(c);
	return box_finish(c, NULL);
}

int box_sh(const char *text)
{
	struct engine_container c = box_describe("worker-0", ARGV("sh", "-c", text));

	return box_run(&c);
}
