/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/tail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/record.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"

#define DONE_MAX 8192 /* more than requests can be in flight */
#define PAGE 4096u
#define STEP (4u << 20) /* memory is given back in pieces of this */

struct entry {
	uint64_t seq;
	uint64_t len; /* of the records behind it */
};

/* A request whose transaction ends at `end`: valid once tail->end has come there. */
struct done {
	uint64_t request;
	uint64_t end;
};

struct tail {
	uint64_t size; /* of data; 0: not laid out yet */
	_Atomic uint64_t begin,
		end; /* places in the endless stream; data has it modulo size */
	uint64_t done_next;
	struct done done[DONE_MAX];
	_Alignas(PAGE) char data[];
};

static _Thread_local uint64_t thread_request;
static _Thread_local bool thread_final;

struct tail *tail_attach(void *memory, size_t size)
{
	struct tail *t = memory;

	check(size > sizeof(*t));
	if (!t->size)
		t->size = size - sizeof(*t);
	if (t->size > STEP)
		t->size -= t->size % STEP;
	return t;
}

static void put(struct tail *t, uint64_t at, const void *p, size_t n)
{
	size_t place = at % t->size, first = t->size - place;

	if (first > n)
		first = n;
	memcpy(t->data + place, p, first);
	memcpy(t->data, (const char *)p + first, n - first);
}

static void get(const struct tail *t, uint64_t at, void *p, size_t n)
{
	size_t place = at % t->size, first = t->size - place;

	if (first > n)
		first = n;
	memcpy(p, t->data + place, first);
	memcpy((char *)p + first, t->data, n - first);
}

int tail_append(struct tail *t, const struct buf *records, uint64_t seq)
{
	struct entry e = {.seq = seq, .len = records->len};
	uint64_t begin = atomic_load(&t->begin), end = atomic_load(&t->end);

	if (sizeof(e) + e.len > t->size - (end - begin))
		return err_origin(-ENOMEM);
	put(t, end, &e, sizeof(e));
	if (e.len)
		put(t, end + sizeof(e), records->data, e.len);
	end += sizeof(e) + e.len;
	if (thread_request && thread_final) {
		struct done *d = &t->done[t->done_next++ % DONE_MAX];

		*(volatile uint64_t *)&d->end = UINT64_MAX;
		*(volatile uint64_t *)&d->request = thread_request;
		*(volatile uint64_t *)&d->end = end;
	}
	atomic_store(&t->end, end);
	return 0;
}

/* What is behind is of no use: where it lies in pages of its own, these go. */
static void give_back(struct tail *t, uint64_t from, uint64_t to)
{
	if (t->size % STEP)
		return;
	for (from -= from % STEP; from + STEP <= to; from += STEP)
		(void)!madvise(t->data + from % t->size, STEP, MADV_REMOVE);
}

uint64_t tail_end(const struct tail *t)
{
	return atomic_load(&t->end);
}

void tail_trim(struct tail *t, uint64_t seq)
{
	uint64_t begin = atomic_load(&t->begin), end = atomic_load(&t->end);
	struct entry e;

	while (begin < end) {
		get(t, begin, &e, sizeof(e));
		if (e.seq > seq)
			break;
		begin += sizeof(e) + e.len;
	}
	give_back(t, atomic_exchange(&t->begin, begin), begin);
}

void tail_clear(struct tail *t)
{
	uint64_t end = atomic_load(&t->end);

	give_back(t, atomic_exchange(&t->begin, end), end);
}

static int replay_entry(const char *p, size_t n,
			int (*fn)(void *arg, const struct record *r), void *arg)
{
	while (n > 0) {
		struct record r;
		int e = record_decode(&p, &n, &r);

		if (e == 0)
			e = fn(arg, &r);
		if (e < 0)
			return err_trace(e);
	}
	return 0;
}

int tail_replay(struct tail *t, int (*fn)(void *arg, const struct record *r), void *arg)
{
	uint64_t at = atomic_load(&t->begin), end = atomic_load(&t->end);
	int r = 0;

	while (r == 0 && at < end) {
		_cleanup_(freep) char *records = NULL;
		struct entry e;

		get(t, at, &e, sizeof(e));
		if (e.len > end - at - sizeof(e))
			return err_origin(-EBADMSG);
		records = malloc(e.len + 1);
		if (!records)
			return err_origin(-ENOMEM);
		get(t, at + sizeof(e), records, e.len);
		r = replay_entry(records, e.len, fn, arg);
		at += sizeof(e) + e.len;
	}
	return err_trace(r);
}

void tail_set_request(uint64_t request)
{
	thread_request = request;
}

void tail_set_final(bool final)
{
	thread_final = final;
}

bool tail_executed(const struct tail *t, uint64_t request)
{
	uint64_t end = atomic_load(&t->end);

	for (size_t i = 0; request && i < DONE_MAX; i++) {
		if (t->done[i].request == request && t->done[i].end <= end)
			return true;
	}
	return false;
}
