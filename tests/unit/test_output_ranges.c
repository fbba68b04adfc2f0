/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are changed without being fetched: what is read, sent, copied, and kept. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/fault.h"
#include "fs/backend/mem.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_drain.h"
#include "tests/unit/lib_origin.h"

#define PART (128u << 10)
#define PART_MIN (16u << 10)
#define LARGE (1u << 20)

static const struct output_owner me = {1000, 1000};

struct rig {
	char dir[64];
	struct origin *mem, *origin;
	struct output *o;
	struct output_config config;
	struct origin_stats before;
	char *want; /* what the file "f" should hold, room for 2 * LARGE */
	size_t size;
};

static void start(struct rig *t)
{
	struct why why = {""};

	if (output_new(&t->config, &t->o, &why) < 0)
		fail_msg("%s", why.text);
}

static void restart(struct rig *t)
{
	t->o = output_free(t->o);
	start(t);
}

static void count(struct rig *t, struct origin_stats *now)
{
	*now = (struct origin_stats){0};
	t->mem->ops->stats(t->mem, now);
}

/* Since the last call of begin_count(). */
static uint64_t sent(struct rig *t)
{
	struct origin_stats now;

	count(t, &now);
	return now.bytes_out - t->before.bytes_out;
}

static uint64_t fetched(struct rig *t)
{
	struct origin_stats now;

	count(t, &now);
	return now.bytes_in - t->before.bytes_in;
}

static uint64_t requests(struct rig *t, enum origin_op op)
{
	struct origin_stats now;

	count(t, &now);
	return now.requests[op] - t->before.requests[op];
}

static void begin_count(struct rig *t)
{
	count(t, &t->before);
}

static void fill(char *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)((i * 7 + i / 251 + seed) & 0xff);
}

static struct output_file *open_file(struct rig *t, const char *name, int flags)
{
	struct output_file *f = NULL;
	struct tree_attr attr;

	if (flags & O_CREAT)
		assert_int_equal(output_create(t->o, TREE_ROOT, name, 0644, flags, me, 0,
					       &attr, &f),
				 0);
	else {
		assert_int_equal(output_lookup(t->o, TREE_ROOT, name, 0, &attr), 0);
		assert_int_equal(output_open(t->o, attr.ino, flags, 0, &f), 0);
	}
	output_forget(t->o, attr.ino, 1);
	return f;
}

static void close_file(struct output_file *f)
{
	assert_int_equal(output_flush(f), 0);
	output_release(f);
}

static void drain(struct rig *t)
{
	struct buf receipt = BUF_INIT;

	if (lib_drain(t->o, patience(), &receipt) != 0)
		fail_msg("%s", receipt.data);
	buf_fini(&receipt);
}

static void write_at(struct rig *t, struct output_file *f, uint64_t off, size_t n,
		     uint32_t seed)
{
	fill(t->want + off, n, seed);
	assert_int_equal(output_write(f, off, t->want + off, n, 0), 0);
	if (off + n > t->size)
		t->size = off + n;
}

static void assert_reads(struct rig *t, struct output_file *f)
{
	char *got = malloc(2 * LARGE);
	size_t n = 0;

	assert_int_equal(output_read(f, 0, got, 2 * LARGE, 0, &n), 0);
	assert_int_equal(n, t->size);
	assert_memory_equal(got, t->want, n);
	free(got);
}

static void assert_stored(struct rig *t, const char *key)
{
	struct buf got = BUF_INIT;

	assert_int_equal(lib_get(t->mem, key, 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, t->size);
	assert_memory_equal(got.data, t->want, t->size);
	buf_fini(&got);
}

static void assert_no_uploads(struct rig *t)
{
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct lib_listed listed = {0};

	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_call(t->mem, &req), 0);
	assert_int_equal(listed.count, 0);
}

/* The store holds "f", and nothing of it is here. */
static void set_up(struct rig *t)
{
	struct origin_req put = {.op = ORIGIN_PUT, .key = "f"};

	log_set_level(LOG_ERROR);
	*t = (struct rig){.dir = "/tmp/sluice-ranges.XXXXXX"};
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(mem_origin_new(&t->mem), 0);
	assert_int_equal(fault_origin_new(t->mem, &t->origin), 0);
	t->mem->part_size_min = t->origin->part_size_min = PART_MIN;
	t->config = (struct output_config){.origin = t->origin,
					   .state_dir = t->dir,
					   .ttl_ms = 60000,
					   .part_size = PART,
					   .fetch_max = 2 * PART};
	t->want = calloc(1, 2 * LARGE);
	t->size = LARGE;
	fill(t->want, LARGE, 1);
	put.body = (struct origin_body){.data = t->want, .len = LARGE};
	assert_int_equal(origin_call(t->mem, &put), 0);
	start(t);
	begin_count(t);
}

static void tear_down(struct rig *t)
{
	output_free(t->o);
	assert_no_uploads(t);
	origin_free(t->origin);
	free(t->want);
	io_remove_tree(AT_FDCWD, t->dir);
}

static void test_a_change_costs_its_part(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 500000, 1000, 2);
	assert_int_equal(fetched(&t), 0);
	assert_reads(&t, f);
	/* What is not here cannot be handed to the kernel. */
	assert_int_equal(output_backing_fd(f), -ENODATA);
	begin_count(&t);
	close_file(f);
	drain(&t);
	assert_true(sent(&t) <= PART_MIN);
	assert_true(fetched(&t) <= PART_MIN);
	assert_true(requests(&t, ORIGIN_MULTI_COPY) >= 2);
	assert_stored(&t, "f");
	/* And again, upon the new object. */
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 0, 10, 3);
	assert_reads(&t, f);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

static void test_cutting_and_growing(void **state)
{
	struct output_file *f;
	struct tree_attr attr;
	struct rig t;

	(void)state;
	set_up(&t);
	assert_int_equal(output_lookup(t.o, TREE_ROOT, "f", 0, &attr), 0);
	attr.size = t.size = 700001;
	assert_int_equal(output_setattr(t.o, attr.ino, OUTPUT_SET_SIZE, &attr), 0);
	assert_int_equal(attr.size, 700001);
	f = open_file(&t, "f", O_RDWR);
	assert_reads(&t, f);
	attr.size = 900000;
	assert_int_equal(output_setattr(t.o, attr.ino, OUTPUT_SET_SIZE, &attr), 0);
	/* Zeros, not what the object had there. */
	memset(t.want + 700001, 0, LARGE - 700001);
	t.size = 900000;
	assert_reads(&t, f);
	write_at(&t, f, 899990, 5000, 4);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f");
	/* Small enough to be whole: one request. */
	begin_count(&t);
	restart(&t);
	assert_int_equal(output_lookup(t.o, TREE_ROOT, "f", 0, &attr), 0);
	attr.size = t.size = 1000;
	assert_int_equal(output_setattr(t.o, attr.ino, OUTPUT_SET_SIZE, &attr), 0);
	drain(&t);
	assert_int_equal(requests(&t, ORIGIN_PUT), 1);
	assert_int_equal(fetched(&t), 1000);
	assert_stored(&t, "f");
	tear_down(&t);
}

static void test_a_changed_object_survives_a_restart(void **state)
{
	struct fault_rule away = {.op = ORIGIN_MULTI_COPY, .error = -ECONNREFUSED};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	fault_add(t.origin, &away);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 300000, 70000, 5);
	write_at(&t, f, LARGE - 10, 5000, 6);
	close_file(f);
	for (int i = 0; i < 2; i++) {
		restart(&t);
		f = open_file(&t, "f", O_RDONLY);
		assert_reads(&t, f);
		output_release(f);
	}
	fault_clear(t.origin);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

/* Never a mix of what was written here and what someone else put there. */
static void test_an_object_replaced_by_others_is_an_error(void **state)
{
	char text[100];
	struct output_file *f;
	struct buf receipt = BUF_INIT;
	struct rig t;
	size_t n;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 500000, 1000, 2);
	assert_int_equal(output_flush(f), 0);
	assert_int_equal(lib_put(t.mem, "f", "of someone else"), 0);
	assert_int_equal(output_read(f, 0, text, sizeof(text), 0, &n), -ESTALE);
	assert_int_equal(output_read(f, 500000, text, sizeof(text), 0, &n), 0);
	assert_memory_equal(text, t.want + 500000, sizeof(text));
	output_release(f);
	assert_int_equal(lib_drain(t.o, clock_mono_ms() + 500, &receipt),
			 OUTPUT_E_PENDING);
	assert_non_null(strstr(receipt.data, "was replaced or removed by others"));
	buf_fini(&receipt);
	lib_assert_content(t.mem, "f", "of someone else");
	/* The way out. */
	f = open_file(&t, "f", O_WRONLY | O_TRUNC);
	assert_int_equal(output_write(f, 0, "new", 3, 0), 0);
	close_file(f);
	drain(&t);
	lib_assert_content(t.mem, "f", "new");
	tear_down(&t);
}

static void test_a_whole_file_wins_over_others(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_WRONLY | O_TRUNC);
	t.size = 0;
	write_at(&t, f, 0, LARGE, 7);
	close_file(f);
	drain(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, LARGE, 10, 8);
	assert_int_equal(lib_put(t.mem, "f", "of someone else"), 0);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

static void test_an_append_costs_the_tail(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_WRONLY | O_APPEND);
	for (uint32_t i = 0; i < 5; i++) {
		begin_count(&t);
		write_at(&t, f, t.size, 20000, i);
		drain(&t);
		assert_int_equal(sent(&t), 20000);
		assert_int_equal(fetched(&t), 0);
		assert_stored(&t, "f");
	}
	close_file(f);
	tear_down(&t);
}

/* The same for a file that was made here, also where its writes are not seen. */
static void test_a_growing_file_costs_the_tail(void **state)
{
	for (int unseen = 0; unseen < 2; unseen++) {
		struct output_file *f;
		struct rig t;
		int fd = -1;

		(void)state;
		set_up(&t);
		f = open_file(&t, "f", O_CREAT | O_RDWR | O_TRUNC);
		t.size = 0;
		if (unseen)
			fd = output_backing_fd(f);
		assert_true(unseen == 0 || fd >= 0);
		for (uint32_t i = 0; i < 5; i++) {
			size_t n = i ? 30000 : 5 * PART;

			begin_count(&t);
			fill(t.want + t.size, n, i);
			if (unseen)
				assert_int_equal(
					io_pwrite(fd, t.want + t.size, n, t.size), 0);
			else
				assert_int_equal(
					output_write(f, t.size, t.want + t.size, n, 0),
					0);
			t.size += n;
			drain(&t);
			assert_int_equal(sent(&t), n);
			assert_stored(&t, "f");
		}
		/* A change of what was sent is seen by its checksum. */
		t.want[1000] ^= 1;
		if (unseen)
			assert_int_equal(io_pwrite(fd, t.want + 1000, 1, 1000), 0);
		else
			assert_int_equal(output_write(f, 1000, t.want + 1000, 1, 0), 0);
		close_file(f);
		drain(&t);
		assert_stored(&t, "f");
		if (unseen)
			close(fd);
		tear_down(&t);
	}
}

static void test_changed_objects_that_swap_names_both_arrive(void **state)
{
	struct output_file *f, *g;
	struct rig a, *t = &a;
	struct buf got = BUF_INIT;

	(void)state;
	set_up(t);
	assert_int_equal(lib_copy(t->mem, "g", "f"), 0);
	f = open_file(t, "f", O_RDWR);
	g = open_file(t, "g", O_RDWR);
	assert_int_equal(output_write(f, 10, "in f", 4, 0), 0);
	assert_int_equal(output_write(g, 300000, "in g", 4, 0), 0);
	assert_int_equal(output_flush(g), 0);
	assert_int_equal(
		output_rename(t->o, TREE_ROOT, "f", TREE_ROOT, "g", RENAME_EXCHANGE), 0);
	assert_int_equal(output_write(f, 20, "more", 4, 0), 0);
	close_file(f);
	close_file(g);
	drain(t);
	assert_int_equal(lib_get(t->mem, "f", 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, LARGE);
	assert_memory_equal(got.data + 300000, "in g", 4);
	assert_memory_equal(got.data, t->want, 300000);
	buf_reset(&got);
	assert_int_equal(lib_get(t->mem, "g", 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_memory_equal(got.data + 10, "in f", 4);
	assert_memory_equal(got.data + 20, "more", 4);
	assert_memory_equal(got.data + 24, t->want + 24, LARGE - 24);
	buf_fini(&got);
	tear_down(t);
}

/* The completion happened and nobody was told; then the file changes again. What it was made
 * from is gone from the store, but for what took its place. */
static void test_a_lost_completion_is_found_before_it_is_superseded(void **state)
{
	struct fault_rule lost = {
		.op = ORIGIN_MULTI_END, .error = -ECONNRESET, .after = true, .count = 1};
	struct fault_rule blind = {.op = ORIGIN_STAT, .error = -ECONNRESET};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 500000, 1000, 2);
	fault_add(t.origin, &lost);
	fault_add(t.origin, &blind);
	assert_int_equal(output_flush(f), 0);
	output_release(f);
	assert_int_equal(output_drain(t.o, clock_mono_ms() + 300, NULL),
			 OUTPUT_E_PENDING);
	eventually(requests(&t, ORIGIN_MULTI_END) > 0);
	assert_stored(&t, "f");
	restart(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 100000, 1000, 3);
	close_file(f);
	fault_clear(t.origin);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

static void test_holes_are_where_the_object_has_none(void **state)
{
	struct output_file *f;
	uint64_t at;
	struct rig t;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, 2 * PART, 4096, 2);
	assert_int_equal(output_lseek(f, 5, SEEK_DATA, &at), 0);
	assert_int_equal(at, 5);
	assert_int_equal(output_lseek(f, 5, SEEK_HOLE, &at), 0);
	assert_int_equal(at, LARGE);
	assert_int_equal(output_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					  4 * PART, 8192),
			 0);
	memset(t.want + 4 * PART, 0, 8192);
	assert_int_equal(output_lseek(f, 5, SEEK_HOLE, &at), 0);
	assert_int_equal(at, 4 * PART);
	assert_int_equal(output_lseek(f, at, SEEK_DATA, &at), 0);
	assert_int_equal(at, 4 * PART + 8192);
	assert_reads(&t, f);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

/* One request that replaces the object whose bytes it needs: its answer is lost, and it has
 * to be sent again. */
static void test_a_lost_answer_does_not_cost_the_rest(void **state)
{
	struct fault_rule lost = {
		.op = ORIGIN_PUT, .count = 2, .after = true, .error = -ETIMEDOUT};
	struct origin_req put = {.op = ORIGIN_PUT, .key = "f"};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	t.config.fetch_max = 1000;
	t.size = PART - 1000;
	put.body = (struct origin_body){.data = t.want, .len = t.size};
	assert_int_equal(origin_call(t.mem, &put), 0);
	restart(&t);
	fault_add(t.origin, &lost);
	f = open_file(&t, "f", O_RDWR);
	/* Nothing in between is worth a copy. */
	for (uint64_t off = PART / 4; off < t.size; off += PART / 4)
		write_at(&t, f, off, 10, 2);
	write_at(&t, f, t.size - 10, 10, 2);
	close_file(f);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

/* All of it is sent, in parts, some bytes from the object itself; the answer to the last
 * request is lost, and so is the process. */
static void test_a_completion_that_nobody_saw_is_found_after_a_restart(void **state)
{
	struct fault_rule lost = {
		.op = ORIGIN_MULTI_END, .after = true, .error = -ETIMEDOUT};
	struct fault_rule no_stat = {.op = ORIGIN_STAT, .error = -ECONNREFUSED};
	struct output_file *f;
	struct rig t;
	int rule;

	(void)state;
	set_up(&t);
	f = open_file(&t, "f", O_RDWR);
	for (uint64_t off = PART / 4; off < LARGE; off += PART / 4)
		write_at(&t, f, off, 10, 2);
	write_at(&t, f, LARGE - 10, 10, 3);
	rule = fault_add(t.origin, &lost);
	fault_add(t.origin, &no_stat);
	close_file(f);
	eventually(fault_hits(t.origin, rule) > 0);
	assert_int_equal(requests(&t, ORIGIN_MULTI_COPY), 0);
	restart(&t);
	fault_clear(t.origin);
	drain(&t);
	assert_stored(&t, "f");
	tear_down(&t);
}

/* The answer is lost, and before anyone can look the file has another name. */
static void test_a_completion_that_nobody_saw_is_found_after_a_rename(void **state)
{
	struct fault_rule lost = {
		.op = ORIGIN_MULTI_END, .count = 1, .after = true, .error = -ETIMEDOUT};
	struct fault_rule no_stat = {.op = ORIGIN_STAT, .error = -ECONNREFUSED};
	struct origin_req put = {.op = ORIGIN_PUT, .key = "g"};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up(&t);
	put.body = (struct origin_body){.data = t.want + 1, .len = LARGE - 1};
	assert_int_equal(origin_call(t.mem, &put), 0);
	f = open_file(&t, "f", O_RDWR);
	write_at(&t, f, PART, 10, 2);
	fault_add(t.origin, &lost);
	fault_add(t.origin, &no_stat);
	close_file(f);
	eventually(requests(&t, ORIGIN_MULTI_END) > 0);
	assert_int_equal(
		output_rename(t.o, TREE_ROOT, "f", TREE_ROOT, "g", RENAME_EXCHANGE), 0);
	fault_clear(t.origin);
	drain(&t);
	assert_stored(&t, "g");
	tear_down(&t);
}

/* Of two that swap names one comes home; who reads it stays with it. */
static void test_a_reader_follows_a_file_home(void **state)
{
	struct fault_rule refused = {.op = ORIGIN_MULTI_BEGIN, .error = -ECONNREFUSED};
	struct origin_req put = {.op = ORIGIN_PUT, .key = "g"};
	struct output_file *f, *g;
	char *got;
	size_t n;
	struct rig t;

	(void)state;
	set_up(&t);
	put.body = (struct origin_body){.data = t.want + 1, .len = LARGE - 1};
	assert_int_equal(origin_call(t.mem, &put), 0);
	f = open_file(&t, "f", O_RDONLY);
	g = open_file(&t, "g", O_RDONLY);
	fault_add(t.origin, &refused);
	assert_int_equal(
		output_rename(t.o, TREE_ROOT, "f", TREE_ROOT, "g", RENAME_EXCHANGE), 0);
	eventually(requests(&t, ORIGIN_COPY) > 0);
	assert_int_equal(requests(&t, ORIGIN_COPY), 1);
	usleep(20000);
	assert_reads(&t, f);
	got = malloc(LARGE);
	assert_int_equal(output_read(g, 0, got, LARGE, 0, &n), 0);
	assert_int_equal(n, LARGE - 1);
	assert_memory_equal(got, t.want + 1, n);
	free(got);
	fault_clear(t.origin);
	drain(&t);
	assert_reads(&t, f);
	output_release(f);
	output_release(g);
	assert_stored(&t, "g");
	tear_down(&t);
}

/* ---- acknowledgements at the same time ---------------------------------------------------- */

struct syncing {
	struct output_file *file;
	atomic_bool stop;
};

static void *sync_again_and_again(void *arg)
{
	struct syncing *s = arg;

	while (!atomic_load(&s->stop))
		assert_int_equal(output_fsync(s->file, false), 0);
	return NULL;
}

/* What one closes is not taken back by another's fsync that looked a moment before. */
static void test_an_older_look_takes_nothing_back(void **state)
{
	struct syncing syncing = {0};
	struct output_file *f;
	pthread_t thread;
	struct rig t;

	(void)state;
	set_up(&t);
	t.size = 0;
	f = open_file(&t, "new", O_CREAT | O_RDWR);
	write_at(&t, f, 0, PART, 1);
	syncing.file = open_file(&t, "new", O_RDWR);
	assert_int_equal(pthread_create(&thread, NULL, sync_again_and_again, &syncing),
			 0);
	for (int i = 0; i < 300; i++) {
		struct output_progress p;

		write_at(&t, f, t.size, 100, 2);
		assert_int_equal(output_flush(f), 0);
		output_progress(t.o, &p);
		assert_int_equal(p.bytes_pending, t.size);
	}
	atomic_store(&syncing.stop, true);
	pthread_join(thread, NULL);
	output_release(syncing.file);
	close_file(f);
	drain(&t);
	assert_stored(&t, "new");
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_change_costs_its_part),
	  cmocka_unit_test(test_a_lost_answer_does_not_cost_the_rest),
	  cmocka_unit_test(test_a_completion_that_nobody_saw_is_found_after_a_restart),
	  cmocka_unit_test(test_a_completion_that_nobody_saw_is_found_after_a_rename),
	  cmocka_unit_test(test_a_reader_follows_a_file_home),
	  cmocka_unit_test(test_an_older_look_takes_nothing_back),
	  cmocka_unit_test(test_cutting_and_growing),
	  cmocka_unit_test(test_a_changed_object_survives_a_restart),
	  cmocka_unit_test(test_an_object_replaced_by_others_is_an_error),
	  cmocka_unit_test(test_a_whole_file_wins_over_others),
	  cmocka_unit_test(test_an_append_costs_the_tail),
	  cmocka_unit_test(test_a_growing_file_costs_the_tail),
	  cmocka_unit_test(test_changed_objects_that_swap_names_both_arrive),
	  cmocka_unit_test(test_a_lost_completion_is_found_before_it_is_superseded),
	  cmocka_unit_test(test_holes_are_where_the_object_has_none))
