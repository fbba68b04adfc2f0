/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that fails on purpose, for tests: the n-th request of a kind ends with an error,
 * before or after it took effect, late, cut short, or with a wrong byte. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

#define FAULT_RULE_MAX 32

struct fault_rule {
	enum origin_op op;       /* ORIGIN_OP_N: any */
	unsigned int skip;       /* requests of this kind that pass first */
	unsigned int count;      /* how many it then meets; 0: all */
	int error;               /* the result; 0: the store's own */
	bool after;              /* only after the store has carried it out */
	uint64_t retry_after_ms; /* goes with the error */
	uint64_t delay_ms;       /* before anything else */
	bool cut; /* GET, LIST, DELETE_MANY: the error comes after so many bytes,
		   * entries, keys */
	uint64_t cut_after;
	bool flip; /* GET: the lowest bit of byte flip_off is wrong */
	uint64_t flip_off;
};

/* Takes `below`, also on failure. */
int fault_origin_new(struct origin *below, struct origin **out);

/* The first rule that matches a request is applied. Rules may be added at any time; copied.
 * More than FAULT_RULE_MAX is an assertion. Returns the rule's number. */
int fault_add(struct origin *o, const struct fault_rule *rule);
void fault_clear(struct origin *o);
/* From now on every request waits for a random time of up to so many µs, half of them before
 * the store carries it out, half before the caller learns of that. */
void fault_set_jitter(struct origin *o, uint64_t max_us);
unsigned int fault_hits(struct origin *o, int rule); /* how often it was applied */
