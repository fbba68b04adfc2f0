/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes gather in one of two halves of the memory. Whoever writes turns to the other one,
 * writes the first, and empties it. After a death what may have been written is written
 * again behind itself, which changes nothing: of each key the last record counts, and those
 * of one half come in their order.
 *
 * The file is read from its start when somebody wants to know: a table of the keys' hashes
 * tells which records are the last of theirs. When most are not, those that are move to a new
 * file; who reads the old one keeps it.
 *
 * Failure modes: a write that fails is tried again a second later; meanwhile changes gather,
 * and what finds no room is counted. So is what a look lacks because the file cannot be read.
 */
#include "cache/ledger.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "cache/origin.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"
#include "fs/base/path.h"

#define NEW_FILE LEDGER_FILE ".new"
#define HALF_SIZE (4u << 20)
#define WRITE_AT (64u << 10)     /* bytes that are worth a write */
#define COMPACT_AT (16ull << 20) /* a smaller file stays as it is */
#define WINDOW (256u << 10)
#define RETRY_MS 1000

enum {
	TYPE_NOTE = 1,
	TYPE_FORGET
};

/* Behind it the key and the ETag, each with a NUL, then zeros up to a multiple of 8. */
struct head {
	uint32_t crc32c; /* of all behind it */
	uint16_t key_len;
	uint8_t etag_len;
	uint8_t type;
	uint64_t size, crc64;
};
_Static_assert(sizeof(struct head) == 24, "no padding");
_Static_assert(ORIGIN_ETAG_MAX <= UINT8_MAX, "its length fits");

#define RECORD_MAX (sizeof(struct head) + PATH_KEY_MAX + 1 + ORIGIN_ETAG_MAX + 8)

/* What is handed over. A change counts from the store of `len` on. */
struct memory {
	_Atomic uint32_t
		active; /* the half that is filled; the other one is being written */
	_Atomic uint64_t left_out;
	struct half {
		_Atomic uint32_t len;
	} halves[2];
};
#define HEAD_SIZE 4096u

struct ledger {
	struct lock lock; /* memory, busy, retry_ms */
	pthread_cond_t idle;
	struct memory *memory;
	bool handed_over; /* … and not ours */
	bool busy;        /* somebody has the file: all below are his */
	bool failed;      /* … which the log knows */
	uint64_t retry_ms;
	int dirfd, fd;
	uint64_t end, records; /* of the file */
	uint64_t compact_at;
};

struct ledger_view {
	int fd;
	uint64_t end, count, left_out;
	uint8_t *last; /* a bit for each record: it is the last of its key, and a note */
};

size_t ledger_memory_size(void)
{
	return HEAD_SIZE + 2 * (size_t)HALF_SIZE;
}

static char *half_data(const struct ledger *l, uint32_t i)
{
	return (char *)l->memory + HEAD_SIZE + (size_t)i * HALF_SIZE;
}

/* ---- records --------------------------------------------------------------------------- */

static size_t record_size(size_t key_len, size_t etag_len)
{
	return (sizeof(struct head) + key_len + etag_len + 2 + 7) & ~(size_t)7;
}

static size_t encode(char *p, uint8_t type, const struct ledger_line *line)
{
	size_t key_len = strlen(line->key), etag_len = strlen(line->etag);
	size_t n = record_size(key_len, etag_len);
	struct head h = {.key_len = htole16((uint16_t)key_len),
			 .etag_len = (uint8_t)etag_len,
			 .type = type,
			 .size = htole64(line->size),
			 .crc64 = htole64(line->crc64)};

	check(key_len <= PATH_KEY_MAX);
	check(etag_len < ORIGIN_ETAG_MAX);
	memset(p + n - 8, 0, 8);
	memcpy(p, &h, sizeof(h));
	memcpy(p + sizeof(h), line->key, key_len + 1);
	memcpy(p + sizeof(h) + key_len + 1, line->etag, etag_len + 1);
	h.crc32c = htole32(crc32c(0, p + sizeof(h.crc32c), n - sizeof(h.crc32c)));
	memcpy(p, &h.crc32c, sizeof(h.crc32c));
	return n;
}

struct record {
	uint8_t type;
	size_t size;
	struct ledger_line line; /* into the bytes */
};

/* False: it is none, or not all of it is there. */
static bool decode(const char *p, size_t n, struct record *r)
{
	size_t key_len;
	struct head h;

	if (n < sizeof(h))
		return false;
	memcpy(&h, p, sizeof(h));
	key_len = le16toh(h.key_len);
	r->size = record_size(key_len, h.etag_len);
	if (r->size > n || (h.type != TYPE_NOTE && h.type != TYPE_FORGET) ||
	    crc32c(0, p + sizeof(h.crc32c), r->size - sizeof(h.crc32c)) !=
		    le32toh(h.crc32c))
		return false;
	r->type = h.type;
	r->line = (struct ledger_line){.key = p + sizeof(h),
				       .etag = p + sizeof(h) + key_len + 1,
				       .size = le64toh(h.size),
				       .crc64 = le64toh(h.crc64)};
	return true;
}

typedef int record_fn(void *arg, const struct record *r, const char *bytes);

/* Calls fn for each record in the first `end` bytes of the file until it says other than 0.
 * *good: where the first one that is none begins, or `end`. */
static int each_record(int fd, uint64_t end, uint64_t *good, record_fn *fn, void *arg)
{
	_Static_assert(WINDOW > RECORD_MAX, "a record fits");
	_cleanup_(freep) char *window = malloc(WINDOW);
	uint64_t at = 0;
	bool torn = false;
	int r = 0;

	if (!window)
		return err_origin(-ENOMEM);
	while (r == 0 && !torn && at < end) {
		size_t want = end - at < WINDOW ? (size_t)(end - at) : WINDOW, used = 0;
		ssize_t n = io_pread(fd, window, want, at);
		struct record record;

		if (n < 0)
			return err_trace((int)n);
		while (r == 0 && decode(window + used, (size_t)n - used, &record)) {
			r = fn(arg, &record, window + used);
			used += record.size;
		}
		torn = used == 0;
		at += used;
	}
	*good = at;
	return r;
}

/* ---- which records are the last of their keys ------------------------------------------ */

#define INDEX_NONE 0
#define INDEX_FORGOTTEN UINT32_MAX

struct slot {
	uint64_t hash;
	uint32_t index; /* of the record, from 1 */
} __attribute__((packed));

struct scan {
	struct slot *slots;
	size_t slot_count;
	uint8_t *last;
	uint64_t index, count;
};

static struct slot *find_slot(const struct scan *s, uint64_t hash)
{
	/* Keys may differ in a few bits only. */
	uint64_t mixed = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ull;
	size_t i = (size_t)(((unsigned __int128)mixed * s->slot_count) >> 64);

	while (s->slots[i].index != INDEX_NONE && s->slots[i].hash != hash)
		i = i + 1 < s->slot_count ? i + 1 : 0;
	return &s->slots[i];
}

static int scan_record(void *arg, const struct record *r, const char *bytes)
{
	struct scan *s = arg;
	uint64_t hash = crc64(0, r->line.key, strlen(r->line.key));
	struct slot *slot = find_slot(s, hash);
	uint64_t i = s->index++;

	(void)bytes;
	if (slot->index != INDEX_NONE && slot->index != INDEX_FORGOTTEN) {
		s->last[(slot->index - 1) / 8] &=
			(uint8_t) ~(1u << (slot->index - 1) % 8);
		s->count--;
	}
	slot->hash = hash;
	slot->index = r->type == TYPE_NOTE ? (uint32_t)i + 1 : INDEX_FORGOTTEN;
	if (r->type == TYPE_NOTE) {
		s->last[i / 8] |= (uint8_t)(1u << i % 8);
		s->count++;
	}
	return 0;
}

/* *last is the caller's. */
static int scan(const struct ledger *l, uint8_t **last, uint64_t *count)
{
	struct scan s = {.slot_count = l->records + l->records / 4 + 16};
	uint64_t good = 0;
	int r = -ENOMEM;

	s.slots = calloc(s.slot_count, sizeof(*s.slots));
	s.last = calloc(l->records / 8 + 1, 1);
	if (s.slots && s.last)
		r = each_record(l->fd, l->end, &good, scan_record, &s);
	free(s.slots);
	if (r == 0 && (good != l->end || s.index != l->records))
		r = -EIO;
	if (r < 0) {
		free(s.last);
		return err_origin(r);
	}
	*last = s.last;
	*count = s.count;
	return 0;
}

/* ---- the file; its owner is busy ------------------------------------------------------- */

struct copy {
	const uint8_t *last;
	uint64_t index;
	int fd;
	uint64_t end;
	size_t len;
	char buf[WINDOW];
};

static int copy_out(struct copy *c)
{
	int r = io_pwrite(c->fd, c->buf, c->len, c->end);

	c->end += c->len;
	c->len = 0;
	return err_trace(r);
}

static int copy_record(void *arg, const struct record *r, const char *bytes)
{
	struct copy *c = arg;
	uint64_t i = c->index++;
	int e = 0;

	if (!(c->last[i / 8] & 1u << i % 8))
		return 0;
	if (c->len + r->size > sizeof(c->buf))
		e = copy_out(c);
	memcpy(c->buf + c->len, bytes, r->size);
	c->len += r->size;
	return err_trace(e);
}

static int copy_last(const struct ledger *l, const uint8_t *last, int fd, uint64_t *end)
{
	struct copy *c = malloc(sizeof(*c));
	uint64_t good;
	int r;

	if (!c)
		return err_origin(-ENOMEM);
	*c = (struct copy){.last = last, .fd = fd};
	r = each_record(l->fd, l->end, &good, copy_record, c);
	if (r == 0)
		r = copy_out(c);
	*end = c->end;
	free(c);
	return err_trace(r);
}

static int compact(struct ledger *l)
{
	_cleanup_(freep) uint8_t *last = NULL;
	_cleanup_(close_fdp) int fd = -1;
	uint64_t count = 0, end = 0;
	int r = scan(l, &last, &count), old;

	if (r < 0)
		return err_trace(r);
	fd = openat(l->dirfd, NEW_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_origin(-errno);
	r = copy_last(l, last, fd, &end);
	kill_point("ledger.rename.before");
	if (r == 0 && renameat(l->dirfd, NEW_FILE, l->dirfd, LEDGER_FILE) < 0)
		r = err_origin(-errno);
	if (r < 0) {
		unlinkat(l->dirfd, NEW_FILE, 0);
		return err_trace(r);
	}
	kill_point("ledger.rename.after");
	old = l->fd;
	l->fd = steal_fd(&fd);
	close(old);
	l->end = end;
	l->records = count;
	return 0;
}

static int count_record(void *arg, const struct record *r, const char *bytes)
{
	(void)r;
	(void)bytes;
	++*(uint64_t *)arg;
	return 0;
}

static int write_half(struct ledger *l, uint32_t i)
{
	struct half *half = &l->memory->halves[i];
	uint32_t len = atomic_load(&half->len);
	uint64_t records = 0;
	struct record record;
	int r;

	for (size_t at = 0; decode(half_data(l, i) + at, len - at, &record);
	     at += record.size)
		records++;
	if (l->end + len > LEDGER_FILE_MAX) {
		atomic_fetch_add(&l->memory->left_out, records);
		atomic_store(&half->len, 0);
		return err_origin(-EFBIG);
	}
	if (l->fd < 0)
		l->fd = openat(l->dirfd, LEDGER_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (l->fd < 0)
		return err_origin(-errno);
	kill_point("ledger.write.before");
	r = io_pwrite(l->fd, half_data(l, i), len, l->end);
	if (r < 0)
		return err_trace(r);
	kill_point("ledger.write.after");
	l->end += len;
	l->records += records;
	atomic_store(&half->len, 0);
	return 0;
}

/* The half that is not filled: what is left in it is older. */
static int write_out(struct ledger *l)
{
	uint32_t active = atomic_load(&l->memory->active);
	int r = 0;

	if (atomic_load(&l->memory->halves[!active].len) > 0)
		r = write_half(l, !active);
	if (r == 0 && atomic_load(&l->memory->halves[active].len) > 0) {
		lock_take(&l->lock);
		atomic_store(&l->memory->active, !active);
		lock_drop(&l->lock);
		r = write_half(l, active);
	}
	if (r < 0 && !l->failed)
		log_warn("the list of what was stored cannot be written error=%s",
			 strerror(-r));
	l->failed = r < 0;
	if (r == 0 && l->end > l->compact_at) {
		r = compact(l);
		if (r < 0)
			log_warn("the list of what was stored grows on error=%s",
				 strerror(-r));
		l->compact_at = (r < 0 ? l->end : l->end * 2) + COMPACT_AT;
	}
	return err_trace(r);
}

static void end_busy(struct ledger *l, bool failed)
{
	lock_scope(&l->lock);
	l->busy = false;
	l->retry_ms = failed ? clock_mono_ms() + RETRY_MS : 0;
	pthread_cond_broadcast(&l->idle);
}

void ledger_write(struct ledger *l)
{
	lock_take(&l->lock);
	if (l->busy ||
	    atomic_load(&l->memory->halves[atomic_load(&l->memory->active)].len) <
		    WRITE_AT ||
	    (l->retry_ms && clock_mono_ms() < l->retry_ms)) {
		lock_drop(&l->lock);
		return;
	}
	l->busy = true;
	lock_drop(&l->lock);
	end_busy(l, write_out(l) < 0);
}

/* ---- begin and end --------------------------------------------------------------------- */

/* What lies behind the last whole record is of a write that was cut off, and is still in the
 * memory; more than that is damage. */
static int go_on(struct ledger *l)
{
	uint32_t active = atomic_load(&l->memory->active);
	uint64_t torn;
	struct stat st;
	int r;

	if (fstat(l->fd, &st) < 0)
		return err_origin(-errno);
	r = each_record(l->fd, (uint64_t)st.st_size, &l->end, count_record, &l->records);
	if (r < 0)
		return err_trace(r);
	torn = (uint64_t)st.st_size - l->end;
	if (torn <= atomic_load(&l->memory->halves[!active].len))
		return 0;
	atomic_fetch_add(&l->memory->left_out, 1);
	log_warn("the list of what was stored is damaged bytes=%llu",
		 (unsigned long long)torn);
	return 0;
}

int ledger_open(int dirfd, void *memory, bool goes_on, struct ledger **out)
{
	struct ledger *l = calloc(1, sizeof(*l));
	int flags = O_RDWR | O_CREAT | O_CLOEXEC;

	if (!l)
		return err_origin(-ENOMEM);
	l->handed_over = memory;
	l->memory = memory ? memory
			   : mmap(NULL, ledger_memory_size(), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (l->memory == MAP_FAILED) {
		free(l);
		return err_origin(-ENOMEM);
	}
	lock_init(&l->lock);
	lock_cond_init(&l->idle);
	l->dirfd = dirfd;
	l->compact_at = COMPACT_AT;
	unlinkat(dirfd, NEW_FILE, 0);
	l->fd = openat(dirfd, LEDGER_FILE, goes_on ? flags : flags | O_TRUNC, 0600);
	if (l->fd >= 0 && goes_on && go_on(l) < 0)
		atomic_fetch_add(&l->memory->left_out, 1);
	*out = l;
	return 0;
}

struct ledger *ledger_close(struct ledger *l)
{
	if (!l)
		return NULL;
	unlinkat(l->dirfd, LEDGER_FILE, 0);
	close_fdp(&l->fd);
	if (!l->handed_over)
		munmap(l->memory, ledger_memory_size());
	pthread_cond_destroy(&l->idle);
	lock_fini(&l->lock);
	free(l);
	return NULL;
}

/* ---- noting ---------------------------------------------------------------------------- */

static void add(struct ledger *l, uint8_t type, const struct ledger_line *line)
{
	uint32_t active, len;
	struct half *half;

	lock_scope(&l->lock);
	active = atomic_load(&l->memory->active);
	half = &l->memory->halves[active];
	len = atomic_load(&half->len);
	if (len + RECORD_MAX > HALF_SIZE) {
		atomic_fetch_add(&l->memory->left_out, 1);
		return;
	}
	len += (uint32_t)encode(half_data(l, active) + len, type, line);
	atomic_store(&half->len, len);
}

void ledger_note(struct ledger *l, const struct ledger_line *line)
{
	add(l, TYPE_NOTE, line);
}

void ledger_forget(struct ledger *l, const char *key)
{
	const struct ledger_line line = {.key = key, .etag = ""};

	add(l, TYPE_FORGET, &line);
}

/* ---- looking --------------------------------------------------------------------------- */

/* Records that are in memory only. */
static uint64_t count_unwritten(const struct ledger *l)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t len = atomic_load(&l->memory->halves[i].len);
		struct record record;

		for (size_t at = 0; decode(half_data(l, i) + at, len - at, &record);
		     at += record.size)
			n++;
	}
	return n;
}

static void take_look(struct ledger *l, struct ledger_view *v)
{
	int r = write_out(l);

	if (r < 0) {
		lock_scope(&l->lock);
		v->left_out = count_unwritten(l);
	}
	v->left_out += atomic_load(&l->memory->left_out);
	if (l->records == 0)
		return;
	r = scan(l, &v->last, &v->count);
	if (r == 0) {
		v->end = l->end;
		v->fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	}
	if (r == 0 && v->fd >= 0)
		return;
	log_warn("the list of what was stored cannot be read error=%s",
		 strerror(r < 0 ? -r : errno));
	v->left_out += l->records;
	v->count = v->end = 0;
}

int ledger_look(struct ledger *l, struct ledger_view **out)
{
	struct ledger_view *v = calloc(1, sizeof(*v));

	if (!v)
		return err_origin(-ENOMEM);
	v->fd = -1;
	lock_take(&l->lock);
	while (l->busy)
		lock_wait(&l->lock, &l->idle, UINT64_MAX);
	l->busy = true;
	lock_drop(&l->lock);
	take_look(l, v);
	end_busy(l, l->failed);
	*out = v;
	return 0;
}

struct ledger_view *ledger_view_free(struct ledger_view *v)
{
	if (v) {
		close_fdp(&v->fd);
		free(v->last);
		free(v);
	}
	return NULL;
}

uint64_t ledger_view_left_out(const struct ledger_view *v)
{
	return v->left_out;
}

uint64_t ledger_view_count(const struct ledger_view *v)
{
	return v->count;
}

struct tell {
	const struct ledger_view *view;
	uint64_t index, told;
	int (*fn)(void *arg, const struct ledger_line *line);
	void *arg;
};

static int tell_record(void *arg, const struct record *r, const char *bytes)
{
	struct tell *t = arg;
	uint64_t i = t->index++;

	(void)bytes;
	if (!(t->view->last[i / 8] & 1u << i % 8))
		return 0;
	t->told++;
	return t->fn(t->arg, &r->line);
}

int ledger_view_each(const struct ledger_view *v,
		     int (*fn)(void *arg, const struct ledger_line *line), void *arg)
{
	struct tell t = {.view = v, .fn = fn, .arg = arg};
	uint64_t good;
	int r = 0;

	if (v->count > 0)
		r = each_record(v->fd, v->end, &good, tell_record, &t);
	if (r == 0 && t.told != v->count)
		r = err_origin(-EIO);
	return r;
}
