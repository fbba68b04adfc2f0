/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the power, or lets a sync fail, at every moment of a writing run, recovers from what
 * the disk then holds, and compares the store with what was acknowledged.
 *
 * Several writers work on names of their own and say through a pipe what they begin and
 * what was acknowledged. From that follows which versions each name may have afterwards.
 *
 * SLUICE_SEED repeats a run, SLUICE_CRASH=full makes many more of them.
 *
 * For scripts/power-cut, which cuts the power of a whole machine, writers and oracle are
 * there by themselves:
 *   test_output_power --write DIR SEED >EVENTS     until it is ended from outside
 *   test_output_power --check DIR SEED <EVENTS     what recovery makes of DIR
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
#include "fs/backend/fault.h"
#include "fs/backend/file.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_drain.h"
#include "tests/unit/lib_origin.h"
#include "tests/unit/power.h"

#define WRITERS 3
#define NAMES 4  /* of each writer */
#define STEPS 12 /* of each writer */
#define PART (32 << 10)
#define VERSIONS 250 /* fewer than fit into a set */

static const struct output_owner me = {1000, 1000};

enum action {
	BEGUN,
	DONE
};
enum kind {
	WRITE,
	RENAME,
	UNLINK
};

/* What a writer says. */
struct event {
	uint8_t writer, action, kind, name, to, version;
};

struct run {
	char store[80], state[80], image[80];
	uint64_t seed;
	bool away; /* the store takes nothing during the run */
	struct power_config power;
	int pipe;
	struct output *o;
};

static void set_place(struct run *run, const char *dir)
{
	snprintf(run->store, sizeof(run->store), "%s/store", dir);
	snprintf(run->state, sizeof(run->state), "%s/state", dir);
	snprintf(run->image, sizeof(run->image), "%s/image", dir);
}

static uint64_t pick(uint64_t *random, uint64_t n)
{
	*random ^= *random >> 12;
	*random ^= *random << 25;
	*random ^= *random >> 27;
	return (*random * 2685821657736338717ull >> 33) % n;
}

/* ---- the writers --------------------------------------------------------------------------- */

/* Sizes that end within a sector, fill parts, and are empty. */
static size_t size_of(unsigned int version)
{
	static const size_t sizes[] = {0, 1, 511, 4096, 5000, PART, 3 * PART + 700};

	return sizes[version % (sizeof(sizes) / sizeof(*sizes))];
}

static void fill(char *p, unsigned int version)
{
	for (size_t i = 0; i < size_of(version); i++)
		p[i] = (char)(version + i % 251 + i / 4096);
}

static void name_of(char out[16], unsigned int writer, unsigned int name)
{
	snprintf(out, 16, "w%u-%u", writer, name);
}

static void say(const struct run *run, struct event e, enum action action)
{
	e.action = action;
	if (write(run->pipe, &e, sizeof(e)) != sizeof(e))
		_exit(3);
}

/* Whether it was acknowledged. A failed sync may refuse it; the data is then written anew
 * as the next version. */
static bool write_version(struct run *run, const char *name, unsigned int version)
{
	_cleanup_(freep) char *data = malloc(size_of(version) + 1);
	struct output_file *f;
	struct tree_attr attr;
	size_t half = size_of(version) / 2;
	bool good;

	fill(data, version);
	if (output_create(run->o, TREE_ROOT, name, 0644, O_WRONLY | O_CREAT | O_TRUNC, me,
			  0, &attr, &f) != 0)
		return false;
	good = output_write(f, 0, data, half, 0) == 0 &&
	       output_write(f, half, data + half, size_of(version) - half, 0) == 0;
	good = output_flush(f) == 0 && good;
	output_release(f);
	output_forget(run->o, attr.ino, 1);
	return good;
}

static bool act(struct run *run, const struct event *e)
{
	char name[16], to[16];
	int r;

	name_of(name, e->writer, e->name);
	name_of(to, e->writer, e->to);
	if (e->kind == WRITE)
		return write_version(run, name, e->version);
	r = e->kind == RENAME ? output_rename(run->o, TREE_ROOT, name, TREE_ROOT, to, 0)
			      : output_unlink(run->o, TREE_ROOT, name);
	if (r != 0 && r != -ENOENT)
		return false;
	return output_fsyncdir(run->o, TREE_ROOT) == 0 && r == 0;
}

struct writer {
	struct run *run;
	unsigned int number;
};

static void *write_story(void *arg)
{
	const struct writer *w = arg;
	uint64_t random = w->run->seed * 31 + w->number + 1;

	for (unsigned int i = 0; i < STEPS; i++) {
		struct event e = {.writer = (uint8_t)w->number,
				  .kind = (uint8_t)pick(&random, 5),
				  .name = (uint8_t)pick(&random, NAMES),
				  .version = (uint8_t)(w->number * STEPS + i + 1)};

		e.to = (uint8_t)((e.name + 1 + pick(&random, NAMES - 1)) % NAMES);
		if (e.kind > UNLINK)
			e.kind = WRITE;
		say(w->run, e, BEGUN);
		if (act(w->run, &e))
			say(w->run, e, DONE);
	}
	return NULL;
}

static struct output *start(struct run *run, bool away, struct origin **origin)
{
	struct output_config config = {.state_dir = run->state,
				       .ttl_ms = 60000,
				       .part_size = PART,
				       .upload_parallel = 4};
	struct why why = {""};
	struct output *o;

	if (file_origin_open(run->store, false, origin, &why) < 0 ||
	    fault_origin_new(*origin, origin) < 0)
		return NULL;
	if (away) {
		/* Nothing is taken; what is there can be read. */
		for (enum origin_op op = ORIGIN_PUT; op < ORIGIN_OP_N; op++) {
			struct fault_rule rule = {.op = op, .error = -ECONNREFUSED};

			fault_add(*origin, &rule);
		}
	}
	config.origin = *origin;
	if (output_new(&config, &o, &why) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return NULL;
	}
	return o;
}

static void write_stories(struct run *run)
{
	pthread_t threads[WRITERS];
	struct writer writers[WRITERS];

	for (unsigned int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){run, i};
		if (pthread_create(&threads[i], NULL, write_story, &writers[i]))
			_exit(5);
	}
	for (unsigned int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
}

/* In a process of its own; ends with the power cut. `totals` gets what can be cut. */
static void child(struct run *run, int totals)
{
	struct origin *origin;
	uint64_t total[2];

	alarm(60);
	power_watch(&run->power);
	run->o = start(run, run->away, &origin);
	if (!run->o && run->power.fail_sync_at)
		power_cut(); /* it refuses to start on such a disk */
	if (!run->o)
		_exit(4);
	write_stories(run);
	total[0] = power_count();
	total[1] = power_syncs();
	if (write(totals, total, sizeof(total)) != sizeof(total))
		_exit(6);
	power_cut();
}

/* ---- the oracle ------------------------------------------------------------------------------ */

#define NONE 0
#define EMPTY (VERSIONS - 1) /* all versions without a byte are the same */

/* The versions that a name may have. */
struct may {
	bool is[VERSIONS];
};

struct promises {
	struct may names[WRITERS][NAMES];
	struct may moving[WRITERS]; /* what a rename that was begun takes along */
};

static void may_too(struct may *to, const struct may *also)
{
	for (int i = 0; i < VERSIONS; i++)
		to->is[i] |= also->is[i];
}

static struct may only(unsigned int version)
{
	struct may one = {{false}};

	one.is[version] = true;
	return one;
}

static struct may written(const struct event *e)
{
	return only(size_of(e->version) ? e->version : EMPTY);
}

static void begin(struct promises *p, const struct event *e)
{
	struct may *name = &p->names[e->writer][e->name];
	struct may new = written(e), none = only(NONE);

	if (e->kind == WRITE) {
		/* The name may arrive before its first content. */
		if (name->is[NONE])
			name->is[EMPTY] = true;
		may_too(name, &new);
		return;
	}
	if (e->kind == RENAME) {
		p->moving[e->writer] = *name;
		may_too(&p->names[e->writer][e->to], name);
	}
	may_too(name, &none);
}

static void promise(struct promises *p, const struct event *e)
{
	p->names[e->writer][e->name] = e->kind == WRITE ? written(e) : only(NONE);
	if (e->kind == RENAME) {
		p->moving[e->writer].is[NONE] = false;
		p->names[e->writer][e->to] = p->moving[e->writer];
	}
}

/* Which version the store holds under a name; -1: bytes that no version had. */
static int stored_version(struct origin *origin, const char *name)
{
	_cleanup_(buf_fini) struct buf got = BUF_INIT;
	int r = lib_get(origin, name, 0, ORIGIN_TO_END, NULL, &got);

	if (r == -ENOENT)
		return NONE;
	assert_int_equal(r, 0);
	if (got.len == 0)
		return EMPTY;
	for (unsigned int v = 1; v <= WRITERS * STEPS; v++) {
		_cleanup_(freep) char *want = malloc(size_of(v) + 1);

		fill(want, v);
		if (got.len == size_of(v) && memcmp(got.data, want, got.len) == 0)
			return (int)v;
	}
	return -1;
}

static void print_may(const struct may *may)
{
	for (int v = 0; v < VERSIONS; v++)
		if (may->is[v])
			print_error(" %d", v);
	print_error("\n");
}

static void compare(const struct run *run, struct origin *origin,
		    const struct promises *p)
{
	for (unsigned int i = 0; i < WRITERS * NAMES; i++) {
		const struct may *may = &p->names[i / NAMES][i % NAMES];
		char name[16];
		int got;

		name_of(name, i / NAMES, i % NAMES);
		got = stored_version(origin, name);
		if (got >= 0 && may->is[got])
			continue;
		print_error("%s may hold", name);
		print_may(may);
		fail_msg("%s holds %d; SLUICE_SEED=%llu, store %s, cut at %llu, failed "
			 "sync %llu",
			 name, got, (unsigned long long)run->seed,
			 run->away ? "away" : "there",
			 (unsigned long long)run->power.cut_at,
			 (unsigned long long)run->power.fail_sync_at);
	}
}

/* ---- one run --------------------------------------------------------------------------------- */

static void take_events(struct promises *p, int fd)
{
	struct event e;

	for (unsigned int i = 0; i < WRITERS * NAMES; i++)
		p->names[i / NAMES][i % NAMES] = only(NONE);
	while (read(fd, &e, sizeof(e)) == sizeof(e)) {
		assert_true(e.writer < WRITERS && e.name < NAMES && e.to < NAMES &&
			    e.version <= WRITERS * STEPS);
		if (e.action == BEGUN)
			begin(p, &e);
		else
			promise(p, &e);
	}
}

/* Runs the writers until the cut. `totals` gets changes and syncs of a run to the end. */
static void write_until_cut(struct run *run, struct promises *p, uint64_t totals[2])
{
	int events[2], sums[2], status;
	pid_t pid;

	assert_int_equal(pipe2(events, O_CLOEXEC), 0);
	assert_int_equal(pipe2(sums, O_CLOEXEC), 0);
	run->pipe = events[1];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(run, sums[1]);
	close(events[1]);
	close(sums[1]);
	take_events(p, events[0]);
	if (read(sums[0], totals, 2 * sizeof(*totals)) <= 0)
		totals[0] = totals[1] = 0;
	close(events[0]);
	close(sums[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the writers ended with status %x", status);
}

static void recover_and_compare(struct run *run, const struct promises *p)
{
	_cleanup_(buf_fini) struct buf receipt = BUF_INIT;
	struct origin *origin;
	struct output *o;

	o = start(run, false, &origin);
	assert_non_null(o);
	if (lib_drain(o, patience(), &receipt) != 0)
		fail_msg("not delivered: %s; SLUICE_SEED=%llu, cut at %llu, failed sync "
			 "%llu",
			 receipt.data, (unsigned long long)run->seed,
			 (unsigned long long)run->power.cut_at,
			 (unsigned long long)run->power.fail_sync_at);
	output_free(o);
	compare(run, origin, p);
	origin_free(origin);
}

static void do_run(uint64_t seed, uint64_t cut_at, uint64_t fail_sync_at,
		   uint64_t totals[2])
{
	char dir[] = "/tmp/sluice-power.XXXXXX";
	struct run run = {.seed = seed, .away = seed % 2};
	struct promises p = {0};

	assert_non_null(mkdtemp(dir));
	set_place(&run, dir);
	assert_int_equal(mkdir(run.store, 0700) | mkdir(run.state, 0700) |
				 mkdir(run.image, 0700),
			 0);
	run.power = (struct power_config){.dir = run.state,
					  .image = run.image,
					  .cut_at = cut_at,
					  .fail_sync_at = fail_sync_at,
					  .seed = seed};
	write_until_cut(&run, &p, totals);
	/* The machine starts with what the disk holds. */
	assert_int_equal(io_remove_tree(AT_FDCWD, run.state), 0);
	assert_int_equal(rename(run.image, run.state), 0);
	recover_and_compare(&run, &p);
	io_remove_tree(AT_FDCWD, dir);
}

/* ---- cases ------------------------------------------------------------------------------------- */

/* Of `few` and, with SLUICE_CRASH=full, `many`. */
static unsigned int how_many(unsigned int few, unsigned int many)
{
	const char *how = getenv("SLUICE_CRASH");

	return how && strcmp(how, "full") == 0 ? many : few;
}

static uint64_t first_seed(void)
{
	const char *given = getenv("SLUICE_SEED");

	return given ? strtoull(given, NULL, 10) : clock_random() % 1000000;
}

static void test_a_power_cut_keeps_what_was_acknowledged(void **state)
{
	unsigned int count = how_many(60, 5000);
	uint64_t seed = first_seed(), totals[2], ignored[2];

	(void)state;
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)seed);
	do_run(seed, 0, 0, totals);
	assert_in_range(totals[0], 50, 100000);
	for (unsigned int i = 1; i < count; i++)
		do_run(seed + i, 1 + (i * totals[0]) / count, 0, ignored);
}

static void test_a_failed_sync_loses_nothing(void **state)
{
	unsigned int count = how_many(25, 1000);
	uint64_t seed = first_seed(), totals[2], ignored[2];

	(void)state;
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)seed);
	do_run(seed, 0, 0, totals);
	assert_in_range(totals[1], 10, 10000);
	for (unsigned int i = 1; i <= count; i++)
		do_run(seed + i, 0, 1 + i * totals[1] / (count + 1), ignored);
}

/* ---- by itself --------------------------------------------------------------------------------- */

static struct run alone; /* of --write and --check */

static int write_alone(void)
{
	struct origin *origin;

	alone.away = true; /* what reaches the disk is all there is */
	log_set_level(LOG_ERROR);
	alone.pipe = STDOUT_FILENO;
	alone.o = start(&alone, alone.away, &origin);
	if (!alone.o)
		return 1;
	write_stories(&alone);
	pause();
	return 0;
}

static void test_the_events_given(void **state)
{
	struct promises p = {0};

	(void)state;
	take_events(&p, STDIN_FILENO);
	recover_and_compare(&alone, &p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_power_cut_keeps_what_was_acknowledged),
		cmocka_unit_test(test_a_failed_sync_loses_nothing),
	};
	const struct CMUnitTest check[] = {cmocka_unit_test(test_the_events_given)};

	if (argc == 4) {
		set_place(&alone, argv[2]);
		alone.seed = strtoull(argv[3], NULL, 10);
		mkdir(alone.store, 0700);
		mkdir(alone.state, 0700);
		if (strcmp(argv[1], "--write") == 0)
			return write_alone();
		return cmocka_run_group_tests(check, NULL, NULL);
	}
	test_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
