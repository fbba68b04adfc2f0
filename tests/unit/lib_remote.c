/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define PAIRS_MAX 16

/* In front of the texts and bytes of a request … */
struct ask {
	enum origin_op op;
	uint64_t off, len, size, target_off, expect_crc64;
	bool if_none_match, want_meta, has_expect_crc64, recursive, has_meta;
	uint32_t count_max, part;
	uint32_t pairs, keys, parts;
	uint64_t body, total; /* bytes: of the body; of all that follows */
};

/* … and of an answer. */
struct answer {
	int result;
	struct origin_attr attr;
	struct origin_part part_result;
	char upload_id[ORIGIN_UPLOAD_ID_MAX];
	uint64_t off, received;
	bool truncated;
	char next[1024];
	uint32_t entries;
	uint64_t total;
};

bool lib_remote_send(int socket, const void *p, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = send(socket, (const char *)p + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		done += (size_t)r;
	}
	return true;
}

bool lib_remote_receive(int socket, void *p, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = recv(socket, (char *)p + done, n - done, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		done += (size_t)r;
	}
	return true;
}

/* ---- texts and bytes, one behind another ------------------------------------------------- */

/* NULL is not the empty text. */
static void put_text(struct buf *b, const char *text)
{
	buf_append(b, text ? "+" : "-", 1);
	if (text)
		buf_append(b, text, strlen(text) + 1);
}

static const char *take_text(const char **at)
{
	const char *text = *at + 1;
	bool is = **at == '+';

	*at += is ? 2 + strlen(text) : 1;
	return is ? text : NULL;
}

static const void *take_bytes(const char **at, size_t n)
{
	const char *bytes = *at;

	*at += n;
	return bytes;
}

/* ---- the asker --------------------------------------------------------------------------- */

struct pending {
	struct pending *next;
	struct origin_req *req;
};

struct remote {
	struct origin origin;
	pthread_mutex_t mutex;
	pthread_cond_t work;
	struct pending *first, **last;
};

struct lane {
	struct remote *remote;
	int socket;
};

static void put_body(struct buf *b, const struct origin_body *body)
{
	ssize_t got;

	if (body->len == 0)
		return;
	if (body->data) {
		buf_append(b, body->data, body->len);
		return;
	}
	buf_reserve(b, body->len);
	got = io_pread(body->fd, b->data + b->len, body->len, body->fd_off);
	/* As any store would find out. */
	if (got < (ssize_t)body->len)
		memset(b->data + b->len + (got < 0 ? 0 : got), 0,
		       body->len - (size_t)(got < 0 ? 0 : got));
	b->len += body->len;
}

static void encode(struct buf *b, const struct origin_req *req)
{
	struct ask a = {.op = req->op,
			.off = req->off,
			.len = req->len,
			.size = req->size,
			.target_off = req->target_off,
			.expect_crc64 = req->expect_crc64,
			.if_none_match = req->if_none_match,
			.want_meta = req->want_meta,
			.has_expect_crc64 = req->has_expect_crc64,
			.recursive = req->list.recursive,
			.has_meta = req->meta,
			.count_max = req->list.count_max,
			.part = req->part,
			.pairs = req->meta ? (uint32_t)req->meta->count : 0,
			.keys = (uint32_t)req->key_count,
			.parts = (uint32_t)req->part_count,
			.body = req->body.len};

	buf_append(b, &a, sizeof(a));
	if (a.parts)
		buf_append(b, req->parts, a.parts * sizeof(*req->parts));
	put_body(b, &req->body);
	put_text(b, req->key);
	put_text(b, req->source);
	put_text(b, req->if_match);
	put_text(b, req->list.after);
	put_text(b, req->list.until);
	put_text(b, req->upload_id);
	put_text(b, req->meta ? req->meta->content_type : NULL);
	for (uint32_t i = 0; i < a.pairs; i++) {
		put_text(b, req->meta->pairs[i][0]);
		put_text(b, req->meta->pairs[i][1]);
	}
	for (uint32_t i = 0; i < a.keys; i++)
		put_text(b, req->keys[i]);
	a.total = b->len - sizeof(a);
	memcpy(b->data, &a, sizeof(a));
}

static int decode(struct origin_req *req, const struct answer *a, const char *at)
{
	int r = a->result;

	req->attr = a->attr;
	req->part_result = a->part_result;
	memcpy(req->upload_id_result, a->upload_id, sizeof(a->upload_id));
	if (req->op == ORIGIN_APPEND)
		req->off = a->off;
	req->list.truncated = a->truncated;
	memcpy(req->list.next, a->next, sizeof(a->next));
	for (uint32_t i = 0; i < a->entries && r == 0; i++) {
		struct origin_attr attr;
		const char *key;

		memcpy(&attr, take_bytes(&at, sizeof(attr)), sizeof(attr));
		key = take_text(&at);
		r = req->list.entry(req->list.entry_arg, key, strlen(key), &attr);
	}
	if (req->op == ORIGIN_DELETE_MANY && req->keys_gone)
		memcpy(req->keys_gone, at, req->key_count * sizeof(bool));
	if (req->op == ORIGIN_GET && a->received > 0) {
		int e = req->sink(req->sink_arg, req->off, at, a->received);

		req->received = a->received;
		r = r == 0 ? e : r;
	}
	return r;
}

static void call(int socket, struct origin_req *req)
{
	struct buf b = BUF_INIT;
	struct answer a;
	char *data;
	int r;

	encode(&b, req);
	/* Who serves ends with us at the latest. */
	if (!lib_remote_send(socket, b.data, b.len) ||
	    !lib_remote_receive(socket, &a, sizeof(a)))
		_exit(5);
	data = malloc(a.total + 1);
	if (!lib_remote_receive(socket, data, a.total))
		_exit(5);
	r = decode(req, &a, data);
	free(data);
	buf_fini(&b);
	origin_done(req, r);
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct remote *remote = lane->remote;

	for (;;) {
		struct pending *p;
		struct origin_req *req;

		pthread_mutex_lock(&remote->mutex);
		while (!remote->first)
			pthread_cond_wait(&remote->work, &remote->mutex);
		p = remote->first;
		remote->first = p->next;
		if (!remote->first)
			remote->last = &remote->first;
		pthread_mutex_unlock(&remote->mutex);
		req = p->req;
		free(p);
		call(lane->socket, req);
	}
	return NULL;
}

static void remote_submit(struct origin *o, struct origin_req *req)
{
	struct remote *remote = (struct remote *)o;
	struct pending *p = calloc(1, sizeof(*p));
	struct why why = {""};

	if (origin_req_check(req, &why) < 0) {
		log_error("a request against the contract: %s", why.text);
		abort();
	}
	p->req = req;
	pthread_mutex_lock(&remote->mutex);
	*remote->last = p;
	remote->last = &p->next;
	pthread_cond_signal(&remote->work);
	pthread_mutex_unlock(&remote->mutex);
}

static void remote_stats(struct origin *o, struct origin_stats *stats)
{
	(void)o;
	(void)stats;
}

static const struct origin_ops remote_ops = {
	.name = "remote", .submit = remote_submit, .stats = remote_stats};

struct origin *lib_remote_new(const struct origin *like, const int *sockets, int count)
{
	struct remote *remote = calloc(1, sizeof(*remote));

	remote->origin = *like;
	remote->origin.ops = &remote_ops;
	remote->last = &remote->first;
	pthread_mutex_init(&remote->mutex, NULL);
	pthread_cond_init(&remote->work, NULL);
	for (int i = 0; i < count; i++) {
		struct lane *lane = calloc(1, sizeof(*lane));
		pthread_t thread;

		*lane = (struct lane){remote, sockets[i]};
		check(pthread_create(&thread, NULL, lane_main, lane) == 0);
		pthread_detach(thread);
	}
	return &remote->origin;
}

/* ---- who serves --------------------------------------------------------------------------- */

struct served {
	struct answer answer;
	struct buf data;
};

static int keep_data(void *arg, uint64_t off, const void *data, size_t n)
{
	struct served *s = arg;

	(void)off;
	buf_append(&s->data, data, n);
	return 0;
}

static int keep_entry(void *arg, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	struct served *s = arg;

	(void)key_len;
	s->answer.entries++;
	buf_append(&s->data, attr, sizeof(*attr));
	put_text(&s->data, key);
	return 0;
}

static void carry_out(struct origin *origin, const struct ask *a, const char *at,
		      struct served *s)
{
	const char *pairs[PAIRS_MAX][2], **keys = calloc(a->keys + 1, sizeof(*keys));
	bool *gone = calloc(a->keys + 1, sizeof(*gone));
	struct origin_meta meta = {.pairs = pairs, .count = a->pairs};
	struct origin_req req = {.op = a->op,
				 .off = a->off,
				 .len = a->len,
				 .size = a->size,
				 .target_off = a->target_off,
				 .expect_crc64 = a->expect_crc64,
				 .if_none_match = a->if_none_match,
				 .want_meta = a->want_meta,
				 .has_expect_crc64 = a->has_expect_crc64,
				 .part = a->part,
				 .part_count = a->parts,
				 .key_count = a->keys,
				 .keys = keys,
				 .keys_gone = gone,
				 .meta = a->has_meta ? &meta : NULL,
				 .sink = keep_data,
				 .sink_arg = s};
	struct origin_part *parts = calloc(a->parts + 1, sizeof(*parts));

	memcpy(parts, take_bytes(&at, a->parts * sizeof(*parts)),
	       a->parts * sizeof(*parts));
	req.parts = parts;
	req.body = (struct origin_body){
		.data = take_bytes(&at, a->body), .fd = -1, .len = a->body};
	req.key = take_text(&at);
	req.source = take_text(&at);
	req.if_match = take_text(&at);
	req.list.after = take_text(&at);
	req.list.until = take_text(&at);
	req.upload_id = take_text(&at);
	meta.content_type = take_text(&at);
	check(a->pairs <= PAIRS_MAX);
	for (uint32_t i = 0; i < a->pairs; i++) {
		pairs[i][0] = take_text(&at);
		pairs[i][1] = take_text(&at);
	}
	for (uint32_t i = 0; i < a->keys; i++)
		keys[i] = take_text(&at);
	req.list.recursive = a->recursive;
	req.list.count_max = a->count_max;
	req.list.entry = keep_entry;
	req.list.entry_arg = s;
	s->answer.result = origin_call(origin, &req);
	s->answer.attr = req.attr;
	s->answer.part_result = req.part_result;
	memcpy(s->answer.upload_id, req.upload_id_result, sizeof(s->answer.upload_id));
	s->answer.off = req.off;
	s->answer.received = a->op == ORIGIN_GET ? s->data.len : 0;
	s->answer.truncated = req.list.truncated;
	memcpy(s->answer.next, req.list.next, sizeof(s->answer.next));
	if (a->op == ORIGIN_DELETE_MANY)
		buf_append(&s->data, gone, a->keys * sizeof(*gone));
	s->answer.total = s->data.len;
	free(parts);
	free(keys);
	free(gone);
}

void lib_remote_serve(int socket, struct origin *origin,
		      const struct lib_remote_hooks *hooks)
{
	struct ask a;

	while (lib_remote_receive(socket, &a, sizeof(a))) {
		struct served s = {.data = BUF_INIT};
		char *data = malloc(a.total + 1);

		if (lib_remote_receive(socket, data, a.total)) {
			hooks->begin(hooks->arg, a.op);
			carry_out(origin, &a, data, &s);
			hooks->end(hooks->arg);
			if (lib_remote_send(socket, &s.answer, sizeof(s.answer)))
				(void)!lib_remote_send(socket, s.data.data, s.data.len);
		}
		buf_fini(&s.data);
		free(data);
	}
	close(socket);
}
