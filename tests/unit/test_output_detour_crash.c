/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills a process at every named point behind the rename of a file whose upload is under way,
 * recovers, and compares the store with what was acknowledged.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/backend/fault.h"
#include "fs/backend/file.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_origin.h"

#define PART (64u << 10)
#define LARGE (6 * PART + 100)

static const struct output_owner me = {1000, 1000};

struct place {
	char dir[64], store[80], state[80];
};

static void make_place(struct place *p)
{
	snprintf(p->dir, sizeof(p->dir), "/tmp/sluice-detour.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->store, sizeof(p->store), "%s/store", p->dir);
	snprintf(p->state, sizeof(p->state), "%s/state", p->dir);
	assert_int_equal(mkdir(p->store, 0700), 0);
}

static void fill(char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(seed + i % 251 + i / 4096);
}

/* NULL when it cannot start. Parts take a while: a rename meets some that fly. */
static struct output *begin(const struct place *p, struct origin **origin)
{
	struct fault_rule slow = {.op = ORIGIN_MULTI_PART, .delay_ms = 20};
	struct output_config config = {.state_dir = p->state,
				       .ttl_ms = 60000,
				       .part_size = PART,
				       .upload_parallel = 4};
	struct why why = {""};
	struct output *o;

	if (file_origin_open(p->store, false, origin, &why) < 0 ||
	    fault_origin_new(*origin, origin) < 0)
		return NULL;
	fault_add(*origin, &slow);
	slow.op = ORIGIN_MULTI_END;
	fault_add(*origin, &slow);
	config.origin = *origin;
	return output_new(&config, &o, &why) < 0 ? NULL : o;
}

#define must(x)                                                                          \
	do {                                                                             \
		if ((x) != 0)                                                            \
			_exit(4);                                                        \
	} while (0)

static void write_file(struct output *o, const char *name, unsigned int seed)
{
	_cleanup_(freep) char *data = malloc(LARGE);
	struct output_file *f;
	struct tree_attr attr;

	fill(data, LARGE, seed);
	must(output_create(o, TREE_ROOT, name, 0644, O_WRONLY | O_CREAT, me, 0, &attr,
			   &f));
	output_forget(o, attr.ino, 1);
	must(output_write(f, 0, data, LARGE, 0));
	must(output_flush(f));
	output_release(f);
}

static void say(int pipe, char step)
{
	must(write(pipe, &step, 1) != 1);
}

/* "tmp" becomes "now", which was another file, and something new is called "tmp". */
static void story(const struct place *p, int pipe)
{
	struct origin_stats sent = {0}, before = {0};
	uint64_t deadline = patience();
	struct origin *origin;
	struct output *o = begin(p, &origin);

	must(o == NULL);
	write_file(o, "now", 1);
	must(output_drain(o, deadline, NULL));
	origin->ops->stats(origin, &before);
	write_file(o, "tmp", 2);
	say(pipe, 'a'); /* tmp = 2, now = 1 */
	do {
		clock_sleep_ms(1);
		origin->ops->stats(origin, &sent);
	} while (sent.requests[ORIGIN_MULTI_PART] == before.requests[ORIGIN_MULTI_PART]);
	must(output_rename(o, TREE_ROOT, "tmp", TREE_ROOT, "now", 0));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, 'b'); /* now = 2 */
	write_file(o, "tmp", 3);
	say(pipe, 'c'); /* tmp = 3 */
	must(output_drain(o, deadline, NULL));
	output_free(o);
	origin_free(origin);
	_exit(0);
}

/* The last promise before the death, '0' for none. */
static char run(const struct place *p, const char *point, bool *killed)
{
	char last = '0', step;
	int pipes[2], status;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(pipes[0]);
		setenv("SLUICE_KILL_AT", point, 1);
		alarm(60);
		story(p, pipes[1]);
	}
	close(pipes[1]);
	while (read(pipes[0], &step, 1) == 1)
		last = step;
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	*killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	if (!*killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
		fail_msg("%s: the story ended with status %x", point, status);
	return last;
}

/* '0' + seed; '-': there is none; '?': bytes that no file ever had. */
static char version_of(struct origin *origin, const char *key)
{
	_cleanup_(freep) char *want = malloc(LARGE);
	_cleanup_(buf_fini) struct buf got = BUF_INIT;

	if (lib_get(origin, key, 0, ORIGIN_TO_END, NULL, &got) != 0)
		return '-';
	for (unsigned int seed = 1; seed <= 3; seed++) {
		fill(want, LARGE, seed);
		if (got.len == LARGE && memcmp(got.data, want, LARGE) == 0)
			return (char)('0' + seed);
	}
	return '?';
}

static void compare(struct origin *origin, const char *point, char last)
{
	char tmp = version_of(origin, "tmp"), now = version_of(origin, "now");
	bool is_good = last == 'c'   ? now == '2' && tmp == '3'
		       : last == 'b' ? now == '2' && (tmp == '-' || tmp == '3')
		       : last == 'a' ? (now == '1' && tmp == '2') || now == '2'
				     : now != '?' && tmp != '?' && tmp != '3';

	if (!is_good)
		fail_msg("killed at %s behind '%c': now=%c tmp=%c", point, last, now,
			 tmp);
}

static void recover(const struct place *p, const char *point, char last)
{
	struct origin_req uploads = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct lib_listed listed = {0};
	struct origin *origin;
	struct output *o = begin(p, &origin);

	assert_non_null(o);
	assert_int_equal(output_drain(o, patience(), NULL), 0);
	output_free(o);
	compare(origin, point, last);
	uploads.list.entry = lib_keep_entry;
	uploads.list.entry_arg = &listed;
	assert_int_equal(origin_call(origin, &uploads), 0);
	assert_int_equal(listed.count, 0);
	origin_free(origin);
}

static void test_a_kill_behind_a_rename_keeps_every_promise(void **state)
{
	static const struct {
		const char *name;
		int first, last; /* arrivals; the first file's are left out */
	} points[] = {{"multi.part.before", 8, 14},  {"multi.part.acked", 8, 14},
		      {"multi.end.before", 2, 3},    {"multi.end.acked", 2, 3},
		      {"copy.before", 1, 1},         {"copy.acked", 1, 1},
		      {"delete.before", 1, 1},       {"delete.acked", 1, 1},
		      {"journal.fsync.after", 8, 16}};
	const char *how = getenv("SLUICE_CRASH");
	int step = how && strcmp(how, "full") == 0 ? 1 : 3;

	(void)state;
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		for (int n = points[i].first; n <= points[i].last; n += step) {
			struct place p;
			char point[64];
			bool killed;
			char last;

			snprintf(point, sizeof(point), "%s:%d", points[i].name, n);
			make_place(&p);
			last = run(&p, point, &killed);
			recover(&p, point, last);
			io_remove_tree(AT_FDCWD, p.dir);
		}
	}
}

TEST_MAIN(cmocka_unit_test(test_a_kill_behind_a_rename_keeps_every_promise))
