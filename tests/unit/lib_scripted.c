/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_scripted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/mem.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"

struct scripted_job {
	struct scripted_job *next;
	struct scripted *owner;
	struct origin_req *req, *inner;
	atomic_bool cancelled;
	bool running;
	/* while it runs */
	bool flip, cut;
	uint64_t delivered;
	origin_sink_fn sink;
	void *sink_arg;
	origin_entry_fn entry;
	void *entry_arg;
	int extra; /* the next one */
};

static bool spend(atomic_int *counter)
{
	int n = atomic_load(counter);

	while (n != 0) {
		if (n < 0)
			return true;
		if (atomic_compare_exchange_weak(counter, &n, n - 1))
			return true;
	}
	return false;
}

/* Sleeps as the script says; false when cancelled meanwhile. */
static bool dawdle(struct scripted_job *job, uint64_t ms)
{
	struct scripted *s = job->owner;
	uint64_t until = clock_mono_ms() + ms;

	while (!atomic_load(&job->cancelled)) {
		uint64_t now = clock_mono_ms();

		if (atomic_load(&s->hang) || until > now + 2)
			clock_sleep_ms(2);
		else if (until > now)
			clock_sleep_ms(until - now);
		else
			return true;
	}
	return false;
}

static void trim_attr(struct scripted *s, struct origin_attr *attr)
{
	if (atomic_load(&s->no_crc))
		attr->has_crc64 = false;
	if (atomic_load(&s->no_etag))
		attr->etag[0] = '\0';
}

static int pass(void *arg, uint64_t off, const void *data, size_t n)
{
	struct scripted_job *job = arg;
	struct scripted *s = job->owner;
	char *copy;
	int r;

	if (!dawdle(job, atomic_load(&s->piece_ms)))
		return -ECANCELED;
	if (job->cut && job->delivered + n > job->req->len / 2)
		return -ECONNRESET;
	copy = malloc(n);
	check(copy);
	memcpy(copy, data, n);
	if (job->flip) {
		copy[n / 2] ^= 1;
		job->flip = false;
	}
	job->req->attr = job->inner->attr;
	trim_attr(s, &job->req->attr);
	r = job->sink(job->sink_arg, off, copy, n);
	free(copy);
	job->delivered += n;
	atomic_fetch_add(&s->bytes, n);
	return r;
}

/* The extra entries that come before `key` (NULL: all that are left), in their order. */
static int list_extra(struct scripted_job *job, const char *key)
{
	struct scripted *s = job->owner;
	int r = 0;

	for (; r == 0 && job->extra < s->extra_count; job->extra++) {
		const char *extra = s->extra[job->extra].key;
		struct origin_attr attr = {.size = 1,
					   .is_dir = s->extra[job->extra].is_dir};

		if (strcmp(s->extra[job->extra].prefix, job->req->key) != 0)
			continue;
		if (key && strcmp(extra, key) >= 0)
			break;
		r = job->entry(job->entry_arg, extra, strlen(extra), &attr);
	}
	return r;
}

static int pass_entry(void *arg, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	struct scripted_job *job = arg;
	struct origin_attr copy = *attr;
	int r = list_extra(job, key);

	trim_attr(job->owner, &copy);
	return r < 0 ? r : job->entry(job->entry_arg, key, key_len, &copy);
}

static void finish(struct scripted_job *job, int r)
{
	struct scripted *s = job->owner;
	struct origin_req *req = job->req;
	struct scripted_job **at;

	pthread_mutex_lock(&s->lock);
	for (at = &s->jobs; *at != job; at = &(*at)->next)
		;
	*at = job->next;
	pthread_mutex_unlock(&s->lock);
	free(job);
	atomic_fetch_sub(&s->in_flight, 1);
	req->result = r;
	req->done(req);
}

static void run(struct scripted_job *job)
{
	struct scripted *s = job->owner;
	struct origin_req *req = job->req, inner = *req;

	if (!dawdle(job, atomic_load(&s->latency_ms))) {
		finish(job, -ECANCELED);
		return;
	}
	if (spend(&s->fail_count)) {
		finish(job, atomic_load(&s->fail));
		return;
	}
	job->inner = &inner;
	job->sink = req->sink;
	job->sink_arg = req->sink_arg;
	inner.sink = pass;
	inner.sink_arg = job;
	job->entry = req->list.entry;
	job->entry_arg = req->list.entry_arg;
	inner.list.entry = pass_entry;
	inner.list.entry_arg = job;
	job->flip = req->op == ORIGIN_GET &&
		    (!atomic_load(&s->flip_first) ||
		     req->key[0] == atomic_load(&s->flip_first)) &&
		    spend(&s->flip_count);
	job->cut = req->op == ORIGIN_GET && spend(&s->cut_count);
	if (atomic_load(&s->no_etag))
		inner.if_match = NULL;
	origin_call(s->inner, &inner);
	if (req->op == ORIGIN_LIST && inner.result == 0 && !inner.list.truncated)
		list_extra(job, NULL);
	trim_attr(s, &inner.attr);
	req->attr = inner.attr;
	req->received = inner.received;
	req->list.truncated = inner.list.truncated;
	memcpy(req->list.next, inner.list.next, sizeof(req->list.next));
	finish(job, inner.result);
}

static void *work(void *arg)
{
	struct scripted *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct scripted_job *job = s->jobs;

		while (job && job->running)
			job = job->next;
		if (!job && s->stop)
			break;
		if (!job) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		job->running = true;
		pthread_mutex_unlock(&s->lock);
		run(job);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void submit(struct origin *o, struct origin_req *req)
{
	struct scripted *s = (struct scripted *)o;
	struct scripted_job *job = calloc(1, sizeof(*job)), **at;
	int now = atomic_fetch_add(&s->in_flight, 1) + 1;

	check(job);
	if (now > atomic_load(&s->in_flight_max))
		atomic_store(&s->in_flight_max, now);
	job->owner = s;
	job->req = req;
	atomic_fetch_add(&s->count[req->op], 1);
	pthread_mutex_lock(&s->lock);
	if (s->log_count < SCRIPTED_LOG_MAX) {
		struct scripted_request *l = &s->log[s->log_count++];

		l->op = req->op;
		l->off = req->off;
		l->len = req->len;
		snprintf(l->key, sizeof(l->key), "%s", req->key ? req->key : "");
	}
	for (at = &s->jobs; *at; at = &(*at)->next)
		;
	*at = job;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

static void cancel(struct origin *o, struct origin_req *req)
{
	struct scripted *s = (struct scripted *)o;

	pthread_mutex_lock(&s->lock);
	for (struct scripted_job *job = s->jobs; job; job = job->next)
		if (job->req == req)
			atomic_store(&job->cancelled, true);
	pthread_mutex_unlock(&s->lock);
}

static void add_stats(struct origin *o, struct origin_stats *stats)
{
	struct scripted *s = (struct scripted *)o;

	for (int i = 0; i < ORIGIN_OP_N; i++)
		stats->requests[i] += atomic_load(&s->count[i]);
}

static void free_origin(struct origin *o)
{
	scripted_free((struct scripted *)o);
}

static const struct origin_ops ops = {
	.name = "scripted",
	.submit = submit,
	.cancel = cancel,
	.stats = add_stats,
	.free = free_origin,
};

struct scripted *scripted_new(const char *name)
{
	struct scripted *s = calloc(1, sizeof(*s));

	check(s);
	check(mem_origin_new(&s->inner) == 0);
	s->origin.ops = &ops;
	s->origin.caps = s->inner->caps;
	snprintf(s->origin.name, sizeof(s->origin.name), "%s", name);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	for (int i = 0; i < SCRIPTED_THREADS; i++)
		check(pthread_create(&s->threads[i], NULL, work, s) == 0);
	return s;
}

void scripted_free(struct scripted *s)
{
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < SCRIPTED_THREADS; i++)
		pthread_join(s->threads[i], NULL);
	check(!s->jobs);
	origin_free(s->inner);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void scripted_fill(const char *key, unsigned int version, uint64_t off, void *p, size_t n)
{
	uint32_t seed = crc32c(version, key, strlen(key));
	unsigned char *to = p;

	while (n) {
		uint64_t x = (off >> 3) * 0x9e3779b97f4a7c15ull + seed;
		size_t skip = off & 7, part = 8 - skip < n ? 8 - skip : n;

		x ^= x >> 29;
		x *= 0xbf58476d1ce4e5b9ull;
		memcpy(to, (unsigned char *)&x + skip, part);
		to += part;
		off += part;
		n -= part;
	}
}

void scripted_put(struct scripted *s, const char *key, unsigned int version, uint64_t n)
{
	unsigned char *data = malloc(n + 1);
	struct origin_req req = {.op = ORIGIN_PUT, .key = key};

	check(data);
	scripted_fill(key, version, 0, data, n);
	req.body.data = data;
	req.body.fd = -1;
	req.body.len = n;
	check(origin_call(s->inner, &req) == 0);
	free(data);
}

struct origin_attr scripted_attr(struct scripted *s, const char *key)
{
	struct origin_req req = {.op = ORIGIN_STAT, .key = key};

	check(origin_call(s->inner, &req) == 0);
	trim_attr(s, &req.attr);
	return req.attr;
}

void scripted_reset(struct scripted *s)
{
	pthread_mutex_lock(&s->lock);
	s->log_count = 0;
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < ORIGIN_OP_N; i++)
		atomic_store(&s->count[i], 0);
	atomic_store(&s->bytes, 0);
	atomic_store(&s->in_flight_max, 0);
}
