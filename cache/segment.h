/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file of the journal: frames, each under one checksum (cache/JOURNAL.md, "Segment").
 *
 * A frame is written only after the frame before it is durable. So an invalid frame with a
 * valid one behind it is damage, and an invalid one with nothing behind it is a torn write
 * that no one was told about.
 *
 * Not thread-safe: the journal's leader is its only caller.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"

#define SEGMENT_NAME_MAX 32
#define SEGMENT_PAYLOAD_MAX (256u << 20)

/* Of the format: what is written, and the newest that can be read; 1 is the oldest. 2 has
 * records of type DATA, 3 RANGES and ENDING, and says where parts lie, 4 APPEND, 5
 * SOURCE. */
#define SEGMENT_VERSION_MAX 5

struct segment;

/* Creates "<generation>.new" in the directory (borrowed) and writes frame 0, which names
 * the format and the source. Returns new. */
int segment_create(int dirfd, uint64_t generation, const char *source,
		   struct segment **out);

/* One frame at the end. Space is allocated before a byte is written; after a failure the
 * frame does not exist and the next one takes its place. */
int segment_write(struct segment *s, const void *payload, size_t n);

/* fdatasync. After a failure the segment is dead: the caller writes another one. */
int segment_sync(struct segment *s);

/* Sync, rename to "<generation>.wal", sync of the directory: from now on this is the
 * journal. */
int segment_publish(struct segment *s);

uint64_t segment_size(const struct segment *s);
uint64_t segment_generation(const struct segment *s);

/* Closes; removes the file when it was not published. Takes NULL, returns NULL. */
struct segment *segment_close(struct segment *s);

/* "0000000000000007.wal" */
void segment_name(char out[static SEGMENT_NAME_MAX], uint64_t generation,
		  const char *ext);

struct segment_report {
	uint64_t frames;     /* valid ones */
	uint64_t damaged;    /* places in the middle where bytes are not a frame */
	uint64_t torn_bytes; /* what was cut off at the end; 0: the end is clean */
	bool has_header;     /* frame 0 is whole */
	uint32_t version;    /* of the format */
	char source[512];
};

/* One frame's payload, in order of sequence. Negative ends the scan with that errno. */
typedef int (*segment_frame_fn)(void *arg, const char *payload, size_t n);

/* Reads a whole segment and delivers every valid frame, also those behind damage. */
int segment_scan(int dirfd, uint64_t generation, segment_frame_fn frame, void *arg,
		 struct segment_report *report);
