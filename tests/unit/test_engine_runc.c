/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded engine with real containers. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "runner/mnt.h"
#include "tests/unit/lib_box.h"

/* ---- cases ----------------------------------------------------------------------------- */

static void test_exit_status_is_the_commands(void **state)
{
	NEEDS_ENGINE();
	assert_int_equal(box_sh("echo hello; exit 7"), 7);
	assert_string_equal(box_output, "hello\n");
	assert_int_equal(box_sh("kill -9 $$"), 137);
	assert_int_equal(box_sh("exec no-such-program"), 127);
}

static void test_missing_command_exits_127_and_says_so(void **state)
{
	struct engine_container c = box_describe("worker-0", ARGV("no-such-program"));

	NEEDS_ENGINE();
	assert_int_equal(box_run(&c), 127);
	assert_non_null(strstr(box_output, "no-such-program: no such command"));
}

static void test_environment_is_exactly_what_was_given(void **state)
{
	const char *const env[] = {"PATH=/usr/bin:/bin", "TF_CONFIG={\"a\": \"b c\"}",
				   "HOME=/x", "EMPTY=", NULL};
	struct engine_container c = box_describe("worker-0", ARGV("env"));

	NEEDS_ENGINE();
	setenv("SLUICE_TEST_CANARY", "secret", 1);
	c.env = env;
	assert_int_equal(box_run(&c), 0);
	assert_string_equal(
		box_output,
		"PATH=/usr/bin:/bin\nTF_CONFIG={\"a\": \"b c\"}\nHOME=/x\nEMPTY=\n");
	unsetenv("SLUICE_TEST_CANARY");
}

static void test_container_has_three_descriptors_and_its_own_directory(void **state)
{
	int leak = open("/etc/passwd", O_RDONLY); /* inheritable: that is the point */
	struct engine_container c = box_describe(
		"worker-0", ARGV("python3", "-c",
				 "import os\n"
				 "fds=[int(f) for f in os.listdir('/proc/self/fd')]\n"
				 "print(sorted(f for f in fds if os.path.exists("
				 "'/proc/self/fd/%d'%f)), os.getcwd())\n"
				 "print(sorted(os.listdir('/proc/1/fd')))"));

	NEEDS_ENGINE();
	c.workdir = "/code/sub";
	assert_int_equal(box_run(&c), 0);
	close(leak);
	assert_string_equal(box_output, "[0, 1, 2] /code/sub\n['0', '1', '2']\n");
}

static void test_host_image_shows_programs_and_no_secrets(void **state)
{
	NEEDS_ENGINE();
	assert_int_equal(
		box_sh("ls -A /root /home /tmp /var/lib /mnt /srv | grep -v : | grep .;"
		       "ls /etc/shadow /etc/gshadow /etc/sudoers /etc/ssl/private "
		       "/etc/ssh 2>&1 | grep -v 'No such file';"
		       "find / -xdev ! -perm -o=r -a ! -type l ! -path '/proc*' "
		       "! -path '/root' ! -path '/usr/*' ! -path '/opt/*' ! -path "
		       "'/sys/*' ! -path '/dev/*';"
		       "test -s /etc/passwd && touch /tmp/mine /etc/mine && "
		       "python3 -c 'print(\"works\")'"),
		0);
	assert_string_equal(box_output, "works\n");
	assert_int_equal(access("/etc/mine", F_OK), -1);
}

static void test_root_in_the_container_is_not_root_of_the_host(void **state)
{
	NEEDS_ENGINE();
	assert_int_equal(box_sh("grep -E '^(NoNewPrivs|CapEff|CapBnd)' /proc/self/status;"
				"for c in 'mount -t tmpfs x /mnt' 'unshare -U true' "
				"'mknod /tmp/d b 254 0' 'chroot / true' "
				"'sh -c \"echo 1 >/proc/sys/kernel/panic\"' "
				"'find /sys/fs/cgroup -type f -writable | grep .' "
				"'dmesg' 'hostname x'; do "
				"eval $c >/dev/null 2>&1 && echo \"could: $c\"; done; :"),
			 0);
	assert_string_equal(box_output,
			    "CapEff:\t00000000000004fb\nCapBnd:\t00000000000004fb\n"
			    "NoNewPrivs:\t1\n");
}

/* The state directory lies in /tmp, hidden anyway; this one lies where programs do. */
static void test_paths_to_hide_are_hidden(void **state)
{
	char dir[] = "/opt/sluice-test.XXXXXX", text[200];
	const char *const hide[] = {dir, "/no/such/path", NULL};
	struct engine_container c;

	NEEDS_ENGINE();
	mkdir("/opt", 0755);
	assert_non_null(mkdtemp(dir));
	chmod(dir, 0755);
	snprintf(text, sizeof(text), "ls %s", dir);
	c = box_describe("worker-0", ARGV("sh", "-c", text));
	assert_int_equal(box_run(&c), 0);
	c = box_describe("worker-0", ARGV("sh", "-c", text));
	c.hide = hide;
	assert_int_equal(box_run(&c), 2);
	assert_int_equal(rmdir(dir), 0);
}

static void test_names_resolve_and_connect(void **state)
{
	static const char server[] =
		"import socket\n"
		"s=socket.socket(); s.bind(('0.0.0.0', 2222))\n"
		"s.listen(); c,a=s.accept(); c.sendall(b'from ps')\n";
	static const char client[] =
		"import socket,time\n"
		"for i in range(100):\n"
		"  try: c=socket.create_connection(('ps-0',2222),5); break\n"
		"  except OSError: time.sleep(0.05)\n"
		"print(c.recv(100).decode(), socket.gethostname())\n"
		"try: socket.create_connection(('100.100.100.200',80),5); print('OPEN')\n"
		"except OSError as e: print(e.errno)\n"
		"try: socket.gethostbyname('example.com'); print('RESOLVED')\n"
		"except OSError: print('no name')\n";
	struct engine_container ps = box_describe("ps-0", ARGV("python3", "-c", server)),
				w = box_describe("worker-1",
						 ARGV("python3", "-c", client));
	char expected[100];

	NEEDS_ENGINE();
	box_begin(&ps);
	box_begin(&w);
	assert_int_equal(box_finish(&w, NULL), 0);
	snprintf(expected, sizeof(expected), "from ps worker-1\n%d\nno name\n",
		 ENETUNREACH);
	assert_string_equal(box_output, expected);
	assert_int_equal(box_finish(&ps, NULL), 0);
}

static void test_memory_limit_kills_and_is_named(void **state)
{
	struct engine_container c =
		box_describe("worker-0", ARGV("python3", "-c", "x = b'x' * (300 << 20)"));
	bool oom = false;

	NEEDS_ENGINE();
	c.memory_bytes = 64 << 20;
	box_begin(&c);
	assert_int_equal(box_finish(&c, &oom), 137);
	assert_true(oom);
	c = box_describe("worker-0", ARGV("sh", "-c", "kill -9 $$"));
	c.memory_bytes = 64 << 20;
	box_begin(&c);
	assert_int_equal(box_finish(&c, &oom), 137);
	assert_false(oom);
}

static void test_cpu_limit_slows(void **state)
{
	struct engine_container c = box_describe(
		"worker-0",
		ARGV("python3", "-c",
		     "import time\n"
		     "w=time.monotonic()\n"
		     "while time.monotonic() - w < 1: pass\n"
		     "print(time.process_time() / (time.monotonic() - w) < 0.35)"));

	NEEDS_ENGINE();
	c.cpu_millis = 250;
	assert_int_equal(box_run(&c), 0);
	assert_string_equal(box_output, "True\n");
}

static void test_number_of_processes_is_limited(void **state)
{
	struct engine_container c = box_describe(
		"worker-0",
		ARGV("sh", "-c", "i=0; while [ $((i += 1)) -le 60 ]; do sleep 5 & done"));

	NEEDS_ENGINE();
	c.pids_max = 40; /* runc's own start takes a dozen threads inside the group */
	assert_int_not_equal(box_run(&c), 0);
}

static void test_sigterm_ends_a_command_without_a_handler(void **state)
{
	struct engine_container c = box_describe("worker-0", ARGV("sleep", "100"));
	struct why why;
	int status;
	bool oom;

	NEEDS_ENGINE();
	box_begin(&c);
	assert_int_equal(
		box_engine->ops->wait(box_engine, c.name, 100, &status, &oom, &why),
		ENGINE_E_TIMEOUT);
	assert_int_equal(box_engine->ops->signal(box_engine, c.name, SIGTERM, &why), 0);
	assert_int_equal(
		box_engine->ops->wait(box_engine, c.name, 10000, &status, &oom, &why), 0);
	assert_int_equal(status, 128 + SIGTERM);
	/* After the end it is not an error. */
	assert_int_equal(box_engine->ops->signal(box_engine, c.name, SIGTERM, &why), 0);
	assert_int_equal(box_finish(&c, NULL), 128 + SIGTERM);
	assert_int_equal(box_engine->ops->signal(box_engine, c.name, SIGTERM, &why), 0);
}

static void test_state_follows_the_container(void **state)
{
	struct engine_container c = box_describe("worker-0", ARGV("sleep", "100"));
	enum engine_state now;
	struct engine *other;
	struct why why;

	NEEDS_ENGINE();
	assert_int_equal(engine_open("runc", &other, &why),
			 0); /* another process's view */
	assert_int_equal(box_engine->ops->state(box_engine, c.name, &now), 0);
	assert_int_equal(now, ENGINE_ABSENT);
	assert_int_equal(box_engine->ops->create(box_engine, &c, &why), 0);
	assert_int_equal(box_engine->ops->state(box_engine, c.name, &now), 0);
	assert_int_equal(now, ENGINE_CREATED);
	assert_int_equal(other->ops->state(other, c.name, &now), 0);
	assert_int_equal(now, ENGINE_CREATED);
	assert_int_equal(box_engine->ops->start(box_engine, c.name, &why), 0);
	assert_int_equal(other->ops->state(other, c.name, &now), 0);
	assert_int_equal(now, ENGINE_RUNNING);
	assert_int_equal(box_engine->ops->create(box_engine, &c, &why), -EEXIST);
	assert_int_equal(box_engine->ops->signal(box_engine, c.name, SIGTERM, &why), 0);
	do {
		clock_sleep_ms(2);
		assert_int_equal(box_engine->ops->state(box_engine, c.name, &now), 0);
	} while (now == ENGINE_RUNNING);
	assert_int_equal(now, ENGINE_EXITED);
	assert_int_equal(other->ops->state(other, c.name, &now), 0);
	assert_int_equal(now, ENGINE_EXITED);
	assert_int_equal(box_finish(&c, NULL), 128 + SIGTERM);
	assert_int_equal(other->ops->state(other, c.name, &now), 0);
	assert_int_equal(now, ENGINE_ABSENT);
	engine_free(other);
}

static void test_mounts_read_only_and_links(void **state)
{
	const struct engine_mount mounts[] = {
		{.source = box_path("in"), .target = "/input", .read_only = true},
		{.source = box_path("out"), .target = "/output"}};
	const struct engine_link links[] = {{.path = "/data", .to = "/input"}};
	struct engine_container c = box_describe(
		"worker-0", ARGV("sh", "-c",
				 "cat /input/a /data/a; echo new >/output/b;"
				 "touch /input/c 2>/dev/null || echo refused"));
	struct buf b = BUF_INIT;

	NEEDS_ENGINE();
	mkdir(box_path("in"), 0755);
	mkdir(box_path("out"), 0755);
	close(open(box_path("in/a"), O_CREAT | O_WRONLY, 0644));
	c.mounts = mounts;
	c.mount_count = 2;
	c.links = links;
	c.link_count = 1;
	assert_int_equal(box_run(&c), 0);
	assert_string_equal(box_output, "refused\n");
	assert_int_equal(io_read_file(AT_FDCWD, box_path("out/b"), 100, &b), 0);
	assert_string_equal(b.data, "new\n");
	buf_fini(&b);
}

static void test_mount_made_later_is_seen_inside(void **state)
{
	const struct engine_mount mounts[] = {
		{.source = box_path("io"), .target = "/io", .slave = true}};
	struct engine_container c = box_describe(
		"worker-0",
		ARGV("sh", "-c",
		     "for i in $(seq 100); do test -e /io/late/file && exit 0;"
		     "sleep 0.1; done; exit 1"));
	struct why why;

	NEEDS_ENGINE();
	mkdir(box_path("io"), 0755);
	mkdir(box_path("io/late"), 0755);
	c.mounts = mounts;
	c.mount_count = 1;
	/* Not shared: refused with a sentence rather than silently never seen. */
	if (!mnt_propagates("/tmp")) {
		assert_int_equal(box_engine->ops->create(box_engine, &c, &why), -EINVAL);
		assert_non_null(strstr(why.text, "shared"));
	}
	assert_int_equal(mnt_share(box_path("io"), &why), 0);
	box_begin(&c);
	assert_int_equal(mount("none", box_path("io/late"), "tmpfs", 0, NULL), 0);
	close(open(box_path("io/late/file"), O_CREAT | O_WRONLY, 0644));
	assert_int_equal(box_finish(&c, NULL), 0);
	assert_int_equal(mnt_unshare(box_path("io"), &why), 0);
}

static void test_root_directory_stays_as_it_is(void **state)
{
	const struct engine_mount mounts[] = {
		{.source = "/usr", .target = "/usr", .read_only = true}};
	struct engine_container c = box_describe(
		"worker-0",
		ARGV("sh", "-c", "cat /etc/mark; echo x >/etc/mark; ls -A /"));
	struct buf b = BUF_INIT;
	struct why why;

	NEEDS_ENGINE();
	mkdir(box_path("image"), 0755);
	assert_int_equal(
		box_engine->ops->check_image(box_engine, box_path("image"), &why),
		-EINVAL);
	mkdir(box_path("image/usr"), 0755);
	mkdir(box_path("image/etc"), 0755);
	for (const char *const *p = ARGV("bin", "lib", "lib64"); *p; p++) {
		char to[64], at[64];

		snprintf(at, sizeof(at), "image/%s", *p);
		snprintf(to, sizeof(to), "usr/%s", *p);
		assert_int_equal(symlink(to, box_path(at)), 0);
	}
	close(open(box_path("image/etc/mark"), O_CREAT | O_WRONLY, 0644));
	assert_int_equal(
		box_engine->ops->check_image(box_engine, box_path("image"), &why), 0);
	c.image = box_path("image");
	c.mounts = mounts;
	c.mount_count = 1;
	assert_int_equal(box_run(&c), 0);
	assert_null(strstr(box_output, "home"));
	assert_int_equal(io_read_file(AT_FDCWD, box_path("image/etc/mark"), 100, &b), 0);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
}

/* As on a host that is a container itself: its root is an overlay, which no other overlay
 * can write to. */
static void test_layer_lives_in_memory_where_the_disk_cannot_carry_it(void **state)
{
	struct engine_container c = box_describe(
		"worker-0", ARGV("sh", "-c", "echo x >/usr/mine && cat /usr/mine"));
	char options[600];

	NEEDS_ENGINE();
	for (const char *const *p = ARGV("ovl", "l", "u", "w"); *p; p++)
		assert_int_equal(mkdir(box_path(*p), 0700), 0);
	snprintf(options, sizeof(options),
		 "lowerdir=%.100s,upperdir=%.100s,workdir=%.100s", box_path("l"),
		 box_path("u"), box_path("w"));
	assert_int_equal(mount("none", box_path("ovl"), "overlay", 0, options), 0);
	assert_int_equal(rmdir(c.state_dir), 0);
	c.state_dir = box_path("ovl/state");
	assert_int_equal(mkdir(c.state_dir, 0700), 0);
	box_begin(&c);
	clock_sleep_ms(200);
	assert_int_equal(access(box_path("u/state/layer/upper/usr/mine"), F_OK), -1);
	assert_int_equal(box_finish(&c, NULL), 0);
	assert_int_equal(umount(box_path("ovl")), 0);
}

static void test_image_that_is_none_is_refused(void **state)
{
	struct why why;

	NEEDS_ENGINE();
	assert_int_equal(box_engine->ops->check_image(box_engine, "ubuntu:22.04", &why),
			 -EINVAL);
	assert_non_null(strstr(why.text, "ubuntu:22.04"));
	assert_int_equal(box_engine->ops->check_image(box_engine, "/no/such/image", &why),
			 -ENOENT);
	assert_int_equal(box_engine->ops->check_image(box_engine, "/etc/passwd", &why),
			 -ENOTDIR);
	assert_int_equal(box_engine->ops->check_image(box_engine, "/", &why), -EINVAL);
}

static void test_failed_create_says_why_and_leaves_nothing(void **state)
{
	const struct engine_mount mounts[] = {
		{.source = "/no/such/source", .target = "/x"}};
	struct engine_container c = box_describe("worker-0", ARGV("true"));
	struct why why = {{0}};

	NEEDS_ENGINE();
	c.mounts = mounts;
	c.mount_count = 1;
	assert_int_equal(box_engine->ops->create(box_engine, &c, &why), -EIO);
	assert_non_null(strstr(why.text, "/no/such/source"));
	assert_int_equal(box_engine->ops->remove(box_engine, c.name, c.state_dir, &why),
			 0);
	assert_int_equal(rmdir(c.state_dir), 0);
	close(c.log_fd);
}

static void *wait_in_thread(void *arg)
{
	static int status;
	struct why why;
	bool oom;

	status = box_engine->ops->wait(box_engine, arg, UINT64_MAX, &status, &oom, &why)
			 ? -1
			 : status;
	return &status;
}

static void test_remove_makes_a_wait_return(void **state)
{
	struct engine_container c = box_describe("worker-0", ARGV("sleep", "100"));
	char name[64];
	struct why why;
	pthread_t thread;
	void *result;

	NEEDS_ENGINE();
	snprintf(name, sizeof(name), "%s", c.name);
	box_begin(&c);
	assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, name), 0);
	clock_sleep_ms(100);
	assert_int_equal(box_engine->ops->remove(box_engine, c.name, c.state_dir, &why),
			 0);
	pthread_join(thread, &result);
	assert_int_equal(*(int *)result, 137);
	assert_int_equal(rmdir(c.state_dir), 0);
	assert_int_equal(box_engine->ops->remove(box_engine, c.name, c.state_dir, &why),
			 0);
	close(c.log_fd);
}

#define CASE(f) cmocka_unit_test(f)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_exit_status_is_the_commands),
		CASE(test_missing_command_exits_127_and_says_so),
		CASE(test_environment_is_exactly_what_was_given),
		CASE(test_container_has_three_descriptors_and_its_own_directory),
		CASE(test_host_image_shows_programs_and_no_secrets),
		CASE(test_root_in_the_container_is_not_root_of_the_host),
		CASE(test_paths_to_hide_are_hidden),
		CASE(test_names_resolve_and_connect),
		CASE(test_memory_limit_kills_and_is_named),
		CASE(test_cpu_limit_slows),
		CASE(test_number_of_processes_is_limited),
		CASE(test_sigterm_ends_a_command_without_a_handler),
		CASE(test_state_follows_the_container),
		CASE(test_mounts_read_only_and_links),
		CASE(test_mount_made_later_is_seen_inside),
		CASE(test_root_directory_stays_as_it_is),
		CASE(test_layer_lives_in_memory_where_the_disk_cannot_carry_it),
		CASE(test_image_that_is_none_is_refused),
		CASE(test_failed_create_says_why_and_leaves_nothing),
		CASE(test_remove_makes_a_wait_return),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
