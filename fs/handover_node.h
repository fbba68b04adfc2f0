/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of /output that the kernel knows by number. For those that the journal knows too,
 * only the counts matter; the others (in the store as they should be, or not yet
 * acknowledged) are nowhere else.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/base/slots.h"

#define HANDOVER_ETAG_MAX 64
#define HANDOVER_PLACE_CLASSES 4

struct handover;

struct handover_attr {
	uint32_t kind; /* enum record_kind */
	uint32_t mode, uid, gid;
	int64_t mtime_ns, ctime_ns;
	uint64_t size;
	bool has_stored, has_crc, appendable, unverified, marker;
	uint64_t stored_size, stored_crc64;
	int64_t stored_mtime_ns;
	char etag[HANDOVER_ETAG_MAX]; /* "": none, or too long for here */
};

struct handover_node {
	_Atomic uint64_t ino; /* 0: free */
	_Atomic uint64_t lookups;
	_Atomic uint64_t live; /* id of the staged file that open files share; 0: none */
	_Atomic uint32_t place[2]; /* its name; 0: none (any more) */
	_Atomic uint64_t placed;   /* which of them is valid, and until when */
	_Atomic uint32_t which;    /* of attr is valid */
	struct handover_attr attr[2];
};

struct handover_nodes {
	_Atomic uint32_t limit;
	_Atomic uint32_t place_limit[HANDOVER_PLACE_CLASSES];
	struct handover_node *items;
	char *places[HANDOVER_PLACE_CLASSES];
	struct slots slots, place_slots[HANDOVER_PLACE_CLASSES]; /* this daemon's */
};

/* Before the others, once in each daemon. */
int handover_nodes_begin(struct handover *h);
void handover_nodes_end(struct handover *h);
size_t handover_nodes_size(void);
void handover_nodes_layout(struct handover_nodes *t, char *memory);

/* A node of that number, not yet anywhere. NULL: no room. */
struct handover_node *handover_node_new(struct handover *h, uint64_t ino,
					const struct handover_attr *attr);
void handover_node_free(struct handover *h, struct handover_node *n);
void handover_node_set_attr(struct handover_node *n, const struct handover_attr *attr);
/* Valid at once, or (move) with the transaction that the journal's tail gets next; the same
 * daemon's, under the lock that orders these. name NULL: it has none any more. */
void handover_node_set_place(struct handover *h, struct handover_node *n, uint64_t parent,
			     const char *name);
void handover_node_move(struct handover *h, struct handover_node *n, uint64_t parent,
			const char *name);

static inline const struct handover_attr *
handover_node_attr(const struct handover_node *n)
{
	return &n->attr[atomic_load(&n->which) & 1];
}
/* Its directory, and its name in *name; 0: none. */
uint64_t handover_node_place(const struct handover *h, const struct handover_node *n,
			     const char **name);

/* The same memory as /input uses it: a table of the inodes module's own, with the number of
 * its items that were ever used, and names. A mount has one role. */
void *handover_inodes(struct handover *h, _Atomic uint32_t **limit, size_t *size);
/* Before the others: name_of() tells the name of the i-th item below the limit, or NULL. */
int handover_names_begin(struct handover *h,
			 const char *(*name_of)(void *arg, uint32_t i), void *arg);
/* NULL: no room. */
char *handover_name_new(struct handover *h, const char *name);
void handover_name_free(struct handover *h, char *name);
