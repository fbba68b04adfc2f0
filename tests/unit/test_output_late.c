/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that are under way while a version of their file is made: their bytes come when
 * parts of the version are in the store already. What fsync acknowledges behind them has to
 * arrive all the same, also if the daemon dies in between.
 */
#include "tests/unit/lib_output.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cache/kill_point.h"
#include "fs/backend/file.h"
#include "fs/backing.h"
#include "fs/handover.h"

#define PART (128u << 10)
#define LARGE (8 * PART)
#define LATE_AT (PART + 1000) /* in the second part */
#define LATE "came late"

/* ---- a change that is held before its bytes ----------------------------------------------- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t moved;
	bool waits, goes;
} held = {.mutex = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_late; /* what this thread changes waits */

static void hold(void)
{
	if (!is_late)
		return;
	pthread_mutex_lock(&held.mutex);
	held.waits = true;
	pthread_cond_broadcast(&held.moved);
	while (!held.goes)
		pthread_cond_wait(&held.moved, &held.mutex);
	pthread_mutex_unlock(&held.mutex);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	hold();
	return syscall(SYS_pwrite64, fd, p, n, off);
}

/* Kill points are ours here: at one of them a change waits that has not begun yet, at another
 * one somebody does something while a version is made. */
bool kill_point_armed = true;
static _Thread_local void (*while_syncing)(void *arg); /* … in this thread */
static _Thread_local void *while_syncing_arg;

void kill_point_init(void)
{
}

void kill_point_arrive(const char *name)
{
	const char *at = getenv("SLUICE_KILL_AT");

	if (!strcmp(name, "fallocate.before"))
		hold();
	if (while_syncing && !strcmp(name, "stage.fsync.before"))
		while_syncing(while_syncing_arg);
	if (at && !strcmp(name, at))
		raise(SIGKILL);
}

struct writer {
	pthread_t thread;
	struct output_file *file;
	bool punch; /* zeros rather than LATE */
	int result;
};

static void *change_late(void *arg)
{
	struct writer *w = arg;

	is_late = true;
	w->result = w->punch
			    ? output_fallocate(w->file,
					       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					       LATE_AT, strlen(LATE))
			    : output_write(w->file, LATE_AT, LATE, strlen(LATE), 0);
	return NULL;
}

static void begin_late(struct writer *w, struct output_file *f, bool punch)
{
	*w = (struct writer){.file = f, .punch = punch};
	held.waits = held.goes = false;
	pthread_create(&w->thread, NULL, change_late, w);
	pthread_mutex_lock(&held.mutex);
	while (!held.waits)
		pthread_cond_wait(&held.moved, &held.mutex);
	pthread_mutex_unlock(&held.mutex);
}

static int end_late(struct writer *w)
{
	pthread_mutex_lock(&held.mutex);
	held.goes = true;
	pthread_cond_broadcast(&held.moved);
	pthread_mutex_unlock(&held.mutex);
	pthread_join(w->thread, NULL);
	return w->result;
}

/* ---- a store that holds requests of a kind ------------------------------------------------ */

struct gate {
	struct origin origin;
	struct origin *below;
	pthread_mutex_t mutex;
	pthread_cond_t moved;
	enum origin_op op;            /* ORIGIN_OP_N: none */
	unsigned int waiting, passes; /* so many of them may go */
};

/* Its callers are the uploader's workers, which wait for the answer anyway. */
static void gate_submit(struct origin *o, struct origin_req *req)
{
	struct gate *g = (struct gate *)o;

	pthread_mutex_lock(&g->mutex);
	if (req->op == g->op) {
		g->waiting++;
		pthread_cond_broadcast(&g->moved);
		while (req->op == g->op && g->passes == 0)
			pthread_cond_wait(&g->moved, &g->mutex);
		if (req->op == g->op)
			g->passes--;
		g->waiting--;
	}
	pthread_mutex_unlock(&g->mutex);
	origin_submit(g->below, req);
}

static void gate_cancel(struct origin *o, struct origin_req *req)
{
	(void)o;
	(void)req;
}

static void gate_stats(struct origin *o, struct origin_stats *stats)
{
	struct gate *g = (struct gate *)o;

	g->below->ops->stats(g->below, stats);
}

static void gate_free(struct origin *o)
{
	struct gate *g = (struct gate *)o;

	origin_free(g->below);
	free(g);
}

static const struct origin_ops gate_ops = {"gate", gate_submit, gate_cancel, gate_stats,
					   gate_free};

static struct origin *gate_new(struct origin *below)
{
	struct gate *g = calloc(1, sizeof(*g));

	g->origin = *below;
	g->origin.ops = &gate_ops;
	g->below = below;
	g->op = ORIGIN_OP_N;
	pthread_mutex_init(&g->mutex, NULL);
	pthread_cond_init(&g->moved, NULL);
	return &g->origin;
}

static void gate_set(struct origin *o, enum origin_op op)
{
	struct gate *g = (struct gate *)o;

	pthread_mutex_lock(&g->mutex);
	g->op = op;
	pthread_cond_broadcast(&g->moved);
	pthread_mutex_unlock(&g->mutex);
}

/* One that waits goes. */
static void gate_pass(struct origin *o)
{
	struct gate *g = (struct gate *)o;

	pthread_mutex_lock(&g->mutex);
	g->passes++;
	pthread_cond_broadcast(&g->moved);
	pthread_mutex_unlock(&g->mutex);
}

static void gate_await(struct origin *o)
{
	struct gate *g = (struct gate *)o;

	pthread_mutex_lock(&g->mutex);
	while (g->waiting == 0 || g->passes > 0)
		pthread_cond_wait(&g->moved, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

/* ---- a version that is published while its file stays open ---------------------------------- */

struct publication {
	pthread_t thread;
	struct output *o;
	int result;
};

static void *publish_main(void *arg)
{
	struct publication *p = arg;

	p->result = output_drain(p->o, patience(), NULL);
	return NULL;
}

/* Until all but the end of the upload is done. */
static void begin_publication(struct publication *p, struct output *o,
			      struct origin *origin)
{
	p->o = o;
	gate_set(origin, ORIGIN_MULTI_END);
	pthread_create(&p->thread, NULL, publish_main, p);
	gate_await(origin);
}

static int end_publication(struct publication *p, struct origin *origin)
{
	gate_set(origin, ORIGIN_OP_N);
	pthread_join(p->thread, NULL);
	return p->result;
}

/* ---- in one daemon -------------------------------------------------------------------------- */

static void set_up_gate(struct rig *t)
{
	set_up(t);
	t->o = output_free(t->o);
	t->origin = gate_new(t->origin);
	t->config.origin = t->origin;
	t->config.part_size = PART;
	t->config.fetch_max = PART;
	start(t);
}

static struct output_file *new_large(struct rig *t, const char *name, char *data)
{
	struct output_file *f = open_for(t, name, O_CREAT | O_RDWR);

	fill(data, LARGE, 1);
	assert_int_equal(output_write(f, 0, data, LARGE, 0), 0);
	return f;
}

static void assert_stored(struct rig *t, const char *key, const char *want, size_t n)
{
	struct buf got = BUF_INIT;

	assert_int_equal(lib_get(t->origin, key, 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, n);
	assert_memory_equal(got.data, want, n);
	buf_fini(&got);
}

static void test_a_late_write_reaches_the_store_with_the_next_version(void **state)
{
	char *data = malloc(LARGE);
	struct publication p;
	struct output_file *f;
	struct writer w;
	struct rig t;

	(void)state;
	set_up_gate(&t);
	f = new_large(&t, "f", data);
	begin_late(&w, f, false);
	begin_publication(&p, t.o, t.origin);
	assert_int_equal(end_late(&w), 0);
	memcpy(data + LATE_AT, LATE, strlen(LATE));
	/* A version that has it, while the one that has it not is on its way. */
	assert_int_equal(output_fsync(f, false), 0);
	assert_int_equal(end_publication(&p, t.origin), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	free(data);
	tear_down(&t);
}

/* ---- a time that is set meanwhile --------------------------------------------------------- */

#define SET_NS 1580608922123456789

struct late_time {
	struct output *o;
	uint64_t ino;
};

static void set_time(void *arg)
{
	struct tree_attr attr = {.mtime_ns = SET_NS};
	struct late_time *t = arg;

	assert_int_equal(output_setattr(t->o, t->ino, OUTPUT_SET_MTIME, &attr), 0);
}

static void assert_time(struct late_time *t)
{
	struct tree_attr attr;

	assert_int_equal(output_getattr(t->o, t->ino, 0, &attr), 0);
	assert_int_equal(attr.mtime_ns, SET_NS);
}

static void test_a_time_set_while_a_version_is_made_stays(void **state)
{
	struct origin_attr stored;
	struct late_time late;
	struct tree_attr attr;
	struct output_file *f;
	char *data = malloc(LARGE);
	struct rig t;

	(void)state;
	set_up_gate(&t);
	f = new_large(&t, "f", data);
	assert_int_equal(output_lookup(t.o, TREE_ROOT, "f", 0, &attr), 0);
	late = (struct late_time){t.o, attr.ino};
	while_syncing_arg = &late;
	while_syncing = set_time;
	assert_int_equal(output_flush(f), 0);
	while_syncing = NULL;
	assert_time(&late);
	output_release(f);
	assert_time(&late);
	drain(&t);
	assert_time(&late);
	assert_int_equal(lib_stat(t.origin, "f", &stored), 0);
	assert_int_equal(stored.mtime_ns, SET_NS);
	output_forget(t.o, attr.ino, 1);
	free(data);
	tear_down(&t);
}

/* ---- a close meanwhile -------------------------------------------------------------------- */

static void release(void *arg)
{
	while_syncing = NULL;
	output_release(arg);
}

/* A file that is stored and has changed since; the next sync that is not its writer's is met by
 * its last close. */
static char *changed_file(struct rig *t, const char *name)
{
	char *data = malloc(LARGE);
	struct output_file *f = new_large(t, name, data);

	assert_int_equal(output_fsync(f, false), 0);
	drain(t);
	memcpy(data + LATE_AT, LATE, strlen(LATE));
	assert_int_equal(output_write(f, LATE_AT, LATE, strlen(LATE), 0), 0);
	while_syncing_arg = f;
	while_syncing = release;
	return data;
}

static void test_a_rename_or_publication_outlives_the_last_close(void **state)
{
	struct rig t;
	char *data;

	(void)state;
	for (int renames = 0; renames < 2; renames++) {
		set_up_gate(&t);
		data = changed_file(&t, "f");
		if (renames)
			assert_int_equal(
				output_rename(t.o, TREE_ROOT, "f", TREE_ROOT, "g", 0), 0);
		drain(&t);
		assert_null(while_syncing);
		assert_stored(&t, renames ? "g" : "f", data, LARGE);
		free(data);
		tear_down(&t);
	}
}

/* ---- late writes of other kinds ----------------------------------------------------------- */

/* Of a file that was an object before: ranges say what differs from that. */
static void test_a_late_write_to_an_object_reaches_the_store(void **state)
{
	char *data = malloc(LARGE);
	struct publication p;
	struct output_file *f;
	struct writer w;
	struct rig t;

	(void)state;
	set_up_gate(&t);
	f = new_large(&t, "f", data);
	close_file(f);
	drain(&t);
	f = open_for(&t, "f", O_RDWR);
	memset(data + 4 * PART, 'x', PART);
	assert_int_equal(output_write(f, 4 * PART, data + 4 * PART, PART, 0), 0);
	begin_late(&w, f, false);
	begin_publication(&p, t.o, t.origin);
	assert_int_equal(end_late(&w), 0);
	memcpy(data + LATE_AT, LATE, strlen(LATE));
	assert_int_equal(output_fsync(f, false), 0);
	assert_int_equal(end_publication(&p, t.origin), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	free(data);
	tear_down(&t);
}

/* The kernel writes to the file past us, where it likes. */
static void test_an_unseen_write_reaches_the_store_with_the_next_version(void **state)
{
	char *data = malloc(LARGE);
	struct publication p;
	struct output_file *f;
	struct rig t;
	int fd;

	(void)state;
	set_up_gate(&t);
	f = new_large(&t, "f", data);
	fd = output_backing_fd(f);
	assert_true(fd >= 0);
	begin_publication(&p, t.o, t.origin);
	assert_int_equal(io_pwrite(fd, "first", 5, 10), 0);
	memcpy(data + 10, "first", 5);
	/* The next version follows the one that is on its way. */
	assert_int_equal(output_fsync(f, false), 0);
	gate_pass(t.origin);
	gate_await(t.origin);
	assert_int_equal(io_pwrite(fd, LATE, strlen(LATE), LATE_AT), 0);
	memcpy(data + LATE_AT, LATE, strlen(LATE));
	assert_int_equal(output_fsync(f, false), 0);
	assert_int_equal(end_publication(&p, t.origin), 0);
	close(fd);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f", data, LARGE);
	free(data);
	tear_down(&t);
}

/* ---- in one daemon after another ------------------------------------------------------------- */

struct mount {
	char dir[64], store[80], state[80];
	struct handover *handover;
	uint64_t part_size, part_min;
	const char *kill_at;
	struct origin *origin;
	struct output *o;
};

#define must(x)                                                                          \
	do {                                                                             \
		int _m = (x);                                                            \
		if (_m != 0) {                                                           \
			print_error("%s: %d\n", #x, _m);                                 \
			_exit(4);                                                        \
		}                                                                        \
	} while (0)

/* The store has an object "f". */
static void make_mount(struct mount *m, char *data)
{
	char path[128];
	int fd;

	*m = (struct mount){.dir = "/tmp/sluice-late.XXXXXX", .part_size = PART};
	assert_non_null(mkdtemp(m->dir));
	snprintf(m->store, sizeof(m->store), "%s/store", m->dir);
	snprintf(m->state, sizeof(m->state), "%s/state", m->dir);
	assert_int_equal(mkdir(m->store, 0700), 0);
	snprintf(path, sizeof(path), "%s/f", m->store);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	fill(data, LARGE, 1);
	assert_int_equal(io_pwrite(fd, data, LARGE, 0), 0);
	close(fd);
	assert_int_equal(handover_new(&m->handover, NULL), 0);
}

static void remove_mount(struct mount *m)
{
	handover_free(m->handover);
	io_remove_tree(AT_FDCWD, m->dir);
}

static void start_daemon(struct mount *m)
{
	struct output_config config = {.state_dir = m->state,
				       .handover = m->handover,
				       .ttl_ms = 60000,
				       .part_size = m->part_size,
				       .fetch_max = PART};
	struct why why = {""};

	alarm(120);
	if (m->kill_at)
		setenv("SLUICE_KILL_AT", m->kill_at, 1);
	/* There is no kernel to be asked for requests. */
	m->handover->generation = 1;
	must(handover_begin(m->handover));
	m->handover->generation = m->kill_at ? 1 : 2;
	must(file_origin_open(m->store, false, &m->origin, &why));
	config.origin = m->origin = gate_new(m->origin);
	m->origin->part_size_min = m->part_min;
	must(output_new(&config, &m->o, &why));
}

/* Runs the story in a process of its own; how that ended. */
static int in_daemon(struct mount *m, void (*story)(struct mount *m))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		log_set_level(LOG_ERROR);
		start_daemon(m);
		story(m);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void assert_killed(int status)
{
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* As the kernel has it open, under the first number. */
static struct output_file *open_in_slot(struct mount *m)
{
	uint32_t slot = handover_file_take(m->handover);
	struct handover_file *h = handover_file_at(&m->handover->files, slot);
	struct output_file *f = NULL;
	struct tree_attr attr;

	must((int)slot);
	must(output_lookup(m->o, TREE_ROOT, "f", 0, &attr));
	must(output_open(m->o, attr.ino, O_RDWR, 0, &f));
	h->ino = attr.ino;
	h->flags = O_RDWR;
	h->mode = BACKING_DIRECT;
	atomic_store(&h->state, HANDOVER_OPEN);
	return f;
}

/* A version is on its way, and then bytes of the file become zeros; `until` is what the
 * upload gets to before. */
static struct output_file *change_at(struct mount *m, enum origin_op until)
{
	struct output_file *f = open_in_slot(m);
	struct publication p = {.o = m->o};
	struct writer w;

	must(output_write(f, 5 * PART, "version", 7, 0));
	begin_late(&w, f, true);
	gate_set(m->origin, until);
	pthread_create(&p.thread, NULL, publish_main, &p);
	gate_await(m->origin);
	must(end_late(&w));
	return f;
}

static void die_at_the_end(struct mount *m)
{
	change_at(m, ORIGIN_MULTI_END);
	raise(SIGKILL);
}

static void die_when_filled(struct mount *m)
{
	change_at(m, ORIGIN_GET);
	gate_set(m->origin, ORIGIN_OP_N);
	clock_sleep_ms(60000);
}

static uint64_t files_stored(struct mount *m)
{
	struct output_progress p;

	output_progress(m->o, &p);
	return p.files_stored;
}

static void must_read_zeros(struct output_file *f)
{
	char got[sizeof(LATE)] = "x", zeros[sizeof(LATE)] = "";
	size_t n;

	must(output_read(f, LATE_AT, got, strlen(LATE), 0, &n));
	must(memcmp(got, zeros, strlen(LATE)));
}

static void go_on(struct mount *m)
{
	struct output_file *f = output_restored_file(m->o, 0);

	must(f == NULL);
	must_read_zeros(f);
	must(output_flush(f));
	output_release(f);
	must(output_drain(m->o, patience(), NULL));
}

/* The version that was all but complete is completed before there is another. */
static void go_on_behind_the_version(struct mount *m)
{
	while (files_stored(m) == 0)
		clock_sleep_ms(5);
	go_on(m);
}

static void assert_file(struct mount *m, char *data)
{
	struct buf got = BUF_INIT;
	char path[128];

	memcpy(data + 5 * PART, "version", 7);
	memset(data + LATE_AT, 0, strlen(LATE));
	snprintf(path, sizeof(path), "%s/f", m->store);
	assert_int_equal(io_read_file(AT_FDCWD, path, 2 * LARGE, &got), 0);
	assert_int_equal(got.len, LARGE);
	assert_memory_equal(got.data, data, LARGE);
	buf_fini(&got);
}

static void test_a_late_change_outlives_the_daemon(void **state)
{
	char *data = malloc(LARGE);
	struct mount m;

	(void)state;
	make_mount(&m, data);
	m.kill_at = "never";
	assert_killed(in_daemon(&m, die_at_the_end));
	m.kill_at = NULL;
	assert_int_equal(in_daemon(&m, go_on_behind_the_version), 0);
	assert_file(&m, data);
	free(data);
	remove_mount(&m);
}

/* The object was brought home meanwhile; the journal still says what the file lacks. */
static void test_a_late_change_of_a_filled_file_outlives_the_daemon(void **state)
{
	char *data = malloc(LARGE);
	struct mount m;

	(void)state;
	make_mount(&m, data);
	m.part_size = m.part_min = 4 * LARGE; /* in one request */
	m.kill_at = "fill.done";
	assert_killed(in_daemon(&m, die_when_filled));
	m.kill_at = NULL;
	assert_int_equal(in_daemon(&m, go_on), 0);
	assert_file(&m, data);
	free(data);
	remove_mount(&m);
}

TEST_MAIN(cmocka_unit_test(test_a_late_write_reaches_the_store_with_the_next_version),
	  cmocka_unit_test(test_a_time_set_while_a_version_is_made_stays),
	  cmocka_unit_test(test_a_rename_or_publication_outlives_the_last_close),
	  cmocka_unit_test(test_a_late_write_to_an_object_reaches_the_store),
	  cmocka_unit_test(test_an_unseen_write_reaches_the_store_with_the_next_version),
	  cmocka_unit_test(test_a_late_change_outlives_the_daemon),
	  cmocka_unit_test(test_a_late_change_of_a_filled_file_outlives_the_daemon))
