/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of every origin: listings, directories, appending, uploads in parts. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin_posix.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "tests/unit/lib_conformance.h"
#include "tests/unit/lib_origin.h"

/* ---- listing -------------------------------------------------------------------------- */

static void plant(struct origin *o)
{
	static const char *const keys[] = {"t/a",   "t/a-b",   "t/a.c", "t/a0/deep/er",
					   "t/b/1", "t/b/2/x", "t/b0",  "t/\xc3\xa4",
					   "t/B",   "u",       "t!",    "t/a0/deep/es"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		assert_int_equal(lib_put(o, keys[i], "x"), 0);
}

void listings_are_in_byte_order(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	plant(o);
	lib_assert_listed(o, "", false, "t! t/ u");
	lib_assert_listed(o, "t/", false,
			  "t/B t/a t/a-b t/a.c t/a0/ t/b/ t/b0 t/\xc3\xa4");
	lib_assert_listed(
		o, "t/", true,
		"t/B t/a t/a-b t/a.c t/a0/deep/er t/a0/deep/es t/b/1 t/b/2/x t/b0 "
		"t/\xc3\xa4");
	lib_assert_listed(o, "t", false, "t! t/");
	lib_assert_listed(o, "t/a", false, "t/a t/a-b t/a.c t/a0/");
	lib_assert_listed(o, "t/b", true, "t/b/1 t/b/2/x t/b0");
	lib_assert_listed(o, "t/a0/de", false, "t/a0/deep/");
	lib_assert_listed(o, "t/none/", false, "");
	lib_assert_listed(o, "t/a/", false, "");
	lib_assert_listed(o, "v", true, "");
}

static void assert_window(struct origin *o, const char *prefix, bool recursive,
			  const char *after, const char *until, const char *entries)
{
	struct buf b = BUF_INIT;
	struct origin_req req = {.op = ORIGIN_LIST, .key = prefix};

	req.list.recursive = recursive;
	req.list.after = after;
	req.list.until = until;
	req.list.entry = lib_note_entry;
	req.list.entry_arg = &b;
	assert_int_equal(origin_list_all(o, &req), 0);
	assert_string_equal(b.len ? b.data : "", entries);
	buf_fini(&b);
}

void listings_keep_to_their_window(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	plant(o);
	assert_window(o, "t/", false, "t/a0/", NULL, "t/b/ t/b0 t/\xc3\xa4");
	assert_window(o, "t/", false, "t/a0/deep", NULL, "t/b/ t/b0 t/\xc3\xa4");
	assert_window(o, "t/", false, "t/a.c", "t/b/", "t/a0/");
	assert_window(o, "t/", false, "t/a.c", "t/b/1", "t/a0/ t/b/");
	assert_window(o, "t/", false, "a", "t/a-b", "t/B t/a");
	assert_window(o, "t/", false, "z", NULL, "");
	assert_window(o, "t/", true, "t/a0/deep/er", "t/b/2/x", "t/a0/deep/es t/b/1");
	assert_window(o, "t/", true, "t/b/1", NULL, "t/b/2/x t/b0 t/\xc3\xa4");
	assert_window(o, "", true, "t/b0", "u", "t/\xc3\xa4");
}

static int refuse(void *arg, const char *key, size_t key_len,
		  const struct origin_attr *attr)
{
	(void)arg, (void)key, (void)key_len, (void)attr;
	return -EOVERFLOW;
}

void an_entry_that_is_refused_ends_the_listing(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};

	assert_int_equal(lib_put(o, "a", "x"), 0);
	req.list.entry = refuse;
	assert_int_equal(origin_call(o, &req), -EOVERFLOW);
}

void a_listed_entry_is_what_stat_says(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct lib_listed listed = {0};
	struct origin_req req = {.op = ORIGIN_LIST, .key = "s/"};
	struct origin_attr attr;

	assert_int_equal(lib_put(o, "s/one", "12345"), 0);
	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_call(o, &req), 0);
	assert_int_equal(listed.count, 1);
	assert_int_equal(lib_stat(o, "s/one", &attr), 0);
	assert_int_equal(listed.attr.size, 5);
	assert_string_equal(listed.attr.etag, attr.etag);
	assert_int_equal(listed.attr.mtime_ns / 1000000000, attr.mtime_ns / 1000000000);
}

void a_marker_keeps_an_empty_directory(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct origin_attr attr;

	assert_int_equal(lib_put(o, "dir/", ""), 0);
	assert_int_equal(lib_stat(o, "dir/", &attr), 0);
	assert_true(attr.is_dir);
	assert_int_equal(lib_stat(o, "dir", NULL), -ENOENT);
	lib_assert_listed(o, "", false, "dir/");
	lib_assert_listed(o, "dir/", false, "dir/");
	assert_int_equal(lib_put(o, "dir/file", "x"), 0);
	lib_assert_listed(o, "dir/", false, "dir/ dir/file");
	assert_int_equal(lib_delete(o, "dir/file"), 0);
	lib_assert_listed(o, "", true, "dir/");
	assert_int_equal(lib_delete(o, "dir/"), 0);
	assert_int_equal(lib_stat(o, "dir/", NULL), -ENOENT);
	lib_assert_listed(o, "", false, "");
}

void a_directory_without_marker_goes_with_its_last_key(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	assert_int_equal(lib_put(o, "p/q/1", "x"), 0);
	assert_int_equal(lib_put(o, "p/q/2", "x"), 0);
	lib_assert_listed(o, "", true, "p/q/1 p/q/2");
	assert_int_equal(lib_stat(o, "p/q/", NULL), -ENOENT);
	assert_int_equal(lib_delete(o, "p/q/1"), 0);
	lib_assert_listed(o, "p/", false, "p/q/");
	assert_int_equal(lib_delete(o, "p/q/2"), 0);
	lib_assert_listed(o, "", false, "");
}

void a_marker_may_go_before_what_is_below_it(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	assert_int_equal(lib_put(o, "w/", ""), 0);
	assert_int_equal(lib_put(o, "w/x", "x"), 0);
	assert_int_equal(lib_delete(o, "w/"), 0);
	lib_assert_listed(o, "", true, "w/x");
	assert_int_equal(lib_delete(o, "w/x"), 0);
	lib_assert_listed(o, "", true, "");
}

/* ---- appending ------------------------------------------------------------------------ */

void appending_costs_the_position(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	if (!(o->caps & ORIGIN_CAP_APPEND))
		skip();
	assert_int_equal(lib_append(o, "log/1", 5, "x"), -ESTALE);
	assert_int_equal(lib_last.off, 0);
	assert_int_equal(lib_append(o, "log/1", 0, "hello "), 0);
	assert_int_equal(lib_last.off, 6);
	assert_int_equal(lib_append(o, "log/1", 6, "world"), 0);
	assert_int_equal(lib_last.off, 11);
	if (o->caps & ORIGIN_CAP_CRC64)
		assert_int_equal(lib_last.attr.crc64, 5981764153023615706ull);
	assert_int_equal(lib_append(o, "log/1", 6, "again"), -ESTALE);
	assert_int_equal(lib_last.off, 11);
	lib_assert_content(o, "log/1", "hello world");
}

/* ---- uploads in parts ----------------------------------------------------------------- */

#define PART_SIZE (128u << 10)

static void fill(char *data, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (char)((i * 31 + seed) ^ (i >> 9));
}

void parts_in_any_order_make_one_object(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	static char data[2 * PART_SIZE + 1000];
	struct origin_part parts[3];
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct buf b = BUF_INIT;
	int r;

	if (!(o->caps & ORIGIN_CAP_MULTI))
		skip();
	fill(data, sizeof(data), 1);
	assert_int_equal(lib_multi_begin(o, "mp/big", id), 0);
	assert_int_equal(lib_multi_part(o, "mp/big", id, 7, 2 * PART_SIZE,
					data + 2 * PART_SIZE, 1000, &parts[2]),
			 0);
	assert_int_equal(lib_multi_part(o, "mp/big", id, 1, 0, "wrong", 5, NULL), 0);
	assert_int_equal(
		lib_multi_part(o, "mp/big", id, 1, 0, data, PART_SIZE, &parts[0]), 0);
	assert_int_equal(lib_multi_part(o, "mp/big", id, 2, PART_SIZE, data + PART_SIZE,
					PART_SIZE, &parts[1]),
			 0);
	assert_int_equal(parts[1].number, 2);
	assert_int_equal(parts[1].size, PART_SIZE);
	assert_int_equal(parts[1].crc64, crc64(0, data + PART_SIZE, PART_SIZE));
	lib_assert_listed(o, "mp/", true, "");
	assert_int_equal(lib_multi_end(o, "mp/big", id, parts, 3), 0);
	if (o->caps & ORIGIN_CAP_CRC64)
		assert_int_equal(lib_last.attr.crc64, crc64(0, data, sizeof(data)));
	assert_int_equal(lib_get(o, "mp/big", 0, ORIGIN_TO_END, NULL, &b), 0);
	assert_int_equal(b.len, sizeof(data));
	assert_memory_equal(b.data, data, sizeof(data));
	/* A store may see that the very object is there: a lost answer is then no loss. */
	r = lib_multi_end(o, "mp/big", id, parts, 3);
	assert_true(r == -ENOENT || r == 0);
	lib_assert_listed(o, "mp/", true, "mp/big");
	buf_fini(&b);
}

void a_part_that_is_not_as_told_ends_nothing(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct origin_part parts[1];
	char id[ORIGIN_UPLOAD_ID_MAX];

	if (!(o->caps & ORIGIN_CAP_MULTI))
		skip();
	assert_int_equal(lib_put(o, "mp/old", "old"), 0);
	assert_int_equal(lib_multi_begin(o, "mp/old", id), 0);
	assert_int_equal(lib_multi_part(o, "mp/old", id, 1, 0, "new text", 8, parts), 0);
	parts[0].etag[0] ^= 1;
	assert_int_equal(lib_multi_end(o, "mp/old", id, parts, 1), -EINVAL);
	lib_assert_content(o, "mp/old", "old");
	assert_int_equal(lib_multi_abort(o, "mp/old", id), 0);
	assert_int_equal(lib_multi_abort(o, "mp/old", id), 0);
	assert_int_equal(lib_multi_part(o, "mp/old", id, 1, 0, "new text", 8, parts),
			 -ENOENT);
	lib_assert_content(o, "mp/old", "old");
}

void an_assembly_with_another_checksum_stays_invisible(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct origin_part parts[1];
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = "mp/sum",
				 .upload_id = id,
				 .parts = parts,
				 .part_count = 1,
				 .size = 8,
				 .has_expect_crc64 = true};

	if (!(o->caps & ORIGIN_CAP_MULTI))
		skip();
	assert_int_equal(lib_multi_begin(o, "mp/sum", id), 0);
	assert_int_equal(lib_multi_part(o, "mp/sum", id, 1, 0, "new text", 8, parts), 0);
	req.expect_crc64 = parts[0].crc64 + 1;
	assert_int_equal(origin_call(o, &req), -EBADMSG);
	assert_int_equal(lib_stat(o, "mp/sum", NULL), -ENOENT);
	assert_int_equal(lib_multi_abort(o, "mp/sum", id), 0);
}

void a_part_may_be_copied(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	static char data[2 * PART_SIZE];
	struct origin_part parts[2];
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct buf b = BUF_INIT;
	struct origin_req req = {.op = ORIGIN_MULTI_COPY,
				 .key = "mp/new",
				 .upload_id = id,
				 .part = 1,
				 .source = "mp/src",
				 .off = 1,
				 .len = PART_SIZE,
				 .if_match = "other"};

	if (!(o->caps & ORIGIN_CAP_MULTI_COPY))
		skip();
	fill(data, sizeof(data), 3);
	struct origin_req put = {.op = ORIGIN_PUT,
				 .key = "mp/src",
				 .body = {.data = data, .len = sizeof(data)}};
	assert_int_equal(origin_call(o, &put), 0);
	assert_int_equal(lib_multi_begin(o, "mp/new", id), 0);
	assert_int_equal(origin_call(o, &req), -ESTALE);
	req.if_match = put.attr.etag;
	assert_int_equal(origin_call(o, &req), 0);
	parts[0] = req.part_result;
	assert_int_equal(
		lib_multi_part(o, "mp/new", id, 2, PART_SIZE, "tail", 4, &parts[1]), 0);
	assert_int_equal(lib_multi_end(o, "mp/new", id, parts, 2), 0);
	assert_int_equal(lib_get(o, "mp/new", 0, ORIGIN_TO_END, NULL, &b), 0);
	assert_int_equal(b.len, PART_SIZE + 4);
	assert_memory_equal(b.data, data + 1, PART_SIZE);
	assert_memory_equal(b.data + PART_SIZE, "tail", 4);
	buf_fini(&b);
}

void unfinished_uploads_are_listed(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct lib_listed listed = {0};
	char id[ORIGIN_UPLOAD_ID_MAX], other[ORIGIN_UPLOAD_ID_MAX];
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = "up/"};

	if (!(o->caps & ORIGIN_CAP_MULTI))
		skip();
	assert_int_equal(lib_multi_begin(o, "up/load", id), 0);
	assert_int_equal(lib_multi_begin(o, "elsewhere", other), 0);
	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_call(o, &req), 0);
	assert_int_equal(listed.count, 1);
	assert_string_equal(listed.key, "up/load");
	assert_string_equal(listed.attr.etag, id);
	assert_int_equal(lib_multi_abort(o, "up/load", id), 0);
	listed.count = 0;
	assert_int_equal(origin_call(o, &req), 0);
	assert_int_equal(listed.count, 0);
	assert_int_equal(lib_multi_abort(o, "elsewhere", other), 0);
}
