/* SPDX-License-Identifier: Apache-2.0 */
/* Two daemons one after the other, in one process: the memory is what counts. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/mman.h>

#include "cache/tail.h"
#include "fs/base/buf.h"
#include "fs/handover.h"
#include "fs/inode.h"
#include "fs/receive.h"

static struct handover *make(void)
{
	struct handover *h;

	assert_int_equal(handover_new(&h, NULL), 0);
	h->generation = 1;
	assert_int_equal(handover_begin(h), 0);
	assert_int_equal(handover_nodes_begin(h), 0);
	return h;
}

static void end(struct handover *h)
{
	handover_nodes_end(h);
	handover_end(h);
	handover_free(h);
}

/* Dies without a word; only its heap is given back, for the tools' sake. */
static void next_daemon(struct handover *h)
{
	handover_nodes_end(h);
	handover_end(h);
	assert_int_equal(handover_begin(h), 0);
	assert_int_equal(handover_nodes_begin(h), 0);
}

static void test_files_keep_their_numbers(void **state)
{
	struct handover *h = make();
	uint32_t a = handover_file_take(h), b = handover_file_take(h);

	(void)state;
	assert_int_not_equal(a, b);
	h->files.items[b].ino = 7;
	atomic_store(&h->files.items[b].state, HANDOVER_OPEN);
	next_daemon(h);
	assert_int_equal(h->files.items[b].ino, 7);
	assert_int_equal(handover_file_take(h), a);
	assert_int_not_equal(handover_file_take(h), b);
	end(h);
}

/* No request came again: so the kernel was told of both. */
static void test_files_follow_what_the_kernel_was_told(void **state)
{
	struct handover *h = make();
	uint32_t opening = handover_file_take(h), releasing = handover_file_take(h);

	(void)state;
	atomic_store(&h->files.items[opening].state, HANDOVER_OPENING);
	atomic_store(&h->files.items[releasing].state, HANDOVER_RELEASING);
	next_daemon(h);
	assert_int_equal(handover_file_state(&h->files.items[opening]), HANDOVER_OPEN);
	assert_int_equal(handover_file_state(&h->files.items[releasing]), HANDOVER_FREE);
	end(h);
}

static void test_nodes_keep_names_of_every_length(void **state)
{
	struct handover *h = make();
	struct handover_attr attr = {.size = 5};
	struct handover_node *nodes[300];
	char name[256] = {0};
	const char *got;

	(void)state;
	for (size_t i = 0; i < 255; i++) {
		name[i] = (char)('a' + i % 26);
		nodes[i] = handover_node_new(h, 100 + i, &attr);
		assert_non_null(nodes[i]);
		handover_node_set_place(h, nodes[i], i + 1, name);
	}
	next_daemon(h);
	memset(name, 0, sizeof(name));
	for (size_t i = 0; i < 255; i++) {
		name[i] = (char)('a' + i % 26);
		assert_int_equal(atomic_load(&nodes[i]->ino), 100 + i);
		assert_int_equal(handover_node_place(h, nodes[i], &got), i + 1);
		assert_string_equal(got, name);
		assert_int_equal(handover_node_attr(nodes[i])->size, 5);
	}
	end(h);
}

static void test_a_freed_node_and_its_name_are_used_again(void **state)
{
	struct handover *h = make();
	struct handover_attr attr = {.size = 1};
	struct handover_node *a = handover_node_new(h, 5, &attr);

	(void)state;
	handover_node_set_place(h, a, 1, "first");
	handover_node_set_place(h, a, 1, "second");
	handover_node_free(h, a);
	next_daemon(h);
	for (int i = 0; i < 1000; i++) {
		struct handover_node *n = handover_node_new(h, 6, &attr);

		handover_node_set_place(h, n, 1, "again");
		handover_node_free(h, n);
	}
	assert_in_range(atomic_load(&h->nodes.limit), 1, 2);
	assert_in_range(atomic_load(&h->nodes.place_limit[0]), 1, 3);
	end(h);
}

static struct buf records = BUF_INIT;

/* A change of the tree counts here if its transaction does, whenever the daemon dies. */
static void test_a_move_counts_with_its_transaction(void **state)
{
	struct handover *h = make();
	struct handover_attr attr = {.size = 1};
	struct handover_node *n = handover_node_new(h, 5, &attr);
	const char *name;

	(void)state;
	handover_node_set_place(h, n, 1, "old");
	handover_node_move(h, n, 2, "new");
	next_daemon(h);
	assert_int_equal(handover_node_place(h, n, &name), 1);
	assert_string_equal(name, "old");
	/* Another's transaction does not bring it back. */
	assert_int_equal(tail_append(h->tail, &records, 1), 0);
	assert_int_equal(handover_node_place(h, n, &name), 1);
	/* A rename takes the name off before it gives the other. */
	handover_node_move(h, n, 0, NULL);
	assert_int_equal(handover_node_place(h, n, &name), 1);
	handover_node_move(h, n, 2, "new");
	assert_int_equal(tail_append(h->tail, &records, 2), 0);
	next_daemon(h);
	assert_int_equal(handover_node_place(h, n, &name), 2);
	assert_string_equal(name, "new");
	handover_node_move(h, n, 0, NULL);
	assert_int_equal(tail_append(h->tail, &records, 3), 0);
	next_daemon(h);
	assert_int_equal(handover_node_place(h, n, &name), 0);
	end(h);
}

/* A new one whose transaction did not come has no place. */
static void test_what_was_not_made_is_nowhere(void **state)
{
	struct handover *h = make();
	struct handover_attr attr = {.size = 1};
	struct handover_node *n = handover_node_new(h, 5, &attr);
	const char *name;

	(void)state;
	handover_node_move(h, n, 1, "dir");
	next_daemon(h);
	assert_int_equal(handover_node_place(h, n, &name), 0);
	end(h);
}

static size_t pages_there(char *p, size_t size)
{
	unsigned char there[RECEIVE_SIZE / 4096];
	size_t n = 0;

	assert_int_equal(mincore(p, size, there), 0);
	for (size_t i = 0; i < size / 4096; i++)
		n += there[i] & 1;
	return n;
}

/* Else a request that is copied there while the daemon is killed ends with EIO. */
static void test_buffers_are_there_before_a_request_is(void **state)
{
	struct handover *h = make();

	(void)state;
	assert_int_equal(pages_there(handover_buffer(h, 3), RECEIVE_SIZE), 0);
	(void)receive_ready(handover_buffer(h, 3), RECEIVE_SMALL);
	assert_int_equal(pages_there(handover_buffer(h, 3), RECEIVE_SIZE),
			 RECEIVE_SMALL / 4096);
	(void)receive_ready(handover_buffer(h, 3), RECEIVE_SIZE);
	assert_int_equal(pages_there(handover_buffer(h, 3), RECEIVE_SIZE),
			 RECEIVE_SIZE / 4096);
	assert_int_equal(pages_there(handover_buffer(h, 2), RECEIVE_SIZE), 0);
	end(h);
}

static void test_attributes_change_at_once(void **state)
{
	struct handover *h = make();
	struct handover_attr attr = {.size = 1, .mode = 0644};
	struct handover_node *n = handover_node_new(h, 5, &attr);

	(void)state;
	attr.size = 2;
	handover_node_set_attr(n, &attr);
	assert_int_equal(handover_node_attr(n)->size, 2);
	attr.size = 3;
	n->attr[(atomic_load(&n->which) ^ 1) & 1].size = 99; /* a torn update */
	next_daemon(h);
	assert_int_equal(handover_node_attr(n)->size, 2);
	end(h);
}

static struct handover *make_input(struct inodes **inodes)
{
	struct handover *h;

	assert_int_equal(handover_new(&h, NULL), 0);
	h->generation = 1;
	assert_int_equal(handover_begin(h), 0);
	assert_int_equal(inodes_new(h, inodes), 0);
	return h;
}

static uint64_t enter(struct inodes *t, uint64_t parent, const char *name, uint64_t id)
{
	struct inodes_version version = {.id = id, .size = id};
	uint64_t ino, generation;

	assert_int_equal(inodes_enter(t, parent, name, &version, &ino, &generation), 0);
	return ino;
}

static void test_inodes_stand_for_the_same_names_and_versions(void **state)
{
	struct inodes_version version;
	char dir[2048], name[2048];
	struct inodes *t;
	struct handover *h = make_input(&t);
	uint64_t d = enter(t, TREE_ROOT, "dir", 0), numbers[5000], old;

	(void)state;
	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "%0*d", 1 + (int)(i % 200), (int)i);
		numbers[i] = enter(t, d, name, i + 1);
	}
	old = numbers[7];
	assert_int_not_equal(enter(t, d, "00000007", 99999), old);
	inodes_forget(t, numbers[11], 1);
	slots_detach(&h->nodes.place_slots[0]);
	for (int i = 1; i < HANDOVER_PLACE_CLASSES; i++)
		slots_detach(&h->nodes.place_slots[i]);
	handover_end(h);
	inodes_free(t);

	assert_int_equal(handover_begin(h), 0);
	assert_int_equal(inodes_new(h, &t), 0);
	assert_int_equal(inodes_path(t, numbers[4999], dir, name, &version), 0);
	assert_string_equal(dir, "dir/");
	assert_int_equal(strlen(name), 200);
	assert_int_equal(version.id, 5000);
	assert_int_equal(inodes_path(t, numbers[11], dir, name, NULL), -ESTALE);
	assert_int_equal(inodes_path(t, old, dir, name, &version), 0);
	assert_int_equal(version.id, 8);
	assert_int_not_equal(inodes_peek(t, d, "00000007"), old);
	old = enter(t, d, "0001", 4242);
	assert_int_equal(inodes_peek(t, d, "0001"), old);
	assert_int_equal(inodes_count(t), 5003);
	inodes_free(t);
	for (int i = 0; i < HANDOVER_PLACE_CLASSES; i++)
		slots_detach(&h->nodes.place_slots[i]);
	handover_end(h);
	handover_free(h);
}

TEST_MAIN(cmocka_unit_test(test_files_keep_their_numbers),
	  cmocka_unit_test(test_files_follow_what_the_kernel_was_told),
	  cmocka_unit_test(test_nodes_keep_names_of_every_length),
	  cmocka_unit_test(test_a_freed_node_and_its_name_are_used_again),
	  cmocka_unit_test(test_a_move_counts_with_its_transaction),
	  cmocka_unit_test(test_what_was_not_made_is_nowhere),
	  cmocka_unit_test(test_buffers_are_there_before_a_request_is),
	  cmocka_unit_test(test_attributes_change_at_once),
	  cmocka_unit_test(test_inodes_stand_for_the_same_names_and_versions))
