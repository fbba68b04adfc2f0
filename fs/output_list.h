/* SPDX-License-Identifier: Apache-2.0 */
/* Between output_list.c, which asks the store, and output_store.c, which knows what its
 * answers mean. */
#pragma once

#include "fs/output_impl.h"

struct entry {
	char *key;
	bool doubtful; /* a directory that may have left: only a deeper look can tell */
	struct origin_attr attr;
};

/* What one request has brought, kept until the lock can be taken. */
struct page {
	struct entry *entries;
	size_t count, size;
	uint64_t epoch; /* output->epoch when it was asked for */
};

int page_note(void *page, const char *key, size_t key_len,
	      const struct origin_attr *attr); /* an origin_entry_fn */
void page_fini(struct page *page);

/* A directory, or one name in it, is being asked for. */
struct refresh {
	struct prefixes prefixes; /* where it is listed from */
	uint64_t id;              /* of a listing, ascending; 0: it is one name */
	uint64_t epoch;           /* output->epoch when it began */
	bool all;                 /* every name gets a node, also beyond `nodes_max` */
	struct name_set left;     /* the others, if not */
	bool lost;                /* … are not all of them: there was no memory */
};

/* Takes what a page of the prefix shows into the tree, for as long as the directory would be
 * listed from the same prefixes: REFRESH_AGAIN. Without the lock. */
enum {
	REFRESH_AGAIN = 1
};
int store_merge(struct output *o, struct node *dir, struct refresh *it,
		const char *prefix, struct page *page);
/* Lock held: clean nodes that a whole listing has not shown have been removed by someone
 * else. */
void store_sweep(struct output *o, struct node *dir, const struct refresh *it);
