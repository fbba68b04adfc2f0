/* SPDX-License-Identifier: Apache-2.0 */
/* The unfinished uploads of a mem: origin. Internal to mem.c; its lock covers them. Each
 * function carries out the request of its name and returns its result. */
#pragma once

#include "fs/backend/mem_store.h"
#include "fs/base/list.h"

struct mem_uploads {
	struct list list; /* oldest first */
	uint64_t last_id;
};

void mem_uploads_init(struct mem_uploads *uploads);
void mem_uploads_fini(struct mem_uploads *uploads);

int mem_multi_begin(struct mem_uploads *uploads, struct mem_store *store,
		    struct origin_req *req);
int mem_multi_part(struct mem_uploads *uploads, struct origin_req *req);
int mem_multi_copy(struct mem_uploads *uploads, struct mem_store *store,
		   struct origin_req *req);
int mem_multi_end(struct mem_uploads *uploads, struct mem_store *store,
		  uint64_t part_size_min, struct origin_req *req);
void mem_multi_abort(struct mem_uploads *uploads, struct origin_req *req);
int mem_multi_list(struct mem_uploads *uploads, struct origin_req *req);
