/* SPDX-License-Identifier: Apache-2.0 */
/* The storage engine on a real folder: places of files, recovery, files changed by hand. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "tools/ossd_code.h"
#include "tools/ossd_list.h"
#include "tools/ossd_store.h"
#include "tools/ossd_xml.h"

struct fixture {
	char root[64];
	struct ossd_store *store;
};

static void reopen(struct fixture *f)
{
	struct ossd_store_config config = {.root = f->root, .part_min = 10};
	struct why why = {""};

	f->store = ossd_store_close(f->store);
	if (ossd_store_open(&f->store, &config, &why) < 0)
		fail_msg("%s", why.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct ossd_bucket bucket = {.name = "bkt", .acl = OSSD_ACL_PRIVATE};

	log_set_level(LOG_ERROR);
	snprintf(f->root, sizeof(f->root), "/tmp/test_ossd_store.XXXXXX");
	if (!mkdtemp(f->root))
		return -1;
	reopen(f);
	*state = f;
	return ossd_store_bucket_create(f->store, &bucket);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ossd_store_close(f->store);
	io_remove_tree(AT_FDCWD, f->root);
	free(f);
	return 0;
}

static struct ossd_ref ref_of(const char *key)
{
	return (struct ossd_ref){"bkt", key, strlen(key)};
}

static int put_with(struct fixture *f, const char *key, const char *content, bool forbid)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_object o = {.type = OSSD_NORMAL};
	struct ossd_put put = {.ref = ref_of(key),
			       .spool = &spool,
			       .object = &o,
			       .forbid_overwrite = forbid};
	int r;

	assert_int_equal(ossd_store_spool(f->store, &spool), 0);
	assert_int_equal(ossd_spool_write(&spool, content, strlen(content)), 0);
	assert_int_equal(ossd_spool_finish(&spool), 0);
	ossd_object_set_attr(&o, "content-type", "text/test");
	r = ossd_store_put(f->store, &put);
	ossd_object_fini(&o);
	return r;
}

static void put(struct fixture *f, const char *key, const char *content)
{
	assert_int_equal(put_with(f, key, content, false), 0);
}

/* Content as text; NULL when there is no such key. Fails when record and file disagree. */
static char *get(struct fixture *f, const char *key)
{
	struct ossd_ref ref = ref_of(key);
	struct ossd_object o = {0}, real = {0};
	char *content;
	int fd = -1, r = ossd_store_open_object(f->store, &ref, &o, &fd);

	if (r == OSSD_E_NO_SUCH_KEY)
		return NULL;
	assert_int_equal(r, 0);
	assert_int_equal(ossd_file_describe(fd, &real), 0);
	if (o.type != OSSD_APPENDABLE) {
		assert_int_equal(real.size, o.size);
		assert_true(real.crc == o.crc);
	}
	content = calloc(1, o.size + 1);
	assert_int_equal(io_pread(fd, content, o.size, 0), o.size);
	ossd_object_fini(&o);
	close(fd);
	return content;
}

static void assert_content(struct fixture *f, const char *key, const char *content)
{
	_cleanup_(freep) char *got = get(f, key);

	if (!content) {
		assert_null(got);
		return;
	}
	assert_non_null(got);
	assert_string_equal(got, content);
}

static void path_of(struct fixture *f, const char *below, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", f->root, below);
}

static bool is_file(struct fixture *f, const char *below)
{
	char path[512];
	struct stat st;

	path_of(f, below, path, sizeof(path));
	return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static void write_by_hand(struct fixture *f, const char *below, const char *content)
{
	char path[512];
	FILE *file;

	path_of(f, below, path, sizeof(path));
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(content, file);
	assert_int_equal(fclose(file), 0);
}

static void delete (struct fixture *f, const char *key)
{
	struct ossd_ref ref = ref_of(key);

	assert_int_equal(ossd_store_delete(f->store, &ref), 0);
}

/* ---- places ---------------------------------------------------------------------------- */

static void test_the_file_of_a_key_is_the_key(void **state)
{
	struct fixture *f = *state;

	put(f, "a/b/c.txt", "one");
	assert_true(is_file(f, "bkt/a/b/c.txt"));
	put(f, "a/b/c.txt", "two");
	assert_content(f, "a/b/c.txt", "two");
	delete (f, "a/b/c.txt");
	assert_content(f, "a/b/c.txt", NULL);
	assert_false(is_file(f, "bkt/a/b/c.txt"));
	assert_true(access(f->root, F_OK) == 0);
}

static void test_keys_that_clash_as_paths_live_together(void **state)
{
	static const char *const keys[] = {"a",     "a/",   "a/b",  "a/b/",
					   "a/b/c", "a//b", "../x", "a/../../x",
					   ".",     "..",   "x/."};
	struct fixture *f = *state;

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			put(f, keys[round ? sizeof(keys) / sizeof(*keys) - 1 - i : i],
			    keys[round ? sizeof(keys) / sizeof(*keys) - 1 - i : i]);
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			assert_content(f, keys[i], keys[i]);
		reopen(f);
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			assert_content(f, keys[i], keys[i]);
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
			delete (f, keys[i]);
			assert_content(f, keys[i], NULL);
			for (size_t k = i + 1; k < sizeof(keys) / sizeof(*keys); k++)
				assert_content(f, keys[k], keys[k]);
		}
	}
	assert_int_equal(ossd_store_bucket_delete(f->store, "bkt"), 0);
}

static void test_a_link_by_hand_does_not_lead_out_of_the_root(void **state)
{
	struct fixture *f = *state;
	char path[512], outside[] = "/tmp/test_ossd_outside.XXXXXX", victim[512];

	assert_non_null(mkdtemp(outside));
	path_of(f, "bkt/link", path, sizeof(path));
	assert_int_equal(symlink(outside, path), 0);
	put(f, "link/x", "inside");
	put(f, "link", "also");
	assert_content(f, "link/x", "inside");
	snprintf(victim, sizeof(victim), "%s/x", outside);
	assert_int_not_equal(access(victim, F_OK), 0);
	assert_int_equal(rmdir(outside), 0);
}

static void test_keys_of_1023_bytes_are_kept_in_order(void **state)
{
	struct fixture *f = *state;
	char keys[6][1024];
	struct ossd_txn txn;
	struct ossd_cursor c;
	struct ossd_bucket bucket;
	size_t i = 0;

	/* In order: three of them share their first 505 bytes. */
	for (size_t k = 0; k < 6; k++)
		memset(keys[k], 'k', sizeof(keys[k]));
	keys[0][505] = '\0';
	keys[1][506] = '\0';
	keys[2][1022] = '\0';
	keys[3][1023] = '\0';
	keys[4][505] = 'z', keys[4][506] = '\0';
	keys[5][504] = 'z', keys[5][505] = '\0';
	for (size_t k = 0; k < 6; k++)
		put(f, keys[(k * 5 + 2) % 6], "x");
	for (size_t k = 0; k < 6; k++)
		assert_content(f, keys[k], "x");
	assert_int_equal(ossd_store_bucket(f->store, "bkt", &bucket), 0);
	assert_int_equal(ossd_txn_begin(ossd_store_index(f->store), false, &txn), 0);
	assert_int_equal(ossd_cursor_open(&txn, bucket.id, &c), 0);
	for (int r = ossd_cursor_seek(&c, "", 0); r == 0; r = ossd_cursor_next(&c), i++) {
		assert_int_equal(c.key_len, strlen(keys[i]));
		assert_memory_equal(c.key, keys[i], c.key_len);
	}
	assert_int_equal(i, 6);
	for (size_t k = 0; k < 6; k++) {
		assert_int_equal(ossd_cursor_seek(&c, keys[k], strlen(keys[k])), 0);
		assert_int_equal(c.key_len, strlen(keys[k]));
	}
	ossd_cursor_close(&c);
	ossd_txn_end(&txn);
	for (size_t k = 0; k < 6; k++) {
		delete (f, keys[k]);
		assert_content(f, keys[k], NULL);
		if (k < 5)
			assert_content(f, keys[k + 1], "x");
	}
}

/* ---- conditions ------------------------------------------------------------------------ */

static void test_forbid_overwrite_leaves_the_old_object(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(put_with(f, "k", "one", true), 0);
	assert_int_equal(put_with(f, "k", "two", true), OSSD_E_FILE_EXISTS);
	assert_content(f, "k", "one");
}

static void test_a_bucket_with_objects_or_uploads_is_not_deleted(void **state)
{
	struct fixture *f = *state;
	struct ossd_upload upload = {.bucket = "bkt", .key = "u"};
	struct ossd_ref ref = ref_of("u");

	put(f, "k", "x");
	assert_int_equal(ossd_store_bucket_delete(f->store, "bkt"),
			 OSSD_E_BUCKET_NOT_EMPTY);
	delete (f, "k");
	assert_int_equal(ossd_store_upload_create(f->store, &upload), 0);
	assert_int_equal(ossd_store_bucket_delete(f->store, "bkt"),
			 OSSD_E_BUCKET_NOT_EMPTY);
	assert_int_equal(ossd_store_upload_abort(f->store, &ref, upload.id), 0);
	assert_int_equal(ossd_store_bucket_delete(f->store, "bkt"), 0);
	assert_int_equal(put_with(f, "k", "x", false), OSSD_E_NO_SUCH_BUCKET);
}

/* ---- append and multipart -------------------------------------------------------------- */

static int append(struct fixture *f, const char *key, const char *content,
		  uint64_t *position)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_ref ref = ref_of(key);
	struct ossd_object o = {0};
	int r;

	assert_int_equal(ossd_store_spool(f->store, &spool), 0);
	assert_int_equal(ossd_spool_write(&spool, content, strlen(content)), 0);
	assert_int_equal(ossd_spool_finish(&spool), 0);
	r = ossd_store_append(f->store, &ref, &spool, &o, position);
	ossd_object_fini(&o);
	return r;
}

static void test_appends_go_where_the_end_is(void **state)
{
	struct fixture *f = *state;
	uint64_t position = 5;

	assert_int_equal(append(f, "log", "one", &position), OSSD_E_POSITION);
	assert_int_equal(position, 0);
	assert_int_equal(append(f, "log", "one", &position), 0);
	assert_int_equal(position, 3);
	position = 0;
	assert_int_equal(append(f, "log", "two", &position), OSSD_E_POSITION);
	assert_int_equal(position, 3);
	assert_int_equal(append(f, "log", "two", &position), 0);
	assert_content(f, "log", "onetwo");
	put(f, "normal", "x");
	position = 1;
	assert_int_equal(append(f, "normal", "y", &position), OSSD_E_NOT_APPENDABLE);
}

static void test_an_interrupted_append_is_cut_at_start(void **state)
{
	struct fixture *f = *state;
	uint64_t position = 0;
	char path[512];
	FILE *file;

	assert_int_equal(append(f, "log", "whole", &position), 0);
	path_of(f, "bkt/log", path, sizeof(path));
	file = fopen(path, "a");
	fputs("half", file);
	fclose(file);
	assert_content(f, "log", "whole");
	reopen(f);
	assert_content(f, "log", "whole");
	assert_int_equal(append(f, "log", "+", &position), 0);
	assert_content(f, "log", "whole+");
}

static void part(struct fixture *f, const char *id, uint32_t number, const char *content)
{
	_cleanup_(ossd_spool_close) struct ossd_spool spool = {.fd = -1};
	struct ossd_part p = {.number = number};
	struct ossd_ref ref = ref_of("mp");

	assert_int_equal(ossd_store_spool(f->store, &spool), 0);
	assert_int_equal(ossd_spool_write(&spool, content, strlen(content)), 0);
	assert_int_equal(ossd_spool_finish(&spool), 0);
	assert_int_equal(ossd_store_part_put(f->store, &ref, id, &spool, &p), 0);
}

static int complete(struct fixture *f, const char *id, const struct ossd_part_ref *parts,
		    size_t count, struct ossd_object *o)
{
	struct ossd_complete c = {
		.ref = ref_of("mp"), .id = id, .parts = parts, .count = count};

	return ossd_store_upload_complete(f->store, &c, o);
}

static void test_parts_survive_a_restart_and_become_the_object(void **state)
{
	struct fixture *f = *state;
	struct ossd_upload upload = {.bucket = "bkt", .key = "mp"};
	struct ossd_object o = {0};

	assert_int_equal(ossd_store_upload_create(f->store, &upload), 0);
	part(f, upload.id, 3, "third");
	part(f, upload.id, 1, "never seen");
	part(f, upload.id, 1, "first part,");
	reopen(f);
	assert_content(f, "mp", NULL);
	assert_int_equal(complete(f, upload.id, NULL, 0, &o), 0);
	assert_int_equal(o.size, 16);
	ossd_object_fini(&o);
	assert_content(f, "mp", "first part,third");
	assert_int_equal(complete(f, upload.id, NULL, 0, &o), OSSD_E_NO_SUCH_UPLOAD);
}

static void test_complete_refuses_wrong_parts(void **state)
{
	struct fixture *f = *state;
	struct ossd_upload upload = {.bucket = "bkt", .key = "mp"};
	struct ossd_ref ref = ref_of("mp"), other = ref_of("other");
	struct ossd_part_ref wrong_etag[] = {{1, "00000000000000000000000000000000"}};
	struct ossd_part_ref wrong_order[] = {{2, "98BD1C45684CF587AC2347A92DD7BB51"},
					      {1, "EB5C1399A871211C7E7ED732D15E3A8B"}};
	struct ossd_object o = {0};

	assert_int_equal(ossd_store_upload_create(f->store, &upload), 0);
	assert_int_equal(complete(f, upload.id, NULL, 0, &o), OSSD_E_INVALID_PART);
	part(f, upload.id, 1, "small");
	part(f, upload.id, 2, "last");
	assert_int_equal(complete(f, upload.id, NULL, 0, &o), OSSD_E_ENTITY_TOO_SMALL);
	assert_int_equal(complete(f, upload.id, wrong_etag, 1, &o), OSSD_E_INVALID_PART);
	assert_int_equal(complete(f, upload.id, wrong_order, 2, &o),
			 OSSD_E_INVALID_PART_ORDER);
	assert_int_equal(ossd_store_upload_abort(f->store, &other, upload.id),
			 OSSD_E_NO_SUCH_UPLOAD);
	assert_int_equal(ossd_store_upload_abort(f->store, &ref, upload.id), 0);
}

/* ---- by hand, and after a crash -------------------------------------------------------- */

static void test_files_put_there_by_hand_are_objects(void **state)
{
	struct fixture *f = *state;
	struct ossd_ref ref = ref_of("hand/a.json");
	struct ossd_object o = {0};
	char path[512];

	path_of(f, "bkt/hand", path, sizeof(path));
	assert_int_equal(mkdir(path, 0755), 0);
	write_by_hand(f, "bkt/hand/a.json", "{}");
	path_of(f, "newbucket", path, sizeof(path));
	assert_int_equal(mkdir(path, 0755), 0);
	reopen(f);
	assert_content(f, "hand/a.json", "{}");
	assert_int_equal(ossd_store_head(f->store, &ref, &o), 0);
	assert_string_equal(ossd_object_attr(&o, "content-type"), "application/json");
	assert_string_equal(o.etag, "99914B932BD37A50B983C5E7C90AE93B");
	ossd_object_fini(&o);
	assert_int_equal(
		ossd_store_bucket(f->store, "newbucket", &(struct ossd_bucket){0}), 0);
}

static void test_a_file_changed_by_hand_is_noticed(void **state)
{
	struct fixture *f = *state;
	char path[512];

	put(f, "k", "before");
	put(f, "gone", "x");
	write_by_hand(f, "bkt/k", "after it");
	assert_content(f, "k", "after it");
	path_of(f, "bkt/gone", path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	assert_content(f, "gone", NULL);
	write_by_hand(f, "bkt/k", "and again");
	reopen(f);
	assert_content(f, "k", "and again");
}

static void test_a_lost_index_is_built_again_from_the_files(void **state)
{
	struct fixture *f = *state;
	char path[512];

	put(f, "a", "1");
	put(f, "a/b", "2");
	put(f, "dir/", "");
	f->store = ossd_store_close(f->store);
	path_of(f, ".ossd/index", path, sizeof(path));
	assert_int_equal(io_remove_tree(AT_FDCWD, path), 0);
	reopen(f);
	assert_content(f, "a", "1");
	assert_content(f, "a/b", "2");
	assert_content(f, "dir/", "");
}

/* What a process leaves that died between the commit of a PUT and its rename. */
static void test_a_committed_put_is_finished_at_start(void **state)
{
	struct fixture *f = *state;
	struct ossd_redo redo = {.seq = 77,
				 .op = OSSD_REDO_RENAME,
				 .temp = "halfway",
				 .bucket = "bkt",
				 .key = "k"};
	struct ossd_object o = {0};
	struct ossd_txn txn;
	struct ossd_bucket bucket;
	char path[512];
	int fd;

	put(f, "k", "old");
	write_by_hand(f, ".ossd/tmp/halfway", "new");
	write_by_hand(f, ".ossd/tmp/unfinished", "never committed");
	path_of(f, ".ossd/tmp/halfway", path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(ossd_file_describe(fd, &o), 0);
	close(fd);
	assert_int_equal(ossd_store_bucket(f->store, "bkt", &bucket), 0);
	assert_int_equal(ossd_txn_begin(ossd_store_index(f->store), true, &txn), 0);
	assert_int_equal(ossd_index_put(&txn, bucket.id, "k", 1, &o), 0);
	assert_int_equal(ossd_index_redo_put(&txn, &redo), 0);
	assert_int_equal(ossd_txn_commit(&txn), 0);
	reopen(f);
	assert_content(f, "k", "new");
	assert_false(is_file(f, ".ossd/tmp/halfway"));
	assert_false(is_file(f, ".ossd/tmp/unfinished"));
	reopen(f);
	assert_content(f, "k", "new");
}

static void test_a_committed_delete_is_finished_at_start(void **state)
{
	struct fixture *f = *state;
	struct ossd_redo redo = {.seq = 78,
				 .op = OSSD_REDO_UNLINK,
				 .temp = "",
				 .bucket = "bkt",
				 .key = "d/k"};
	struct ossd_txn txn;
	struct ossd_bucket bucket;

	put(f, "d/k", "old");
	assert_int_equal(ossd_store_bucket(f->store, "bkt", &bucket), 0);
	assert_int_equal(ossd_txn_begin(ossd_store_index(f->store), true, &txn), 0);
	assert_int_equal(ossd_index_del(&txn, bucket.id, "d/k", 3), 0);
	assert_int_equal(ossd_index_redo_put(&txn, &redo), 0);
	assert_int_equal(ossd_txn_commit(&txn), 0);
	reopen(f);
	assert_content(f, "d/k", NULL);
	assert_false(is_file(f, "bkt/d/k"));
	/* And a delete that was followed by a new object is not done again. */
	put(f, "d/k", "later");
	redo.seq = 1ull << 40;
	assert_int_equal(ossd_txn_begin(ossd_store_index(f->store), true, &txn), 0);
	assert_int_equal(ossd_index_redo_put(&txn, &redo), 0);
	assert_int_equal(ossd_txn_commit(&txn), 0);
	reopen(f);
	assert_content(f, "d/k", "later");
}

static void test_a_second_server_on_the_same_root_is_refused(void **state)
{
	struct fixture *f = *state;
	struct ossd_store_config config = {.root = f->root};
	struct ossd_store *second = NULL;
	struct why why = {""};

	assert_true(ossd_store_open(&second, &config, &why) < 0);
	assert_non_null(strstr(why.text, "another ossd serves it"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

TEST_MAIN(CASE(test_the_file_of_a_key_is_the_key),
	  CASE(test_keys_that_clash_as_paths_live_together),
	  CASE(test_a_link_by_hand_does_not_lead_out_of_the_root),
	  CASE(test_keys_of_1023_bytes_are_kept_in_order),
	  CASE(test_forbid_overwrite_leaves_the_old_object),
	  CASE(test_a_bucket_with_objects_or_uploads_is_not_deleted),
	  CASE(test_appends_go_where_the_end_is),
	  CASE(test_an_interrupted_append_is_cut_at_start),
	  CASE(test_parts_survive_a_restart_and_become_the_object),
	  CASE(test_complete_refuses_wrong_parts),
	  CASE(test_files_put_there_by_hand_are_objects),
	  CASE(test_a_file_changed_by_hand_is_noticed),
	  CASE(test_a_lost_index_is_built_again_from_the_files),
	  CASE(test_a_committed_put_is_finished_at_start),
	  CASE(test_a_committed_delete_is_finished_at_start),
	  CASE(test_a_second_server_on_the_same_root_is_refused))
