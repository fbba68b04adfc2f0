/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes lie in slabs that never move; a number is a node's position plus one, so that the
 * root is TREE_ROOT. Hash chains run through the nodes: about 96 bytes and the name each.
 *
 * With a hand-over slabs and names lie in its memory, and a node is in use from the store of
 * its name until that is taken back; all that connects nodes is built anew (restore()).
 *
 * A node whose name has been entered with another version is *replaced*: out of its chain,
 * so that the name finds the new one, but else as before.
 */
#include "fs/inode.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/check.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"
#include "fs/handover.h"

#define SLAB_SHIFT 12
#define SLAB_NODES (1u << SLAB_SHIFT)
#define NONE UINT32_MAX
#define HEADS_FIRST 1024u
#define BARREN 4096

struct node {
	char *name; /* NULL: free */
	uint64_t lookups;
	uint64_t generation;
	uint32_t parent;
	uint32_t children;
	uint32_t next; /* in its chain, or of the free ones */
	uint32_t hash;
	struct inodes_version version;
	bool replaced; /* not in a chain */
	bool spared; /* the kernel was asked to let go of it, and has not used it since */
};

struct inodes {
	struct handover *handover; /* NULL: none */
	struct node *shared;       /* its memory, for so many nodes; */
	uint32_t shared_max;
	_Atomic uint32_t *shared_used; /* of which so many were ever taken */
	struct lock lock;              /* everything below */
	struct node **slabs;
	uint32_t slab_count;
	uint32_t used;  /* nodes ever taken */
	uint32_t count; /* in use */
	uint32_t free;  /* the first free one */
	uint32_t *heads;
	uint32_t head_count;
	uint32_t spared_count;
	uint32_t hand;   /* where inodes_spare() goes on */
	uint64_t barren; /* it finds nothing while there are fewer */
};

static struct node *node_at(struct inodes *t, uint32_t i)
{
	return &t->slabs[i >> SLAB_SHIFT][i & (SLAB_NODES - 1)];
}

static uint32_t hash_of(uint32_t parent, const char *name)
{
	uint32_t h = crc32c(parent * 0x9e3779b9u, name, strlen(name));

	return h ^ h >> 15;
}

static char *name_new(struct inodes *t, const char *name)
{
	return t->handover ? handover_name_new(t->handover, name) : strdup(name);
}

static void name_free(struct inodes *t, char *name)
{
	if (t->handover)
		handover_name_free(t->handover, name);
	else
		free(name);
}

static int add_slab(struct inodes *t)
{
	struct node **slabs = realloc(t->slabs, (t->slab_count + 1) * sizeof(*slabs));

	if (!slabs)
		return err_origin(-ENOMEM);
	t->slabs = slabs;
	if (!t->handover)
		slabs[t->slab_count] = calloc(SLAB_NODES, sizeof(**slabs));
	else if (((t->slab_count + 1) << SLAB_SHIFT) <= t->shared_max)
		slabs[t->slab_count] = t->shared + ((size_t)t->slab_count << SLAB_SHIFT);
	else
		slabs[t->slab_count] = NULL;
	if (!slabs[t->slab_count])
		return err_origin(-ENOMEM);
	t->slab_count++;
	return 0;
}

/* A free node; NONE: no memory. */
static uint32_t take_node(struct inodes *t)
{
	uint32_t i = t->free;

	if (i != NONE) {
		t->free = node_at(t, i)->next;
		return i;
	}
	if (t->used == NONE - 1)
		return NONE;
	if (t->used >> SLAB_SHIFT == t->slab_count && add_slab(t) < 0)
		return NONE;
	if (t->handover)
		atomic_store(t->shared_used, t->used + 1);
	return t->used++;
}

static void grow_heads(struct inodes *t)
{
	uint32_t count = t->head_count * 2;
	uint32_t *heads = malloc(count * sizeof(*heads));

	if (!heads)
		return; /* longer chains, nothing worse */
	memset(heads, 0xff, count * sizeof(*heads));
	for (uint32_t i = 1; i < t->used; i++) {
		struct node *n = node_at(t, i);

		if (!n->name || n->replaced)
			continue;
		n->next = heads[n->hash & (count - 1)];
		heads[n->hash & (count - 1)] = i;
	}
	free(t->heads);
	t->heads = heads;
	t->head_count = count;
}

/* Takes out what nobody refers to, upwards: a node that was just being added or dropped. */
static void prune(struct inodes *t, uint32_t i)
{
	while (i != 0) {
		struct node *n = node_at(t, i);
		char *name = n->name;

		if (!name || n->lookups || n->children)
			return;
		n->name = NULL;
		name_free(t, name);
		i = n->parent;
		node_at(t, i)->children--;
	}
}

/* Counts of children, chains and the free ones, from what the last daemon left. */
static int restore(struct inodes *t)
{
	uint32_t used = atomic_load(t->shared_used);
	int r = 0;

	while (r == 0 && t->slab_count << SLAB_SHIFT < used)
		r = add_slab(t);
	if (r < 0)
		return err_trace(r);
	t->used = used;
	for (uint32_t i = 0; i < used; i++) {
		node_at(t, i)->children = 0;
		node_at(t, i)->spared = false;
	}
	for (uint32_t i = 1; i < used; i++) {
		if (node_at(t, i)->name)
			node_at(t, node_at(t, i)->parent)->children++;
	}
	for (uint32_t i = 1; i < used; i++)
		prune(t, i);
	t->count = 1;
	for (uint32_t i = used; i-- > 1;) {
		struct node *n = node_at(t, i);

		if (n->name) {
			t->count++;
		} else {
			n->next = t->free;
			t->free = i;
		}
	}
	while (t->head_count < t->count)
		t->head_count *= 2;
	grow_heads(t);
	return 0;
}

static const char *name_of(void *arg, uint32_t i)
{
	return ((struct node *)arg)[i].name;
}

static int attach(struct inodes *t)
{
	size_t size;

	t->shared = handover_inodes(t->handover, &t->shared_used, &size);
	t->shared_max = (uint32_t)(size / sizeof(struct node));
	return err_trace(handover_names_begin(t->handover, name_of, t->shared));
}

int inodes_new(struct handover *handover, struct inodes **out)
{
	struct inodes *t = calloc(1, sizeof(*t));
	struct node *root;
	int r;

	if (!t)
		return err_origin(-ENOMEM);
	lock_init(&t->lock);
	t->handover = handover;
	r = handover ? attach(t) : 0;
	if (r < 0) {
		inodes_free(t);
		return err_trace(r);
	}
	t->free = NONE;
	t->head_count = HEADS_FIRST;
	t->heads = malloc(t->head_count * sizeof(*t->heads));
	if (!t->heads) {
		inodes_free(t);
		return err_origin(-ENOMEM);
	}
	memset(t->heads, 0xff, t->head_count * sizeof(*t->heads));
	if (handover && atomic_load(t->shared_used) > 0) {
		r = restore(t);
		if (r < 0)
			inodes_free(t);
		else
			*out = t;
		return err_trace(r);
	}
	if (take_node(t) == NONE) {
		inodes_free(t);
		return err_origin(-ENOMEM);
	}
	root = node_at(t, 0);
	root->name = name_new(t, "");
	root->lookups = 1;
	root->parent = NONE;
	root->next = NONE;
	t->count = 1;
	if (!root->name) {
		inodes_free(t);
		return err_origin(-ENOMEM);
	}
	*out = t;
	return 0;
}

struct inodes *inodes_free(struct inodes *t)
{
	if (!t)
		return NULL;
	/* What is handed over stays. */
	for (uint32_t i = 0; !t->handover && i < t->used; i++)
		free(node_at(t, i)->name);
	for (uint32_t i = 0; !t->handover && i < t->slab_count; i++)
		free(t->slabs[i]);
	free(t->slabs);
	free(t->heads);
	lock_fini(&t->lock);
	free(t);
	return NULL;
}

static uint32_t find(struct inodes *t, uint32_t parent, const char *name, uint32_t hash)
{
	uint32_t i = t->heads[hash & (t->head_count - 1)];

	while (i != NONE) {
		struct node *n = node_at(t, i);

		if (n->hash == hash && n->parent == parent && !strcmp(n->name, name))
			return i;
		i = n->next;
	}
	return NONE;
}

static int add(struct inodes *t, uint32_t parent, const char *name, uint32_t hash,
	       uint32_t *out)
{
	uint32_t i = take_node(t), *head;
	struct node *n;

	if (i == NONE)
		return err_origin(-ENOMEM);
	n = node_at(t, i);
	n->name = name_new(t, name);
	if (!n->name) {
		n->next = t->free;
		t->free = i;
		return err_origin(-ENOMEM);
	}
	n->lookups = 0;
	n->children = 0;
	n->generation++;
	n->parent = parent;
	n->hash = hash;
	n->replaced = false;
	n->spared = false;
	head = &t->heads[hash & (t->head_count - 1)];
	n->next = *head;
	*head = i;
	node_at(t, parent)->children++;
	if (++t->count > t->head_count)
		grow_heads(t);
	*out = i;
	return 0;
}

/* The node of a number, or NULL. */
static struct node *node_of(struct inodes *t, uint64_t ino, uint32_t *i)
{
	struct node *n;

	if (ino == 0 || ino > t->used)
		return NULL;
	*i = (uint32_t)(ino - 1);
	n = node_at(t, *i);
	return n->name ? n : NULL;
}

static void unchain(struct inodes *t, uint32_t i)
{
	struct node *n = node_at(t, i);
	uint32_t *at = &t->heads[n->hash & (t->head_count - 1)];

	while (*at != i)
		at = &node_at(t, *at)->next;
	*at = n->next;
}

int inodes_enter(struct inodes *t, uint64_t parent, const char *name,
		 const struct inodes_version *version, uint64_t *ino,
		 uint64_t *generation)
{
	uint32_t dir, hash, i;
	struct node *n;
	int r;

	lock_scope(&t->lock);
	if (!node_of(t, parent, &dir))
		return err_origin(-ESTALE);
	hash = hash_of(dir, name);
	i = find(t, dir, name, hash);
	if (i != NONE && node_at(t, i)->version.id != version->id) {
		node_at(t, i)->replaced = true;
		unchain(t, i);
		i = NONE;
	}
	if (i == NONE) {
		r = add(t, dir, name, hash, &i);
		if (r < 0)
			return err_trace(r);
	}
	n = node_at(t, i);
	n->version = *version;
	n->lookups++;
	t->spared_count -= n->spared;
	n->spared = false;
	*ino = (uint64_t)i + 1;
	*generation = n->generation;
	return 0;
}

uint64_t inodes_peek(struct inodes *t, uint64_t parent, const char *name)
{
	uint32_t dir, i;

	lock_scope(&t->lock);
	if (!node_of(t, parent, &dir))
		return 0;
	i = find(t, dir, name, hash_of(dir, name));
	return i == NONE ? 0 : (uint64_t)i + 1;
}

static void drop(struct inodes *t, uint32_t i)
{
	struct node *n = node_at(t, i);
	char *name;

	if (!n->replaced)
		unchain(t, i);
	name = n->name;
	n->name = NULL;
	name_free(t, name);
	n->next = t->free;
	t->free = i;
	t->count--;
	t->spared_count -= n->spared;
	n->spared = false;
}

void inodes_forget(struct inodes *t, uint64_t ino, uint64_t count)
{
	struct node *n;
	uint32_t i, parent;

	lock_scope(&t->lock);
	n = node_of(t, ino, &i);
	if (!n || i == 0)
		return;
	n->lookups -= count < n->lookups ? count : n->lookups;
	/* A directory goes with the last of what is below it. */
	while (i != 0 && !n->lookups && !n->children) {
		parent = n->parent;
		drop(t, i);
		i = parent;
		n = node_at(t, i);
		check(n->children > 0);
		n->children--;
	}
}

/* Writes the path of a directory, "" or ending in '/', backwards from the end. */
int inodes_path(struct inodes *t, uint64_t ino, char *dir, char *name,
		struct inodes_version *version)
{
	char path[PATH_KEY_MAX + 2];
	size_t at = sizeof(path) - 1;
	struct node *n;
	uint32_t i;

	lock_scope(&t->lock);
	n = node_of(t, ino, &i);
	if (!n)
		return err_origin(-ESTALE);
	strcpy(name, n->name); /* at most PATH_NAME_MAX, as entered */
	if (version)
		*version = n->version;
	path[at] = '\0';
	while (i != 0 && n->parent != 0) {
		size_t len;

		i = n->parent;
		n = node_at(t, i);
		len = strlen(n->name) + 1;
		if (len > at)
			return err_origin(-ENAMETOOLONG);
		at -= len;
		memcpy(path + at, n->name, len - 1);
		path[at + len - 1] = '/';
	}
	memcpy(dir, path + at, sizeof(path) - at);
	return 0;
}

uint64_t inodes_count(struct inodes *t)
{
	lock_scope(&t->lock);
	return t->count;
}

bool inodes_is_over(struct inodes *t, uint64_t max)
{
	lock_scope(&t->lock);
	return t->count - t->spared_count > max && t->count >= t->barren;
}

int inodes_name(struct inodes *t, uint64_t ino, struct inodes_name *out)
{
	struct node *n;
	uint32_t i;

	lock_scope(&t->lock);
	n = node_of(t, ino, &i);
	if (!n || i == 0)
		return err_origin(-ESTALE);
	out->parent = (uint64_t)n->parent + 1;
	strcpy(out->name, n->name); /* at most PATH_NAME_MAX, as entered */
	return 0;
}

size_t inodes_spare(struct inodes *t, uint64_t keep, uint64_t *out, uint64_t *parents,
		    size_t max)
{
	size_t count = 0, fresh = 0;

	lock_scope(&t->lock);
	for (uint32_t seen = 0; seen < t->used && count < max; seen++) {
		struct node *n;

		if (t->count - t->spared_count <= keep)
			break;
		t->hand = t->hand + 1 < t->used ? t->hand + 1 : 1;
		if (t->hand >= t->used)
			break;
		n = node_at(t, t->hand);
		if (!n->name || n->replaced || n->children || S_ISDIR(n->version.mode))
			continue;
		/* What was in use the last time may not be any more. */
		fresh += !n->spared;
		t->spared_count += !n->spared;
		n->spared = true;
		parents[count] = (uint64_t)n->parent + 1;
		out[count++] = (uint64_t)t->hand + 1;
	}
	t->barren = fresh ? 0 : t->count + BARREN;
	return fresh ? count : 0;
}
