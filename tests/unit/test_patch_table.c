/* SPDX-License-Identifier: Apache-2.0 */
/* Processes one after the other that end anywhere, over one file and one memory. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/patch.h"
#include "cache/patch_table.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define OBJECT 200000
#define SIZE_MOST (OBJECT + 10000)
#define CONTENTS 40      /* one after the other … */
#define PROCESSES 4      /* … each by so many */
#define TIME_US 4000     /* that a process has, at most … */
#define INSTRUCTIONS 300 /* … and then so many */

/* What the processes have told, as a journal would have it. */
struct told {
	_Atomic uint64_t done;  /* steps */
	_Atomic uint64_t known; /* the step that made the object */
};

struct rig {
	void *memory;
	struct told *told;
	int fd;
	uint64_t seed, content;
};

static void *shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void set_up(struct rig *t)
{
	char path[] = "/tmp/sluice-patch.XXXXXX";
	const char *text = getenv("SLUICE_SEED");

	t->memory = shared(patch_table_size());
	t->told = shared(sizeof(*t->told));
	t->fd = mkstemp(path);
	assert_true(t->fd >= 0);
	unlink(path);
	t->seed = text ? strtoull(text, NULL, 10) : clock_random() % 1000000;
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)t->seed);
}

static void tear_down(struct rig *t)
{
	munmap(t->memory, patch_table_size());
	munmap(t->told, sizeof(*t->told));
	close(t->fd);
}

static struct patch_object object_of(uint64_t step, uint64_t size)
{
	struct patch_object o = {.size = size};

	snprintf(o.etag, sizeof(o.etag), "E%llu", (unsigned long long)step);
	return o;
}

/* ---- steps, which their number and the seed decide ------------------------------------- */

enum what {
	WRITE,
	CUT,
	STORED,
	MOVED
};

struct step {
	enum what what;
	uint64_t off, n; /* of a write; off: the new size */
	unsigned char byte;
};

static struct step step_at(const struct rig *t, uint64_t i)
{
	uint64_t x = (t->seed + 1) * 0x9E3779B97F4A7C15u + i * 0xD1342543DE82EF95u;
	struct step s = {.byte = (unsigned char)(i % 255 + 1)};
	uint64_t dice;

	x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9u;
	x ^= x >> 29;
	dice = x % 1000;
	x /= 1000;
	s.what = dice < 990 ? WRITE : dice < 994 ? CUT : dice < 997 ? STORED : MOVED;
	s.off = x % (s.what == CUT ? SIZE_MOST : OBJECT + 2000);
	s.n = x / SIZE_MOST % (dice < 20 ? 3000 : 9) + 1;
	return s;
}

/* What the file reads as, and what the object holds, in the parent. */
struct model {
	uint64_t done, size, known, object_size;
	unsigned char bytes[SIZE_MOST], object[SIZE_MOST];
};

static unsigned char object_byte(uint64_t at)
{
	return (unsigned char)(at * 7 % 251 + 3);
}

static void model_new(struct model *m, uint64_t step)
{
	memset(m, 0, sizeof(*m));
	m->done = m->known = step;
	m->size = m->object_size = OBJECT;
	for (size_t i = 0; i < OBJECT; i++)
		m->bytes[i] = m->object[i] = object_byte(i);
}

static void model_store(struct model *m, uint64_t step)
{
	m->known = step;
	m->object_size = m->size;
	memcpy(m->object, m->bytes, m->size);
}

static void model_step(struct model *m, const struct step *s)
{
	m->done++;
	if (s->what == WRITE) {
		memset(m->bytes + s->off, s->byte, s->n);
		if (s->off + s->n > m->size)
			m->size = s->off + s->n;
	} else if (s->what == CUT) {
		if (s->off < m->size)
			memset(m->bytes + s->off, 0, m->size - s->off);
		m->size = s->off;
	} else {
		model_store(m, m->done);
	}
}

/* ---- the process that dies ------------------------------------------------------------- */

static uint64_t file_size(int fd)
{
	return (uint64_t)lseek(fd, 0, SEEK_END);
}

/* Exits with a status other than 0 on any failure. */
static void take_step(struct rig *t, struct patch *p, uint64_t i)
{
	struct step s = step_at(t, i);
	struct patch_object was, now = object_of(i, file_size(t->fd));
	unsigned char data[4096];

	patch_object(p, &was);
	memset(data, s.byte, s.n);
	if (s.what == WRITE) {
		if (patch_write(p, t->fd, data, s.n, s.off) < 0)
			_exit(2);
	} else if (s.what == CUT) {
		if (ftruncate(t->fd, (off_t)s.off) < 0)
			_exit(3);
		patch_cut(p, s.off);
	} else {
		/* It was stored, and then perhaps moved: another name for the same. */
		patch_stored(p, &now);
		if (s.what == MOVED && !patch_rebase(p, now.etag, &now))
			_exit(4);
		atomic_store(&t->told->known, i);
	}
	atomic_store(&t->told->done, i);
}

static struct patch *take_over(struct rig *t, struct patch_table **table)
{
	char etag[ORIGIN_ETAG_MAX];
	struct patch *p = NULL;

	if (patch_table_new(t->memory, table) < 0 ||
	    patch_take_over(*table, t->content, &p) < 0 || !p)
		return NULL;
	patch_table_sweep(*table);
	patch_cut(p, file_size(t->fd));
	snprintf(etag, sizeof(etag), "E%llu",
		 (unsigned long long)atomic_load(&t->told->known));
	patch_settle(p, etag);
	return p;
}

static void process(struct rig *t)
{
	struct patch_table *table;
	struct patch *p = take_over(t, &table);

	if (!p)
		_exit(1);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	for (;;)
		take_step(t, p, atomic_load(&t->told->done) + 1);
}

/* A content of an object that the next step is behind. */
static void begin(struct rig *t)
{
	uint64_t step = atomic_load(&t->told->done);
	struct patch_object object = object_of(step, OBJECT);
	struct patch_table *table;
	struct patch *p;

	assert_int_equal(patch_table_new(t->memory, &table), 0);
	assert_int_equal(patch_new(&object, true, &p), 0);
	assert_int_equal(ftruncate(t->fd, 0), 0);
	assert_int_equal(ftruncate(t->fd, OBJECT), 0);
	patch_table_sweep(table);
	t->content++;
	assert_int_equal(patch_keep(p, table, t->content), 0);
	atomic_store(&t->told->known, step);
	patch_free(p);
	patch_table_free(table);
}

/* ---- what is there then ---------------------------------------------------------------- */

/* The file, with the object's bytes where it has none. */
static void read_merged(struct rig *t, struct patch *p, const struct model *m,
			unsigned char *out, uint64_t size)
{
	uint64_t end;

	assert_int_equal(io_pread(t->fd, out, size, 0), size);
	for (uint64_t at = 0; at < size; at = end) {
		bool own = patch_has(p, at, &end);

		if (end > size)
			end = size;
		if (own)
			continue;
		assert_true(end <= m->object_size);
		memcpy(out + at, m->object + at, end - at);
	}
}

/* All that was told is there; of the step that was not, any part. */
static void check(struct rig *t, struct model *m)
{
	struct patch_table *table;
	struct patch *p = take_over(t, &table);
	struct patch_object object;
	uint64_t size = file_size(t->fd), known = atomic_load(&t->told->known);
	unsigned char *got = malloc(size + 1);
	struct step next;

	assert_non_null(p);
	assert_non_null(got);
	while (m->done < atomic_load(&t->told->done)) {
		struct step s = step_at(t, m->done + 1);

		model_step(m, &s);
	}
	if (known > m->done)
		model_store(m, known);
	patch_object(p, &object);
	assert_int_equal(strtoull(object.etag + 1, NULL, 10), known);
	assert_true(patch_len(p) <= object.size);
	next = step_at(t, m->done + 1);
	if (next.what != CUT && next.what != WRITE)
		assert_int_equal(size, m->size);
	read_merged(t, p, m, got, size);
	for (uint64_t at = 0; at < size; at++) {
		unsigned char old = at < m->size ? m->bytes[at] : 0;

		if (next.what == WRITE && at >= next.off && at < next.off + next.n &&
		    got[at] == next.byte)
			continue;
		if (got[at] != old)
			fail_msg("step %llu: byte %llu is %u and not %u",
				 (unsigned long long)m->done, (unsigned long long)at,
				 got[at], old);
	}
	free(got);
	patch_free(p);
	patch_table_free(table);
}

static void wait_stopped(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
}

/* After a while, and so many instructions more: alone a signal would hit system calls. */
static void kill_process(pid_t pid)
{
	uint64_t random = clock_random();
	int status;

	wait_stopped(pid);
	assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
	usleep((useconds_t)(random % TIME_US));
	kill(pid, SIGSTOP);
	wait_stopped(pid);
	for (uint64_t i = random / TIME_US % INSTRUCTIONS; i > 0; i--) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		wait_stopped(pid);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

static void test_a_process_may_end_anywhere(void **state)
{
	struct rig t;
	struct model *m = malloc(sizeof(*m));

	(void)state;
	assert_non_null(m);
	set_up(&t);
	for (int i = 0; i < CONTENTS * PROCESSES; i++) {
		pid_t pid = 0;

		if (i % PROCESSES == 0) {
			begin(&t);
			model_new(m, atomic_load(&t.told->done));
		}
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			process(&t);
		kill_process(pid);
		check(&t, m);
	}
	print_message("%llu steps\n", (unsigned long long)m->done);
	assert_true(m->done > 1000);
	tear_down(&t);
	free(m);
}

static void test_what_nobody_asks_for_goes(void **state)
{
	struct patch_object object = object_of(0, OBJECT);
	struct patch *patches[3], *p;
	struct patch_table *table;
	struct rig t;

	(void)state;
	set_up(&t);
	assert_int_equal(patch_table_new(t.memory, &table), 0);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(patch_new(&object, true, &patches[i]), 0);
		assert_int_equal(patch_keep(patches[i], table, i + 1), 0);
	}
	patch_whole(patches[1]);
	for (size_t i = 0; i < 3; i++)
		patch_free(patches[i]);
	patch_table_free(table);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(patch_table_new(t.memory, &table), 0);
		assert_int_equal(patch_take_over(table, 1, &p), 0);
		assert_non_null(p);
		patch_free(p);
		assert_int_equal(patch_take_over(table, 2, &p), 0);
		assert_null(p);
		/* The first time it is still there. */
		if (i == 1) {
			assert_int_equal(patch_take_over(table, 3, &p), 0);
			assert_null(p);
		}
		patch_table_sweep(table);
		patch_table_free(table);
	}
	tear_down(&t);
}

/* What is left of so many pieces that do not meet. */
static int pieces(struct rig *t, uint64_t content, uint64_t count, struct patch **left)
{
	struct patch_object object = object_of(0, 1ull << 40);
	struct patch_table *table;
	struct patch_entry *e;
	struct ranges own = {0};
	int r;

	assert_int_equal(patch_table_new(t->memory, &table), 0);
	patch_table_sweep(table);
	e = patch_entry_new(table, content, &object, object.size, &own);
	assert_non_null(e);
	for (uint64_t at = 0; at < count * 2; at += 2) {
		assert_int_equal(ranges_add(&own, at, at + 1), 0);
		e = patch_entry_add(table, e, at, at + 1, &own);
	}
	ranges_fini(&own);
	patch_table_free(table);

	assert_int_equal(patch_table_new(t->memory, &table), 0);
	r = patch_take_over(table, content, left);
	patch_table_free(table);
	return r;
}

static void test_pieces_have_room_or_are_known_to_be_lost(void **state)
{
	static const uint64_t counts[] = {100, 10000, 400000};
	struct patch *p;
	struct rig t;

	(void)state;
	log_set_level(LOG_ERROR);
	set_up(&t);
	for (size_t i = 0; i < 3; i++) {
		struct ranges own = {0};

		assert_int_equal(pieces(&t, i + 1, counts[i], &p), 0);
		assert_int_equal(patch_own(p, &own), 0);
		assert_int_equal(own.count, counts[i]);
		assert_int_equal(own.list[own.count - 1].end, counts[i] * 2 - 1);
		ranges_fini(&own);
		patch_free(p);
	}
	assert_int_equal(pieces(&t, 4, 2000000, &p), -ENODATA);
	tear_down(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_nobody_asks_for_goes),
		cmocka_unit_test(test_pieces_have_room_or_are_known_to_be_lost),
		cmocka_unit_test(test_a_process_may_end_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
