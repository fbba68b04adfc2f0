/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes are asked for ahead, in the reader's order, and for hardly anyone else. */
#include "fs/handover.h"
#include "tests/unit/lib_output.h"
#include "tests/unit/lib_scripted.h"

#define FILES 200
#define WINDOW 48 /* asked for ahead at most */
#define WASTED 96 /* … and not come to, before there is an end to it */

struct look_rig {
	struct rig rig;
	struct scripted *store;
	struct output *o;
	uint64_t dir;
};

static void name_of(char out[16], int i)
{
	snprintf(out, 16, "%04d", i);
}

static mode_t mode_of(int i)
{
	return 0600 + (mode_t)(i % 8);
}

static void wipe(struct look_rig *t)
{
	t->rig.o = output_free(t->rig.o);
	io_remove_tree(AT_FDCWD, t->rig.dir);
	assert_int_equal(mkdir(t->rig.dir, 0700), 0);
}

/* A mount that knows no more than the listing of the directory. */
static void start_afresh(struct look_rig *t)
{
	struct tree_attr attr;

	wipe(t);
	start(&t->rig);
	t->o = t->rig.o;
	t->dir = walk(&t->rig, "d", &attr);
	assert_int_equal(output_lookup(t->o, t->dir, "none", 0, &attr), -ENOENT);
	scripted_reset(t->store);
}

static void make_files(struct look_rig *t)
{
	char path[32], name[16];

	make_dir(&t->rig, "d");
	for (int i = 0; i < FILES; i++) {
		struct tree_attr attr;
		uint64_t ino;

		name_of(name, i);
		snprintf(path, sizeof(path), "d/%s", name);
		put(&t->rig, path, name);
		ino = walk(&t->rig, path, &attr);
		attr.mode = mode_of(i);
		assert_int_equal(output_setattr(t->rig.o, ino, OUTPUT_SET_MODE, &attr),
				 0);
	}
	drain(&t->rig);
}

static void set_up_looks(struct look_rig *t, struct handover *handover)
{
	set_up(&t->rig);
	wipe(t);
	origin_free(t->rig.origin);
	t->store = scripted_new("looks");
	t->rig.origin = t->rig.config.origin = &t->store->origin;
	start(&t->rig);
	make_files(t);
	t->rig.config.handover = handover;
	start_afresh(t);
}

static struct tree_attr look(struct look_rig *t, const char *name)
{
	struct tree_attr attr;

	assert_int_equal(output_lookup(t->o, t->dir, name, 0, &attr), 0);
	output_forget(t->o, attr.ino, 1);
	return attr;
}

static void look_at(struct look_rig *t, int i)
{
	char name[16];

	name_of(name, i);
	assert_int_equal(look(t, name).mode, S_IFREG | mode_of(i));
}

static uint64_t asked(struct look_rig *t)
{
	eventually(atomic_load(&t->store->in_flight) == 0);
	return atomic_load(&t->store->count[ORIGIN_STAT]);
}

static void test_names_in_order_are_asked_for_in_parallel(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	atomic_store(&t.store->latency_ms, 5);
	for (int i = 0; i < FILES; i++)
		look_at(&t, i);
	assert_int_equal(asked(&t), FILES);
	assert_in_range(atomic_load(&t.store->in_flight_max), 16, WINDOW + 1);
	tear_down(&t.rig);
}

static void test_no_more_than_the_window_is_asked_for_in_vain(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	look_at(&t, 7);
	assert_int_equal(asked(&t), 1);
	start_afresh(&t);
	for (int i = 0; i < 20; i++)
		look_at(&t, i);
	assert_in_range(asked(&t), 21, 20 + WINDOW);
	tear_down(&t.rig);
}

static void test_no_order_asks_for_nothing_else(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	for (int i = 0; i < FILES; i++)
		look_at(&t, i * 77 % FILES);
	assert_int_equal(asked(&t), FILES);
	start_afresh(&t);
	for (int i = 0; i < FILES; i += 3) /* each third */
		look_at(&t, i);
	assert_int_equal(asked(&t), (FILES + 2) / 3);
	tear_down(&t.rig);
}

/* Follows the order for a while, then leaves out every other name. */
static void test_a_reader_who_leaves_names_out_costs_little(void **state)
{
	int looked = 0;
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	for (int i = 0; i < FILES; i += i < 10 ? 1 : 2, looked++)
		look_at(&t, i);
	assert_in_range(asked(&t), looked, looked + WASTED + WINDOW);
	tear_down(&t.rig);
}

static void test_several_readers_of_a_directory_each_have_their_order(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	atomic_store(&t.store->latency_ms, 5);
	for (int i = 0; i < FILES / 4; i++) {
		for (int k = 0; k < 4; k++)
			look_at(&t, k * FILES / 4 + i);
	}
	assert_int_equal(asked(&t), FILES);
	assert_true(atomic_load(&t.store->in_flight_max) >= 8);
	tear_down(&t.rig);
}

struct listed {
	struct look_rig *t;
	char names[FILES][16];
	int count, given;
};

static int note_name(void *arg, const char *name, const struct tree_attr *attr,
		     uint64_t next)
{
	struct listed *l = arg;

	(void)next;
	snprintf(l->names[l->count++], 16, "%s", name);
	if (!attr->unsure) {
		l->given++;
		assert_int_equal(attr->mode, S_IFREG | mode_of(atoi(name)));
		output_forget(l->t->o, attr->ino, 1);
	}
	return 0;
}

static void list(struct look_rig *t, struct listed *l)
{
	struct output_dir *d;

	*l = (struct listed){.t = t};
	assert_int_equal(output_opendir(t->o, t->dir, 0, &d), 0);
	assert_int_equal(output_readdir(d, 0, true, 0, note_name, l), 0);
	output_closedir(d);
	assert_int_equal(l->count, FILES);
}

/* With a hand-over a listing is not in the order of names. */
static void test_the_order_of_a_listing_is_one_too(void **state)
{
	struct handover *h;
	struct listed l;
	struct look_rig t;
	int out_of_order = 0;

	(void)state;
	assert_int_equal(handover_new(&h, NULL), 0);
	assert_int_equal(handover_begin(h), 0);
	set_up_looks(&t, h);
	list(&t, &l);
	assert_int_equal(l.given, 0);
	atomic_store(&t.store->latency_ms, 5);
	for (int i = 0; i < FILES; i++)
		look_at(&t, atoi(l.names[i]));
	for (int i = 1; i < FILES; i++)
		out_of_order += strcmp(l.names[i], l.names[i - 1]) < 0;
	assert_true(out_of_order > 10);
	assert_int_equal(asked(&t), FILES);
	assert_in_range(atomic_load(&t.store->in_flight_max), 16, WINDOW + 1);
	tear_down(&t.rig);
	handover_nodes_end(h);
	handover_end(h);
	handover_free(h);
}

static void test_a_listing_gives_what_is_known(void **state)
{
	struct listed l;
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	list(&t, &l);
	assert_int_equal(l.given, 0);
	assert_int_equal(asked(&t), 0);
	for (int i = 0; i < FILES; i++)
		look_at(&t, i);
	list(&t, &l);
	assert_int_equal(l.given, FILES);
	assert_int_equal(asked(&t), FILES);
	tear_down(&t.rig);
}

/* What was given with a listing is not looked at, and no sign that nobody is there. */
static void test_a_reader_of_pages_stays_ahead(void **state)
{
	struct listed l;
	struct look_rig t;
	struct output_dir *d;

	(void)state;
	set_up_looks(&t, NULL);
	for (int i = 0; i < 40; i++)
		look_at(&t, i);
	assert_true(asked(&t) > 60);
	assert_int_equal(output_opendir(t.o, t.dir, 0, &d), 0);
	l = (struct listed){.t = &t};
	assert_int_equal(output_readdir(d, 0, true, 0, note_name, &l), 0);
	assert_in_range(l.given, 60, 40 + WINDOW);
	for (int i = 40; i < FILES; i++)
		look_at(&t, i);
	assert_int_equal(asked(&t), FILES);
	output_closedir(d);
	tear_down(&t.rig);
}

static uint64_t ino_of(struct look_rig *t, int i)
{
	char name[16];
	struct tree_attr attr;

	name_of(name, i);
	assert_int_equal(output_lookup(t->o, t->dir, name, 0, &attr), 0);
	output_forget(t->o, attr.ino, 1);
	return attr.ino;
}

/* What it sees is old or new, there or not. */
static void *look_in_thread(void *arg)
{
	struct look_rig *t = arg;

	for (int i = 0; i < 10; i++) {
		struct tree_attr attr;
		char name[16];

		name_of(name, i);
		if (output_lookup(t->o, t->dir, name, 0, &attr) == 0)
			output_forget(t->o, attr.ino, 1);
	}
	return NULL;
}

/* The store answers when all that follows has happened. */
static void test_an_answer_does_not_undo_what_happened_meanwhile(void **state)
{
	struct output_file *f;
	struct look_rig t;
	pthread_t thread;
	struct tree_attr attr;

	(void)state;
	set_up_looks(&t, NULL);
	look_at(&t, 0);
	look_at(&t, 1); /* 2 and 3 are asked for with it */
	atomic_store(&t.store->latency_ms, 300);
	assert_int_equal(pthread_create(&thread, NULL, look_in_thread, &t), 0);
	eventually(atomic_load(&t.store->in_flight) > 0);
	assert_int_equal(remove_file(&t.rig, "d/0005"), 0);
	assert_int_equal(move(&t.rig, "d/0006", "d/new", 0), 0);
	assert_int_equal(move(&t.rig, "d/0009", "d/0007", 0), 0);
	put(&t.rig, "d/0005", "another text");
	atomic_store(&t.store->latency_ms, 0);
	f = open_for(&t.rig, "d/0008", O_WRONLY | O_TRUNC);
	assert_int_equal(output_write(f, 0, "longer than before", 18, 0), 0);
	close_file(f);
	put(&t.rig, "d/0009", "9");
	attr = look(&t, "0005");
	attr.mode = S_IFREG | mode_of(5);
	assert_int_equal(output_setattr(t.o, attr.ino, OUTPUT_SET_MODE, &attr), 0);
	put(&t.rig, "d/0006", "6");
	for (int i = 6; i < 10; i++) {
		attr.mode = mode_of(i);
		if (i != 8)
			output_setattr(t.o, ino_of(&t, i), OUTPUT_SET_MODE, &attr);
	}
	pthread_join(thread, NULL);
	assert_int_equal(look(&t, "0005").size, 12);
	assert_int_equal(look(&t, "0008").size, 18);
	assert_int_equal(look(&t, "new").mode, S_IFREG | mode_of(6));
	drain(&t.rig);
	start_afresh(&t);
	assert_int_equal(look(&t, "0005").size, 12);
	assert_int_equal(look(&t, "0008").size, 18);
	assert_int_equal(look(&t, "new").mode, S_IFREG | mode_of(6));
	look_at(&t, 8);
	tear_down(&t.rig);
}

static void test_the_end_waits_for_no_answer(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	for (int i = 0; i < 4; i++)
		look_at(&t, i);
	asked(&t);
	atomic_store(&t.store->hang, true);
	look_at(&t, 4); /* is known by now, and those behind are asked for */
	assert_true(atomic_load(&t.store->in_flight) > 0);
	t.rig.o = output_free(t.rig.o);
	tear_down(&t.rig);
}

static void test_what_fails_ahead_is_asked_again(void **state)
{
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	for (int i = 0; i < 4; i++)
		look_at(&t, i);
	asked(&t);
	atomic_store(&t.store->fail, -EACCES);
	atomic_store(&t.store->fail_count, -1);
	look_at(&t, 4);
	asked(&t);
	atomic_store(&t.store->fail_count, 0);
	for (int i = 5; i < FILES; i++)
		look_at(&t, i);
	tear_down(&t.rig);
}

static void test_links_are_read_ahead(void **state)
{
	char name[16], target[64];
	struct tree_attr attr;
	uint64_t read;
	struct look_rig t;

	(void)state;
	set_up_looks(&t, NULL);
	make_dir(&t.rig, "links");
	for (int i = 0; i < 20; i++) {
		uint64_t dir = walk(&t.rig, "links", &attr);

		name_of(name, i);
		assert_int_equal(output_symlink(t.o, dir, name, name, me, &attr), 0);
		output_forget(t.o, attr.ino, 1);
	}
	drain(&t.rig);
	start_afresh(&t);
	t.dir = walk(&t.rig, "links", &attr);
	for (int i = 0; i < 20; i++) {
		name_of(name, i);
		attr = look(&t, name);
		assert_int_equal(attr.mode, S_IFLNK | 0777);
		read = atomic_load(&t.store->count[ORIGIN_GET]);
		assert_int_equal(output_readlink(t.o, attr.ino, 0, target, 64), 0);
		assert_string_equal(target, name);
	}
	assert_in_range(read, 20, 20);
	tear_down(&t.rig);
}

/* Before anyone lists it, and whether or not it has a marker. */
static void test_a_directory_has_its_mode_at_the_first_look(void **state)
{
	struct tree_attr attr;
	struct look_rig t;
	uint64_t ino;

	(void)state;
	set_up_looks(&t, NULL);
	ino = walk(&t.rig, "d", &attr);
	attr.mode = 0700;
	attr.mtime_ns = 1580608922123456789;
	assert_int_equal(
		output_setattr(t.o, ino, OUTPUT_SET_MODE | OUTPUT_SET_MTIME, &attr), 0);
	drain(&t.rig);
	scripted_put(t.store, "bare/file", 1, 5);
	start_afresh(&t);
	assert_int_not_equal(walk(&t.rig, "d", &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0700);
	assert_int_equal(attr.mtime_ns, 1580608922123456789);
	assert_int_not_equal(walk(&t.rig, "bare", &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0755);
	assert_int_equal(asked(&t), 1); /* `bare`: that it has none is remembered */
	assert_int_not_equal(walk(&t.rig, "bare", &attr), 0);
	assert_int_equal(asked(&t), 1);
	tear_down(&t.rig);
}

TEST_MAIN(cmocka_unit_test(test_names_in_order_are_asked_for_in_parallel),
	  cmocka_unit_test(test_no_more_than_the_window_is_asked_for_in_vain),
	  cmocka_unit_test(test_no_order_asks_for_nothing_else),
	  cmocka_unit_test(test_a_reader_who_leaves_names_out_costs_little),
	  cmocka_unit_test(test_several_readers_of_a_directory_each_have_their_order),
	  cmocka_unit_test(test_the_order_of_a_listing_is_one_too),
	  cmocka_unit_test(test_a_listing_gives_what_is_known),
	  cmocka_unit_test(test_a_reader_of_pages_stays_ahead),
	  cmocka_unit_test(test_an_answer_does_not_undo_what_happened_meanwhile),
	  cmocka_unit_test(test_the_end_waits_for_no_answer),
	  cmocka_unit_test(test_what_fails_ahead_is_asked_again),
	  cmocka_unit_test(test_links_are_read_ahead),
	  cmocka_unit_test(test_a_directory_has_its_mode_at_the_first_look))
