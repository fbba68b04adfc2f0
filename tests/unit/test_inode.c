/* SPDX-License-Identifier: Apache-2.0 */
/* Which files the kernel is asked to let go of when it holds too many. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <sys/stat.h>

#include "fs/inode.h"

#define FILES 200
#define ASK 16

static const struct inodes_version directory = {.mode = S_IFDIR | 0555};

static uint64_t enter(struct inodes *t, uint64_t parent, const char *name,
		      const struct inodes_version *version)
{
	uint64_t ino, generation;

	assert_int_equal(inodes_enter(t, parent, name, version, &ino, &generation), 0);
	return ino;
}

/* A directory with files; returns its number. */
static uint64_t fill(struct inodes *t)
{
	uint64_t dir = enter(t, TREE_ROOT, "d", &directory);
	char name[16];

	for (int i = 0; i < FILES; i++) {
		struct inodes_version file = {.id = 1 + (uint64_t)i,
					      .mode = S_IFREG | 0444};

		snprintf(name, sizeof(name), "%d", i);
		enter(t, dir, name, &file);
	}
	return dir;
}

static void test_nothing_is_spared_while_there_is_room(void **state)
{
	uint64_t inos[ASK], parents[ASK];
	struct inodes *t;

	(void)state;
	assert_int_equal(inodes_new(NULL, &t), 0);
	fill(t);
	assert_false(inodes_is_over(t, FILES + 2));
	assert_int_equal(inodes_spare(t, FILES + 2, inos, parents, ASK), 0);
	inodes_free(t);
}

static void test_files_are_spared_once_and_in_turn(void **state)
{
	bool asked[FILES + 16] = {false};
	uint64_t inos[ASK], parents[ASK], dir;
	struct inodes *t;
	size_t n, total = 0;

	(void)state;
	assert_int_equal(inodes_new(NULL, &t), 0);
	dir = fill(t);
	assert_true(inodes_is_over(t, 100));
	while ((n = inodes_spare(t, 100, inos, parents, ASK)) > 0) {
		total += n;
		for (size_t i = 0; i < n; i++) {
			assert_int_not_equal(inos[i], dir);
			assert_int_not_equal(inos[i], TREE_ROOT);
			assert_int_equal(parents[i], dir);
			assert_in_range(inos[i], 1, FILES + 15);
			assert_false(asked[inos[i]]);
			asked[inos[i]] = true;
		}
	}
	/* As many as are too many, and not asked for again although all are still there. */
	assert_int_equal(total, FILES + 2 - 100);
	assert_int_equal(inodes_count(t), FILES + 2);
	assert_false(inodes_is_over(t, 100));
	inodes_free(t);
}

static void test_what_is_let_go_makes_room(void **state)
{
	uint64_t inos[FILES], parents[FILES];
	struct inodes *t;
	size_t n;

	(void)state;
	assert_int_equal(inodes_new(NULL, &t), 0);
	fill(t);
	n = inodes_spare(t, 50, inos, parents, FILES);
	assert_int_equal(n, FILES + 2 - 50);
	for (size_t i = 0; i < n; i++)
		inodes_forget(t, inos[i], 1);
	assert_int_equal(inodes_count(t), 50);
	assert_int_equal(inodes_spare(t, 50, inos, parents, FILES), 0);
	inodes_free(t);
}

static void test_directories_in_use_are_never_spared(void **state)
{
	uint64_t inos[ASK], parents[ASK];
	struct inodes *t;

	(void)state;
	assert_int_equal(inodes_new(NULL, &t), 0);
	enter(t, enter(t, TREE_ROOT, "a", &directory), "b", &directory);
	assert_int_equal(inodes_spare(t, 0, inos, parents, ASK), 0);
	inodes_free(t);
}

TEST_MAIN(cmocka_unit_test(test_nothing_is_spared_while_there_is_room),
	  cmocka_unit_test(test_files_are_spared_once_and_in_turn),
	  cmocka_unit_test(test_what_is_let_go_makes_room),
	  cmocka_unit_test(test_directories_in_use_are_never_spared))
