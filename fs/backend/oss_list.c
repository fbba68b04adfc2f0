/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings: probe, list, unfinished uploads.
 *
 * One LIST is one page of the store, as a rule: it starts after a key, so that anybody can
 * list any range of keys in parallel. Pages without entries, which a store may send, are
 * followed by their token within the same request, a bounded number of times.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/oss_op.h"
#include "fs/base/cleanup.h"

#define PAGE_MAX 1000
#define EMPTY_PAGES_MAX 16
#define UPLOAD_PAGES_MAX 10000 /* ten million unfinished uploads */
/* U+10FFFF: as a rule greater than whatever else follows a prefix. */
#define LAST_CHARACTER "\xf4\x8f\xbf\xbf"

/* ---- probe --------------------------------------------------------------------------- */

static void query_list(struct oss_op *op, const char *prefix, uint32_t count_max)
{
	oss_op_on_bucket(op, HTTP_GET);
	oss_op_query(op, "list-type", "2");
	oss_op_query(op, "encoding-type", "url");
	oss_op_query(op, "max-keys", oss_op_text(op, "%" PRIu32, count_max));
	oss_op_query(op, "prefix", prefix);
}

static int build_probe(struct oss_op *op)
{
	query_list(op, op->oss->prefix, 1);
	return 0;
}

static int finish_probe(struct oss_op *op)
{
	struct oss_page page;
	struct why why;

	if (oss_xml_parse_list(op->body.data ? op->body.data : "", op->body.len, &page,
			       &why) < 0)
		return oss_op_why(op, -EBADMSG, why.text);
	oss_page_fini(&page);
	return 0;
}

const struct oss_verb oss_verb_probe = {.build = build_probe, .finish = finish_probe};

/* ---- list ---------------------------------------------------------------------------- */

static bool ends_in_slash(const char *key, size_t n)
{
	return n && key[n - 1] == '/';
}

/* A common prefix as `after` stands for all below it, which the store does not promise:
 * start behind the last of them. Should one key there be greater still, the prefix comes
 * again and deliver() drops it. */
static const char *start_after(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	const char *after = req->list.after;
	size_t n = after ? strlen(after) : 0;
	bool skips = !req->list.recursive && ends_in_slash(after, n) &&
		     n > strlen(req->key) &&
		     strlen(op->oss->prefix) + n + sizeof(LAST_CHARACTER) <= 1024;

	if (!n)
		return NULL;
	return oss_op_text(op, "%s%s%s", op->oss->prefix, after,
			   skips ? LAST_CHARACTER : "");
}

static int build_list(struct oss_op *op)
{
	const struct origin_req *req = op->req;
	uint32_t count = req->list.count_max && req->list.count_max < PAGE_MAX
				 ? req->list.count_max
				 : PAGE_MAX;

	query_list(op, "", count);
	op->query[op->query_count - 1].value = oss_op_whole_key(op, req->key);
	if (!req->list.recursive)
		oss_op_query(op, "delimiter", "/");
	if (op->page.token)
		oss_op_query(op, "continuation-token",
			     oss_op_text(op, "%s", op->page.token));
	else if (start_after(op))
		oss_op_query(op, "start-after", start_after(op));
	return 0;
}

static int by_key(const void *a, const void *b, void *arg)
{
	const struct oss_item *x = a, *y = b;
	const struct oss_page *page = arg;
	uint32_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
	int r = memcmp(oss_page_text(page, x->key), oss_page_text(page, y->key), n);

	return r ? r : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

/* Objects and common prefixes come in two runs; a broken store may do worse. */
static void sort_page(struct oss_page *page)
{
	for (size_t i = 1; i < page->count; i++) {
		if (by_key(&page->items[i - 1], &page->items[i], page) > 0) {
			qsort_r(page->items, page->count, sizeof(*page->items), by_key,
				page);
			return;
		}
	}
}

static void item_attr(const struct oss_page *page, const struct oss_item *item,
		      struct origin_attr *attr)
{
	*attr = (struct origin_attr){
		.size = item->size,
		.mtime_ns = item->mtime_ns,
		.is_dir = ends_in_slash(oss_page_text(page, item->key), item->key_len),
	};
	snprintf(attr->etag, sizeof(attr->etag), "%s", oss_page_text(page, item->etag));
}

/* The key without the source's prefix; false: not one of ours, or not after `after`. */
static bool is_news(const struct oss_op *op, const struct oss_page *page,
		    const struct oss_item *item, const char *after)
{
	size_t skip = strlen(op->oss->prefix);
	const char *key = oss_page_text(page, item->key);

	if (item->key_len <= skip || memcmp(key, op->oss->prefix, skip) != 0)
		return false;
	return !after || strcmp(key + skip, after) > 0;
}

struct progress {
	bool delivered; /* at least one entry, or `until` was reached */
	bool ended;     /* nothing more is wanted */
};

static int deliver(struct oss_op *op, const struct oss_page *page, struct progress *p)
{
	struct origin_req *req = op->req;
	size_t skip = strlen(op->oss->prefix);
	const char *after = req->list.after;
	uint32_t count = 0;

	for (size_t i = 0; i < page->count; i++) {
		const struct oss_item *item = &page->items[i];
		const char *key = oss_page_text(page, item->key) + skip;
		struct origin_attr attr;
		int r;

		if (!is_news(op, page, item, after))
			continue;
		if (req->list.until && strcmp(key, req->list.until) >= 0) {
			p->ended = true;
			return 0;
		}
		if (req->list.count_max && count++ == req->list.count_max)
			return 0;
		item_attr(page, item, &attr);
		r = req->list.entry(req->list.entry_arg, key, item->key_len - skip,
				    &attr);
		if (r < 0)
			return err_trace(r);
		snprintf(req->list.next, sizeof(req->list.next), "%s", key);
		after = req->list.next;
		p->delivered = true;
	}
	return 0;
}

static int next_page(struct oss_op *op, const char *token)
{
	char *copy;

	if (!*token || ++op->page.pages > EMPTY_PAGES_MAX)
		return oss_op_why(op, -EBADMSG, "the listing does not advance");
	copy = strdup(token);
	if (!copy)
		return err_origin(-ENOMEM);
	free(op->page.token);
	op->page.token = copy;
	build_list(op);
	return OSS_E_AGAIN;
}

static int finish_list(struct oss_op *op)
{
	_cleanup_(oss_page_fini) struct oss_page page = {0};
	struct origin_req *req = op->req;
	struct progress p = {0};
	struct why why;
	int r;

	if (oss_xml_parse_list(op->body.data ? op->body.data : "", op->body.len, &page,
			       &why) < 0)
		return oss_op_why(op, -EBADMSG, why.text);
	sort_page(&page);
	r = deliver(op, &page, &p);
	if (r < 0)
		return oss_op_why(op, r, "the entries were not wanted");
	req->list.truncated = page.truncated && !p.ended;
	if (req->list.truncated && !p.delivered)
		return next_page(op, oss_page_text(&page, page.next));
	return 0;
}

const struct oss_verb oss_verb_list = {.build = build_list, .finish = finish_list};

/* ---- unfinished uploads -------------------------------------------------------------- */

static int build_uploads(struct oss_op *op)
{
	const struct origin_req *req = op->req;

	oss_op_on_bucket(op, HTTP_GET);
	oss_op_query(op, "uploads", NULL);
	oss_op_query(op, "encoding-type", "url");
	oss_op_query(op, "max-uploads", "1000");
	oss_op_query(op, "prefix", oss_op_whole_key(op, req->key));
	if (op->page.token) {
		oss_op_query(op, "key-marker", oss_op_text(op, "%s", op->page.token));
		oss_op_query(op, "upload-id-marker",
			     oss_op_text(op, "%s", op->page.upload_id));
	} else if (req->list.after) {
		oss_op_query(op, "key-marker", oss_op_whole_key(op, req->list.after));
	}
	return 0;
}

static int deliver_uploads(struct oss_op *op, const struct oss_page *page)
{
	struct origin_req *req = op->req;
	size_t skip = strlen(op->oss->prefix);

	for (size_t i = 0; i < page->count; i++) {
		const struct oss_item *item = &page->items[i];
		struct origin_attr attr = {.mtime_ns = item->mtime_ns};
		const char *id = oss_page_text(page, item->upload_id);
		int r;

		if (!is_news(op, page, item, req->list.after))
			continue;
		if (strlen(id) >= sizeof(attr.etag))
			return oss_op_why(op, -EBADMSG, "an upload id is too long");
		memcpy(attr.etag, id, strlen(id) + 1);
		r = req->list.entry(req->list.entry_arg,
				    oss_page_text(page, item->key) + skip,
				    item->key_len - skip, &attr);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

/* All pages in one request: a key may have many uploads, so a key alone cannot say where
 * the next page starts. */
static int finish_uploads(struct oss_op *op)
{
	_cleanup_(oss_page_fini) struct oss_page page = {0};
	struct why why;
	int r;

	if (oss_xml_parse_uploads(op->body.data ? op->body.data : "", op->body.len, &page,
				  &why) < 0)
		return oss_op_why(op, -EBADMSG, why.text);
	r = deliver_uploads(op, &page);
	if (r < 0)
		return err_trace(r);
	op->req->list.truncated = false;
	if (!page.truncated)
		return 0;
	if (!page.next || ++op->page.pages > UPLOAD_PAGES_MAX ||
	    (op->page.token &&
	     strcmp(op->page.token, oss_page_text(&page, page.next)) == 0 &&
	     strcmp(op->page.upload_id, oss_page_text(&page, page.next_upload_id)) == 0))
		return oss_op_why(op, -EBADMSG, "the listing does not advance");
	free(op->page.token);
	free(op->page.upload_id);
	op->page.token = strdup(oss_page_text(&page, page.next));
	op->page.upload_id = strdup(oss_page_text(&page, page.next_upload_id));
	if (!op->page.token || !op->page.upload_id)
		return err_origin(-ENOMEM);
	build_uploads(op);
	return OSS_E_AGAIN;
}

const struct oss_verb oss_verb_multi_list = {.build = build_uploads,
					     .finish = finish_uploads};
