/* SPDX-License-Identifier: Apache-2.0 */
/* The input tree over a scripted store: names, listings, attributes, open files. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "cache/cache.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/input.h"
#include "tests/unit/lib_origin.h"
#include "tests/unit/lib_scripted.h"

struct world {
	char dir[64];
	struct scripted *store;
	struct cache *cache;
	struct input *in;
	struct input_config config;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct cache_config cache = {.dir = w->dir, .memory_max = 16u << 20};
	struct why why = {0};

	strcpy(w->dir, "/tmp/test_input.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->store = scripted_new("test://bucket");
	assert_int_equal(cache_open(&cache, &w->cache, &why), 0);
	w->config = (struct input_config){.origin = &w->store->origin,
					  .cache = w->cache,
					  .ttl_ms = 60000,
					  .deadline_ms = 5000,
					  .uid = 7,
					  .gid = 8};
	assert_int_equal(input_new(&w->config, &w->in, &why), 0);
	*state = w;
	return 0;
}

static void remake(struct world *w)
{
	struct why why = {0};

	input_free(w->in);
	assert_int_equal(input_new(&w->config, &w->in, &why), 0);
	scripted_reset(w->store);
}

static int teardown(void **state)
{
	struct world *w = *state;

	input_free(w->in);
	cache_close(w->cache);
	origin_free(&w->store->origin);
	io_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

/* Walks a path from the root; the references are given back by input_free(). */
static int walk(struct world *w, const char *path, struct tree_attr *attr)
{
	char copy[512], *part, *rest = copy;
	int r = input_getattr(w->in, TREE_ROOT, 0, attr);

	strcpy(copy, path);
	while (r == 0 && (part = strsep(&rest, "/")))
		r = input_lookup(w->in, attr->ino, part, 0, attr);
	return r;
}

static uint64_t requests(struct world *w)
{
	uint64_t n = 0;

	for (int i = 0; i < ORIGIN_OP_N; i++)
		n += atomic_load(&w->store->count[i]);
	return n;
}

struct names {
	struct buf text;
	int count;
	int full_after; /* entries; 0: never full */
	bool with_lookup;
};

static int note(void *arg, const char *name, const struct tree_attr *attr, uint64_t next)
{
	struct names *n = arg;

	(void)next;
	if (n->full_after && n->count == n->full_after)
		return TREE_E_FULL;
	n->count++;
	buf_printf(&n->text, "%s%s ", name, S_ISDIR(attr->mode) ? "/" : "");
	if (n->with_lookup)
		assert_true(attr->ino > TREE_ROOT);
	return 0;
}

static void assert_dir(struct world *w, const char *path, bool with_lookup,
		       const char *expected)
{
	struct names n = {.with_lookup = with_lookup};
	struct tree_attr attr;
	struct input_dir *d;

	if (*path)
		assert_int_equal(walk(w, path, &attr), 0);
	else
		attr.ino = TREE_ROOT;
	assert_int_equal(input_opendir(w->in, attr.ino, 0, &d), 0);
	for (int before = -1; n.count != before;) {
		before = n.count;
		assert_int_equal(
			input_readdir(d, (uint64_t)n.count, with_lookup, 0, note, &n), 0);
	}
	input_closedir(d);
	assert_string_equal(n.text.data ? n.text.data : "", expected);
	buf_fini(&n.text);
}

static void test_keys_become_paths(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;

	scripted_put(w->store, "a.txt", 1, 10);
	scripted_put(w->store, "dir/b", 1, 20);
	scripted_put(w->store, "dir/sub/c", 1, 30);
	scripted_put(w->store, "empty/", 1, 0);
	assert_dir(w, "", true, "a.txt dir/ empty/ ");
	assert_dir(w, "dir", false, "b sub/ ");
	assert_dir(w, "empty", false, "");
	assert_int_equal(walk(w, "dir/sub/c", &attr), 0);
	assert_int_equal(attr.size, 30);
	assert_int_equal(attr.mode, S_IFREG | 0444);
	assert_int_equal(attr.uid, 7);
	assert_int_equal(attr.gid, 8);
	assert_true(attr.ttl_ms > 50000 && attr.ttl_ms <= 60000);
	assert_int_equal(walk(w, "dir", &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0555);
	assert_int_equal(walk(w, "dir/none", &attr), -ENOENT);
	assert_int_equal(walk(w, "a.txt/x", &attr), -ENOENT);
}

static void test_keys_that_are_no_paths_are_hidden_and_counted(void **state)
{
	struct world *w = *state;
	static const struct {
		const char *prefix, *key;
		bool is_dir;
	} evil[] = {
		{"", "..", false},   {"", "../", true},    {"", "./", true},
		{"", "/", true},     {"d/", "d/.", false}, {"d/", "d/../", true},
		{"d/", "d//", true},
	};
	struct input_stats stats;
	struct tree_attr attr;
	char name[300], key[320];

	memset(name, 'x', 256);
	name[256] = '\0';
	snprintf(key, sizeof(key), "d/%s", name);
	memcpy(w->store->extra, evil, sizeof(evil));
	w->store->extra_count = 7;
	w->store->extra[w->store->extra_count].prefix = "d/";
	w->store->extra[w->store->extra_count++].key = key;
	lib_put(w->store->inner, "good", "1");
	lib_put(w->store->inner, "d/f", "1");
	assert_dir(w, "", true, "d/ good ");
	assert_dir(w, "d", true, "f ");
	input_stats(w->in, &stats);
	assert_int_equal(stats.hidden_keys, 8);
	assert_int_equal(walk(w, "..", &attr), -ENOENT);
	assert_int_equal(walk(w, name, &attr), -ENAMETOOLONG);
}

static void test_a_directory_shadows_a_file_of_its_name(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;

	lib_put(w->store->inner, "a", "file");
	lib_put(w->store->inner, "a/b", "below");
	/* Found alone, before any listing … */
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_true(S_ISDIR(attr.mode));
	/* … and in a listing. */
	assert_dir(w, "", false, "a/ ");
	assert_int_equal(walk(w, "a/b", &attr), 0);
}

static void fill_dir(struct world *w, const char *dir, int count)
{
	char key[64];

	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s/f%05d", dir, i);
		lib_put(w->store->inner, key, "x");
	}
}

static void test_one_listing_answers_for_all_children(void **state)
{
	struct world *w = *state;
	struct names n = {.with_lookup = true};
	struct tree_attr dir, attr;
	struct input_dir *d;
	char name[32];

	fill_dir(w, "d", 2500);
	assert_int_equal(walk(w, "d", &dir), 0);
	scripted_reset(w->store);
	assert_int_equal(input_opendir(w->in, dir.ino, 0, &d), 0);
	while (n.count < 2500)
		assert_int_equal(input_readdir(d, (uint64_t)n.count, true, 0, note, &n),
				 0);
	/* The end, too: then the listing is complete. */
	assert_int_equal(input_readdir(d, 2500, true, 0, note, &n), 0);
	input_closedir(d);
	buf_fini(&n.text);
	for (int i = 0; i < 2500; i++) {
		snprintf(name, sizeof(name), "f%05d", i);
		assert_int_equal(input_lookup(w->in, dir.ino, name, TREE_NOWAIT, &attr),
				 0);
		assert_int_equal(input_getattr(w->in, attr.ino, TREE_NOWAIT, &attr), 0);
	}
	assert_int_equal(input_lookup(w->in, dir.ino, "absent", TREE_NOWAIT, &attr),
			 -ENOENT);
	assert_true(attr.ttl_ms > 0);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_LIST]), 3);
	assert_int_equal(atomic_load(&w->store->count[ORIGIN_STAT]), 0);
}

static void test_names_asked_one_by_one_lead_to_a_listing(void **state)
{
	struct world *w = *state;
	struct tree_attr dir, attr;
	char name[32];

	fill_dir(w, "d", 50);
	assert_int_equal(walk(w, "d", &dir), 0);
	scripted_reset(w->store);
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "f%05d", i);
		assert_int_equal(input_lookup(w->in, dir.ino, name, 0, &attr), 0);
		/* The third has begun a listing: from its end on nothing is asked. */
		if (i == 2)
			eventually(input_lookup(w->in, dir.ino, "f00049", TREE_NOWAIT,
						&attr) == 0);
	}
	assert_true(requests(w) <= 2 * 3 + 1);
}

static void test_readdir_stops_when_full_and_goes_on(void **state)
{
	struct world *w = *state;
	struct names n = {.full_after = 3};
	struct input_dir *d;
	struct input_stats before, after;

	lib_put(w->store->inner, "a", "");
	lib_put(w->store->inner, "b", "");
	lib_put(w->store->inner, "c", "");
	lib_put(w->store->inner, "d", "");
	input_stats(w->in, &before);
	assert_int_equal(input_opendir(w->in, TREE_ROOT, 0, &d), 0);
	assert_int_equal(input_readdir(d, 0, true, 0, note, &n), 0);
	assert_int_equal(n.count, 3);
	/* The entry that did not fit keeps no reference. */
	input_stats(w->in, &after);
	assert_int_equal(after.inodes - before.inodes, 3);
	n.full_after = 0;
	assert_int_equal(input_readdir(d, 3, true, 0, note, &n), 0);
	assert_string_equal(n.text.data, "a b c d ");
	/* Cookies stay valid: seekdir. */
	buf_reset(&n.text);
	assert_int_equal(input_readdir(d, 1, false, 0, note, &n), 0);
	assert_string_equal(n.text.data, "b c d ");
	input_closedir(d);
	buf_fini(&n.text);
}

static void test_a_listing_is_paged_to_the_reader_while_it_goes_on(void **state)
{
	struct world *w = *state;
	struct names n = {0};
	struct input_dir *d;

	fill_dir(w, "d", 3000);
	atomic_store(&w->store->latency_ms, 100);
	{
		struct tree_attr dir;

		assert_int_equal(walk(w, "d", &dir), 0);
		assert_int_equal(input_opendir(w->in, dir.ino, TREE_NOWAIT, &d), 0);
		assert_int_equal(input_readdir(d, 0, false, TREE_NOWAIT, note, &n),
				 TREE_E_WAIT);
	}
	assert_int_equal(input_readdir(d, 0, false, 0, note, &n), 0);
	assert_true(n.count > 0 && n.count < 3000);
	input_closedir(d);
	buf_fini(&n.text);
}

static void test_attributes_age(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;

	w->config.ttl_ms = 50;
	remake(w);
	lib_put(w->store->inner, "a", "1");
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_int_equal(walk(w, "b", &attr), -ENOENT);
	lib_put(w->store->inner, "a", "123");
	lib_put(w->store->inner, "b", "1");
	clock_sleep_ms(60);
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_int_equal(attr.size, 3);
	assert_int_equal(walk(w, "b", &attr), 0);
}

static void test_immutable_sources_are_asked_once(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;

	w->config.ttl_ms = 0;
	w->config.immutable = true;
	remake(w);
	lib_put(w->store->inner, "a", "1");
	assert_dir(w, "", true, "a ");
	clock_sleep_ms(5);
	scripted_reset(w->store);
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_true(attr.ttl_ms > 3600000);
	assert_dir(w, "", true, "a ");
	assert_int_equal(requests(w), 0);
}

static void test_opening_after_a_listing_needs_no_head(void **state)
{
	struct world *w = *state;
	struct input_file *file;
	struct tree_attr attr;
	char p[16] = "";
	size_t got;

	lib_put(w->store->inner, "a", "hello");
	assert_dir(w, "", true, "a ");
	scripted_reset(w->store);
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_int_equal(input_open(w->in, attr.ino, TREE_NOWAIT, &file), 0);
	assert_int_equal(input_read(file, 0, p, sizeof(p), TREE_NOWAIT, &got),
			 TREE_E_WAIT);
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), 0);
	assert_int_equal(got, 5);
	assert_memory_equal(p, "hello", 5);
	assert_int_equal(input_read(file, 5, p, sizeof(p), 0, &got), 0);
	assert_int_equal(got, 0);
	input_close(file);
	assert_int_equal(requests(w), 1);
}

static void test_a_replaced_file_is_stale_and_then_new(void **state)
{
	struct world *w = *state;
	struct input_file *file;
	struct tree_attr attr;
	char p[16];
	size_t got;

	lib_put(w->store->inner, "a", "first");
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_int_equal(input_open(w->in, attr.ino, 0, &file), 0);
	lib_put(w->store->inner, "a", "second");
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), -ESTALE);
	input_close(file);
	/* The refusal also corrected what was known of the name. */
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_int_equal(attr.size, 6);
	assert_int_equal(input_open(w->in, attr.ino, 0, &file), 0);
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), 0);
	assert_memory_equal(p, "second", 6);
	/* Deleted under the reader, but local: still readable. */
	lib_delete(w->store->inner, "a");
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), 0);
	input_close(file);
}

static void test_each_version_has_a_number_of_its_own(void **state)
{
	struct world *w = *state;
	struct tree_attr first, second, again;
	struct input_file *file, *other;
	char p[16];
	size_t got;

	w->config.ttl_ms = 0;
	remake(w);
	lib_put(w->store->inner, "a", "first");
	assert_int_equal(walk(w, "a", &first), 0);
	assert_int_equal(walk(w, "a", &again), 0);
	assert_int_equal(again.ino, first.ino);
	assert_int_equal(input_open(w->in, first.ino, 0, &file), 0);
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), 0);
	lib_put(w->store->inner, "a", "second");
	assert_int_equal(walk(w, "a", &second), 0);
	assert_int_not_equal(second.ino, first.ino);
	assert_int_equal(second.size, 6);
	/* Who has the first one open sees it as it was; nobody can open it any more. */
	assert_int_equal(input_getattr(w->in, first.ino, 0, &again), 0);
	assert_int_equal(again.size, 5);
	assert_int_equal(again.mode, first.mode);
	assert_int_equal(input_open(w->in, first.ino, 0, &other), -ESTALE);
	assert_int_equal(input_read(file, 0, p, sizeof(p), 0, &got), 0);
	assert_memory_equal(p, "first", 5);
	input_close(file);
	/* The name goes on with the second when the first is forgotten. */
	input_forget(w->in, first.ino, 2);
	assert_int_equal(input_getattr(w->in, first.ino, 0, &again), -ESTALE);
	assert_int_equal(walk(w, "a", &again), 0);
	assert_int_equal(again.ino, second.ino);
}

static void test_wrong_kinds_are_refused(void **state)
{
	struct world *w = *state;
	struct input_file *file;
	struct input_dir *d;
	struct tree_attr attr;

	lib_put(w->store->inner, "d/f", "x");
	assert_int_equal(walk(w, "d", &attr), 0);
	assert_int_equal(input_open(w->in, attr.ino, 0, &file), -EISDIR);
	assert_int_equal(input_open(w->in, TREE_ROOT, 0, &file), -EISDIR);
	assert_int_equal(walk(w, "d/f", &attr), 0);
	assert_int_equal(input_opendir(w->in, attr.ino, 0, &d), -ENOTDIR);
	assert_int_equal(input_getattr(w->in, 4711, 0, &attr), -ESTALE);
}

static void test_errors_of_the_store_become_eio_and_are_not_kept(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;
	struct input_dir *d;
	struct names n = {0};

	lib_put(w->store->inner, "a", "x");
	atomic_store(&w->store->fail, -ECONNRESET);
	atomic_store(&w->store->fail_count, -1);
	assert_int_equal(walk(w, "a", &attr), -EIO);
	assert_int_equal(input_opendir(w->in, TREE_ROOT, 0, &d), 0);
	assert_int_equal(input_readdir(d, 0, false, 0, note, &n), -EIO);
	input_closedir(d);
	atomic_store(&w->store->fail, -EACCES);
	assert_int_equal(walk(w, "a", &attr), -EACCES);
	atomic_store(&w->store->fail_count, 0);
	assert_int_equal(walk(w, "a", &attr), 0);
	assert_dir(w, "", false, "a ");
}

static void *interrupt_soon(void *arg)
{
	clock_sleep_ms(40);
	input_interrupt(arg, 99);
	return NULL;
}

static void test_a_silent_store_can_be_interrupted_and_times_out(void **state)
{
	struct world *w = *state;
	struct tree_attr attr;
	pthread_t thread;

	w->config.deadline_ms = PATIENCE_MS;
	remake(w);
	lib_put(w->store->inner, "a", "x");
	atomic_store(&w->store->hang, true);
	input_set_token(99);
	pthread_create(&thread, NULL, interrupt_soon, w->in);
	assert_int_equal(input_lookup(w->in, TREE_ROOT, "a", 0, &attr), -EINTR);
	pthread_join(thread, NULL);
	input_set_token(0);
	w->config.deadline_ms = 100;
	remake(w);
	assert_int_equal(input_lookup(w->in, TREE_ROOT, "b", 0, &attr), -EIO);
	atomic_store(&w->store->hang, false);
}

static void test_forgotten_inodes_go_with_their_parents(void **state)
{
	struct world *w = *state;
	struct input_stats stats;
	struct tree_attr d, e, f;

	lib_put(w->store->inner, "d/e/f", "x");
	assert_int_equal(input_lookup(w->in, TREE_ROOT, "d", 0, &d), 0);
	assert_int_equal(input_lookup(w->in, d.ino, "e", 0, &e), 0);
	assert_int_equal(input_lookup(w->in, e.ino, "f", 0, &f), 0);
	assert_int_equal(input_lookup(w->in, e.ino, "f", 0, &f), 0);
	input_forget(w->in, d.ino, 1);
	input_forget(w->in, e.ino, 1);
	input_stats(w->in, &stats);
	assert_int_equal(stats.inodes, 4);
	assert_int_equal(input_getattr(w->in, f.ino, 0, &f), 0);
	input_forget(w->in, f.ino, 2);
	input_stats(w->in, &stats);
	assert_int_equal(stats.inodes, 1);
	/* The number comes again with another generation. */
	assert_int_equal(input_lookup(w->in, TREE_ROOT, "d", 0, &e), 0);
	assert_true(e.ino != d.ino || e.generation != d.generation);
}

static void test_own_attributes_of_a_page_are_asked_for_at_once(void **state)
{
	struct world *w = *state;
	struct names n = {.with_lookup = true};
	struct input_dir *d;
	struct tree_attr attr;
	char key[32];

	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "d/%03d", i);
		assert_int_equal(lib_put(w->store->inner, key, "x"), 0);
	}
	assert_int_equal(lib_put(w->store->inner, "d/dir/x", "x"), 0);
	w->config.posix = true;
	remake(w);
	assert_int_equal(walk(w, "d", &attr), 0);
	assert_int_equal(input_opendir(w->in, attr.ino, 0, &d), 0);
	scripted_reset(w->store);
	atomic_store(&w->store->latency_ms, 5);
	while (n.count < 101)
		assert_int_equal(input_readdir(d, (uint64_t)n.count, true, 0, note, &n),
				 0);
	assert_int_equal(w->store->count[ORIGIN_STAT], 100); /* none of the directory */
	assert_true(w->store->count[ORIGIN_LIST] <= 1);      /* of the whole */
	assert_true(atomic_load(&w->store->in_flight_max) > 30);
	/* They are remembered. */
	assert_int_equal(walk(w, "d/050", &attr), 0);
	assert_int_equal(w->store->count[ORIGIN_STAT], 100);
	input_closedir(d);
	buf_fini(&n.text);
}

static void test_status_is_one_json_object(void **state)
{
	struct world *w = *state;
	struct buf b = BUF_INIT;

	buf_putc(&b, '{');
	input_status_json(w->in, &b);
	buf_putc(&b, '}');
	assert_non_null(strstr(b.data, "\"hidden_keys\":0"));
	assert_non_null(strstr(b.data, "\"cache\":{"));
	buf_fini(&b);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

TEST_MAIN(CASE(test_keys_become_paths),
	  CASE(test_keys_that_are_no_paths_are_hidden_and_counted),
	  CASE(test_a_directory_shadows_a_file_of_its_name),
	  CASE(test_one_listing_answers_for_all_children),
	  CASE(test_names_asked_one_by_one_lead_to_a_listing),
	  CASE(test_readdir_stops_when_full_and_goes_on),
	  CASE(test_a_listing_is_paged_to_the_reader_while_it_goes_on),
	  CASE(test_attributes_age), CASE(test_immutable_sources_are_asked_once),
	  CASE(test_opening_after_a_listing_needs_no_head),
	  CASE(test_a_replaced_file_is_stale_and_then_new),
	  CASE(test_each_version_has_a_number_of_its_own),
	  CASE(test_wrong_kinds_are_refused),
	  CASE(test_errors_of_the_store_become_eio_and_are_not_kept),
	  CASE(test_a_silent_store_can_be_interrupted_and_times_out),
	  CASE(test_forgotten_inodes_go_with_their_parents),
	  CASE(test_own_attributes_of_a_page_are_asked_for_at_once),
	  CASE(test_status_is_one_json_object))
