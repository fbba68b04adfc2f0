/* SPDX-License-Identifier: Apache-2.0 */
/* Open files and directories, as the kernel knows them by their numbers. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/base/slots.h"

#define HANDOVER_FILES_MAX (1u << 20)

struct handover;

enum handover_file_state {
	HANDOVER_FREE,
	HANDOVER_OPENING, /* the reply to a request tells of it */
	HANDOVER_OPEN,
	HANDOVER_RELEASING, /* by a request; gone once that is replied */
};

struct handover_file {
	_Atomic uint64_t state; /* and the request, as handover_file_by() says */
	int flags;              /* of open(2) */
	uint64_t ino;
	uint64_t backing_dev; /* of a file that is passed through */
	uint64_t backing_ino;
	int backing_id;
	uint8_t mode; /* enum backing_mode */
	bool is_dir;
};

/* State and request are one: a reader sees both of the same open. */
static inline uint64_t handover_file_by(enum handover_file_state state, uint64_t request)
{
	return request << 2 | state;
}

static inline enum handover_file_state handover_file_state(const struct handover_file *f)
{
	return (enum handover_file_state)(atomic_load(&f->state) & 3);
}

struct handover_files {
	_Atomic uint32_t limit;
	struct handover_file *items;
	struct slots slots; /* this daemon's */
	int *orphans; /* this daemon's: backing ids of opens that are not, or end now */
	size_t orphan_count;
};

int handover_files_begin(struct handover *h);
void handover_files_end(struct handover *h);

/* A free one, by number; SLOTS_NONE. The caller fills it and then sets its state. */
uint32_t handover_file_take(struct handover *h);
void handover_file_give(struct handover *h, uint32_t i);
static inline struct handover_file *handover_file_at(struct handover_files *f, uint32_t i)
{
	return &f->items[i];
}
