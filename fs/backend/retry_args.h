/* SPDX-License-Identifier: Apache-2.0 */
/* What a request was asked for and how much of it is done, so that the next try asks for
 * the rest only. Internal to the retry layer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

struct retry_args {
	/* The caller's, as they came. */
	origin_done_fn done;
	origin_sink_fn sink;
	void *sink_arg;
	origin_entry_fn entry;
	void *entry_arg;
	uint64_t off, len;
	const char *if_match;
	const char *after;
	uint32_t count_max;

	/* Over all tries. */
	uint64_t delivered;         /* GET: bytes */
	uint32_t entries;           /* LIST */
	uint64_t noted;             /* delivered + entries when a try last ended */
	bool refused;               /* the caller's sink or entry function said no */
	char etag[ORIGIN_ETAG_MAX]; /* GET: of the first reply */
	char last[sizeof(((struct origin_req *)0)->list.next)]; /* LIST: last entry */
};

/* `args` stays where it is until restore(). */
void retry_args_init(struct retry_args *args, struct origin_req *req);
/* Before each try. */
void retry_args_prepare(struct retry_args *args, struct origin_req *req);
/* After each try: whether it brought anything. */
bool retry_args_progress(struct retry_args *args, const struct origin_req *req);
/* Whether another try can do the rest without telling anything twice or mixing versions. */
bool retry_args_can_go_on(const struct retry_args *args, const struct origin_req *req);
/* The request as the caller knows it, with the results. */
void retry_args_restore(const struct retry_args *args, struct origin_req *req,
			int result);

/*
 * After a refusal: whether what is there now is what this request wanted to make. `look` is
 * a request to the store that brings what is needed to tell: prepare fills it but for
 * done and user, judge takes its result. May read the body once more.
 */
struct retry_tail {
	uint64_t crc, len;
};
void retry_args_prepare_look(const struct retry_args *args, const struct origin_req *req,
			     struct origin_req *look, struct retry_tail *tail);
bool retry_args_judge(const struct retry_args *args, const struct origin_req *req,
		      const struct origin_req *look, const struct retry_tail *tail);
