/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small objects, many to a file. A pack is only ever appended to, by the one process that
 * made it, and is evicted whole. Every record carries the full identity of its object and
 * checksums of both, so a look-up that went wrong anywhere ends as a miss. Format:
 * cache/README.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache/ident.h"
#include "cache/index.h"

struct disk;
struct packs;

#define PACK_OBJECT_MAX (256u << 10) /* larger ones have a file of their own */

int packs_new(struct disk *d, uint64_t size_max, struct packs **out);
struct packs *packs_free(struct packs *p);

/* Appends; *where says where for the index. PACK_E_FULL: no room. Negative errno. */
enum pack_condition {
	PACK_E_FULL = 1,
	PACK_E_NONE,    /* the pack is gone, or holds something else there */
	PACK_E_DAMAGED, /* it holds it, but the checksum is wrong */
	PACK_E_WAIT,    /* with nowait: it must be fetched from the disk */
};
int pack_append(struct packs *p, const struct ident *id, const void *data,
		struct index_small *where);

/* The whole object into `data` (where->len bytes), identity and checksums compared. */
int pack_read(struct packs *p, const struct ident *id, const struct index_small *where,
	      void *data, bool nowait);

/* A part of one that pack_read() has accepted before. */
int pack_read_part(struct packs *p, const struct index_small *where, uint32_t off,
		   void *data, size_t n, bool nowait);

/* The pack being appended to, and its length so far; 0: none. */
uint64_t pack_current(struct packs *p, uint64_t *bytes);

/* Unlinks it; *freed = bytes to disk_release(). PACK_E_NONE. */
int pack_remove(struct packs *p, uint64_t pack, uint64_t *freed);

/* Lets go of packs that another process has removed: an open one keeps its space. */
void packs_tidy(struct packs *p);

/* Packs on disk, for an index that has lost them. */
typedef void (*pack_fn)(void *arg, uint64_t pack, uint64_t bytes);
int packs_each(struct packs *p, pack_fn fn, void *arg);
