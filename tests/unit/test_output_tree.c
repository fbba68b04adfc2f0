/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trees of /output: what they cost the store, and what is right meanwhile. */
#include "tests/unit/lib_output.h"

static void put_objects(struct rig *t, const char *dir, int count)
{
	for (int i = 0; i < count; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%s/%04d", dir, i);
		assert_int_equal(lib_put(t->origin, key, key), 0);
	}
}

static void remove_files(struct rig *t, const char *dir, int count)
{
	for (int i = 0; i < count; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/%04d", dir, i);
		assert_int_equal(remove_file(t, path), 0);
	}
}

/* ---- deletes ---------------------------------------------------------------------------- */

static void test_many_deletes_are_few_requests(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "d", 2500);
	assert_int_equal(lib_put(t.origin, "e", "stays"), 0);
	remove_files(&t, "d", 2500);
	drain(&t);
	assert_listed(&t, "d/ e");
	assert_in_range(requests(&t, ORIGIN_DELETE) + requests(&t, ORIGIN_DELETE_MANY), 3,
			8);
	tear_down(&t);
}

/* Some keys of a request are gone, the others are asked for again. */
static void test_each_delete_has_its_own_result(void **state)
{
	struct fault_rule partly = {.op = ORIGIN_DELETE_MANY,
				    .count = 2,
				    .cut = true,
				    .cut_after = 7,
				    .error = -EAGAIN};
	struct output_progress p;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "d", 20);
	fault_add(t.origin, &partly);
	remove_files(&t, "d", 20);
	drain(&t);
	assert_listed(&t, "d/");
	output_progress(t.o, &p);
	/* Those that stayed wait each for itself, and the second time for less. */
	assert_in_range(p.failures, 13, 19);
	tear_down(&t);
}

/* The answer is lost, and meanwhile the name is there again. */
static void test_a_lost_answer_deletes_nothing_new(void **state)
{
	struct fault_rule lost = {.op = ORIGIN_OP_N, .after = true, .error = -ETIMEDOUT};
	struct tree_attr attr;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "d", 20);
	assert_int_equal(walk(&t, "d/0019", &attr) > 0, 1);
	fault_add(t.origin, &lost);
	remove_files(&t, "d", 20);
	assert_int_equal(output_drain(t.o, clock_mono_ms() + 50, NULL), OUTPUT_E_PENDING);
	put(&t, "d/0007", "new");
	fault_clear(t.origin);
	drain(&t);
	assert_listed(&t, "d/ d/0007");
	lib_assert_content(t.origin, "d/0007", "new");
	tear_down(&t);
}

/* What the store refuses for good keeps no other key. */
static void test_a_refused_delete_keeps_no_other(void **state)
{
	struct fault_rule many = {.op = ORIGIN_DELETE_MANY, .error = -EACCES};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "d", 20);
	fault_add(t.origin, &many);
	remove_files(&t, "d", 20);
	drain(&t);
	assert_listed(&t, "d/");
	tear_down(&t);
}

/* ---- renames ---------------------------------------------------------------------------- */

static const struct fault_rule no_list = {.op = ORIGIN_LIST, .error = -ECONNREFUSED};
static const struct fault_rule no_copy = {.op = ORIGIN_COPY, .error = -ECONNREFUSED};

/* What the paths of the next rename need is listed; what is below them is not. */
static void look(struct rig *t, const char *path)
{
	struct tree_attr attr;

	assert_int_not_equal(walk(t, path, &attr), 0);
}

static void assert_gone(struct rig *t, const char *path)
{
	struct tree_attr attr;

	assert_int_equal(walk(t, path, &attr), 0);
}

static void assert_pending(struct rig *t)
{
	assert_int_equal(output_drain(t->o, clock_mono_ms() + 20, NULL),
			 OUTPUT_E_PENDING);
}

/* The rig's tree again, with few objects of renamed trees in memory at a time. */
static void restart_with(struct rig *t, uint32_t walk_ahead)
{
	t->config.walk_ahead = walk_ahead;
	restart(t);
}

static void test_a_rename_asks_the_store_nothing(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 50);
	look(&t, "a");
	fault_add(t.origin, &no_list);
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_gone(&t, "a");
	look(&t, "b");
	assert_pending(&t);
	fault_clear(t.origin);
	assert_int_equal(count_names(&t, "b"), 50);
	assert_reads(&t, "b/0007", "a/0007");
	drain(&t);
	lib_assert_content(t.origin, "b/0049", "a/0049");
	lib_assert_listed(t.origin, "a", true, "");
	tear_down(&t);
}

/* While objects are taken in bit by bit, never many are known at a time. */
static void test_a_large_tree_moves_in_bounded_memory(void **state)
{
	struct output_progress p;
	uint64_t most = 0;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	restart_with(&t, 100);
	put_objects(&t, "a/deep", 5000);
	look(&t, "a");
	assert_int_equal(move(&t, "a", "b", 0), 0);
	while (output_drain(t.o, clock_mono_ms() + 1, NULL) != 0) {
		output_progress(t.o, &p);
		most = p.files_pending > most ? p.files_pending : most;
		assert_in_range(p.nodes, 0, 1500);
	}
	assert_in_range(most, 1, 400);
	assert_int_equal(count_names(&t, "b/deep"), 5000);
	lib_assert_content(t.origin, "b/deep/4999", "a/deep/4999");
	lib_assert_listed(t.origin, "a", true, "");
	tear_down(&t);
}

static void test_a_move_goes_on_after_a_restart(void **state)
{
	struct fault_rule few = {.op = ORIGIN_COPY, .skip = 15, .error = -ECONNREFUSED};
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	restart_with(&t, 4);
	put_objects(&t, "a", 40);
	look(&t, "a");
	fault_add(t.origin, &few);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_pending(&t);
	restart(&t);
	assert_gone(&t, "a");
	assert_int_equal(count_names(&t, "b"), 40);
	restart(&t);
	fault_clear(t.origin);
	drain(&t);
	lib_assert_content(t.origin, "b/0000", "a/0000");
	lib_assert_content(t.origin, "b/0039", "a/0039");
	lib_assert_listed(t.origin, "a", true, "");
	tear_down(&t);
}

/* A name that is there again while the old object has not even been seen. */
static void test_the_old_name_is_free_at_once(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 5);
	look(&t, "a");
	fault_add(t.origin, &no_list);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	make_dir(&t, "a");
	put(&t, "a/0003", "new");
	assert_pending(&t);
	lib_assert_content(t.origin, "a/0003", "a/0003");
	restart(&t);
	assert_pending(&t);
	lib_assert_content(t.origin, "a/0003", "a/0003");
	fault_clear(t.origin);
	assert_int_equal(count_names(&t, "a"), 1);
	assert_int_equal(count_names(&t, "b"), 5);
	assert_reads(&t, "a/0003", "new");
	assert_reads(&t, "b/0003", "a/0003");
	assert_int_equal(remove_file(&t, "b/0001"), 0);
	drain(&t);
	assert_listed(&t, "a/ a/0003 b/ b/0000 b/0002 b/0003 b/0004");
	lib_assert_content(t.origin, "a/0003", "new");
	lib_assert_content(t.origin, "b/0003", "a/0003");
	tear_down(&t);
}

/* Renamed again, in part and as a whole, before anything was moved. */
static void test_renames_follow_each_other(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a/s/t", 2);
	put_objects(&t, "a", 1);
	look(&t, "a/s/t");
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_int_equal(move(&t, "b/s", "b/u", 0), 0);
	assert_int_equal(move(&t, "b", "c", 0), 0);
	assert_int_equal(move(&t, "c/u/t", "out", 0), 0);
	make_dir(&t, "b");
	assert_int_equal(move(&t, "c", "b/c", 0), 0);
	restart(&t);
	assert_int_equal(count_names(&t, "out"), 2);
	assert_int_equal(count_names(&t, "b/c"), 2);
	assert_int_equal(count_names(&t, "b/c/u"), 0);
	fault_clear(t.origin);
	drain(&t);
	assert_listed(&t, "b/ b/c/ b/c/0000 b/c/u/ out/ out/0000 out/0001");
	lib_assert_content(t.origin, "out/0001", "a/s/t/0001");
	tear_down(&t);
}

static void test_a_tree_comes_home(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 5);
	look(&t, "a");
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_int_equal(move(&t, "b", "a", 0), 0);
	fault_clear(t.origin);
	drain(&t);
	assert_listed(&t, "a/ a/0000 a/0001 a/0002 a/0003 a/0004");
	assert_int_equal(count_names(&t, "a"), 5);
	tear_down(&t);
}

static void test_trees_that_swap_both_arrive(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	restart_with(&t, 2);
	put_objects(&t, "a", 9);
	put_objects(&t, "b", 7);
	look(&t, "a");
	assert_int_equal(move(&t, "a", "b", RENAME_EXCHANGE), 0);
	drain(&t);
	lib_assert_content(t.origin, "a/0006", "b/0006");
	lib_assert_content(t.origin, "b/0006", "a/0006");
	lib_assert_content(t.origin, "b/0008", "a/0008");
	assert_int_equal(count_names(&t, "a"), 7);
	tear_down(&t);
}

/* Its path is below where its objects are. */
/* Its key is its own again, below where another tree's objects still are. */
static void test_a_file_that_came_home_stays_after_a_restart(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 3);
	put_objects(&t, "b", 3);
	look(&t, "a/0000");
	look(&t, "b/0000");
	fault_add(t.origin, &no_list);
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a", "b", RENAME_EXCHANGE), 0);
	assert_int_equal(move(&t, "b/0000", "a/0000", 0), 0);
	t.o = output_free(t.o);
	fault_clear(t.origin);
	fault_add(t.origin, &no_copy);
	start(&t);
	assert_gone(&t, "b/0000");
	assert_reads(&t, "a/0000", "a/0000");
	assert_int_equal(count_names(&t, "a"), 3);
	assert_int_equal(count_names(&t, "b"), 2);
	fault_clear(t.origin);
	drain(&t);
	assert_gone(&t, "b/0000");
	lib_assert_content(t.origin, "a/0000", "a/0000");
	lib_assert_content(t.origin, "a/0001", "b/0001");
	lib_assert_content(t.origin, "b/0001", "a/0001");
	tear_down(&t);
}

static void test_a_tree_moves_below_its_old_name(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 3);
	put_objects(&t, "a/b", 2);
	look(&t, "a");
	fault_add(t.origin, &no_list);
	assert_int_equal(move(&t, "a", "x", 0), 0);
	make_dir(&t, "a");
	fault_clear(t.origin);
	assert_int_equal(move(&t, "x", "a/b", 0), 0);
	drain(&t);
	assert_listed(&t, "a/ a/b/ a/b/0000 a/b/0001 a/b/0002 a/b/b/0000 a/b/b/0001");
	lib_assert_content(t.origin, "a/b/0001", "a/0001");
	lib_assert_content(t.origin, "a/b/b/0001", "a/b/0001");
	tear_down(&t);
}

static void test_a_tree_is_removed_while_it_moves(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 20);
	look(&t, "a");
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	assert_int_equal(output_rmdir(t.o, TREE_ROOT, "b"), -ENOTEMPTY);
	remove_files(&t, "b", 20);
	assert_int_equal(output_rmdir(t.o, TREE_ROOT, "b"), 0);
	assert_gone(&t, "b");
	drain(&t);
	assert_listed(&t, "");
	tear_down(&t);
}

/* A rename reads no attributes, and loses none. */
static void test_attributes_move_with_a_tree(void **state)
{
	static const char *const pairs[][2] = {{"mode", "33184"}, {"uid", "7"}};
	struct origin_meta meta = {.pairs = pairs, .count = 2};
	struct origin_req req = {.op = ORIGIN_PUT,
				 .key = "a/f",
				 .body = {.data = "text", .fd = -1, .len = 4},
				 .meta = &meta};
	struct tree_attr attr;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	assert_int_equal(origin_call(t.origin, &req), 0);
	look(&t, "a");
	assert_int_equal(move(&t, "a", "b", 0), 0);
	drain(&t);
	restart(&t);
	assert_int_not_equal(walk(&t, "b/f", &attr), 0);
	assert_int_equal(attr.mode & 07777, 0640);
	assert_int_equal(attr.uid, 7);
	tear_down(&t);
}

/* What cannot have its new path keeps its old one. */
static void becomes_too_long(uint32_t key_max, size_t to_len)
{
	char name[241], from[600], key[1100];
	struct rig t;

	set_up_faulty(&t);
	t.origin->key_max = key_max;
	memset(name, 'n', 240);
	name[240] = '\0';
	snprintf(key, sizeof(key), "a/%s/%s/%s/%s", name, name, name, name);
	assert_int_equal(lib_put(t.origin, key, "far"), 0);
	assert_int_equal(lib_put(t.origin, "a/near", "near"), 0);
	look(&t, "a");
	memset(from, 'l', to_len);
	from[to_len] = '\0';
	assert_int_equal(move(&t, "a", from, 0), 0);
	drain(&t);
	lib_assert_content(t.origin, key, "far");
	strcat(from, "/near");
	lib_assert_content(t.origin, from, "near");
	tear_down(&t);
}

static void test_a_path_that_becomes_too_long_keeps_its_object(void **state)
{
	(void)state;
	becomes_too_long(0, 100);
	/* A source below a prefix of its bucket has less room. */
	becomes_too_long(1000, 50);
}

/* What is there when all has been moved is no part of it. */
static void test_what_others_put_at_the_old_path_stays(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	put_objects(&t, "a", 3);
	look(&t, "a");
	assert_int_equal(move(&t, "a", "b", 0), 0);
	drain(&t);
	assert_int_equal(lib_put(t.origin, "a/other", "other"), 0);
	restart(&t);
	assert_reads(&t, "a/other", "other");
	drain(&t);
	assert_listed(&t, "a/other b/ b/0000 b/0001 b/0002");
	tear_down(&t);
}

/* An upload flies for the old path. That its file then passes another path, whose object is
 * not known here, says nothing of that one. */
static void test_a_file_that_passes_a_path_takes_nothing_along(void **state)
{
	struct fault_rule slow = {.op = ORIGIN_PUT, .delay_ms = 300};
	struct rig t;
	int rule;

	(void)state;
	set_up_faulty(&t);
	assert_int_equal(lib_put(t.origin, "c/b", "theirs"), 0);
	make_dir(&t, "a");
	drain(&t);
	look(&t, "c");
	rule = fault_add(t.origin, &slow);
	put(&t, "a/b", "ours");
	eventually(fault_hits(t.origin, rule) > 0);
	assert_int_equal(move(&t, "a", "c", RENAME_EXCHANGE), 0);
	assert_int_equal(move(&t, "a", "c", RENAME_EXCHANGE), 0);
	drain(&t);
	assert_reads(&t, "c/b", "theirs");
	assert_reads(&t, "a/b", "ours");
	lib_assert_content(t.origin, "c/b", "theirs");
	lib_assert_content(t.origin, "a/b", "ours");
	tear_down(&t);
}

static bool is_walked(struct rig *t)
{
	struct output_progress p;

	output_progress(t->o, &p);
	return p.moving == 0;
}

/* A directory that is back where its objects are, among those of a renamed one. */
static void test_a_directory_that_came_home_is_not_in_the_moved(void **state)
{
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	assert_int_equal(lib_put(t.origin, "a/s/x", "x"), 0);
	assert_int_equal(lib_put(t.origin, "a/y", "y"), 0);
	look(&t, "a/s/x");
	fault_add(t.origin, &no_copy);
	assert_int_equal(move(&t, "a/s", "q", 0), 0);
	eventually(is_walked(&t));
	fault_add(t.origin, &no_list);
	assert_int_equal(move(&t, "a", "b", 0), 0);
	make_dir(&t, "a");
	assert_int_equal(move(&t, "q", "a/s", 0), 0);
	restart(&t);
	fault_clear(t.origin);
	fault_add(t.origin, &no_copy);
	assert_int_equal(count_names(&t, "b"), 1);
	assert_gone(&t, "b/s");
	assert_reads(&t, "a/s/x", "x");
	fault_clear(t.origin);
	drain(&t);
	assert_int_equal(count_names(&t, "b"), 1);
	lib_assert_content(t.origin, "a/s/x", "x");
	lib_assert_content(t.origin, "b/y", "y");
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_directory_that_came_home_is_not_in_the_moved),
	  cmocka_unit_test(test_a_rename_asks_the_store_nothing),
	  cmocka_unit_test(test_a_file_that_passes_a_path_takes_nothing_along),
	  cmocka_unit_test(test_a_large_tree_moves_in_bounded_memory),
	  cmocka_unit_test(test_a_move_goes_on_after_a_restart),
	  cmocka_unit_test(test_the_old_name_is_free_at_once),
	  cmocka_unit_test(test_renames_follow_each_other),
	  cmocka_unit_test(test_a_tree_comes_home),
	  cmocka_unit_test(test_trees_that_swap_both_arrive),
	  cmocka_unit_test(test_a_file_that_came_home_stays_after_a_restart),
	  cmocka_unit_test(test_a_tree_moves_below_its_old_name),
	  cmocka_unit_test(test_a_tree_is_removed_while_it_moves),
	  cmocka_unit_test(test_attributes_move_with_a_tree),
	  cmocka_unit_test(test_a_path_that_becomes_too_long_keeps_its_object),
	  cmocka_unit_test(test_what_others_put_at_the_old_path_stays),
	  cmocka_unit_test(test_many_deletes_are_few_requests),
	  cmocka_unit_test(test_each_delete_has_its_own_result),
	  cmocka_unit_test(test_a_lost_answer_deletes_nothing_new),
	  cmocka_unit_test(test_a_refused_delete_keeps_no_other))
