/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between FUSE requests and the trees: a request is unpacked into a struct call, run in the
 * thread that took it as long as that does not block, else by a worker, and answered.
 * This is the one place where errors become replies.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fs/backing.h"
#include "fs/fuse_api.h"
#include "fs/tree.h"

struct buf;
struct handover;
struct input;
struct output;
struct session;
struct worker_pool;
struct ops;

/* Which opens of /input the kernel may leave out, in the order of enum
 * config_profile_index: without them small files are read at its own speed from the second
 * time on, but none can be passed through. */
enum ops_profile {
	OPS_PROFILE_AUTO,  /* all, once the files that were opened have been small */
	OPS_PROFILE_SMALL, /* all */
	OPS_PROFILE_LARGE, /* none */
};

/* fuse_req_userdata(): the mount. Filled by the owner before the loop starts. */
struct ops_config {
	struct input *input; /* one of the two */
	struct output *output;
	struct session *session;   /* set by ops_set_session() */
	struct handover *handover; /* NULL: none */
	uint64_t ttl_ms;           /* of names that do not exist */
	bool immutable;
	enum ops_profile profile; /* of /input */
	unsigned int thread_count;
};

int ops_new(const struct ops_config *config, struct ops **out);
void ops_set_session(struct ops *o, struct session *session);
/* Before the loop: the files that were open in the last daemon. */
int ops_restore(struct ops *o);
/* After the loop and before session_free(): ends the calls under way, closes what is open.
 * Takes NULL, returns NULL. */
struct ops *ops_free(struct ops *o);
void ops_status_json(struct ops *o, struct buf *b);     /* members of an open object */
void ops_last_error_json(struct ops *o, struct buf *b); /* a member, if there was one */

extern const struct fuse_lowlevel_ops ops_input_table, ops_output_table;
