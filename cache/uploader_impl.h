/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the uploader share. Only cache/uploader.c and cache/upload_request.c. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "cache/uploader.h"
#include "fs/base/lock.h"

struct worker {
	struct uploader *uploader;
	pthread_t thread;
	struct upload_job *job; /* it works for */
	struct origin_req *req; /* in flight; for cancel */
};

struct uploader {
	struct origin *origin;
	struct lock lock;    /* all below */
	pthread_cond_t cond; /* a job has something to do, or stop */
	struct list jobs;    /* oldest first, behind them those ahead, by rank */
	uint32_t ahead;      /* workers on jobs ahead … */
	uint32_t ahead_max;  /* … and how many may be */
	bool stopping;
	uint32_t worker_count;
	struct worker *workers;
	_Atomic uint64_t bytes_flying;
};

/* Sends one request where uploader_cancel() can reach it. */
int upload_call(struct worker *w, struct origin_req *req);

/* One step of a content's way; says itself how it landed. */
void upload_do_action(struct worker *w, struct upload_job *job, enum upload_action action,
		      uint32_t part);
/* The kinds that are one request. */
int upload_do_request(struct worker *w, struct upload_job *job);
/* Deletes linked by `next`, at most ORIGIN_KEY_COUNT_MAX; job->result says how each went. */
void upload_do_deletes(struct worker *w, struct upload_job *jobs);
