/* SPDX-License-Identifier: Apache-2.0 */
/* Two daemons one after the other, in one process: the memory is what counts. */
#include "tests/unit/test.h"

#include "fs/handover.h"

static struct handover *make(void)
{
	struct handover *h;

	assert_int_equal(handover_new(&h, NULL), 0);
	h->generation = 1;
	assert_int_equal(handover_begin(h), 0);
	return h;
}

/* Dies without a word; only its heap is given back, for the tools' sake. */
static void next_daemon(struct handover *h)
{
	handover_end(h);
	assert_int_equal(handover_begin(h), 0);
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
	handover_end(h);
	handover_free(h);
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
	assert_int_equal(atomic_load(&h->files.items[opening].state), HANDOVER_OPEN);
	assert_int_equal(atomic_load(&h->files.items[releasing].state), HANDOVER_FREE);
	handover_end(h);
	handover_free(h);
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
	handover_end(h);
	handover_free(h);
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
	handover_end(h);
	handover_free(h);
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
	handover_end(h);
	handover_free(h);
}

TEST_MAIN(cmocka_unit_test(test_files_keep_their_numbers),
	  cmocka_unit_test(test_files_follow_what_the_kernel_was_told),
	  cmocka_unit_test(test_nodes_keep_names_of_every_length),
	  cmocka_unit_test(test_a_freed_node_and_its_name_are_used_again),
	  cmocka_unit_test(test_attributes_change_at_once))
