/* SPDX-License-Identifier: Apache-2.0 */
/* What listing.c and listing_disk.c share: struct listing itself. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "cache/entries.h"
#include "cache/listing.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

struct shelf_file;

/* A full block, or the last one of a range. Never freed before the listing. */
struct block_ref {
	struct list link; /* in listing->spill */
	uint64_t first;   /* position of its first entry, once settled */
	uint64_t off;     /* in the file; 0: not there */
	uint32_t image_len;
	uint32_t count;
	struct entries *mem; /* NULL: in the file only */
	char first_key[];    /* without the directory */
};

struct block_refs {
	struct block_ref **at;
	size_t count, room;
};

struct listing_range {
	struct list link; /* in listing->ranges, in the order of keys */
	struct listing *listing;
	char *after; /* the keys are greater; without the directory; "": all */
	struct block_refs blocks; /* while a range before it is not done */
	struct entries *open;     /* being filled; NULL: none */
	bool done;
	size_t last_len;
	char last[PATH_KEY_MAX + 1]; /* the last key, without the directory */
	/* Files whose directory may still come: all their names begin `last`. */
	uint16_t pending[PATH_NAME_MAX + 1];
	uint16_t pending_count;
};

enum {
	RECENT_N = 8
};

struct listing {
	atomic_uint refs;
	uint64_t born_ms;
	struct cache *cache;
	char *dir;
	size_t dir_len;

	struct lock spill_lock;  /* one writer to the file; taken before `lock` */
	struct shelf_file *file; /* set once, under both; NULL: none (yet) */
	bool no_file;            /* it could not be had: all stays in memory */

	struct lock lock; /* everything below */
	pthread_cond_t moved;
	struct list ranges;        /* not merged yet; the first one is the front */
	struct block_refs settled; /* blocks from the start without a gap */
	uint64_t settled_count;    /* entries in them */
	struct list spill;         /* blocks to be written */
	uint64_t sealed_bytes;
	struct {
		struct block_ref *block;
		struct entries *entries;
	} recent[RECENT_N]; /* read from the file a moment ago */
	unsigned int recent_next;
	uint64_t count, memory, hidden, shadowed;
	uint32_t pages;
	char **twins; /* directories whose file may be in another range */
	uint32_t twin_count;
	bool begun; /* there is a range, or all of it */
	bool complete;
	int error;
};

/* Everything before the front is settled; what the front fills is, too. */
static inline bool listing_is_front(const struct listing_range *range)
{
	return range->link.prev == &range->listing->ranges;
}

void listing_free_range(struct listing_range *range);

/* It ends here, with this errno. */
void listing_fail_locked(struct listing *l, int r);

/* A block that is full, at the end of `to`: `e` is taken. -ENOMEM (e is not taken). */
int listing_push_block_locked(struct listing *l, struct block_refs *to,
			      struct entries *e);

/* Writes sealed blocks to the file when there are enough of them. No lock held. */
void listing_spill(struct listing *l);

/* A block that lies in the file. LISTING_E_WAIT: not without waiting; negative errno. */
int listing_load_block(struct listing *l, const struct block_ref *b, bool nowait,
		       struct entries **out);
