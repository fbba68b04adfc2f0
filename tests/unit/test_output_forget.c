/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of what is stored leave the memory; what they stood for does not leave the tree. */
#include "tests/unit/lib_output.h"

#include "fs/inode.h"

#define MANY 60
#define KEEP 10

static void set_up_small(struct rig *t)
{
	set_up(t);
	t->config.nodes_max = KEEP;
	restart(t);
}

/* How many there are when nobody knows any. */
static uint64_t nodes(struct rig *t)
{
	struct output_progress p;

	for (int i = 0; i < RIG_KNOWN; i++)
		know(t, 0);
	output_progress(t->o, &p);
	return p.nodes;
}

static void name_of(char out[32], const char *dir, int i)
{
	snprintf(out, 32, "%s/%04d", dir, i);
}

static void put_many(struct rig *t, const char *dir)
{
	char path[32];

	make_dir(t, dir);
	for (int i = 0; i < MANY; i++) {
		name_of(path, dir, i);
		put(t, path, path);
	}
	drain(t);
}

static void test_of_many_stored_files_few_nodes_stay(void **state)
{
	char path[32];
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	assert_in_range(nodes(&t), 1, KEEP + 2);
	for (int i = 0; i < MANY; i++) {
		name_of(path, "d", i);
		assert_reads(&t, path, path);
	}
	assert_int_equal(count_names(&t, "d"), MANY);
	assert_in_range(nodes(&t), 1, KEEP + 2);
	tear_down(&t);
}

/* One request of each kind at most for a name that was known, none for a new one. */
static void test_forgotten_names_are_asked_for_one_by_one(void **state)
{
	uint64_t lists, stats, dir, asked = 0;
	struct tree_attr attr;
	char path[32];
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	dir = walk(&t, "d", &attr);
	lists = requests(&t, ORIGIN_LIST);
	stats = requests(&t, ORIGIN_STAT);
	put(&t, "d/new", "new");
	assert_int_equal(output_lookup(t.o, dir, "never", 0, &attr), -ENOENT);
	assert_int_equal(requests(&t, ORIGIN_STAT), stats);
	/* Which of them are still in memory is open. */
	for (int i = 0; i < MANY; i++) {
		name_of(path, "d", i);
		stats = requests(&t, ORIGIN_STAT);
		assert_reads(&t, path, path);
		asked += requests(&t, ORIGIN_STAT) - stats;
		assert_in_range(requests(&t, ORIGIN_STAT) - stats, 0, 1);
	}
	assert_true(asked >= MANY - KEEP - 2);
	assert_int_equal(requests(&t, ORIGIN_LIST), lists);
	tear_down(&t);
}

static void test_a_forgotten_name_is_not_free(void **state)
{
	struct output_file *f;
	struct tree_attr attr;
	uint64_t dir;
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	dir = walk(&t, "d", &attr);
	assert_int_equal(output_create(t.o, dir, "0001", 0644,
				       O_CREAT | O_EXCL | O_WRONLY, me, 0, &attr, &f),
			 -EEXIST);
	assert_int_equal(output_mkdir(t.o, dir, "0002", 0755, me, &attr), -EEXIST);
	assert_int_equal(move(&t, "d/0003", "d/0004", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(output_rmdir(t.o, TREE_ROOT, "d"), -ENOTEMPTY);
	tear_down(&t);
}

static void test_a_forgotten_file_can_be_removed(void **state)
{
	char path[32];
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	for (int i = 0; i < MANY; i++) {
		name_of(path, "d", i);
		assert_int_equal(remove_file(&t, path), 0);
		assert_int_equal(remove_file(&t, path), -ENOENT);
	}
	assert_int_equal(count_names(&t, "d"), 0);
	drain(&t);
	assert_int_equal(output_rmdir(t.o, TREE_ROOT, "d"), 0);
	drain(&t);
	assert_listed(&t, "");
	tear_down(&t);
}

static void test_a_directory_moves_with_what_was_forgotten(void **state)
{
	char path[32], text[32];
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	assert_int_equal(move(&t, "d", "e", 0), 0);
	assert_reads(&t, "e/0030", "d/0030");
	assert_int_equal(count_names(&t, "e"), MANY);
	drain(&t);
	for (int i = 0; i < MANY; i++) {
		name_of(path, "e", i);
		name_of(text, "d", i);
		assert_reads(&t, path, text);
		lib_assert_content(t.origin, path, text);
	}
	lib_assert_listed(t.origin, "d", true, "");
	tear_down(&t);
}

/* A listing that is read keeps its lines, and no more. */
static void test_an_open_listing_is_whole(void **state)
{
	struct tree_attr attr;
	struct output_dir *d;
	int count = 0;
	char path[32];
	struct rig t;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	assert_int_equal(output_opendir(t.o, walk(&t, "d", &attr), 0, &d), 0);
	make_dir(&t, "x");
	for (int i = 0; i < KEEP; i++) {
		name_of(path, "x", i);
		put(&t, path, "more");
	}
	drain(&t);
	assert_int_equal(remove_file(&t, "d/0007"), 0);
	assert_int_equal(output_readdir(d, 0, false, 0, count_name, &count), 0);
	assert_int_equal(count, MANY - 1);
	output_closedir(d);
	drain(&t);
	assert_in_range(nodes(&t), 1, KEEP + 3);
	tear_down(&t);
}

/* What others do to a name shows when the listing has become old. */
static void test_what_others_remove_goes_and_what_they_put_comes(void **state)
{
	struct tree_attr attr;
	struct rig t;

	(void)state;
	set_up(&t);
	t.config.nodes_max = KEEP;
	t.config.ttl_ms = 0;
	restart(&t);
	put_many(&t, "d");
	assert_int_equal(lib_delete(t.origin, "d/0005"), 0);
	assert_int_equal(lib_put(t.origin, "d/other", "other"), 0);
	assert_int_equal(walk(&t, "d/0005", &attr), 0);
	assert_reads(&t, "d/other", "other");
	assert_int_equal(count_names(&t, "d"), MANY);
	tear_down(&t);
}

/* What the kernel knows stays until it lets go of it, for which it is asked. */
static void test_files_that_the_kernel_knows_are_spared(void **state)
{
	uint64_t inos[MANY], asked[MANY], dir;
	struct inodes_name name;
	struct tree_attr attr;
	char path[32];
	struct rig t;
	size_t n;

	(void)state;
	set_up_small(&t);
	put_many(&t, "d");
	dir = walk(&t, "d", &attr);
	for (int i = 0; i < MANY; i++) {
		name_of(path, "d", i);
		assert_int_equal(output_lookup(t.o, dir, path + 2, 0, &attr), 0);
		inos[i] = attr.ino;
	}
	assert_true(nodes(&t) > MANY);
	assert_true(output_is_over(t.o));
	n = output_spare(t.o, asked, MANY);
	assert_in_range(n, MANY - KEEP, MANY);
	assert_false(output_is_over(t.o));
	assert_int_equal(output_name(t.o, asked[0], &name), 0);
	assert_int_equal(name.parent, dir);
	for (size_t i = 0; i < n; i++)
		output_forget(t.o, asked[i], 1);
	assert_in_range(nodes(&t), 1, KEEP + 2);
	/* The others are who they were. */
	for (int i = 0; i < MANY; i++) {
		name_of(path, "d", i);
		assert_int_equal(output_lookup(t.o, dir, path + 2, 0, &attr), 0);
		for (size_t k = 0; k <= n && n < MANY; k++) {
			if (k == n)
				assert_int_equal(attr.ino, inos[i]);
			else if (asked[k] == inos[i])
				break;
		}
	}
	tear_down(&t);
}

#define MAKERS 4
#define ROUNDS 1000

struct maker {
	struct rig *rig;
	pthread_barrier_t *barrier;
	uint64_t dir;
	int flags, made, failed;
};

/* Makes names that others make at that moment, too. */
static void *make_names(void *arg)
{
	struct maker *m = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct output_file *f;
		struct tree_attr attr;
		char name[32];
		int r;

		snprintf(name, sizeof(name), "%04d", i);
		pthread_barrier_wait(m->barrier);
		r = output_create(m->rig->o, m->dir, name, 0644,
				  O_CREAT | O_WRONLY | m->flags, me, 0, &attr, &f);
		m->made += r == 0;
		m->failed += r < 0 && !(r == -EEXIST && m->flags);
		if (r < 0)
			continue;
		output_flush(f);
		output_release(f);
		output_forget(m->rig->o, attr.ino, 1);
	}
	return NULL;
}

/* How often names were made by all; no one sees an error. */
static int make_at_once(struct rig *t, const char *path, int flags)
{
	struct maker makers[MAKERS];
	pthread_t threads[MAKERS];
	pthread_barrier_t barrier;
	struct tree_attr attr;
	int made = 0;
	uint64_t dir;

	make_dir(t, path);
	dir = walk(t, path, &attr);
	pthread_barrier_init(&barrier, NULL, MAKERS);
	for (int i = 0; i < MAKERS; i++) {
		makers[i] = (struct maker){t, &barrier, dir, flags, 0, 0};
		pthread_create(&threads[i], NULL, make_names, &makers[i]);
	}
	for (int i = 0; i < MAKERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(makers[i].failed, 0);
		made += makers[i].made;
	}
	pthread_barrier_destroy(&barrier);
	return made;
}

static void test_threads_that_make_one_name_share_the_file(void **state)
{
	struct rig t;

	(void)state;
	set_up_small(&t);
	assert_int_equal(make_at_once(&t, "open", 0), ROUNDS * MAKERS);
	assert_int_equal(make_at_once(&t, "mine", O_EXCL), ROUNDS);
	assert_int_equal(count_names(&t, "open"), ROUNDS);
	assert_int_equal(count_names(&t, "mine"), ROUNDS);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_of_many_stored_files_few_nodes_stay),
	  cmocka_unit_test(test_forgotten_names_are_asked_for_one_by_one),
	  cmocka_unit_test(test_a_forgotten_name_is_not_free),
	  cmocka_unit_test(test_a_forgotten_file_can_be_removed),
	  cmocka_unit_test(test_a_directory_moves_with_what_was_forgotten),
	  cmocka_unit_test(test_an_open_listing_is_whole),
	  cmocka_unit_test(test_what_others_remove_goes_and_what_they_put_comes),
	  cmocka_unit_test(test_files_that_the_kernel_knows_are_spared),
	  cmocka_unit_test(test_threads_that_make_one_name_share_the_file))
