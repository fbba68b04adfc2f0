/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "tests/unit/lib_origin.h"

struct origin_req lib_last;

static int call(struct origin *o, struct origin_req *req)
{
	int r = origin_call(o, req);

	for (size_t i = 0; i < sizeof(req->layer) / sizeof(*req->layer); i++)
		assert_null(req->layer[i]);
	/* A failure says why, in one line. */
	assert_int_equal(r < 0, req->why.text[0] != '\0');
	lib_last = *req;
	return r;
}

static struct origin_body text_body(const char *text)
{
	return (struct origin_body){.data = text, .fd = -1, .len = strlen(text)};
}

int lib_put(struct origin *o, const char *key, const char *text)
{
	return lib_put_meta(o, key, text, NULL);
}

int lib_put_new(struct origin *o, const char *key, const char *text)
{
	struct origin_req req = {.op = ORIGIN_PUT,
				 .key = key,
				 .body = text_body(text),
				 .if_none_match = true};

	return call(o, &req);
}

int lib_put_meta(struct origin *o, const char *key, const char *text,
		 const struct origin_meta *meta)
{
	struct origin_req req = {
		.op = ORIGIN_PUT, .key = key, .body = text_body(text), .meta = meta};

	return call(o, &req);
}

int lib_append(struct origin *o, const char *key, uint64_t off, const char *text)
{
	struct origin_req req = {
		.op = ORIGIN_APPEND, .key = key, .body = text_body(text), .off = off};

	return call(o, &req);
}

int lib_stat(struct origin *o, const char *key, struct origin_attr *attr)
{
	struct origin_req req = {.op = ORIGIN_STAT, .key = key, .want_meta = true};
	int r = call(o, &req);

	if (attr)
		*attr = req.attr;
	return r;
}

int lib_delete(struct origin *o, const char *key)
{
	struct origin_req req = {.op = ORIGIN_DELETE, .key = key};

	return call(o, &req);
}

int lib_copy(struct origin *o, const char *key, const char *source)
{
	struct origin_req req = {.op = ORIGIN_COPY, .key = key, .source = source};

	return call(o, &req);
}

struct collect {
	struct buf *out;
	uint64_t next; /* offset the next byte must have */
};

static int collect(void *arg, uint64_t off, const void *data, size_t n)
{
	struct collect *c = arg;

	assert_true(n > 0);
	assert_int_equal(off, c->next);
	buf_append(c->out, data, n);
	c->next += n;
	return 0;
}

int lib_get(struct origin *o, const char *key, uint64_t off, uint64_t len,
	    const char *if_match, struct buf *out)
{
	struct collect c = {out, off};
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = key,
				 .off = off,
				 .len = len,
				 .if_match = if_match,
				 .sink = collect,
				 .sink_arg = &c};
	int r = call(o, &req);

	assert_int_equal(req.received, c.next - off);
	assert_int_equal(buf_error(out), 0);
	return r;
}

void lib_assert_content(struct origin *o, const char *key, const char *text)
{
	struct buf b = BUF_INIT;

	assert_int_equal(lib_get(o, key, 0, ORIGIN_TO_END, NULL, &b), 0);
	assert_int_equal(b.len, strlen(text));
	assert_memory_equal(b.len ? b.data : "", text, b.len);
	buf_fini(&b);
}

int lib_note_entry(void *arg, const char *key, size_t key_len,
		   const struct origin_attr *attr)
{
	struct buf *out = arg;

	assert_int_equal(strlen(key), key_len);
	assert_int_equal(attr->is_dir, key_len && key[key_len - 1] == '/');
	if (out->len)
		buf_putc(out, ' ');
	buf_puts(out, key);
	return 0;
}

int lib_keep_entry(void *arg, const char *key, size_t key_len,
		   const struct origin_attr *attr)
{
	struct lib_listed *listed = arg;

	assert_true(key_len < sizeof(listed->key));
	memcpy(listed->key, key, key_len + 1);
	listed->attr = *attr;
	listed->count++;
	return 0;
}

int lib_list(struct origin *o, const char *prefix, bool recursive, uint32_t count_max,
	     struct buf *out)
{
	char after[sizeof(lib_last.list.next)] = "";

	for (int pages = 0; pages < 10000; pages++) {
		struct origin_req req = {.op = ORIGIN_LIST, .key = prefix};
		int r;

		req.list.recursive = recursive;
		req.list.count_max = count_max;
		req.list.entry = lib_note_entry;
		req.list.entry_arg = out;
		req.list.after = *after ? after : NULL;
		r = call(o, &req);
		if (r < 0 || !req.list.truncated)
			return r;
		memcpy(after, req.list.next, sizeof(after));
	}
	fail_msg("the listing of %s does not end", prefix);
	return 0;
}

void lib_assert_listed(struct origin *o, const char *prefix, bool recursive,
		       const char *entries)
{
	/* One page, and as many as there can be, must say the same. */
	for (uint32_t count_max = 0; count_max < 3; count_max++) {
		struct buf b = BUF_INIT;

		assert_int_equal(lib_list(o, prefix, recursive, count_max, &b), 0);
		assert_string_equal(b.len ? b.data : "", entries);
		buf_fini(&b);
	}
}

int lib_multi_begin(struct origin *o, const char *key, char id[ORIGIN_UPLOAD_ID_MAX])
{
	struct origin_req req = {.op = ORIGIN_MULTI_BEGIN, .key = key};
	int r = call(o, &req);

	memcpy(id, req.upload_id_result, ORIGIN_UPLOAD_ID_MAX);
	return r;
}

int lib_multi_part(struct origin *o, const char *key, const char *id, uint32_t number,
		   uint64_t off, const void *data, size_t n, struct origin_part *part)
{
	struct origin_req req = {.op = ORIGIN_MULTI_PART,
				 .key = key,
				 .upload_id = id,
				 .part = number,
				 .off = off,
				 .body = {.data = data, .fd = -1, .len = n}};
	int r = call(o, &req);

	if (part)
		*part = req.part_result;
	return r;
}

int lib_multi_end(struct origin *o, const char *key, const char *id,
		  const struct origin_part *parts, size_t count)
{
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = key,
				 .upload_id = id,
				 .parts = parts,
				 .part_count = count};

	for (size_t i = 0; i < count; i++)
		req.size += parts[i].size;
	return call(o, &req);
}

int lib_multi_abort(struct origin *o, const char *key, const char *id)
{
	struct origin_req req = {.op = ORIGIN_MULTI_ABORT, .key = key, .upload_id = id};

	return call(o, &req);
}

struct doomed {
	struct origin *origin;
	struct {
		char *key;
		char id[ORIGIN_UPLOAD_ID_MAX]; /* "" : an object */
	} items[1000];
	size_t count;
};

static int doom(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr)
{
	struct doomed *d = arg;

	(void)key_len;
	assert_true(d->count < sizeof(d->items) / sizeof(*d->items));
	snprintf(d->items[d->count].id, sizeof(d->items->id), "%s", attr->etag);
	d->items[d->count++].key = strdup(key);
	return 0;
}

void lib_empty(struct origin *o, const char *prefix)
{
	static struct doomed doomed;
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = prefix};

	doomed = (struct doomed){.origin = o};
	req.list.entry = doom;
	req.list.entry_arg = &doomed;
	if (o->caps & ORIGIN_CAP_MULTI)
		assert_int_equal(origin_list_all(o, &req), 0);
	for (size_t i = 0; i < doomed.count; i++) {
		assert_int_equal(
			lib_multi_abort(o, doomed.items[i].key, doomed.items[i].id), 0);
		free(doomed.items[i].key);
	}
	doomed.count = 0;
	req = (struct origin_req){.op = ORIGIN_LIST, .key = prefix};
	req.list.recursive = true;
	req.list.entry = doom;
	req.list.entry_arg = &doomed;
	assert_int_equal(origin_list_all(o, &req), 0);
	/* Backwards: what is in a directory goes before its marker. */
	for (size_t i = doomed.count; i-- > 0;) {
		assert_int_equal(lib_delete(o, doomed.items[i].key), 0);
		free(doomed.items[i].key);
	}
}
