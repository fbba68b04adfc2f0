/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place is a directory's number and a name; it never changes, a move is another place.
 * Places lie in tables by length. A reference is the number of the table above 28 bits of
 * its place there plus one.
 *
 * A node has room for two, and `placed` says which one is valid: its lowest bit, until the
 * tail of the journal has come further than the rest of it says; then the other. So a
 * change of the tree is here exactly if it is in the journal or its tail.
 */
#include "fs/handover_node.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cache/tail.h"
#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/path.h"
#include "fs/handover.h"

#define NODES_MAX (8u << 20)
#define PLACE_BITS 28
#define FOR_EVER (UINT64_MAX >> 1)

struct place {
	uint64_t parent;
	char name[];
};

static const size_t place_size[HANDOVER_PLACE_CLASSES] = {32, 64, 128, 272};
_Static_assert(sizeof(struct place) + PATH_NAME_MAX + 1 <= 272, "the longest name fits");

size_t handover_nodes_size(void)
{
	size_t n = sizeof(struct handover_node);

	for (int i = 0; i < HANDOVER_PLACE_CLASSES; i++)
		n += place_size[i];
	return n * NODES_MAX;
}

void handover_nodes_layout(struct handover_nodes *t, char *memory)
{
	t->items = (struct handover_node *)(void *)memory;
	memory += sizeof(struct handover_node) * NODES_MAX;
	for (int i = 0; i < HANDOVER_PLACE_CLASSES; i++) {
		t->places[i] = memory;
		memory += place_size[i] * NODES_MAX;
	}
}

static struct place *place_at(const struct handover_nodes *t, uint32_t ref)
{
	return slots_at(&t->place_slots[ref >> PLACE_BITS],
			(ref & ((1u << PLACE_BITS) - 1)) - 1);
}

static uint32_t place_new(struct handover_nodes *t, uint64_t parent, const char *name)
{
	size_t n = strlen(name) + 1;
	uint32_t class = 0, i, ref;
	struct place *p;

	while (class < HANDOVER_PLACE_CLASSES && sizeof(*p) + n > place_size[class])
		class ++;
	check(class < HANDOVER_PLACE_CLASSES);
	i = slots_take(&t->place_slots[class]);
	if (i == SLOTS_NONE)
		return 0;
	ref = class << PLACE_BITS | (i + 1);
	p = place_at(t, ref);
	p->parent = parent;
	memcpy(p->name, name, n);
	return ref;
}

static void place_free(struct handover_nodes *t, uint32_t ref)
{
	if (ref)
		slots_give(&t->place_slots[ref >> PLACE_BITS],
			   (ref & ((1u << PLACE_BITS) - 1)) - 1);
}

/* ---- what the last daemon left --------------------------------------------------------- */

static bool node_used(void *arg, uint32_t i)
{
	struct handover_nodes *t = arg;

	return atomic_load(&t->items[i].ino) != 0;
}

/* Which places of one table are in use, by the nodes that refer to them. */
struct used {
	bool *used;
};

static bool place_used(void *arg, uint32_t i)
{
	struct used *u = arg;

	return u->used[i];
}

/* One of the two references of a node. */
static uint32_t place_of_node(void *arg, uint32_t i, int k)
{
	struct handover_nodes *t = arg;

	return node_used(t, i) ? atomic_load(&t->items[i].place[k]) : 0;
}

/* `place_of` tells which places (k: 0, 1) the i-th item of the first table refers to; 0:
 * none. */
static int attach_places(struct handover_nodes *t, uint32_t class,
			 uint32_t (*place_of)(void *arg, uint32_t i, int k), void *arg)
{
	uint32_t limit = atomic_load(&t->place_limit[class]);
	struct used u = {calloc(limit + 1, sizeof(bool))};
	int r;

	if (!u.used)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < atomic_load(&t->limit) * 2; i++) {
		uint32_t ref = place_of(arg, i / 2, (int)(i % 2));

		if (ref && ref >> PLACE_BITS == class)
			u.used[(ref & ((1u << PLACE_BITS) - 1)) - 1] = true;
	}
	r = slots_attach(&t->place_slots[class], t->places[class], place_size[class],
			 NODES_MAX, &t->place_limit[class], place_used, &u);
	free(u.used);
	return err_trace(r);
}

/* Which of the two places is valid. */
static uint32_t valid_place(const struct handover *h, const struct handover_node *n)
{
	uint64_t placed = atomic_load(&n->placed);

	return (placed & 1) ^ (tail_end(h->tail) > placed >> 1);
}

int handover_nodes_begin(struct handover *h)
{
	struct handover_nodes *t = &h->nodes;
	int r = slots_attach(&t->slots, t->items, sizeof(*t->items), NODES_MAX, &t->limit,
			     node_used, t);

	for (uint32_t i = 0; r == 0 && i < HANDOVER_PLACE_CLASSES; i++)
		r = attach_places(t, i, place_of_node, t);
	/* The transaction that a move waited for will not come any more. */
	for (uint32_t i = 0; r == 0 && i < atomic_load(&t->limit); i++)
		atomic_store(&t->items[i].placed,
			     FOR_EVER << 1 | valid_place(h, &t->items[i]));
	return err_trace(r);
}

void handover_nodes_end(struct handover *h)
{
	for (int i = 0; i < HANDOVER_PLACE_CLASSES; i++)
		slots_detach(&h->nodes.place_slots[i]);
	slots_detach(&h->nodes.slots);
}

/* ---- nodes ----------------------------------------------------------------------------- */

struct handover_node *handover_node_new(struct handover *h, uint64_t ino,
					const struct handover_attr *attr)
{
	uint32_t i = slots_take(&h->nodes.slots);
	struct handover_node *n;

	if (i == SLOTS_NONE)
		return NULL;
	n = &h->nodes.items[i];
	atomic_store(&n->lookups, 0);
	atomic_store(&n->live, 0);
	atomic_store(&n->place[0], 0);
	atomic_store(&n->place[1], 0);
	atomic_store(&n->placed, FOR_EVER << 1);
	atomic_store(&n->which, 0);
	n->attr[0] = *attr;
	atomic_store(&n->ino, ino);
	return n;
}

void handover_node_free(struct handover *h, struct handover_node *n)
{
	uint32_t places[] = {atomic_load(&n->place[0]), atomic_load(&n->place[1])};

	atomic_store(&n->ino, 0);
	place_free(&h->nodes, places[0]);
	place_free(&h->nodes, places[1]);
	slots_give(&h->nodes.slots, (uint32_t)(n - h->nodes.items));
}

void handover_node_set_attr(struct handover_node *n, const struct handover_attr *attr)
{
	uint32_t other = atomic_load(&n->which) ^ 1;

	n->attr[other] = *attr;
	atomic_store(&n->which, other);
}

/* The place that is not valid becomes this one; valid once the tail is behind `end`. */
static void set_place(struct handover *h, struct handover_node *n, uint64_t parent,
		      const char *name, uint64_t end)
{
	uint32_t valid = valid_place(h, n), old;

	/* Before the other one changes; a move that waits is as good as not there. */
	atomic_store(&n->placed, FOR_EVER << 1 | valid);
	old = atomic_load(&n->place[!valid]);
	atomic_store(&n->place[!valid], name ? place_new(&h->nodes, parent, name) : 0);
	atomic_store(&n->placed,
		     end == FOR_EVER ? FOR_EVER << 1 | !valid : end << 1 | valid);
	place_free(&h->nodes, old);
}

void handover_node_set_place(struct handover *h, struct handover_node *n, uint64_t parent,
			     const char *name)
{
	set_place(h, n, parent, name, FOR_EVER);
}

void handover_node_move(struct handover *h, struct handover_node *n, uint64_t parent,
			const char *name)
{
	set_place(h, n, parent, name, tail_end(h->tail));
}

uint64_t handover_node_place(const struct handover *h, const struct handover_node *n,
			     const char **name)
{
	uint32_t ref = atomic_load(&n->place[valid_place(h, n)]);
	const struct place *p;

	if (!ref)
		return 0;
	p = place_at(&h->nodes, ref);
	*name = p->name;
	return p->parent;
}

/* ---- of /input ------------------------------------------------------------------------- */

/* The reference that stands for a name. */
static uint32_t ref_of(const struct handover_nodes *t, const char *name)
{
	const char *p = name - offsetof(struct place, name);

	for (uint32_t class = 0; class < HANDOVER_PLACE_CLASSES; class ++) {
		size_t size = place_size[class];

		if (p >= t->places[class] && p < t->places[class] + size * NODES_MAX)
			return class << PLACE_BITS |
			       (uint32_t)((size_t)(p - t->places[class]) / size + 1);
	}
	return 0;
}

struct names {
	const struct handover_nodes *nodes;
	const char *(*name_of)(void *arg, uint32_t i);
	void *arg;
};

static uint32_t place_of_name(void *arg, uint32_t i, int k)
{
	const struct names *n = arg;
	const char *name = k == 0 ? n->name_of(n->arg, i) : NULL;

	return name ? ref_of(n->nodes, name) : 0;
}

int handover_names_begin(struct handover *h,
			 const char *(*name_of)(void *arg, uint32_t i), void *arg)
{
	struct names names = {&h->nodes, name_of, arg};
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < HANDOVER_PLACE_CLASSES; i++)
		r = attach_places(&h->nodes, i, place_of_name, &names);
	return err_trace(r);
}

char *handover_name_new(struct handover *h, const char *name)
{
	uint32_t ref = place_new(&h->nodes, 0, name);

	return ref ? place_at(&h->nodes, ref)->name : NULL;
}

void handover_name_free(struct handover *h, char *name)
{
	if (name)
		place_free(&h->nodes, ref_of(&h->nodes, name));
}

void *handover_inodes(struct handover *h, _Atomic uint32_t **limit, size_t *size)
{
	*limit = &h->nodes.limit;
	*size = sizeof(struct handover_node) * NODES_MAX;
	return h->nodes.items;
}
