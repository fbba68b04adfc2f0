/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory is one mapping that the holder makes before it starts the first daemon, so
 * pointers into it stay good. It is large and empty: pages come with use.
 */
#include "fs/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "cache/ledger.h"
#include "cache/patch_table.h"
#include "cache/tail.h"
#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/receive.h"

#define HEAD_SIZE (64u << 10)
#define TAIL_SIZE (1ull << 30) /* far more than anyone leaves without a sync */

/* Of linux/fuse.h since 6.9. */
#define NOTIFY_RESEND 7
#define UNIQUE_RESEND (1ull << 63)
#define HAS_RESEND_FLAG2 (1u << 7)

_Static_assert(sizeof(struct handover) <= HEAD_SIZE, "the head fits");

struct request {
	size_t size;
	char *data;
};

/* What was read before the loop, in order. */
struct handover_requests {
	struct lock lock; /* next */
	struct request *items;
	size_t count, size, next;
	atomic_bool waiting; /* some are left */
	uint64_t *resent;    /* numbers of those that came again */
	size_t resent_count, resent_size;
};

static _Thread_local uint64_t thread_request;

static size_t memory_size(void)
{
	return HEAD_SIZE + TAIL_SIZE + patch_table_size() +
	       sizeof(struct handover_file) * HANDOVER_FILES_MAX +
	       (size_t)RECEIVE_SIZE * HANDOVER_BUFFERS_MAX + handover_nodes_size() +
	       ledger_memory_size();
}

int handover_new(struct handover **out, struct why *why)
{
	char *memory = mmap(NULL, memory_size(), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct handover *h = (void *)memory;

	if (memory == MAP_FAILED)
		return why_set(why, err_origin(-errno), "memory to be handed over: %s",
			       strerror(errno));
	h->fd = h->control_fd = h->pair[0] = h->pair[1] = -1;
	h->holder = getpid();
	memory += HEAD_SIZE;
	h->tail = tail_attach(memory, TAIL_SIZE);
	memory += TAIL_SIZE;
	h->patches = memory;
	memory += patch_table_size();
	h->buffers = memory;
	memory += (size_t)RECEIVE_SIZE * HANDOVER_BUFFERS_MAX;
	h->files.items = (void *)memory;
	memory += sizeof(struct handover_file) * HANDOVER_FILES_MAX;
	handover_nodes_layout(&h->nodes, memory);
	memory += handover_nodes_size();
	h->ledger = memory;
	*out = h;
	return 0;
}

char *handover_buffer(const struct handover *h, unsigned int i)
{
	check(i < HANDOVER_BUFFERS_MAX);
	return h->buffers + (size_t)i * RECEIVE_SIZE;
}

struct handover *handover_free(struct handover *h)
{
	if (h)
		munmap(h, memory_size());
	return NULL;
}

/* ---- what the last daemon had not answered --------------------------------------------- */

static int keep(struct handover_requests *q, const void *data, size_t n)
{
	if (q->count == q->size) {
		size_t size = q->size ? q->size * 2 : 64;
		struct request *grown = realloc(q->items, size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		q->items = grown;
		q->size = size;
	}
	q->items[q->count].data = malloc(n);
	if (!q->items[q->count].data)
		return err_origin(-ENOMEM);
	memcpy(q->items[q->count].data, data, n);
	q->items[q->count++].size = n;
	return 0;
}

static int note_resent(struct handover_requests *q, uint64_t request)
{
	if (q->resent_count == q->resent_size) {
		size_t size = q->resent_size ? q->resent_size * 2 : 64;
		uint64_t *grown = realloc(q->resent, size * sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		q->resent = grown;
		q->resent_size = size;
	}
	q->resent[q->resent_count++] = request;
	return 0;
}

static int ask_for_resend(int fd)
{
	struct fuse_out_header notify = {.len = sizeof(notify), .error = NOTIFY_RESEND};

	return write(fd, &notify, sizeof(notify)) < 0 ? err_origin(-errno) : 0;
}

/* The kernel puts them before all that is new; only what needs no reply may overtake. 1: the
 * last one is read. */
static int read_one(struct handover_requests *q, int fd, char *buffer)
{
	const struct fuse_in_header *in = (void *)buffer;
	size_t n;
	int r = receive(fd, buffer, &n);

	/* Taken away while nobody served: what is pending is the next mount's. */
	if (r == RECEIVE_E_ENDED)
		return err_origin(-ENOTCONN);
	if (r != 0)
		return r == RECEIVE_E_NONE ? 1 : err_trace(r);
	r = keep(q, buffer, n);
	if (r < 0)
		return err_trace(r);
	if (in->unique & UNIQUE_RESEND)
		return err_trace(note_resent(q, in->unique & ~UNIQUE_RESEND));
	return in->opcode != FUSE_FORGET && in->opcode != FUSE_BATCH_FORGET &&
	       in->opcode != FUSE_INTERRUPT;
}

/* Without waiting: who asked for what was there a moment ago may be dead, too. */
static int read_resent(struct handover_requests *q, int fd, char *buffer)
{
	int flags = fcntl(fd, F_GETFL), r;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_origin(-errno);
	(void)receive_ready(buffer, RECEIVE_SIZE);
	do {
		r = read_one(q, fd, buffer);
	} while (r == 0);
	if (fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 && r > 0)
		return err_origin(-errno);
	return r < 0 ? err_trace(r) : 0;
}

static int take_over(struct handover *h, struct handover_requests *q)
{
	uint32_t size = atomic_load(&h->init_size);
	int r = keep(q, h->init, size);

	if (r == 0)
		r = ask_for_resend(h->fd);
	if (r == 0)
		r = read_resent(q, h->fd, handover_buffer(h, 0));
	if (r < 0)
		return err_trace(r);
	kill_point("handover.resent");
	atomic_store(&q->waiting, true);
	log_info("took over generation=%u resent=%zu", h->generation, q->resent_count);
	return 0;
}

int handover_begin(struct handover *h)
{
	struct handover_requests *q = calloc(1, sizeof(*q));
	int r = 0;

	if (!q)
		return err_origin(-ENOMEM);
	kill_point_init();
	lock_init(&q->lock);
	h->requests = q;
	if (h->generation > 1)
		r = take_over(h, q);
	if (r == 0)
		r = handover_files_begin(h);
	return err_trace(r);
}

void handover_end(struct handover *h)
{
	struct handover_requests *q = h->requests;

	for (size_t i = 0; i < q->count; i++)
		free(q->items[i].data);
	free(q->items);
	free(q->resent);
	lock_fini(&q->lock);
	free(q);
	h->requests = NULL;
	handover_files_end(h);
}

bool handover_resent(const struct handover *h, uint64_t request)
{
	const struct handover_requests *q = h->requests;

	for (size_t i = 0; i < q->resent_count; i++) {
		if (q->resent[i] == request)
			return true;
	}
	return false;
}

/* ---- requests -------------------------------------------------------------------------- */

bool handover_take(struct handover *h, void **data, size_t *size)
{
	struct handover_requests *q = h->requests;
	struct request *r;

	if (!atomic_load_explicit(&q->waiting, memory_order_acquire))
		return false;
	lock_scope(&q->lock);
	if (q->next == q->count)
		return false;
	r = &q->items[q->next++];
	*data = r->data;
	*size = r->size;
	r->data = NULL;
	if (q->next == q->count)
		atomic_store(&q->waiting, false);
	return true;
}

/* The first request says what this kernel can do. */
static void note_init(struct handover *h, const void *p, size_t n)
{
	const struct fuse_in_header *in = p;
	const struct fuse_init_in *init = (const void *)(in + 1);

	if (n > sizeof(h->init))
		return;
	memcpy(h->init, p, n);
	if (n >= sizeof(*in) + sizeof(*init) && (init->flags & FUSE_INIT_EXT))
		atomic_store(&h->resends, init->flags2 & HAS_RESEND_FLAG2);
	atomic_store(&h->init_size, (uint32_t)n);
}

void handover_note(struct handover *h, const void *p, size_t n)
{
	const struct fuse_in_header *in = p;

	thread_request = in->unique;
	if (in->opcode == FUSE_INIT && h->generation == 1)
		note_init(h, p, n);
}

uint64_t handover_request(bool *again)
{
	*again = thread_request & UNIQUE_RESEND;
	return thread_request & ~UNIQUE_RESEND;
}
