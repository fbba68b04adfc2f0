/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount stands on, from the store up:
 *
 *   input:   origin -> cache -> input tree
 *   output:  origin -> (stage, journal, uploader) output tree
 */
#pragma once

#include <stdint.h>

struct cache;
struct config;
struct handover;
struct input;
struct order_log;
struct origin;
struct output;
struct why;

struct stack {
	struct origin *origin;
	struct cache *cache;         /* input only */
	struct order_log *order_log; /* input with --record */
	struct input *input;         /* one of */
	struct output *output;       /* the two */
};

/* Builds the chain of config->role and asks the store whether it may be used. Returns 0 or
 * the enum exit_code that says why not, with a sentence; nothing is left then. With
 * `handover` (NULL: none) the trees go on where the last daemon was killed; then the store
 * is not asked: it may be away. It has until the deadline to answer (clock_mono_ms();
 * UINT64_MAX: 15 s). */
int stack_open(const struct config *config, struct handover *handover,
	       uint64_t deadline_ms, struct stack *s, struct why *why);

/* Only the origin, probed: for commands that just ask the store. */
int stack_open_origin(const struct config *config, uint64_t deadline_ms, struct stack *s,
		      struct why *why);

/* Top down. What output has not uploaded stays on disk. */
void stack_close(struct stack *s);
