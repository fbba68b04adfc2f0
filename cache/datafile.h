/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One large object on disk: a sparse file of its bytes, of exactly its size (so that the
 * kernel can be handed it), and beside it a map with a record per page. Format:
 * cache/README.md.
 *
 * A record is written after the page it speaks of, and holds the page's checksum: what a
 * crash, a torn write or a flipped bit leaves behind fails the checksum and is dropped.
 * Nothing is synced.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache/ident.h"
#include "fs/base/lock.h"

struct disk;

#define PAGE_SHIFT 12
#define PAGE_BYTES (1u << PAGE_SHIFT)

struct datafile {
	atomic_uint refs;
	struct lock write_lock; /* one write at a time: others would spin in the kernel */
	int data_fd;
	int map_fd;
	uint64_t
		nonce; /* drawn when the pair was made: tells a pair from its successor */
	uint64_t size; /* of the object */
	atomic_bool noted; /* its CRC-64, by this process */
};

/* Records: 0 is absent, else the page's CRC-32C (a CRC of 0 is stored as 1). The last page
 * of an object is checksummed as far as the object goes. */
uint32_t datafile_record(const void *page, size_t n);

enum datafile_condition {
	DATAFILE_E_NONE = 1, /* not there, and not asked to make it */
	DATAFILE_E_FULL,     /* no room: evict, or go without */
};

/* Opens the pair, or makes it when `create`. One reference. A damaged map is removed as if
 * it were not there. Negative errno when the disk fails. */
int datafile_open(struct disk *d, const struct ident *id, bool create,
		  struct datafile **out);
struct datafile *datafile_get(struct datafile *f);
void datafile_put(struct datafile *f); /* NULL is allowed */

/* Someone removed it (eviction, here or in another process): still readable, but what is
 * written to it is lost and counts for nothing. */
bool datafile_gone(const struct datafile *f);

int datafile_load(struct datafile *f, uint64_t page, uint32_t count, uint32_t *records);
int datafile_store(struct datafile *f, uint64_t page, uint32_t count,
		   const uint32_t *records);

/* Bytes of the object; RWF_NOWAIT when `nowait`: -EAGAIN for what is not in memory. A
 * short count only at the end of the file. */
ssize_t datafile_read(struct datafile *f, uint64_t off, void *p, size_t n, bool nowait);
int datafile_write(struct datafile *f, uint64_t off, const void *p, size_t n);

/* The store's CRC-64 of the whole object, for a process that finds all of it here and has
 * nothing to ask the store for. false: not noted. */
int datafile_note_crc64(struct datafile *f, uint64_t crc64);
bool datafile_crc64(const struct datafile *f, uint64_t *crc64);

/* The note that all pages are there and the whole object passed the store's CRC-64 (or the
 * store gives none). A hint for the next process, which checks the pages all the same. */
int datafile_seal(struct datafile *f);
int datafile_unseal(struct datafile *f);
bool datafile_sealed(const struct datafile *f);

/* The note that a process has seen every page right, with the state the data file was in
 * then. datafile_marked() says whether it is in that state still: nobody has written to it
 * since, and the machine has not been started again. May sleep a few milliseconds, until
 * a later write cannot have the same time. */
int datafile_mark(struct datafile *f);
bool datafile_marked(const struct datafile *f);

/* A new descriptor of the data file for the kernel, read-only. */
int datafile_reopen(const struct datafile *f);

/* Unlinks the pair; *freed = bytes to disk_release(). DATAFILE_E_NONE. */
int datafile_remove(struct disk *d, const unsigned char hash[IDENT_HASH_SIZE],
		    uint64_t *freed);

/* Bytes that count for the map of an object of this size. */
uint64_t datafile_map_bytes(uint64_t size);
