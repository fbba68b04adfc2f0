/* SPDX-License-Identifier: Apache-2.0 */
/* What a directory tree adds to the contract that all origins share (the conformance test
 * covers that): links, other people's files, drafts, restarts. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/backend/file.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "tests/unit/lib_origin.h"

struct fixture {
	struct origin *origin;
	char top[64]; /* holds root/ and outside */
	char root[80];
	int dir_fd; /* root */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct why why;

	assert_non_null(f);
	*state = f;
	snprintf(f->top, sizeof(f->top), "%s/sluice-file.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(f->top));
	snprintf(f->root, sizeof(f->root), "%s/root", f->top);
	assert_int_equal(mkdir(f->root, 0700), 0);
	f->dir_fd = open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(file_origin_open(f->root, false, &f->origin, &why), 0);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	origin_free(f->origin);
	close(f->dir_fd);
	io_remove_tree(AT_FDCWD, f->top);
	free(f);
	return 0;
}

static void write_file(const struct fixture *f, const char *name, const char *text)
{
	int fd = openat(f->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(io_write(fd, text, strlen(text)), 0);
	close(fd);
}

/* Names in the directory, hidden ones too. */
static int count_names(const struct fixture *f, const char *path)
{
	int fd = openat(f->dir_fd, path, O_RDONLY | O_DIRECTORY), count = -2;
	DIR *dir = fdopendir(fd);

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void test_links_lead_nowhere(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT;

	write_file(f, "../outside", "secret");
	assert_int_equal(symlinkat("../outside", f->dir_fd, "out"), 0);
	assert_int_equal(symlinkat("..", f->dir_fd, "up"), 0);
	assert_int_equal(symlinkat("/etc", f->dir_fd, "etc"), 0);
	lib_assert_content(f->origin, "out", "../outside");
	assert_int_equal(lib_get(f->origin, "up/outside", 0, 10, NULL, &b), -ENOENT);
	assert_int_equal(lib_get(f->origin, "etc/passwd", 0, 10, NULL, &b), -ENOENT);
	assert_int_equal(lib_get(f->origin, "../outside", 0, 10, NULL, &b), -EINVAL);
	assert_int_equal(lib_put(f->origin, "up/outside", "overwritten"), -EINVAL);
	assert_int_equal(lib_put(f->origin, "a/../../outside", "overwritten"), -EINVAL);
	assert_int_equal(lib_delete(f->origin, "up/outside"), 0);
	lib_assert_listed(f->origin, "", true, "etc out up");
	lib_assert_listed(f->origin, "up/", true, "");
	/* Writing to a link's name replaces the link, not what it points to. */
	assert_int_equal(lib_put(f->origin, "out", "own"), 0);
	assert_int_equal(io_read_file(f->dir_fd, "../outside", 100, &b), 0);
	assert_string_equal(b.data, "secret");
	buf_fini(&b);
}

static void test_what_is_no_file_is_not_there(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT;

	assert_int_equal(mkfifoat(f->dir_fd, "pipe", 0600), 0);
	assert_int_equal(lib_stat(f->origin, "pipe", NULL), -ENOENT);
	assert_int_equal(lib_get(f->origin, "pipe", 0, 1, NULL, &b), -ENOENT);
	lib_assert_listed(f->origin, "", true, "");
	buf_fini(&b);
}

static void test_a_file_and_a_directory_cannot_share_a_name(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(lib_put(f->origin, "a", "file"), 0);
	assert_int_equal(lib_put(f->origin, "a/b", "x"), -EINVAL);
	assert_non_null(strstr(lib_last.why.text, "not a directory"));
	assert_int_equal(lib_put(f->origin, "a/", ""), -EINVAL);
	assert_int_equal(lib_put(f->origin, "d/x", "x"), 0);
	assert_int_equal(lib_put(f->origin, "d", "x"), -EINVAL);
	assert_non_null(strstr(lib_last.why.text, "is a directory"));
	assert_int_equal(lib_delete(f->origin, "d"), 0);
	lib_assert_listed(f->origin, "", true, "a d/x");
	assert_int_equal(count_names(f, "."), 2);
}

static void test_directories_of_others_stay(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mkdirat(f->dir_fd, "theirs", 0755), 0);
	assert_int_equal(lib_put(f->origin, "theirs/ours/x", "x"), 0);
	assert_int_equal(lib_delete(f->origin, "theirs/ours/x"), 0);
	lib_assert_listed(f->origin, "", true, "theirs/");
	lib_assert_listed(f->origin, "theirs/", true, "theirs/");
}

static void test_drafts_are_hidden_and_do_not_stay(void **state)
{
	struct fixture *f = *state;
	struct origin_req req = {.op = ORIGIN_PUT,
				 .key = "dir/x",
				 .body = {.data = "abc", .len = 3},
				 .has_expect_crc64 = true};
	char key[] = FILE_TMP_PREFIX "0123456789abcdef";
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

	assert_int_equal(origin_call(f->origin, &req), -EBADMSG);
	assert_int_equal(count_names(f, "."), 0);
	write_file(f, key, "draft of a killed process");
	assert_int_equal(lib_stat(f->origin, key, NULL), -EINVAL);
	assert_int_equal(lib_put(f->origin, key, "x"), -EINVAL);
	lib_assert_listed(f->origin, "", true, "");
	assert_int_equal(count_names(f, "."), 1);
	assert_int_equal(utimensat(f->dir_fd, key, old, 0), 0);
	lib_assert_listed(f->origin, "", true, "");
	assert_int_equal(count_names(f, "."), 0);
}

static void test_an_upload_goes_on_after_a_restart(void **state)
{
	struct fixture *f = *state;
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct origin_part parts[2];
	struct lib_listed listed = {0};
	struct origin_req list = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct why why;

	assert_int_equal(lib_multi_begin(f->origin, "up/a\nb", id), 0);
	assert_int_equal(
		lib_multi_part(f->origin, "up/a\nb", id, 1, 0, "12345", 5, parts), 0);
	origin_free(f->origin);
	assert_int_equal(file_origin_open(f->root, false, &f->origin, &why), 0);
	list.list.entry = lib_keep_entry;
	list.list.entry_arg = &listed;
	assert_int_equal(origin_call(f->origin, &list), 0);
	assert_string_equal(listed.key, "up/a\nb");
	assert_string_equal(listed.attr.etag, id);
	assert_int_equal(
		lib_multi_part(f->origin, "up/a\nb", id, 2, 5, "678", 3, &parts[1]), 0);
	assert_int_equal(lib_multi_end(f->origin, "up/a\nb", id, parts, 2), 0);
	assert_int_equal(lib_last.attr.crc64, crc64(0, "12345678", 8));
	lib_assert_content(f->origin, "up/a\nb", "12345678");
	assert_int_equal(lib_delete(f->origin, "up/a\nb"), 0);
	assert_int_equal(count_names(f, "."), 0);
}

static void test_an_upload_id_is_no_path(void **state)
{
	struct fixture *f = *state;
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct origin_part part = {.number = 1, .size = 1};

	write_file(f, "victim", "x");
	assert_int_equal(lib_multi_begin(f->origin, "k", id), 0);
	assert_int_equal(
		lib_multi_part(f->origin, "k", "../../victim0123", 1, 0, "y", 1, NULL),
		-ENOENT);
	assert_int_equal(lib_multi_end(f->origin, "other", id, &part, 1), -ENOENT);
	assert_int_equal(lib_multi_abort(f->origin, "k", "../victim"), 0);
	assert_int_equal(lib_multi_abort(f->origin, "k", id), 0);
	lib_assert_content(f->origin, "victim", "x");
	assert_int_equal(count_names(f, "."), 1);
}

static void test_parts_that_are_missing_do_not_become_zeros(void **state)
{
	struct fixture *f = *state;
	char id[ORIGIN_UPLOAD_ID_MAX];
	struct origin_part parts[2];

	assert_int_equal(lib_multi_begin(f->origin, "k", id), 0);
	assert_int_equal(lib_multi_part(f->origin, "k", id, 1, 0, "12", 2, &parts[0]), 0);
	assert_int_equal(lib_multi_part(f->origin, "k", id, 2, 7, "89", 2, &parts[1]), 0);
	assert_int_equal(lib_multi_end(f->origin, "k", id, parts, 2), -EINVAL);
	assert_int_equal(lib_stat(f->origin, "k", NULL), -ENOENT);
	assert_int_equal(lib_multi_abort(f->origin, "k", id), 0);
}

struct rewriter {
	struct fixture *fixture;
	atomic_bool stop;
};

/* Replaces the file by rename; every byte of one version is the same. */
static void *replace(void *arg)
{
	struct rewriter *w = arg;
	static char data[1 << 20];

	for (char version = 'a'; !atomic_load(&w->stop);
	     version = version == 'z' ? 'a' : version + 1) {
		int fd = openat(w->fixture->dir_fd, "torn.new",
				O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		memset(data, version, sizeof(data));
		assert_int_equal(io_write(fd, data, sizeof(data)), 0);
		close(fd);
		assert_int_equal(renameat(w->fixture->dir_fd, "torn.new",
					  w->fixture->dir_fd, "torn"),
				 0);
	}
	return NULL;
}

static void test_no_read_mixes_two_versions(void **state)
{
	struct fixture *f = *state;
	struct rewriter w = {.fixture = f};
	uint64_t until = patience();
	pthread_t thread;
	int stale = 0;

	write_file(f, "torn", "aaaa");
	assert_int_equal(pthread_create(&thread, NULL, replace, &w), 0);
	for (int i = 0; i < 200 || (!stale && clock_mono_ms() < until); i++) {
		struct buf b = BUF_INIT;
		struct origin_attr attr;

		assert_int_equal(lib_stat(f->origin, "torn", &attr), 0);
		if (lib_get(f->origin, "torn", 0, ORIGIN_TO_END, attr.etag, &b) < 0) {
			assert_int_equal(lib_last.result, -ESTALE);
			stale++;
		} else {
			assert_int_equal(b.len, attr.size);
			for (size_t k = 1; k < b.len; k++)
				if (b.data[k] != b.data[0])
					fail_msg("two versions in one read at %zu", k);
		}
		buf_fini(&b);
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	/* Otherwise nothing was shown. */
	assert_true(stale > 0);
}

static int overwrite_in_place(void *arg, uint64_t off, const void *data, size_t n)
{
	struct fixture *f = arg;
	int fd = openat(f->dir_fd, "torn", O_WRONLY | O_CLOEXEC);

	(void)data;
	/* What is delivered was read before this. */
	assert_int_equal(off, 0);
	assert_true(n < 1 << 20);
	assert_int_equal(io_pwrite(fd, "new", 3, 700000), 0);
	close(fd);
	return 0;
}

static void test_a_file_that_changes_in_place_ends_the_read(void **state)
{
	struct fixture *f = *state;
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	struct origin_req req = {.op = ORIGIN_GET,
				 .key = "torn",
				 .len = ORIGIN_TO_END,
				 .sink = overwrite_in_place,
				 .sink_arg = f};
	char *data = calloc(1, (1 << 20) + 1);

	memset(data, 'a', 1 << 20);
	write_file(f, "torn", data);
	assert_int_equal(utimensat(f->dir_fd, "torn", old, 0), 0);
	assert_int_equal(origin_call(f->origin, &req), -ESTALE);
	free(data);
}

static void test_a_file_that_was_replaced_is_another_version(void **state)
{
	struct fixture *f = *state;
	struct timespec same[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	char etag[ORIGIN_ETAG_MAX] = "";

	/* Same name, size and time, and very likely the same inode number. */
	for (int i = 0; i < 20; i++) {
		struct origin_attr attr;

		unlinkat(f->dir_fd, "x", 0);
		write_file(f, "x", i & 1 ? "odd " : "even");
		assert_int_equal(utimensat(f->dir_fd, "x", same, 0), 0);
		assert_int_equal(lib_stat(f->origin, "x", &attr), 0);
		assert_string_not_equal(attr.etag, etag);
		memcpy(etag, attr.etag, sizeof(etag));
	}
}

static void test_a_large_directory_is_paged_in_order(void **state)
{
	struct fixture *f = *state;
	struct buf one = BUF_INIT, many = BUF_INIT;
	char name[32];

	assert_int_equal(mkdirat(f->dir_fd, "big", 0755), 0);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "big/%x", i * 7919);
		write_file(f, name, "");
	}
	assert_int_equal(lib_list(f->origin, "big/", false, 0, &one), 0);
	assert_int_equal(lib_list(f->origin, "big/", false, 7, &many), 0);
	assert_string_equal(one.data, many.data);
	/* A page that comes after a change shows it. */
	assert_int_equal(lib_put(f->origin, "big/zzz", "x"), 0);
	buf_reset(&many);
	assert_int_equal(lib_list(f->origin, "big/", false, 1000, &many), 0);
	assert_non_null(strstr(many.data, " big/zzz"));
	buf_fini(&one);
	buf_fini(&many);
}

static void test_a_root_that_cannot_work_is_refused_with_a_sentence(void **state)
{
	struct fixture *f = *state;
	struct origin *o;
	struct why why = {0};
	char path[128];

	snprintf(path, sizeof(path), "%s/none", f->top);
	assert_int_equal(file_origin_open(path, false, &o, &why), -ENOENT);
	assert_non_null(strstr(why.text, "does not exist"));
	write_file(f, "../plain", "x");
	snprintf(path, sizeof(path), "%s/plain", f->top);
	assert_int_equal(file_origin_open(path, false, &o, &why), -ENOTDIR);
	assert_int_equal(rmdir(f->root), 0);
	assert_int_equal(lib_stat(f->origin, "x", NULL), -ENOENT);
	assert_non_null(strstr(lib_last.why.text, "is gone"));
	assert_int_equal(lib_list(f->origin, "", true, 0, &(struct buf){0}), -ENOENT);
	assert_int_equal(mkdir(f->root, 0700), 0);
}

static void test_a_set_id_bit_does_not_reach_the_store(void **state)
{
	struct fixture *f = *state;
	const char *pairs[][2] = {{"mode", "35309"}}; /* 0104755 */
	struct origin_meta meta = {.pairs = (const char *const(*)[2])pairs, .count = 1};
	struct origin_attr attr;

	assert_int_equal(lib_put_meta(f->origin, "tool", "x", &meta), 0);
	assert_int_equal(lib_stat(f->origin, "tool", &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0755);
}

static void finished(struct origin_req *req)
{
	atomic_fetch_add((atomic_int *)req->user, 1);
}

static void test_many_requests_at_once_and_a_cancel(void **state)
{
	struct fixture *f = *state;
	static struct origin_req reqs[400];
	static char keys[400][16];
	atomic_int count = 0;

	for (int i = 0; i < 400; i++) {
		snprintf(keys[i], sizeof(keys[i]), "p%d/%d", i % 7, i);
		reqs[i] = (struct origin_req){.op = i % 2 ? ORIGIN_STAT : ORIGIN_DELETE,
					      .key = keys[i],
					      .done = finished,
					      .user = &count};
		origin_submit(f->origin, &reqs[i]);
	}
	origin_cancel(f->origin, &reqs[399]);
	eventually(atomic_load(&count) >= 400);
	assert_int_equal(atomic_load(&count), 400);
	for (int i = 0; i < 399; i++)
		assert_int_equal(reqs[i].result, i % 2 ? -ENOENT : 0);
	assert_true(reqs[399].result == -ENOENT || reqs[399].result == -ECANCELED);
}

struct churn {
	struct origin *origin;
	const char *key;
	int failures;
};

static void *put_and_delete(void *arg)
{
	struct churn *c = arg;

	for (int i = 0; i < 50; i++) {
		struct origin_req put = {
			.op = ORIGIN_PUT, .key = c->key, .body = {.data = "x", .len = 1}};
		struct origin_req delete = {.op = ORIGIN_DELETE, .key = c->key};
		struct origin_req begin = {.op = ORIGIN_MULTI_BEGIN, .key = c->key};
		struct origin_req abort_it = {.op = ORIGIN_MULTI_ABORT, .key = c->key};

		c->failures += origin_call(c->origin, &put) < 0;
		c->failures += origin_call(c->origin, &delete) < 0;
		c->failures += origin_call(c->origin, &begin) < 0;
		abort_it.upload_id = begin.upload_id_result;
		c->failures += origin_call(c->origin, &abort_it) < 0;
	}
	return NULL;
}

static void test_directories_that_come_and_go_are_in_nobodys_way(void **state)
{
	struct fixture *f = *state;
	static const char *const keys[] = {"a/b/1", "a/b/2", "a/3", "a/b/c/4"};
	struct churn churn[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		churn[i] = (struct churn){f->origin, keys[i], 0};
		assert_int_equal(
			pthread_create(&threads[i], NULL, put_and_delete, &churn[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(churn[i].failures, 0);
	}
	assert_int_equal(count_names(f, "."), 0);
}

static void test_a_deadline_that_has_passed_ends_the_request(void **state)
{
	struct fixture *f = *state;
	struct origin_req req = {.op = ORIGIN_STAT, .key = "x", .deadline_ms = 1};

	assert_int_equal(origin_call(f->origin, &req), -ETIMEDOUT);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

TEST_MAIN(CASE(test_links_lead_nowhere), CASE(test_what_is_no_file_is_not_there),
	  CASE(test_a_file_and_a_directory_cannot_share_a_name),
	  CASE(test_directories_of_others_stay),
	  CASE(test_drafts_are_hidden_and_do_not_stay),
	  CASE(test_an_upload_goes_on_after_a_restart),
	  CASE(test_an_upload_id_is_no_path),
	  CASE(test_parts_that_are_missing_do_not_become_zeros),
	  CASE(test_no_read_mixes_two_versions),
	  CASE(test_a_file_that_changes_in_place_ends_the_read),
	  CASE(test_a_file_that_was_replaced_is_another_version),
	  CASE(test_a_large_directory_is_paged_in_order),
	  CASE(test_a_root_that_cannot_work_is_refused_with_a_sentence),
	  CASE(test_a_set_id_bit_does_not_reach_the_store),
	  CASE(test_directories_that_come_and_go_are_in_nobodys_way),
	  CASE(test_many_requests_at_once_and_a_cancel),
	  CASE(test_a_deadline_that_has_passed_ends_the_request))
