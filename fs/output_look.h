/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of stored objects, also of those that a reader will come to next. */
#pragma once

#include "fs/output_impl.h"

/* At start and stop; without the lock. After look_stop() nothing is under way. */
int look_start(struct output *o);
void look_stop(struct output *o);

/* Lock held: whether the node's attributes are a guess until its object is asked. */
bool look_is_due(struct output *o, const struct node *n);

/* output_dir.c: where a name is in a listing with cookies. */
uint64_t output_cookie(const char *name);

/* Lock held: the attributes go to a reader of the directory unasked. False: they had better
 * not, so that he shows whether he wants them. */
bool look_may_give(struct output *o, struct node *n);

/* Lock held: this is the order in which a reader is given the directory's nodes; cookies as
 * output_cookie() makes them, ascending. */
struct look_place {
	uint64_t cookie, ino;
};
/* Takes `places`, from malloc(); NULL is allowed. It is known until others have come, or, if it
 * is long, until the reader has closed the directory. */
void look_note_order(struct output *o, const struct node *dir, struct look_place *places,
		     size_t count);
/* Lock held: he has. */
void look_end_order(struct output *o, uint64_t dir);
