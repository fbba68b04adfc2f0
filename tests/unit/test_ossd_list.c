/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of listings over a real index. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <unistd.h>

#include "fs/base/err.h"
#include "fs/base/io.h"
#include "tools/ossd_code.h"
#include "tools/ossd_index.h"
#include "tools/ossd_list.h"

static char root[] = "/tmp/test_ossd_list.XXXXXX";
static struct ossd_index *ix;

static const char *const keys[] = {
	"!",  "a", "a!",    "a/",    "a/1",  "a/2", "a/2/x",       "a/b/c",
	"a0", "b", "dir/x", "dir/y", "dir0", "e f", "u\xc3\xbc/1", "z",
};
#define KEYS (sizeof(keys) / sizeof(*keys))

static int open_index(void **state)
{
	struct ossd_object o = {.type = OSSD_NORMAL};
	struct ossd_txn txn;
	struct why why = {""};
	int fd;

	(void)state;
	if (!mkdtemp(root))
		return -1;
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ossd_index_open(&ix, fd, "index", false, &why) < 0)
		return -1;
	close(fd);
	assert_int_equal(ossd_txn_begin(ix, true, &txn), 0);
	for (size_t i = 0; i < KEYS; i++)
		assert_int_equal(ossd_index_put(&txn, 7, keys[i], strlen(keys[i]), &o),
				 0);
	/* Neighbours that must not show. */
	assert_int_equal(ossd_index_put(&txn, 6, "zz", 2, &o), 0);
	assert_int_equal(ossd_index_put(&txn, 8, "a", 1, &o), 0);
	return ossd_txn_commit(&txn);
}

static int close_index(void **state)
{
	(void)state;
	ix = ossd_index_close(ix);
	return io_remove_tree(AT_FDCWD, root);
}

/* Entries joined by blanks, common prefixes in brackets. */
static int join(void *arg, const char *name, size_t n, const void *value,
		size_t value_len)
{
	(void)value_len;
	buf_printf(arg, value ? "%.*s " : "[%.*s] ", (int)n, name);
	return 0;
}

static struct ossd_list_page list(const struct ossd_list_query *query, struct buf *out)
{
	struct ossd_list_page page;
	struct ossd_txn txn;
	struct ossd_cursor c;

	assert_int_equal(ossd_txn_begin(ix, false, &txn), 0);
	assert_int_equal(ossd_cursor_open(&txn, 7, &c), 0);
	assert_int_equal(ossd_list(&c, query, join, out, &page), 0);
	ossd_cursor_close(&c);
	ossd_txn_end(&txn);
	return page;
}

static void assert_list(const char *prefix, const char *delimiter, const char *marker,
			const char *expected)
{
	struct ossd_list_query query = {prefix, delimiter, marker, 1000};
	struct buf out = BUF_INIT;
	struct ossd_list_page page = list(&query, &out);

	assert_string_equal(out.data ? out.data : "", expected);
	assert_false(page.truncated);
	buf_fini(&out);
	buf_fini(&page.last);
}

static void test_prefix_and_marker_bound_the_listing(void **state)
{
	(void)state;
	assert_list("a/", "", "", "a/ a/1 a/2 a/2/x a/b/c ");
	assert_list("a/", "", "a/1", "a/2 a/2/x a/b/c ");
	assert_list("a/", "", "a/11", "a/2 a/2/x a/b/c ");
	assert_list("a/", "", "A", "a/ a/1 a/2 a/2/x a/b/c ");
	assert_list("a/", "", "b", "");
	assert_list("/", "", "", "");
	assert_list("", "", "dir0", "e f u\xc3\xbc/1 z ");
}

static void test_a_delimiter_rolls_up(void **state)
{
	(void)state;
	assert_list("", "/", "", "! a a! [a/] a0 b [dir/] dir0 e f [u\xc3\xbc/] z ");
	assert_list("a/", "/", "", "a/ a/1 a/2 [a/2/] [a/b/] ");
	assert_list("d", "ir", "", "[dir] ");
	assert_list("", "/x", "dir", "[dir/x] dir/y dir0 e f u\xc3\xbc/1 z ");
}

static void test_a_marker_that_is_a_common_prefix_skips_it(void **state)
{
	(void)state;
	assert_list("", "/", "a/", "a0 b [dir/] dir0 e f [u\xc3\xbc/] z ");
	assert_list("", "/", "dir/x", "dir0 e f [u\xc3\xbc/] z ");
	assert_list("", "/", "a!", "[a/] a0 b [dir/] dir0 e f [u\xc3\xbc/] z ");
}

/* Whatever the size of the pages, together they are the whole, each entry once. */
static void test_pages_of_every_size_add_up(void **state)
{
	static const char *const shapes[][2] = {
		{"", ""}, {"", "/"}, {"a/", "/"}, {"a", ""}};

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
		struct ossd_list_query query = {shapes[s][0], shapes[s][1], "", 1000};
		struct buf whole = BUF_INIT;
		struct ossd_list_page page = list(&query, &whole);
		size_t total = page.count;

		buf_fini(&page.last);
		for (size_t size = 1; size <= total + 1; size++) {
			struct buf out = BUF_INIT, marker = BUF_INIT;
			size_t pages = 0;

			do {
				query.max = size;
				query.marker = marker.data ? marker.data : "";
				page = list(&query, &out);
				buf_fini(&marker);
				marker = page.last;
				pages++;
			} while (page.truncated && pages <= total);
			assert_string_equal(out.data, whole.data);
			assert_int_equal(pages, (total + size - 1) / size);
			buf_fini(&out);
			buf_fini(&marker);
		}
		buf_fini(&whole);
	}
}

static void test_a_page_of_none_is_not_truncated(void **state)
{
	struct ossd_list_query query = {"", "", "", 0};
	struct buf out = BUF_INIT;
	struct ossd_list_page page = list(&query, &out);

	(void)state;
	assert_int_equal(page.count, 0);
	assert_false(page.truncated);
	buf_fini(&out);
}

static void test_tokens_are_url_safe_and_lead_back(void **state)
{
	(void)state;
	for (size_t n = 1; n < 300; n++) {
		struct buf token = BUF_INIT, back = BUF_INIT;
		char marker[300];

		for (size_t i = 0; i < n; i++)
			marker[i] = (char)(1 + (i * 37 + n * 11) % 255);
		ossd_token_format(&token, marker, n);
		assert_int_equal(strspn(token.data,
					"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno"
					"pqrstuvwxyz0123456789-_"),
				 token.len);
		assert_int_equal(ossd_token_parse(&back, token.data), 0);
		assert_int_equal(back.len, n);
		assert_memory_equal(back.data, marker, n);
		buf_fini(&token);
		buf_fini(&back);
	}
}

static void test_broken_tokens_are_refused(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	assert_true(ossd_token_parse(&b, "ab=") < 0);
	assert_true(ossd_token_parse(&b, "a b") < 0);
	assert_true(ossd_token_parse(&b, "AAAA") < 0); /* NULs */
	buf_fini(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefix_and_marker_bound_the_listing),
		cmocka_unit_test(test_a_delimiter_rolls_up),
		cmocka_unit_test(test_a_marker_that_is_a_common_prefix_skips_it),
		cmocka_unit_test(test_pages_of_every_size_add_up),
		cmocka_unit_test(test_a_page_of_none_is_not_truncated),
		cmocka_unit_test(test_tokens_are_url_safe_and_lead_back),
		cmocka_unit_test(test_broken_tokens_are_refused),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, open_index, close_index);
}
