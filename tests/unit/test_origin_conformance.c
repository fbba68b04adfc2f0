/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract, every origin: the same cases over each store and over stores in layers.
 * SLUICE_TEST_SOURCE (with SLUICE_TEST_ENDPOINT, SLUICE_TEST_REGION and credentials in the
 * environment) adds a real one, under a prefix of this run's own.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin_posix.h"
#include "fs/backend/mem.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "tests/unit/lib_origin.h"

struct fixture {
	struct origin *origin;
	char path[64]; /* file: the root */
};

/* ---- reading -------------------------------------------------------------------------- */

static void a_put_object_reads_back(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_attr attr;
	int64_t now = clock_real_ns();

	assert_int_equal(lib_put(o, "a", "hello world"), 0);
	if (o->caps & ORIGIN_CAP_CRC64) {
		assert_true(lib_last.attr.has_crc64);
		assert_int_equal(lib_last.attr.crc64, 5981764153023615706ull);
	}
	assert_int_equal(lib_last.attr.size, 11);
	assert_int_equal(lib_stat(o, "a", &attr), 0);
	assert_int_equal(attr.size, 11);
	assert_string_equal(attr.etag, lib_last.attr.etag);
	assert_true(attr.etag[0] != '\0');
	assert_in_range(attr.mtime_ns / 1000000000 + 5, now / 1000000000,
			now / 1000000000 + 65);
	lib_assert_content(o, "a", "hello world");
}

static void an_empty_object_is_an_object(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_attr attr;
	struct buf b = BUF_INIT;

	assert_int_equal(lib_put(o, "empty", ""), 0);
	assert_int_equal(lib_stat(o, "empty", &attr), 0);
	assert_int_equal(attr.size, 0);
	lib_assert_content(o, "empty", "");
	assert_int_equal(lib_get(o, "empty", 0, 10, NULL, &b), 0);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
}

static void what_is_not_there_is_enoent(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct buf b = BUF_INIT;

	assert_int_equal(lib_stat(o, "no", NULL), -ENOENT);
	assert_int_equal(lib_stat(o, "no/such/place", NULL), -ENOENT);
	assert_int_equal(lib_get(o, "no", 0, 1, NULL, &b), -ENOENT);
	assert_int_equal(lib_copy(o, "b", "no"), -ENOENT);
	buf_fini(&b);
}

static void ranges_are_cut_at_the_end(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	static const struct {
		uint64_t off, len;
		const char *text;
	} ranges[] = {
		{0, 1, "0"},
		{3, 4, "3456"},
		{7, 100, "789"},
		{10, 1, ""},
		{5, ORIGIN_TO_END, "56789"},
		{4711, 1, ""},
		{9, 1, "9"},
		{0, 10, "0123456789"},
	};

	assert_int_equal(lib_put(o, "r", "0123456789"), 0);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		struct buf b = BUF_INIT;

		assert_int_equal(lib_get(o, "r", ranges[i].off, ranges[i].len, NULL, &b),
				 0);
		assert_string_equal(b.len ? b.data : "", ranges[i].text);
		buf_fini(&b);
	}
}

static void a_range_is_pinned_by_its_etag(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	char etag[ORIGIN_ETAG_MAX];
	struct buf b = BUF_INIT;

	assert_int_equal(lib_put(o, "p", "version one"), 0);
	memcpy(etag, lib_last.attr.etag, sizeof(etag));
	assert_int_equal(lib_get(o, "p", 8, 3, etag, &b), 0);
	assert_string_equal(b.data, "one");
	assert_int_equal(lib_put(o, "p", "version two"), 0);
	assert_string_not_equal(etag, lib_last.attr.etag);
	buf_reset(&b);
	assert_int_equal(lib_get(o, "p", 8, 3, etag, &b), -ESTALE);
	assert_int_equal(b.len, 0);
	assert_int_equal(lib_delete(o, "p"), 0);
	assert_int_equal(lib_get(o, "p", 8, 3, etag, &b), -ENOENT);
	buf_fini(&b);
}

static int refuse_second(void *arg, uint64_t off, const void *data, size_t n)
{
	(void)off, (void)data, (void)n;
	return ++*(int *)arg == 2 ? -ENOSPC : 0;
}

static void a_sink_that_refuses_ends_the_request(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	size_t n = 3 << 20;
	char *data = calloc(1, n);
	int calls = 0;
	struct origin_req req = {
		.op = ORIGIN_PUT, .key = "big", .body = {.data = data, .len = n}};

	assert_int_equal(origin_call(o, &req), 0);
	req = (struct origin_req){.op = ORIGIN_GET,
				  .key = "big",
				  .len = ORIGIN_TO_END,
				  .sink = refuse_second,
				  .sink_arg = &calls};
	assert_int_equal(origin_call(o, &req), -ENOSPC);
	assert_int_equal(calls, 2);
	free(data);
}

/* ---- writing -------------------------------------------------------------------------- */

static void put_replaces_the_whole(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

	assert_int_equal(lib_put(o, "x", "a long first version"), 0);
	assert_int_equal(lib_put(o, "x", "short"), 0);
	lib_assert_content(o, "x", "short");
}

static void put_new_does_not_replace(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

	assert_int_equal(lib_put_new(o, "n", "first"), 0);
	assert_int_equal(lib_put_new(o, "n", "second"), -EEXIST);
	lib_assert_content(o, "n", "first");
}

static void a_body_may_be_a_piece_of_a_file(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	FILE *f = tmpfile();
	struct origin_req req = {.op = ORIGIN_PUT, .key = "f"};

	assert_non_null(f);
	fputs("....piece of a file....", f);
	fflush(f);
	req.body = (struct origin_body){.fd = fileno(f), .fd_off = 4, .len = 15};
	assert_int_equal(origin_call(o, &req), 0);
	lib_assert_content(o, "f", "piece of a file");
	fclose(f);
}

static void a_body_with_another_checksum_leaves_no_object(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_PUT,
				 .key = "c",
				 .body = {.data = "hello world", .len = 11},
				 .has_expect_crc64 = true,
				 .expect_crc64 = 5981764153023615706ull};

	assert_int_equal(origin_call(o, &req), 0);
	req.expect_crc64++;
	req.body.data = "hello moon!";
	assert_int_equal(origin_call(o, &req), -EBADMSG);
	lib_assert_content(o, "c", "hello world");
}

static void deleting_twice_is_success(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

	assert_int_equal(lib_put(o, "d/e/f", "x"), 0);
	assert_int_equal(lib_delete(o, "d/e/f"), 0);
	assert_int_equal(lib_delete(o, "d/e/f"), 0);
	assert_int_equal(lib_stat(o, "d/e/f", NULL), -ENOENT);
}

static void many_are_deleted_at_once(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	const char *keys[] = {"m/1", "m/sub/2", "m/not there", "m/3&<\x01>"};
	struct origin_req req = {.op = ORIGIN_DELETE_MANY, .keys = keys, .key_count = 4};

	assert_int_equal(lib_put(o, "m/1", "x"), 0);
	assert_int_equal(lib_put(o, "m/sub/2", "x"), 0);
	assert_int_equal(lib_put(o, "m/3&<\x01>", "x"), 0);
	assert_int_equal(lib_put(o, "m/4", "x"), 0);
	assert_int_equal(origin_call(o, &req), 0);
	lib_assert_listed(o, "m/", true, "m/4");
}

static void a_copy_is_an_object_of_its_own(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_COPY,
				 .key = "to/copy",
				 .source = "from",
				 .if_match = "other"};

	assert_int_equal(lib_put(o, "from", "payload"), 0);
	assert_int_equal(lib_copy(o, "to/copy", "from"), 0);
	assert_int_equal(lib_put(o, "from", "changed"), 0);
	lib_assert_content(o, "to/copy", "payload");
	assert_int_equal(origin_call(o, &req), -ESTALE);
	lib_assert_content(o, "to/copy", "payload");
}

static void keys_are_bytes(void **state)
{
	static const char *const keys[] = {
		"k/ leading and  double",
		"k/%41%2F",
		"k/+plus&amp=;?#",
		"k/\xc3\xbc\xe6\xbc\xa2",
		"k/\xf0\x9f\x90\xa7",
		"k/'\"<>\\",
		"k/tab\there",
		"k/~!@$^*()[]{}|`",
	};
	struct origin *o = ((struct fixture *)*state)->origin;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		assert_int_equal(lib_put(o, keys[i], keys[i]), 0);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		lib_assert_content(o, keys[i], keys[i]);
	lib_assert_listed(o, "k/+", false, "k/+plus&amp=;?#");
}

static void assert_refused(struct origin *o, const char *key)
{
	struct origin_req req = {.op = ORIGIN_STAT, .key = key};

	/* mem: answers with an assertion. */
	assert_int_equal(origin_req_check(&req, &req.why), -EINVAL);
	if (strcmp(o->name, "mem:") != 0)
		assert_int_equal(origin_call(o, &req), -EINVAL);
	assert_true(req.why.text[0]);
}

static void bad_keys_are_refused(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	char key[1100];

	memset(key, 'k', sizeof(key));
	key[1024] = '\0';
	assert_refused(o, key);
	assert_refused(o, "/absolute");
	assert_refused(o, "");
}

/* ---- metadata ------------------------------------------------------------------------- */

static void posix_metadata_comes_back(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_posix posix;
	struct origin_attr attr;

	if (!(o->caps & ORIGIN_CAP_META))
		skip();
	origin_posix_format(&posix, S_IFREG | 0640, getuid(), getgid(),
			    1234567890123456000);
	assert_int_equal(lib_put_meta(o, "meta", "x", &posix.meta), 0);
	assert_int_equal(lib_stat(o, "meta", &attr), 0);
	assert_true(attr.has_posix);
	assert_int_equal(attr.mode, S_IFREG | 0640);
	assert_int_equal(attr.uid, getuid());
	assert_int_equal(attr.gid, getgid());
	assert_int_equal(attr.mtime_ns, 1234567890123456000);
	/* A copy without metadata of its own keeps it; a copy onto itself replaces it. */
	assert_int_equal(lib_copy(o, "meta2", "meta"), 0);
	assert_int_equal(lib_stat(o, "meta2", &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0640);
	origin_posix_format(&posix, S_IFREG | 0755, getuid(), getgid(),
			    1000000000000000000);
	struct origin_req req = {
		.op = ORIGIN_COPY, .key = "meta", .source = "meta", .meta = &posix.meta};
	assert_int_equal(origin_call(o, &req), 0);
	assert_int_equal(lib_stat(o, "meta", &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0755);
	assert_int_equal(attr.mtime_ns, 1000000000000000000);
	lib_assert_content(o, "meta", "x");
}

static void a_symlink_is_an_object_that_holds_its_target(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_posix posix;
	struct origin_attr attr;

	if (!(o->caps & ORIGIN_CAP_META))
		skip();
	origin_posix_format(&posix, S_IFLNK | 0777, getuid(), getgid(),
			    1000000000000000000);
	assert_int_equal(lib_put_meta(o, "l/link", "../else/where", &posix.meta), 0);
	assert_int_equal(lib_stat(o, "l/link", &attr), 0);
	assert_true(attr.is_symlink);
	assert_true(S_ISLNK(attr.mode));
	lib_assert_content(o, "l/link", "../else/where");
	lib_assert_listed(o, "l/", false, "l/link");
	assert_int_equal(lib_put(o, "l/link", "a file now"), 0);
	assert_int_equal(lib_stat(o, "l/link", &attr), 0);
	assert_false(attr.is_symlink);
	lib_assert_content(o, "l/link", "a file now");
	assert_int_equal(lib_delete(o, "l/link"), 0);
}

/* ---- listing -------------------------------------------------------------------------- */

static void plant(struct origin *o)
{
	static const char *const keys[] = {"t/a",   "t/a-b",   "t/a.c", "t/a0/deep/er",
					   "t/b/1", "t/b/2/x", "t/b0",  "t/\xc3\xa4",
					   "t/B",   "u",       "t!",    "t/a0/deep/es"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		assert_int_equal(lib_put(o, keys[i], "x"), 0);
}

static void listings_are_in_byte_order(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

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

static void listings_keep_to_their_window(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

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

static void an_entry_that_is_refused_ends_the_listing(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};

	assert_int_equal(lib_put(o, "a", "x"), 0);
	req.list.entry = refuse;
	assert_int_equal(origin_call(o, &req), -EOVERFLOW);
}

static void a_listed_entry_is_what_stat_says(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
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

static void a_marker_keeps_an_empty_directory(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
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

static void a_directory_without_marker_goes_with_its_last_key(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

	assert_int_equal(lib_put(o, "p/q/1", "x"), 0);
	assert_int_equal(lib_put(o, "p/q/2", "x"), 0);
	lib_assert_listed(o, "", true, "p/q/1 p/q/2");
	assert_int_equal(lib_stat(o, "p/q/", NULL), -ENOENT);
	assert_int_equal(lib_delete(o, "p/q/1"), 0);
	lib_assert_listed(o, "p/", false, "p/q/");
	assert_int_equal(lib_delete(o, "p/q/2"), 0);
	lib_assert_listed(o, "", false, "");
}

static void a_marker_may_go_before_what_is_below_it(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

	assert_int_equal(lib_put(o, "w/", ""), 0);
	assert_int_equal(lib_put(o, "w/x", "x"), 0);
	assert_int_equal(lib_delete(o, "w/"), 0);
	lib_assert_listed(o, "", true, "w/x");
	assert_int_equal(lib_delete(o, "w/x"), 0);
	lib_assert_listed(o, "", true, "");
}

/* ---- appending ------------------------------------------------------------------------ */

static void appending_costs_the_position(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;

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

static void parts_in_any_order_make_one_object(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	static char data[2 * PART_SIZE + 1000];
	struct origin_part parts[3];
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct buf b = BUF_INIT;

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
	assert_int_equal(lib_multi_end(o, "mp/big", id, parts, 3), -ENOENT);
	lib_assert_listed(o, "mp/", true, "mp/big");
	buf_fini(&b);
}

static void a_part_that_is_not_as_told_ends_nothing(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
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

static void an_assembly_with_another_checksum_stays_invisible(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_part parts[1];
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct origin_req req = {.op = ORIGIN_MULTI_END,
				 .key = "mp/sum",
				 .upload_id = id,
				 .parts = parts,
				 .part_count = 1,
				 .size = 8,
				 .has_expect_crc64 = true};

	if (!(o->caps & ORIGIN_CAP_MULTI) || strcmp(o->ops->name, "oss") == 0)
		skip();
	assert_int_equal(lib_multi_begin(o, "mp/sum", id), 0);
	assert_int_equal(lib_multi_part(o, "mp/sum", id, 1, 0, "new text", 8, parts), 0);
	req.expect_crc64 = parts[0].crc64 + 1;
	assert_int_equal(origin_call(o, &req), -EBADMSG);
	assert_int_equal(lib_stat(o, "mp/sum", NULL), -ENOENT);
	assert_int_equal(lib_multi_abort(o, "mp/sum", id), 0);
}

static void a_part_may_be_copied(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
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

static void unfinished_uploads_are_listed(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
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

/* ---- stores --------------------------------------------------------------------------- */

static void probing_succeeds(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_PROBE};

	assert_int_equal(origin_call(o, &req), 0);
}

static void what_is_done_is_counted(void **state)
{
	struct origin *o = ((struct fixture *)*state)->origin;
	struct origin_stats stats = {0};

	assert_int_equal(lib_put(o, "count", "12345"), 0);
	assert_int_equal(lib_stat(o, "absent", NULL), -ENOENT);
	lib_assert_content(o, "count", "12345");
	o->ops->stats(o, &stats);
	assert_true(stats.requests[ORIGIN_PUT] >= 1);
	assert_true(stats.failures >= 1);
	assert_int_equal(stats.bytes_in, 5);
	assert_int_equal(stats.bytes_out, 5);
}

static struct fixture *fixture_new(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	return f;
}

static int open_mem(void **state)
{
	struct fixture *f = fixture_new();

	*state = f;
	return mem_origin_new(&f->origin);
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	if (f->path[0] == '\0')
		lib_empty(f->origin, "");
	origin_free(f->origin);
	if (f->path[0])
		io_remove_tree(AT_FDCWD, f->path);
	free(f);
	return 0;
}

#define STORE(f, store)                                                                  \
	{                                                                                \
		"test_" #f " (" #store ")", f, open_##store, close_fixture, NULL         \
	}
#define CASE(f) STORE(f, mem)

TEST_MAIN(CASE(a_put_object_reads_back), CASE(an_empty_object_is_an_object),
	  CASE(what_is_not_there_is_enoent), CASE(ranges_are_cut_at_the_end),
	  CASE(a_range_is_pinned_by_its_etag), CASE(a_sink_that_refuses_ends_the_request),
	  CASE(put_replaces_the_whole), CASE(put_new_does_not_replace),
	  CASE(a_body_may_be_a_piece_of_a_file),
	  CASE(a_body_with_another_checksum_leaves_no_object),
	  CASE(deleting_twice_is_success), CASE(many_are_deleted_at_once),
	  CASE(a_copy_is_an_object_of_its_own), CASE(keys_are_bytes),
	  CASE(bad_keys_are_refused), CASE(posix_metadata_comes_back),
	  CASE(a_symlink_is_an_object_that_holds_its_target),
	  CASE(listings_are_in_byte_order), CASE(listings_keep_to_their_window),
	  CASE(an_entry_that_is_refused_ends_the_listing),
	  CASE(a_listed_entry_is_what_stat_says), CASE(a_marker_keeps_an_empty_directory),
	  CASE(a_directory_without_marker_goes_with_its_last_key),
	  CASE(a_marker_may_go_before_what_is_below_it),
	  CASE(appending_costs_the_position), CASE(parts_in_any_order_make_one_object),
	  CASE(a_part_that_is_not_as_told_ends_nothing),
	  CASE(an_assembly_with_another_checksum_stays_invisible),
	  CASE(a_part_may_be_copied), CASE(unfinished_uploads_are_listed),
	  CASE(probing_succeeds), CASE(what_is_done_is_counted))
