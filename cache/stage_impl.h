/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stage share. Only cache/stage.c and cache/stage_copy.c. */
#pragma once

#include <stdatomic.h>

#include <uthash.h>

#include "cache/stage.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"

struct content {
	struct stage *stage;
	uint64_t id;
	UT_hash_handle hh;  /* stage->contents */
	struct list doomed; /* stage->doomed or ->spares when no reference is left */
	int references;     /* stage->lock */
	int pins;           /* stage->lock; fd is open while > 0 */
	int fd;
	uint64_t after;           /* doomed: journal sequence to wait for */
	atomic_bool dead;         /* a sync failed */
	bool recorded;            /* stage->lock: the journal may name it */
	bool small;               /* stage->lock: its bytes were carried */
	bool taken_over;          /* stage_take_over() */
	uint64_t number;          /* of its file, counted from 1 as they are made */
	char *bytes;              /* carried: there is no file */
	size_t size;              /* of `bytes` */
	_Atomic uint64_t counted; /* bytes of it in stage->used */
	_Atomic(struct patch *) patch;
};

struct stage {
	struct stage_config config;
	struct lock lock;         /* all below but the atomics */
	struct content *contents; /* by id */
	struct list doomed;
	uint32_t reaping; /* under way: what it takes is not on `doomed` any more */
	uint64_t next_id;
	uint64_t created, synced; /* files made; those whose names are durable */
	uint64_t named;           /* all up to here that the journal names */
	uint64_t carried;         /* bytes */
	struct list spares;       /* of contents, the oldest first */
	int spare_count, spares_max;
	int doomed_open, idle_max; /* doomed with a descriptor; how many may be */
	_Atomic int64_t used;      /* bytes, by the owner's account */
	_Atomic uint64_t space_ms; /* when `available` was asked for */
	_Atomic uint64_t available;
	_Atomic int64_t used_then; /* `used` at that time */
};
