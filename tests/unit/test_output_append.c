/* SPDX-License-Identifier: Apache-2.0 */
/* --append-objects: files that grow become objects that grow; all else is replaced. */
#include "tests/unit/lib_output.h"

#define PART (128u << 10)
#define LARGE (1u << 20) /* changed without being fetched */

static struct origin_stats before;

static void count(struct rig *t, struct origin_stats *now)
{
	*now = (struct origin_stats){0};
	t->origin->ops->stats(t->origin, now);
}

static uint64_t sent(struct rig *t)
{
	struct origin_stats now;

	count(t, &now);
	return now.bytes_out - before.bytes_out;
}

static uint64_t fetched(struct rig *t)
{
	struct origin_stats now;

	count(t, &now);
	return now.bytes_in - before.bytes_in;
}

static uint64_t asked(struct rig *t, enum origin_op op)
{
	struct origin_stats now;

	count(t, &now);
	return now.requests[op] - before.requests[op];
}

static void set_up_append(struct rig *t)
{
	set_up(t);
	t->o = output_free(t->o);
	assert_int_equal(fault_origin_new(t->origin, &t->origin), 0);
	t->config.origin = t->origin;
	t->config.append_objects = true;
	t->config.fetch_max = 2 * PART;
	start(t);
	count(t, &before);
}

static bool is_appendable(struct rig *t, const char *key)
{
	struct origin_attr attr;

	assert_int_equal(lib_stat(t->origin, key, &attr), 0);
	return attr.is_appendable;
}

static void add(struct output_file *f, const char *text, uint64_t *off)
{
	assert_int_equal(output_write(f, *off, text, strlen(text), 0), 0);
	*off += strlen(text);
}

/* A file that stays open and of which one line is in the store. */
static struct output_file *begin_log(struct rig *t, const char *name, uint64_t *off)
{
	struct output_file *f = open_for(t, name, O_CREAT | O_RDWR);

	*off = 0;
	add(f, "one\n", off);
	drain(t);
	assert_true(is_appendable(t, name));
	return f;
}

static void assert_holds(struct rig *t, const char *key, const char *want, size_t n)
{
	struct buf got = BUF_INIT;

	assert_int_equal(lib_get(t->origin, key, 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, n);
	assert_memory_equal(got.data, want, n);
	buf_fini(&got);
}

static void test_what_grows_costs_what_it_grew(void **state)
{
	struct output_file *f;
	uint64_t off;
	struct rig t;

	(void)state;
	set_up_append(&t);
	f = begin_log(&t, "log", &off);
	add(f, "two\n", &off);
	drain(&t);
	lib_assert_content(t.origin, "log", "one\ntwo\n");
	add(f, "three\n", &off);
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "log", "one\ntwo\nthree\n");
	assert_int_equal(sent(&t), off);
	assert_int_equal(asked(&t, ORIGIN_APPEND), 3);
	assert_int_equal(asked(&t, ORIGIN_PUT), 0);
	/* Opened again, by this process and by one that knows nothing of it. */
	write_text(&t, "log", O_WRONLY | O_APPEND, off, "four\n");
	drain(&t);
	restart(&t);
	write_text(&t, "log", O_WRONLY | O_APPEND, off + 5, "five\n");
	drain(&t);
	lib_assert_content(t.origin, "log", "one\ntwo\nthree\nfour\nfive\n");
	assert_int_equal(sent(&t), off + 10);
	assert_true(is_appendable(&t, "log"));
	assert_reads(&t, "log", "one\ntwo\nthree\nfour\nfive\n");
	tear_down(&t);
}

static void test_what_is_closed_first_is_put(void **state)
{
	struct rig t;

	(void)state;
	set_up_append(&t);
	put(&t, "model", "weights");
	drain(&t);
	assert_false(is_appendable(&t, "model"));
	write_text(&t, "model", O_WRONLY | O_APPEND, 7, " and more");
	drain(&t);
	lib_assert_content(t.origin, "model", "weights and more");
	assert_int_equal(asked(&t, ORIGIN_APPEND), 0);
	tear_down(&t);
}

static void test_what_is_rewritten_is_replaced(void **state)
{
	static const struct {
		uint64_t off;
		const char *text, *want;
		int flags;
	} changes[] = {{0, "ONE", "ONE\nmore\n", 0},
		       {0, "other and longer", "other and longer", O_TRUNC}};

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		struct output_file *f, *g;
		uint64_t off;
		struct rig t;

		set_up_append(&t);
		f = begin_log(&t, "log", &off);
		add(f, "more\n", &off);
		g = open_for(&t, "log", O_RDWR | changes[i].flags);
		assert_int_equal(output_write(g, changes[i].off, changes[i].text,
					      strlen(changes[i].text), 0),
				 0);
		drain(&t);
		lib_assert_content(t.origin, "log", changes[i].want);
		assert_int_equal(asked(&t, ORIGIN_APPEND), 1);
		assert_false(is_appendable(&t, "log"));
		close_file(g);
		close_file(f);
		drain(&t);
		lib_assert_content(t.origin, "log", changes[i].want);
		tear_down(&t);
	}
}

/* A rewrite that nobody saw, and that grew the file as an append would. */
static void test_a_rewrite_behind_our_back_is_found_by_the_bytes(void **state)
{
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_append(&t);
	lib_append(t.origin, "log", 0, "one\n");
	count(&t, &before);
	f = open_for(&t, "log", O_RDWR | O_TRUNC);
	assert_int_equal(output_write(f, 0, "eno\nmore\n", 9, 0), 0);
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "log", "eno\nmore\n");
	assert_int_equal(asked(&t, ORIGIN_APPEND), 0);
	tear_down(&t);
}

/* A drain that cannot end, until the store has had what the rule is about. */
static void drain_until_hit(struct rig *t, int rule)
{
	eventually(output_drain(t->o, clock_mono_ms() + 100, NULL) == OUTPUT_E_PENDING &&
		   fault_hits(t->origin, rule) > 0);
}

/* With everything that may come between the append and the next look at the store. */
static void test_a_lost_answer_doubles_nothing(void **state)
{
	static const char *const wants[] = {"one\ntwo\n", "one\ntwo\nthree\n",
					    "ONE\ntwo\n"};

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct fault_rule lost = {.op = ORIGIN_APPEND,
					  .count = 1,
					  .error = -ETIMEDOUT,
					  .after = true};
		struct fault_rule away = {.op = ORIGIN_OP_N, .error = -ECONNREFUSED};
		struct output_file *f;
		uint64_t off, at = 0;
		struct rig t;
		int rule;

		set_up_append(&t);
		f = begin_log(&t, "log", &off);
		rule = fault_add(t.origin, &lost);
		fault_add(t.origin, &away);
		add(f, "two\n", &off);
		drain_until_hit(&t, rule);
		assert_int_equal(fault_hits(t.origin, rule), 1);
		if (i % 3 == 1)
			add(f, "three\n", &off);
		if (i % 3 == 2)
			add(f, "ONE", &at);
		close_file(f);
		if (i >= 3)
			restart(&t);
		fault_clear(t.origin);
		drain(&t);
		lib_assert_content(t.origin, "log", wants[i % 3]);
		assert_reads(&t, "log", wants[i % 3]);
		assert_int_equal(is_appendable(&t, "log"), i % 3 != 2);
		tear_down(&t);
	}
}

static void test_what_others_put_there_is_not_appended_to(void **state)
{
	struct output_file *f;
	uint64_t off;
	struct rig t;

	(void)state;
	set_up_append(&t);
	f = begin_log(&t, "log", &off);
	/* Longer, shorter, of another kind. */
	lib_delete(t.origin, "log");
	lib_append(t.origin, "log", 0, "of someone else\n");
	add(f, "two\n", &off);
	drain(&t);
	lib_assert_content(t.origin, "log", "one\ntwo\n");
	assert_false(is_appendable(&t, "log"));
	close_file(f);

	f = open_for(&t, "new", O_CREAT | O_WRONLY);
	lib_put(t.origin, "new", "of someone else");
	off = 0;
	add(f, "mine\n", &off);
	drain(&t);
	lib_assert_content(t.origin, "new", "mine\n");
	close_file(f);
	tear_down(&t);
}

static void test_a_large_object_is_appended_to_without_its_bytes(void **state)
{
	char *want = malloc(LARGE + 100);
	struct origin_req make = {
		.op = ORIGIN_APPEND, .key = "f", .body = {.data = want, .len = LARGE}};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_append(&t);
	fill(want, LARGE + 100, 1);
	assert_int_equal(origin_call(t.origin, &make), 0);
	count(&t, &before);
	f = open_for(&t, "f", O_WRONLY | O_APPEND);
	assert_int_equal(output_write(f, LARGE, want + LARGE, 60, 0), 0);
	drain(&t);
	assert_int_equal(output_write(f, LARGE + 60, want + LARGE + 60, 40, 0), 0);
	close_file(f);
	drain(&t);
	assert_int_equal(sent(&t), 100);
	assert_int_equal(fetched(&t), 0);
	assert_holds(&t, "f", want, LARGE + 100);
	assert_true(is_appendable(&t, "f"));
	free(want);
	tear_down(&t);
}

/* As the kernel's page cache does it. */
static void test_the_last_page_may_be_written_again(void **state)
{
	char *want = malloc(LARGE + 200);
	struct origin_req make = {
		.op = ORIGIN_APPEND, .key = "f", .body = {.data = want, .len = LARGE}};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct output_file *f;
		struct rig t;

		set_up_append(&t);
		fill(want, LARGE + 200, 1);
		make.off = 0;
		assert_int_equal(origin_call(t.origin, &make), 0);
		count(&t, &before);
		f = open_for(&t, "f", O_RDWR);
		want[LARGE - 500] ^= (char)i; /* or not quite the same */
		assert_int_equal(
			output_write(f, LARGE - 1000, want + LARGE - 1000, 1100, 0), 0);
		drain(&t);
		assert_holds(&t, "f", want, LARGE + 100);
		assert_int_equal(is_appendable(&t, "f"), i == 0);
		close_file(f);
		f = open_for(&t, "f", O_RDWR);
		assert_int_equal(output_write(f, LARGE, want + LARGE, 200, 0), 0);
		close_file(f);
		drain(&t);
		assert_holds(&t, "f", want, LARGE + 200);
		assert_int_equal(is_appendable(&t, "f"), i == 0);
		tear_down(&t);
	}
	free(want);
}

/* Bytes between the pieces are only in the object. */
static void test_of_the_last_page_pieces_may_be_written_again(void **state)
{
	char *want = malloc(LARGE + 100);
	struct origin_req make = {
		.op = ORIGIN_APPEND, .key = "f", .body = {.data = want, .len = LARGE}};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_append(&t);
	fill(want, LARGE + 100, 1);
	assert_int_equal(origin_call(t.origin, &make), 0);
	f = open_for(&t, "f", O_RDWR);
	assert_int_equal(output_write(f, LARGE - 1000, want + LARGE - 1000, 100, 0), 0);
	assert_int_equal(output_write(f, LARGE, want + LARGE, 100, 0), 0);
	close_file(f);
	drain(&t);
	assert_holds(&t, "f", want, LARGE + 100);
	assert_true(is_appendable(&t, "f"));
	free(want);
	tear_down(&t);
}

/* The bytes are nowhere but in the object, which has another name for itself now. */
static void test_a_lost_append_is_found_before_it_is_superseded(void **state)
{
	char *want = malloc(LARGE + 100);
	struct origin_req make = {
		.op = ORIGIN_APPEND, .key = "f", .body = {.data = want, .len = LARGE}};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct fault_rule lost = {.op = ORIGIN_APPEND,
					  .count = 1,
					  .error = -ETIMEDOUT,
					  .after = i % 2 == 0};
		struct fault_rule away = {.op = ORIGIN_OP_N, .error = -ECONNREFUSED};
		struct fault_rule blind = {.op = ORIGIN_STAT, .error = -ECONNREFUSED};
		struct output_file *f;
		struct tree_attr attr;
		struct rig t;
		int rule;

		set_up_append(&t);
		fill(want, LARGE + 100, 1);
		make.off = 0;
		assert_int_equal(origin_call(t.origin, &make), 0);
		f = open_for(&t, "f", O_RDWR);
		rule = fault_add(t.origin, &lost);
		fault_add(t.origin, &away);
		assert_int_equal(output_write(f, LARGE, want + LARGE, 100, 0), 0);
		assert_int_equal(output_flush(f), 0);
		drain_until_hit(&t, rule);
		memset(want + 500000, 'x', 1000);
		assert_int_equal(output_write(f, 500000, want + 500000, 1000, 0), 0);
		close_file(f);
		if (i >= 2) {
			restart(&t);
			fault_clear(t.origin);
			fault_add(t.origin, &blind);
			/* The listing shows an object that nobody here knows. */
			assert_int_equal(walk(&t, "nothing", &attr), 0);
		}
		fault_clear(t.origin);
		drain(&t);
		assert_holds(&t, "f", want, LARGE + 100);
		tear_down(&t);
	}
	free(want);
}

static void test_a_store_that_refuses_gets_the_whole(void **state)
{
	struct fault_rule never = {.op = ORIGIN_APPEND, .error = -ENOTSUP};
	struct output_file *f;
	uint64_t off;
	struct rig t;

	(void)state;
	set_up_append(&t);
	f = begin_log(&t, "log", &off);
	fault_add(t.origin, &never);
	add(f, "two\n", &off);
	drain(&t);
	lib_assert_content(t.origin, "log", "one\ntwo\n");
	assert_int_equal(asked(&t, ORIGIN_PUT), 1);
	close_file(f);
	tear_down(&t);
}

static void test_an_object_that_cannot_be_copied_is_sent_anew(void **state)
{
	struct fault_rule never = {.op = ORIGIN_COPY, .error = -EINVAL};
	struct tree_attr attr = {.mode = 0600};
	struct output_file *f;
	uint64_t off, ino;
	struct rig t;

	(void)state;
	set_up_append(&t);
	f = begin_log(&t, "log", &off);
	close_file(f);
	restart(&t); /* nothing is kept in the stage */
	fault_add(t.origin, &never);
	ino = walk(&t, "log", &attr);
	assert_int_equal(output_rename(t.o, TREE_ROOT, "log", TREE_ROOT, "old", 0), 0);
	drain(&t);
	lib_assert_content(t.origin, "old", "one\n");
	assert_int_equal(lib_stat(t.origin, "log", &(struct origin_attr){0}), -ENOENT);

	f = begin_log(&t, "log", &off);
	close_file(f);
	ino = walk(&t, "log", &attr);
	attr.mode = 0600;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_MODE, &attr), 0);
	drain(&t);
	lib_assert_content(t.origin, "log", "one\n");
	assert_int_equal(lib_stat(t.origin, "log", &lib_last.attr), 0);
	assert_int_equal(lib_last.attr.mode & 07777, 0600);
	tear_down(&t);
}

/* The time of an object that grows is that of the last append; what else is set counts. */
static uint64_t files_stored(struct rig *t)
{
	struct output_progress p;

	output_progress(t->o, &p);
	return p.files_stored;
}

/* Written by the kernel behind our back, and cut below what is about to land: the store's
 * object is longer than the file is by then. */
static void test_a_file_cut_below_what_lands_is_sent(void **state)
{
	static char want[6 * PART];

	(void)state;
	for (int appends = 0; appends < 2; appends++) {
		struct fault_rule slow = {.op = appends ? ORIGIN_APPEND
							: ORIGIN_MULTI_END,
					  .count = 1,
					  .delay_ms = 1000};
		struct output_file *f;
		struct tree_attr attr;
		struct rig t;
		int fd, rule;

		set_up_append(&t);
		t.o = output_free(t.o);
		t.config.append_objects = appends;
		t.config.part_size = appends ? 16 * PART : PART;
		start(&t);
		f = open_for(&t, "f", O_CREAT | O_RDWR);
		fd = output_backing_fd(f);
		assert_true(fd >= 0);
		fill(want, sizeof(want), 1);
		assert_int_equal(io_pwrite(fd, want, PART, 0), 0);
		drain(&t);
		rule = fault_add(t.origin, &slow);
		assert_int_equal(io_pwrite(fd, want, sizeof(want), 0), 0);
		assert_int_equal(output_drain(t.o, clock_mono_ms() + 100, NULL),
				 OUTPUT_E_PENDING);
		eventually(fault_hits(t.origin, rule) == 1);
		assert_int_equal(output_setattr(t.o, walk(&t, "f", &attr),
						OUTPUT_SET_SIZE,
						&(struct tree_attr){.size = 3 * PART}),
				 0);
		eventually(files_stored(&t) >= 2);
		close_file(f);
		close(fd);
		drain(&t);
		assert_holds(&t, "f", want, 3 * PART);
		tear_down(&t);
	}
}

static void test_attributes_come_with_the_first_append(void **state)
{
	struct tree_attr attr = {.mtime_ns = 1000000000};
	struct origin_attr got;
	struct output_file *f;
	uint64_t off = 0, ino;
	struct rig t;

	(void)state;
	set_up_append(&t);
	f = open_for(&t, "log", O_CREAT | O_RDWR);
	add(f, "one\n", &off);
	ino = walk(&t, "log", &attr);
	attr.mode = 0640;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_MODE, &attr), 0);
	drain(&t);
	assert_int_equal(lib_stat(t.origin, "log", &got), 0);
	assert_int_equal(got.mode, S_IFREG | 0640);
	add(f, "two\n", &off);
	attr.mtime_ns = 1000000000;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_MTIME, &attr), 0);
	close_file(f);
	drain(&t);
	assert_true(is_appendable(&t, "log"));
	assert_int_equal(asked(&t, ORIGIN_COPY), 0);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_file_cut_below_what_lands_is_sent),
	  cmocka_unit_test(test_what_grows_costs_what_it_grew),
	  cmocka_unit_test(test_what_is_closed_first_is_put),
	  cmocka_unit_test(test_what_is_rewritten_is_replaced),
	  cmocka_unit_test(test_a_rewrite_behind_our_back_is_found_by_the_bytes),
	  cmocka_unit_test(test_a_lost_answer_doubles_nothing),
	  cmocka_unit_test(test_what_others_put_there_is_not_appended_to),
	  cmocka_unit_test(test_a_large_object_is_appended_to_without_its_bytes),
	  cmocka_unit_test(test_the_last_page_may_be_written_again),
	  cmocka_unit_test(test_of_the_last_page_pieces_may_be_written_again),
	  cmocka_unit_test(test_a_lost_append_is_found_before_it_is_superseded),
	  cmocka_unit_test(test_a_store_that_refuses_gets_the_whole),
	  cmocka_unit_test(test_an_object_that_cannot_be_copied_is_sent_anew),
	  cmocka_unit_test(test_attributes_come_with_the_first_append))
