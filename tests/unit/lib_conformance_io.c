/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of every origin: objects, their bytes and their metadata. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin_posix.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "tests/unit/lib_conformance.h"
#include "tests/unit/lib_origin.h"

/* ---- reading -------------------------------------------------------------------------- */

void a_put_object_reads_back(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void an_empty_object_is_an_object(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void what_is_not_there_is_enoent(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct buf b = BUF_INIT;

	assert_int_equal(lib_stat(o, "no", NULL), -ENOENT);
	assert_int_equal(lib_stat(o, "no/such/place", NULL), -ENOENT);
	assert_int_equal(lib_get(o, "no", 0, 1, NULL, &b), -ENOENT);
	assert_int_equal(lib_copy(o, "b", "no"), -ENOENT);
	buf_fini(&b);
}

void ranges_are_cut_at_the_end(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void a_range_is_pinned_by_its_etag(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void a_sink_that_refuses_ends_the_request(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void put_replaces_the_whole(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	assert_int_equal(lib_put(o, "x", "a long first version"), 0);
	assert_int_equal(lib_put(o, "x", "short"), 0);
	lib_assert_content(o, "x", "short");
}

void put_new_does_not_replace(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	assert_int_equal(lib_put_new(o, "n", "first"), 0);
	assert_int_equal(lib_put_new(o, "n", "second"), -EEXIST);
	lib_assert_content(o, "n", "first");
}

void a_body_may_be_a_piece_of_a_file(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void a_body_with_another_checksum_leaves_no_object(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void deleting_twice_is_success(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;

	assert_int_equal(lib_put(o, "d/e/f", "x"), 0);
	assert_int_equal(lib_delete(o, "d/e/f"), 0);
	assert_int_equal(lib_delete(o, "d/e/f"), 0);
	assert_int_equal(lib_stat(o, "d/e/f", NULL), -ENOENT);
}

void many_are_deleted_at_once(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	const char *keys[] = {"m/1", "m/sub/2", "m/not there", "m/3&<\x01>"};
	struct origin_req req = {.op = ORIGIN_DELETE_MANY, .keys = keys, .key_count = 4};

	assert_int_equal(lib_put(o, "m/1", "x"), 0);
	assert_int_equal(lib_put(o, "m/sub/2", "x"), 0);
	assert_int_equal(lib_put(o, "m/3&<\x01>", "x"), 0);
	assert_int_equal(lib_put(o, "m/4", "x"), 0);
	assert_int_equal(origin_call(o, &req), 0);
	lib_assert_listed(o, "m/", true, "m/4");
}

void a_copy_is_an_object_of_its_own(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void keys_are_bytes(void **state)
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
	struct origin *o = ((struct conformance *)*state)->origin;

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

void bad_keys_are_refused(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	char key[1100];

	memset(key, 'k', sizeof(key));
	key[1024] = '\0';
	assert_refused(o, key);
	assert_refused(o, "/absolute");
	assert_refused(o, "");
}

/* ---- metadata ------------------------------------------------------------------------- */

void posix_metadata_comes_back(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

void a_symlink_is_an_object_that_holds_its_target(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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

/* ---- stores --------------------------------------------------------------------------- */

void probing_succeeds(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
	struct origin_req req = {.op = ORIGIN_PROBE};

	assert_int_equal(origin_call(o, &req), 0);
}

void what_is_done_is_counted(void **state)
{
	struct origin *o = ((struct conformance *)*state)->origin;
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
