/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills a writing process at every named point, at system calls and at any moment,
 * recovers, wipes all local state and compares the store with what was acknowledged.
 *
 * The child works through a fixed story of files and writes each acknowledgement to a pipe
 * the moment it has it. The parent knows after the kill which promises were made. What the
 * story does to one name it does in order, so a promise is: the name holds the acknowledged
 * version, or a later one of the story.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/file.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_drain.h"
#include "tests/unit/lib_origin.h"
#include "tests/unit/lib_trace.h"

#define PART (64 << 10)
#define LARGE (3 * PART + 100)
#define BASE (8 * PART)
#define BASE_MAX (BASE + 3000)
#define EARLY (6 * PART + 100)
#define LINE 3000 /* of the log */
#define TREE 9    /* objects that nobody lists before their directory is renamed */

static const struct output_owner me = {1000, 1000};

static const char *const points[] = {
	"stage.write",
	"stage.fsync.before",
	"stage.fsync.after",
	"journal.append.torn",
	"journal.fsync.before",
	"journal.fsync.after",
	"carry.before",
	"carry.appended",
	"flush.sync.before",
	"flush.reply.before",
	"segment.rotate",
	"checkpoint.rename.before",
	"checkpoint.rename.after",
	"put.before",
	"put.acked",
	"multi.begin.after",
	"multi.id.recorded",
	"multi.part.before",
	"multi.part.acked",
	"multi.copy.before",
	"multi.copy.acked",
	"multi.end.before",
	"multi.end.acked",
	"append.before",
	"append.acked",
	"copy.before",
	"copy.acked",
	"delete.before",
	"delete.acked",
	"walk.page",
	"walk.finished",
	"stage.unlink",
	"drain.begin",
	"receipt.write",
	"ledger.write.after",
};

struct place {
	char dir[64], store[80], state[80];
};

static void fill(char *p, size_t n, char seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(seed + (i % 251) + i / 4096);
}

/* The object "base" of which two stretches are changed; returns its size. */
static size_t fill_base(char *p, char version)
{
	fill(p, BASE, 'x');
	if (version >= '1')
		fill(p + 2 * PART + 100, 5000, 'y');
	if (version < '2')
		return BASE;
	fill(p + 10, 20, 'z');
	fill(p + BASE, BASE_MAX - BASE, 'z');
	return BASE_MAX;
}

static void make_place(struct place *p)
{
	_cleanup_(freep) char *data = malloc(BASE_MAX);
	char path[128];
	int fd;

	snprintf(p->dir, sizeof(p->dir), "/tmp/sluice-crash.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->store, sizeof(p->store), "%s/store", p->dir);
	snprintf(p->state, sizeof(p->state), "%s/state", p->dir);
	assert_int_equal(mkdir(p->store, 0700), 0);
	snprintf(path, sizeof(path), "%s/base", p->store);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(io_pwrite(fd, data, fill_base(data, '0'), 0), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/tree", p->store);
	assert_int_equal(mkdir(path, 0700), 0);
	for (int i = 0; i < TREE; i++) {
		snprintf(path, sizeof(path), "%s/tree/%d", p->store, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_int_equal(io_pwrite(fd, path, 1 + (size_t)i, 0), 0);
		close(fd);
	}
}

/* Returns NULL when it cannot start (the child dies of that). */
static struct output *begin(const struct place *p, struct origin **origin)
{
	struct output_config config = {.state_dir = p->state,
				       .ttl_ms = 60000,
				       .part_size = PART,
				       .fetch_max = PART,
				       .append_objects = true,
				       .walk_ahead = 4,
				       .upload_parallel = 4};
	struct why why = {""};
	struct output *o;

	if (file_origin_open(p->store, false, origin, &why) < 0)
		return NULL;
	config.origin = *origin;
	if (output_new(&config, &o, &why) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return NULL;
	}
	return o;
}

/* ---- the story ----------------------------------------------------------------------------------- */

static void say(int pipe, char step)
{
	if (write(pipe, &step, 1) != 1)
		_exit(3);
}

#define must(x)                                                                          \
	do {                                                                             \
		int _m = (x);                                                            \
		if (_m != 0) {                                                           \
			fprintf(stderr, "%s: %d\n", #x, _m);                             \
			_exit(4);                                                        \
		}                                                                        \
	} while (0)

/* Changes two stretches of an object that is only in the store. */
static void patch_base(struct output *o, uint64_t seconds, int pipe)
{
	_cleanup_(freep) char *data = malloc(BASE_MAX);
	struct output_file *f;
	struct tree_attr attr;

	must(output_lookup(o, TREE_ROOT, "base", 0, &attr));
	must(output_open(o, attr.ino, O_RDWR, 0, &f));
	fill_base(data, '2');
	must(output_write(f, 2 * PART + 100, data + 2 * PART + 100, 5000, 0));
	must(output_flush(f));
	say(pipe, '1'); /* base = 1 */
	output_release(f);
	must(output_drain(o, seconds, NULL));
	must(output_open(o, attr.ino, O_RDWR, 0, &f));
	must(output_write(f, 10, data + 10, 20, 0));
	must(output_write(f, BASE, data + BASE, BASE_MAX - BASE, 0));
	must(output_flush(f));
	say(pipe, '2'); /* base = 2 */
	output_release(f);
	output_forget(o, attr.ino, 1);
}

/* A file that stays open while what it grew is published. */
static void grow_log(struct output *o, uint64_t seconds, int pipe)
{
	char data[3 * LINE];
	struct output_file *f;
	struct tree_attr attr;

	fill(data, sizeof(data), 'l');
	must(output_create(o, TREE_ROOT, "log", 0644, O_WRONLY | O_CREAT, me, 0, &attr,
			   &f));
	output_forget(o, attr.ino, 1);
	for (int i = 0; i < 3; i++) {
		must(output_write(f, (uint64_t)i * LINE, data + i * LINE, LINE, 0));
		must(output_flush(f));
		say(pipe, (char)('3' + i)); /* log = so many lines */
		if (i < 2)
			must(output_drain(o, seconds, NULL));
	}
	output_release(f);
}

/* A flush as a mount makes it: answered by another thread, if it has to wait. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t come;
	bool here;
	int result;
};

static void take_answer(void *arg, int result)
{
	struct answer *a = arg;

	pthread_mutex_lock(&a->lock);
	a->result = result;
	a->here = true;
	pthread_cond_signal(&a->come);
	pthread_mutex_unlock(&a->lock);
}

static int flush(struct output_file *f)
{
	struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
	int r = output_flush_later(f, take_answer, &a);

	if (r == TREE_E_WAIT)
		return output_flush(f);
	if (r != OUTPUT_E_LATER)
		return r;
	pthread_mutex_lock(&a.lock);
	while (!a.here)
		pthread_cond_wait(&a.come, &a.lock);
	pthread_mutex_unlock(&a.lock);
	return a.result;
}

static void write_file(struct output *o, uint64_t dir, const char *name, char seed,
		       size_t n)
{
	_cleanup_(freep) char *data = malloc(n);
	struct output_file *f;
	struct tree_attr attr;

	fill(data, n, seed);
	must(output_create(o, dir, name, 0644, O_WRONLY | O_CREAT | O_TRUNC, me, 0, &attr,
			   &f));
	output_forget(o, attr.ino, 1);
	must(output_write(f, 0, data, n / 2, 0));
	must(output_write(f, n / 2, data + n / 2, n - n / 2, 0));
	must(flush(f));
	output_release(f);
}

/* Twice, and something new where it was. */
static void move_tree(struct output *o, int pipe)
{
	struct tree_attr attr;

	must(output_rename(o, TREE_ROOT, "tree", TREE_ROOT, "grown", 0));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, '6'); /* grown/0 to grown/8, no tree */
	must(output_mkdir(o, TREE_ROOT, "tree", 0755, me, &attr));
	write_file(o, attr.ino, "1", 'g', LARGE);
	output_forget(o, attr.ino, 1);
	say(pipe, '7'); /* tree/1 = g */
	must(output_rename(o, TREE_ROOT, "grown", TREE_ROOT, "tall", 0));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, '8'); /* tall/0 to tall/8, no grown */
}

static bool begins_early; /* the story, with a file that is sent before it is closed */

/* Parts of it are in the store when its beginning is written once more. */
static void write_early(struct output *o, struct origin *origin, int pipe)
{
	_cleanup_(freep) char *data = malloc(EARLY);
	struct origin_stats sent = {0};
	struct output_file *f;
	struct tree_attr attr;

	fill(data, EARLY, 'h');
	must(output_create(o, TREE_ROOT, "early", 0644, O_WRONLY | O_CREAT, me, 0, &attr,
			   &f));
	output_forget(o, attr.ino, 1);
	must(output_write(f, 0, data, EARLY, 0));
	for (; !sent.requests[ORIGIN_MULTI_PART]; clock_sleep_ms(5))
		origin->ops->stats(origin, &sent);
	fill(data, EARLY, 'i');
	must(output_write(f, 0, data, EARLY, 0));
	must(output_flush(f));
	say(pipe, '/'); /* early = i */
	output_release(f);
}

static void story(const struct place *p, int pipe)
{
	uint64_t seconds = patience();
	struct buf receipt = BUF_INIT;
	struct origin *origin;
	struct output *o = begin(p, &origin);
	struct tree_attr d, e;

	if (!o)
		_exit(5);
	if (begins_early)
		write_early(o, origin, pipe);
	patch_base(o, seconds, pipe);
	grow_log(o, seconds, pipe);
	move_tree(o, pipe);
	must(output_mkdir(o, TREE_ROOT, "d", 0755, me, &d));
	write_file(o, d.ino, "small", 'a', 5000);
	say(pipe, 'a'); /* d/small = a */
	write_file(o, TREE_ROOT, "large", 'b', LARGE);
	say(pipe, 'b'); /* large = b */
	must(output_drain(o, seconds, NULL));
	say(pipe, 'c'); /* both are in the store now */
	write_file(o, d.ino, "small", 'd', 6000);
	say(pipe, 'd'); /* d/small = d */
	write_file(o, TREE_ROOT, "tmp", 'e', 7000);
	must(output_rename(o, TREE_ROOT, "tmp", TREE_ROOT, "large", 0));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, 'e'); /* large = e */
	must(output_drain(o, seconds, NULL));
	must(output_mkdir(o, TREE_ROOT, "e", 0755, me, &e));
	must(output_rename(o, TREE_ROOT, "d", e.ino, "moved", 0));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, 'f'); /* e/moved/small = d */
	must(output_drain(o, seconds, NULL));
	write_file(o, TREE_ROOT, "last", 'g', LARGE);
	say(pipe, 'g');
	must(output_unlink(o, TREE_ROOT, "large"));
	must(output_fsyncdir(o, TREE_ROOT));
	say(pipe, 'h'); /* no large */
	must(lib_drain(o, seconds, &receipt));
	buf_fini(&receipt);
	/* Staged files go at leisure; this point waits for it. */
	if (getenv("SLUICE_KILL_AT") &&
	    strstr(getenv("SLUICE_KILL_AT"), "stage.unlink:1"))
		clock_sleep_ms(5000);
	output_free(o);
	origin_free(origin);
	_exit(0);
}

/* ---- the oracle ------------------------------------------------------------------------------------ */

/* Which version of the story a key holds: its seed, '-' for none, '?' for bytes that no
 * version ever had. */
static char version_of(struct origin *origin, const char *key)
{
	static const struct {
		char seed;
		size_t n;
	} versions[] = {{'a', 5000}, {'b', LARGE}, {'d', 6000},
			{'e', 7000}, {'g', LARGE}, {'i', EARLY}};
	_cleanup_(buf_fini) struct buf got = BUF_INIT;
	int r = lib_get(origin, key, 0, ORIGIN_TO_END, NULL, &got);

	if (r == -ENOENT)
		return '-';
	assert_int_equal(r, 0);
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		_cleanup_(freep) char *want = malloc(versions[i].n);

		fill(want, versions[i].n, versions[i].seed);
		if (got.len == versions[i].n && memcmp(got.data, want, got.len) == 0)
			return versions[i].seed;
	}
	return '?';
}

/* When a story is killed. */
struct death {
	const char *point; /* kill point, or NULL */
	uint64_t call;     /* system call, counted as lib_trace() does, or 0 */
	uint64_t after_ms; /* with neither: so long after the start */
};
static struct death death; /* the present one */

static const char *describe_death(void)
{
	static char text[80];

	snprintf(text, sizeof(text), "%s, call %llu, %llu ms",
		 death.point ? death.point : "no point", (unsigned long long)death.call,
		 (unsigned long long)death.after_ms);
	return text;
}

static char version_of_base(struct origin *origin)
{
	_cleanup_(buf_fini) struct buf got = BUF_INIT;
	_cleanup_(freep) char *want = malloc(BASE_MAX);

	assert_int_equal(lib_get(origin, "base", 0, ORIGIN_TO_END, NULL, &got), 0);
	for (char version = '0'; version <= '2'; version++) {
		size_t n = fill_base(want, version);

		if (got.len == n && memcmp(got.data, want, n) == 0)
			return version;
	}
	return '?';
}

/* '3' to '5' by its length, '-' for none, '?' where it is not the beginning of the log. */
static char version_of_log(struct origin *origin)
{
	_cleanup_(buf_fini) struct buf got = BUF_INIT;
	char want[3 * LINE];
	int r = lib_get(origin, "log", 0, ORIGIN_TO_END, NULL, &got);

	if (r == -ENOENT)
		return '-';
	assert_int_equal(r, 0);
	fill(want, sizeof(want), 'l');
	if (got.len == 0 || got.len > sizeof(want) || got.len % LINE ||
	    memcmp(got.data, want, got.len) != 0)
		return '?';
	return (char)('2' + got.len / LINE);
}

/* Under which name the whole tree is: 't'ree, 'g'rown or ta'l'l; '?' when it is not under
 * one of them as a whole. */
static char place_of_tree(struct origin *origin, bool has_new)
{
	static const char *const names[] = {"tree", "grown", "tall"};
	char place = '-';
	int found = 0;

	for (int n = 0; n < 3; n++) {
		for (int i = 0; i < TREE; i++) {
			struct origin_attr attr;
			char key[32];

			snprintf(key, sizeof(key), "%s/%d", names[n], i);
			if (lib_stat(origin, key, &attr) != 0 ||
			    (has_new && n == 0 && i == 1))
				continue;
			if (attr.size != 1 + (uint64_t)i ||
			    (found > 0 && place != "tgl"[n]))
				return '?';
			place = "tgl"[n];
			found++;
		}
	}
	return found == TREE ? place : '?';
}

static void expect_one_of(const char *what, char got, const char *allowed)
{
	if (!strchr(allowed, got))
		fail_msg("%s holds '%c', expected one of \"%s\"; killed at %s", what, got,
			 allowed, describe_death());
}

/* What the store may hold when the story had come to `last`. */
static void compare(struct origin *origin, char last)
{
	char small = version_of(origin, "d/small");
	char moved = version_of(origin, "e/moved/small");
	char large = version_of(origin, "large");
	char tmp = version_of(origin, "tmp");

	expect_one_of("base", version_of_base(origin),
		      last >= '2'   ? "2"
		      : last >= '1' ? "12"
				    : "012");
	expect_one_of("log", version_of_log(origin),
		      last >= '5'   ? "5"
		      : last >= '4' ? "45"
		      : last >= '3' ? "345"
				    : "-345");
	expect_one_of("tree/1", version_of(origin, "tree/1"), last >= '7' ? "g" : "g-?");
	expect_one_of("the tree",
		      place_of_tree(origin, version_of(origin, "tree/1") == 'g'),
		      last >= '8'   ? "l"
		      : last >= '6' ? "gl"
				    : "tgl");
	expect_one_of("early", version_of(origin, "early"),
		      last != '0' && begins_early ? "i" : "-i");
	expect_one_of("tmp", tmp, last >= 'e' ? "-" : "-e");
	expect_one_of("last", version_of(origin, "last"), last >= 'g' ? "g" : "-g");
	if (last >= 'h')
		expect_one_of("large", large, "-");
	else if (last >= 'e')
		expect_one_of("large", large, last == 'g' ? "e-" : "e");
	else if (last >= 'b')
		expect_one_of("large", large, "be");
	else
		expect_one_of("large", large, "-b");
	/* Under one of its two names, and only there. */
	if (last >= 'f')
		expect_one_of("d/small", small, "-");
	if (small == '-') {
		expect_one_of("e/moved/small", moved,
			      last >= 'd' ? "d" : (last >= 'a' ? "ad" : "-ad"));
	} else {
		expect_one_of("e/moved/small", moved, "-");
		expect_one_of("d/small", small, last >= 'd' ? "d" : "ad");
	}
}

/* Runs the story until its death. Returns the last promise, '0' for none; sets *killed,
 * and with death.call *calls, the system calls that were counted. */
static char run(const struct place *p, bool *killed, uint64_t *calls)
{
	const char *point = death.point;
	char last = '0', step;
	int pipes[2], status;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(pipes[0]);
		if (death.call)
			lib_trace_me();
		if (point)
			setenv("SLUICE_KILL_AT", point, 1);
		alarm(60);
		story(p, pipes[1]);
	}
	close(pipes[1]);
	if (!point && !death.call) {
		clock_sleep_ms(death.after_ms);
		kill(pid, SIGKILL);
	}
	/* What it says fits into the pipe. */
	if (death.call)
		status = lib_trace(pid, death.call, calls);
	while (read(pipes[0], &step, 1) == 1)
		last = step;
	close(pipes[0]);
	if (!death.call)
		assert_int_equal(waitpid(pid, &status, 0), pid);
	*killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	if (!*killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
		fail_msg("%s: the story ended with status %x", point ? point : "-",
			 status);
	return last;
}

static void deliver(struct output *o)
{
	_cleanup_(buf_fini) struct buf receipt = BUF_INIT;

	if (lib_drain(o, patience(), &receipt) != 0)
		fail_msg("not delivered; killed at %s: %s", describe_death(),
			 receipt.data);
}

static void recover_and_compare(const struct place *p, char last)
{
	struct origin_req uploads = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct lib_listed listed = {0};
	struct origin *origin;

	/* Three times: recovery changes nothing the second time. */
	for (int i = 0; i < 3; i++) {
		struct output *o = begin(p, &origin);

		assert_non_null(o);
		deliver(o);
		output_free(o);
		if (i < 2)
			origin_free(origin);
	}
	io_remove_tree(AT_FDCWD, p->state);
	compare(origin, last);
	/* No orphan upload stays behind. */
	uploads.list.entry = lib_keep_entry;
	uploads.list.entry_arg = &listed;
	if (origin->caps & ORIGIN_CAP_MULTI)
		assert_int_equal(origin_call(origin, &uploads), 0);
	assert_int_equal(listed.count, 0);
	origin_free(origin);
}

/* SLUICE_CRASH=full: more of each, minutes instead of seconds; SLUICE_CRASH_CALL=n: from
 * that system call on. */
static bool is_full(void)
{
	const char *how = getenv("SLUICE_CRASH");

	return how && strcmp(how, "full") == 0;
}

static void kill_at_points(const char *const *names, size_t name_count, int count)
{
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	for (size_t i = 0; i < name_count; i++) {
		for (int n = 1; n <= count; n++) {
			struct place p;
			char point[64];
			bool killed = false;

			snprintf(point, sizeof(point), "%s:%d", names[i], n);
			/* Some points wait for others to be slow: a run may miss them. */
			for (int tries = 0; tries < (n == 1 ? 10 : 1) && !killed;
			     tries++) {
				char last;

				make_place(&p);
				death = (struct death){.point = point};
				last = run(&p, &killed, NULL);
				if (killed)
					recover_and_compare(&p, last);
				io_remove_tree(AT_FDCWD, p.dir);
			}
			if (!killed && n == 1)
				fail_msg("%s was never reached", point);
			if (!killed)
				break;
		}
	}
}

static void test_every_kill_point_keeps_every_promise(void **state)
{
	(void)state;
	kill_at_points(points, sizeof(points) / sizeof(*points), is_full() ? 12 : 2);
}

/* While parts are sent of a file that is still being written, and of the version then. */
static void test_a_kill_with_parts_ahead_leaves_no_upload(void **state)
{
	static const char *const ahead[] = {"multi.begin.after", "multi.id.recorded",
					    "multi.part.before", "multi.part.acked",
					    "flush.sync.before", "multi.end.before"};

	(void)state;
	begins_early = true;
	kill_at_points(ahead, sizeof(ahead) / sizeof(*ahead), is_full() ? 12 : 1);
	begins_early = false;
}

/* One story in a place of its own, killed, recovered, compared. */
static uint64_t tell_and_kill(void)
{
	uint64_t calls = 0;
	struct place p;
	bool killed;
	char last;

	make_place(&p);
	last = run(&p, &killed, &calls);
	recover_and_compare(&p, last);
	io_remove_tree(AT_FDCWD, p.dir);
	return calls;
}

static void test_a_kill_at_any_moment_keeps_every_promise(void **state)
{
	int count = is_full() ? 200 : 10;

	(void)state;
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	for (int i = 0; i < count; i++) {
		death = (struct death){.after_ms = clock_random() % 300};
		tell_and_kill();
	}
}

static void test_a_kill_at_system_calls_keeps_every_promise(void **state)
{
	const char *from = getenv("SLUICE_CRASH_CALL");
	uint64_t calls, step, i;

	(void)state;
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	death = (struct death){.call = UINT64_MAX};
	calls = tell_and_kill();
	assert_in_range(calls, 1000, 1000000);
	step = is_full() ? 1 : calls / 40;
	i = from ? strtoull(from, NULL, 10) : 1 + clock_random() % step;
	for (; i <= calls; i += step) {
		if (is_full() && i % 100 == 0)
			print_message("%llu of %llu system calls\n",
				      (unsigned long long)i, (unsigned long long)calls);
		death = (struct death){.call = i};
		tell_and_kill();
	}
}

TEST_MAIN(cmocka_unit_test(test_every_kill_point_keeps_every_promise),
	  cmocka_unit_test(test_a_kill_with_parts_ahead_leaves_no_upload),
	  cmocka_unit_test(test_a_kill_at_system_calls_keeps_every_promise),
	  cmocka_unit_test(test_a_kill_at_any_moment_keeps_every_promise))
