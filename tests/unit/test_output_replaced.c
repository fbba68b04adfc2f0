/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are open while their name is taken from them: as on a local disk, they stay
 * what they are. */
#include "tests/unit/lib_output.h"

#include <dirent.h>

#include "fs/base/cleanup.h"

#define LARGE (1u << 20) /* not fetched to be read */

static char want[LARGE];

static void set_up_large(struct rig *t)
{
	struct origin_req req = {.op = ORIGIN_PUT, .key = "f"};

	set_up_faulty(t);
	t->o = output_free(t->o);
	t->config.fetch_max = 64 << 10;
	start(t);
	fill(want, LARGE, 1);
	req.body = (struct origin_body){.data = want, .len = LARGE};
	assert_int_equal(origin_call(t->origin, &req), 0);
}

static int read_all(struct output_file *f, char *got, size_t *n)
{
	size_t piece = 1;
	int r = 0;

	for (*n = 0; r == 0 && piece > 0; *n += piece) {
		piece = 0;
		r = output_read(f, *n, got + *n, LARGE - *n, 0, &piece);
	}
	return r;
}

static void assert_holds(struct output_file *f)
{
	_cleanup_(freep) char *got = malloc(LARGE);
	size_t n;

	assert_int_equal(read_all(f, got, &n), 0);
	assert_int_equal(n, LARGE);
	assert_memory_equal(got, want, LARGE);
}

static void replace(struct rig *t, int how)
{
	if (how == 0) {
		put(t, "new", "new");
		assert_int_equal(move(t, "new", "f", 0), 0);
	} else if (how == 1) {
		assert_int_equal(remove_file(t, "f"), 0);
		put(t, "f", "new");
	} else {
		/* One that is in the store already. */
		put(t, "new", "new");
		drain(t);
		assert_int_equal(move(t, "new", "f", 0), 0);
	}
}

/* How many staged files there are. */
static int staged(struct rig *t)
{
	char path[96];
	struct dirent *e;
	int count = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/stage", t->dir);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		count += e->d_name[0] != '.';
	closedir(d);
	return count;
}

static bool is_replaced(struct rig *t)
{
	struct origin_attr attr;

	return lib_stat(t->origin, "f", &attr) == 0 && attr.size == 3;
}

/* By one that reads it, and by one that has changed a part of it. */
static void test_who_has_it_open_keeps_it(void **state)
{
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct output_file *f;
		struct rig t;

		set_up_large(&t);
		f = open_for(&t, "f", how < 3 ? O_RDONLY : O_RDWR);
		if (how >= 3) {
			assert_int_equal(output_write(f, 5000, "changed", 7, 0), 0);
			memcpy(want + 5000, "changed", 7);
		}
		replace(&t, how % 3);
		eventually(is_replaced(&t));
		assert_holds(f);
		assert_reads(&t, "f", "new");
		output_release(f);
		drain(&t);
		lib_assert_content(t.origin, "f", "new");
		tear_down(&t);
	}
}

/* What it had is given back when the last one closes it. */
static void test_it_takes_space_while_it_is_open(void **state)
{
	struct output_file *f, *g;
	struct rig t;

	(void)state;
	set_up_large(&t);
	f = open_for(&t, "f", O_RDONLY);
	g = open_for(&t, "f", O_RDONLY);
	replace(&t, 1);
	eventually(is_replaced(&t));
	assert_holds(f);
	output_release(f);
	assert_holds(g);
	output_release(g);
	restart(&t);
	assert_int_equal(staged(&t), 0);
	tear_down(&t);
}

/* The new file is what the program waits for. */
static void test_without_room_the_new_one_goes_first(void **state)
{
	struct output_file *f;
	struct rig t;
	size_t n;
	char c;

	(void)state;
	set_up_large(&t);
	t.o = output_free(t.o);
	t.config.stage_size_max = 2 * LARGE - 1;
	start(&t);
	f = open_for(&t, "f", O_RDONLY);
	replace(&t, 0);
	eventually(is_replaced(&t));
	assert_int_equal(output_read(f, 0, &c, 1, 0, &n), -ESTALE);
	output_release(f);
	drain(&t);
	tear_down(&t);
}

/* It was replaced by others, or may not be read. */
static void test_what_cannot_be_had_keeps_nobody(void **state)
{
	static const int errors[] = {-ESTALE, -ENOENT, -EACCES, -EBADMSG};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		struct fault_rule rule = {.op = ORIGIN_GET, .error = errors[i]};
		struct output_file *f;
		struct rig t;
		size_t n;
		char c;

		set_up_large(&t);
		f = open_for(&t, "f", O_RDONLY);
		fault_add(t.origin, &rule);
		replace(&t, 0);
		eventually(is_replaced(&t));
		fault_clear(t.origin);
		assert_int_equal(output_read(f, 0, &c, 1, 0, &n), -ESTALE);
		output_release(f);
		drain(&t);
		tear_down(&t);
	}
}

/* A store that is away for a while takes nothing away. */
static void test_a_passing_fault_loses_nothing(void **state)
{
	struct fault_rule rule = {.op = ORIGIN_GET, .count = 3, .error = -ECONNRESET};
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_large(&t);
	f = open_for(&t, "f", O_RDONLY);
	fault_add(t.origin, &rule);
	replace(&t, 0);
	eventually(is_replaced(&t));
	assert_holds(f);
	output_release(f);
	drain(&t);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_who_has_it_open_keeps_it),
	  cmocka_unit_test(test_it_takes_space_while_it_is_open),
	  cmocka_unit_test(test_without_room_the_new_one_goes_first),
	  cmocka_unit_test(test_what_cannot_be_had_keeps_nobody),
	  cmocka_unit_test(test_a_passing_fault_loses_nothing))
